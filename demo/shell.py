"""Runs commands as a user would type them: printed, with their output, and timed by section."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join

BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


class DemoError(Exception):
    """A command of the demo failed; its output is above, the message says which one."""


class Shell:
    """Commands in one environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._started = time.monotonic()

    def section(self, title: str) -> None:
        print(f"\n{BOLD}[{time.monotonic() - self._started:5.0f} s] {title}{PLAIN}", flush=True)

    def run(self, *command: str, stdin: Path | None = None) -> None:
        """Output goes to the terminal as it comes."""
        shown = join(command) + (f" < {stdin}" if stdin is not None else "")
        print(f"{DIM}${PLAIN} {shown}", flush=True)
        with open(stdin or "/dev/null", "rb") as source:
            done = subprocess.run(command, env=self.environment, stdin=source, check=False)
        if done.returncode != 0:
            raise DemoError(f"exit code {done.returncode} from: {shown}")

    def start(self, *command: str, output: Path) -> "subprocess.Popen[bytes]":
        """Runs on while the demo does other things; what it prints goes to a file."""
        print(f"{DIM}${PLAIN} {join(command)} > {output} &", flush=True)
        with output.open("wb") as target:
            return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=target)

    def read(self, *command: str) -> str:
        """Quietly, for the demo's own use."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DemoError(f"{done.stderr.strip()} from: {join(command)}")
        return done.stdout.strip()

    def until(self, what: str, command: Sequence[str], expected: str, timeout_seconds: float = 120) -> None:
        """Ask until the answer contains `expected`."""
        deadline = time.monotonic() + timeout_seconds
        while expected not in (answer := self.read(*command)):
            if time.monotonic() > deadline:
                raise DemoError(f"not within {timeout_seconds:g} s: {what}; the last answer was {answer!r}")
            time.sleep(0.3)
