"""The console blocks of a document: commands after `$`, then what each prints, where `...` stands for anything."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_SECONDS = 600
MARK = "\x01"


@dataclass(frozen=True)
class Command:
    line: str
    shown: str


def commands(document: str) -> list[Command]:
    blocks = re.findall(r"^```console\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    found = [
        Command(line, shown.strip())
        for block in blocks
        for line, shown in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", block, re.MULTILINE)
    ]
    assert found, "no command; a block that shows some begins with ```console and its commands with $"
    return found


def outputs(script: list[Command], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """What each prints, run in one shell one after the other; the first that fails ends it with an AssertionError."""
    steps = "".join(f"printf '{MARK}'\n{command.line}\ncode=$?; [ $code = 0 ] || exit $code\n" for command in script)
    done = subprocess.run(
        ["bash", "-c", steps],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    printed = [text.strip() for text in done.stdout.split(MARK)[1:]]
    failed = f"exit code {done.returncode} of `{script[len(printed) - 1].line}`: {printed[-1]}"
    assert done.returncode == 0, failed
    return printed


def fits(shown: str, printed: str) -> bool:
    """Whether the document shows what was printed; widths of columns and ends of lines do not count."""
    pieces = (r"\s+".join(map(re.escape, piece.split())) for piece in shown.split("..."))
    return re.fullmatch(r"\s*" + r".*?".join(rf"\s*{piece}\s*" for piece in pieces), printed, re.DOTALL) is not None
