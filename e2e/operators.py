"""Operators as processes on this host, which a test can end at any instruction and follow with another at once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

NURSERY = """
import os, signal, sys
from modelbackend_operator.__main__ import main

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(2, 1)
        sys.exit(main(sys.argv[1:]))
    print(pid, flush=True)
"""
"""Imports, which are most of a start, are done once: a successor is there within a moment."""


class Succession:
    """Operators one after the other, of one kubeconfig and log; `folder` is for what nobody reads afterwards."""

    def __init__(self, url: str, folder: Path, log: Path, settings: Mapping[str, str]) -> None:
        kubeconfig, self._log = folder / "kubeconfig", log
        kubeconfig.write_text(json.dumps(_kubeconfig(url)))
        variables = {f"MODELBACKEND_OPERATOR_{name}": value for name, value in settings.items()}
        with log.open("ab") as opened:
            self._nursery = subprocess.Popen(
                [sys.executable, "-c", NURSERY, "run", f"--kubeconfig={kubeconfig}"],
                env={**os.environ, "MODELBACKEND_OPERATOR_HTTP_PORT": "0", **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=opened,
                text=True,
                bufsize=1,
                start_new_session=True,  # Ctrl-C is for the test, which ends them
            )
        self._pid = 0
        self._succeeding = threading.Lock()  # writes on several connections may each end the present one
        self.lives = 0

    @property
    def log(self) -> str:
        """What all of them said."""
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write("one more\n")
        self._pid = int(self._nursery.stdout.readline())
        self.lives += 1

    def crash(self) -> None:
        """SIGKILL to the present one, in the midst of whatever it does; its successor starts at once."""
        with self._succeeding:
            os.kill(self._pid, signal.SIGKILL)
            self.start()

    def freeze(self) -> None:
        """SIGSTOP: it does nothing, and does not know it."""
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself: a leader that found itself deposed
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
        self._nursery.kill()
        self._nursery.wait()


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
