"""An operator as a process on this host, which a test can end at any instruction and start anew at once."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

WHEN_TOLD = (
    "import sys; from modelbackend_operator.__main__ import main; sys.stdin.readline() or sys.exit(); "
    "sys.exit(main(sys.argv[1:]))"
)
"""Imports, which are most of a start, are done before: a successor is there within a moment."""


class Operator:
    def __init__(self, kubeconfig: Path, log: Path, settings: Mapping[str, str]) -> None:
        variables = {f"MODELBACKEND_OPERATOR_{name}": value for name, value in settings.items()}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", WHEN_TOLD, "run", f"--kubeconfig={kubeconfig}"],
                env={**os.environ, "MODELBACKEND_OPERATOR_HTTP_PORT": "0", **variables},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def start(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, in the midst of whatever it does."""
        self._process.kill()
        self._process.wait()


class Succession:
    """Operators one after the other: the next one waits, ready, while the present one works."""

    def __init__(self, url: str, folder: Path, settings: Mapping[str, str]) -> None:
        self._kubeconfig, self._log, self._settings = folder / "kubeconfig", folder / "operators.log", settings
        self._kubeconfig.write_text(json.dumps(_kubeconfig(url)))
        self._present, self._next = self._make(), self._make()
        self.lives = 0

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _make(self) -> Operator:
        return Operator(self._kubeconfig, self._log, self._settings)

    def start(self) -> None:
        self._present.start()
        self.lives += 1

    def crash(self) -> None:
        """The present one dies, its successor starts at once."""
        self._present.kill()
        self._present, self._next = self._next, self._make()
        self.start()

    def end(self) -> None:
        for operator in (self._present, self._next):
            operator.kill()


def _kubeconfig(url: str) -> dict[str, object]:
    named = {"name": "proxy"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "clusters": [{**named, "cluster": {"server": url}}],
        "users": [{**named, "user": {}}],
        "contexts": [{**named, "context": {"cluster": "proxy", "user": "proxy"}}],
    }
