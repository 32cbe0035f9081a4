"""The reader of console blocks, with which e2e runs what the tutorials show."""

from pathlib import Path

import pytest

from e2e.transcript import Command, commands, fits, outputs

DOCUMENT = """
Text, and a block that nobody runs:

```sh
MODEL=x
```

```console
$ greeting=hello
$ echo "$greeting"; echo you
hello
you
$ true
```
"""


def test_commands_are_found_with_what_the_document_shows_of_their_output() -> None:
    assert commands(DOCUMENT) == [
        Command("greeting=hello", ""),
        Command('echo "$greeting"; echo you', "hello\nyou"),
        Command("true", ""),
    ]


def test_a_document_without_commands_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no command"):
        commands("# Nothing")


def test_commands_run_in_one_shell(tmp_path: Path) -> None:
    assert outputs(commands(DOCUMENT), tmp_path, {}) == ["", "hello\nyou", ""]


def test_the_command_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    script = [Command("true", ""), Command("echo no luck >&2; (exit 3)", ""), Command("touch after", "")]
    with pytest.raises(AssertionError, match=r"exit code 3 of `echo no luck.*: no luck"):
        outputs(script, tmp_path, {})
    assert not (tmp_path / "after").exists()


@pytest.mark.parametrize(
    ("shown", "printed", "fitting"),
    [
        ("", "", True),
        ("", "something", False),
        ("...", "something", True),
        ("NAME  READY\na  True", "NAME    READY\na       True", True),
        ("NAME...REASON\na...True...", "NAME  X  REASON\na   b   True   c", True),
        ("a...True...", "a   False", False),
        ('"a" deleted...', '"a" deleted from default namespace', True),
        ("exact", "exact and more", False),
        ("dot.", "dotx", False),
    ],
)
def test_what_is_shown_is_compared_up_to_spaces_and_ellipses(shown: str, printed: str, fitting: bool) -> None:
    assert fits(shown, printed) is fitting
