"""The commands in this process, against a real API server without an operator, unless a test starts one."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubectl_mb import commands
from kubectl_mb.cli import cli
from tests.apiserver.conftest import api_server, namespace
from tests.apiserver.harness import ApiServer
from tests.kubectl.examples import FOLDER

__all__ = ["api_server", "commands", "namespace"]

PATIENT = {name: {"wait_seconds": 120.0} for name in ("force", "extend", "attest")}
"""For the operator's answer, on a machine that does much else."""
REWRITES = os.environ.get("GOLDEN") == "1"


@dataclass(frozen=True)
class Shell:
    """Types `kubectl mb ...` in one namespace."""

    kubeconfig: Path
    namespace: str

    def type(self, *words: str, stdin: str = "", color: bool = False) -> Result:
        flags = [f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}"]
        return CliRunner().invoke(cli, [*words, *flags], input=stdin, color=color, default_map=PATIENT)

    def shows(self, *words: str, stdin: str = "") -> str:
        """Standard output of a command that succeeds."""
        result = self.type(*words, stdin=stdin)
        assert result.exit_code == 0, f"{words}: {result.exit_code}: {result.output} {result.exception!r}"
        return str(result.stdout)

    def refuses(self, *words: str, stdin: str = "") -> tuple[int, str]:
        result = self.type(*words, stdin=stdin)
        assert result.exit_code != 0, result.output
        assert isinstance(result.exception, SystemExit), f"{words}: {result.exception!r}"
        return result.exit_code, str(result.stderr)


@pytest.fixture
def shell(api_server: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("PATH", f"{api_server.bin_folder}:{os.environ['PATH']}")
    return Shell(api_server.kubeconfig, namespace)


_CHANGING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"-[0-9a-f]{8}-(?=\d)"), "-1a2b3c4d-"),
    (re.compile(r"\d\d:\d\d:\d\d UTC"), "12:00:00 UTC"),
    (re.compile(r"\btest-\d+\b"), "models"),
    (re.compile(r"\b3[0-9]{4}\b"), "30007"),
)


def holds_as_golden(name: str, *transcript: tuple[str, str]) -> None:
    """What was typed and shown, with what changes from run to run made the same."""
    text = "\n\n".join(f"$ {typed}\n{shown.rstrip()}" for typed, shown in transcript) + "\n"
    for pattern, same in _CHANGING:
        text = pattern.sub(same, text)
    file = FOLDER / f"{name}.txt"
    if REWRITES:
        file.write_text(text)
    assert text == file.read_text(), f"{file} is written anew by GOLDEN=1 pytest tests/kubectl"
