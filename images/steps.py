"""Say what is being done, how long it takes, and which log to read when it fails."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from images.cache import cache_root

PROGRESS_EVERY_SECONDS = 15.0


class StepError(Exception):
    """A step of a build did not succeed; the text says which one and what to read."""


def say(text: str) -> None:
    """One line for the person who waits (stderr: stdout belongs to results)."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print the title, and afterwards how many seconds the step took."""
    say(f"==> {title}")
    started = time.monotonic()
    yield
    say(f"    {title}: {time.monotonic() - started:.1f} s")


def run_logged(
    title: str,
    command: Sequence[str | Path],
    *,
    log_name: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Path | None = None,
) -> None:
    """Run a command with its output in `$CACHE/logs/<log_name>.log`; raise StepError if it fails."""
    log_path = cache_root() / "logs" / f"{log_name}.log"
    log_path.parent.mkdir(exist_ok=True)
    with step(title), log_path.open("wb") as log, open(stdin or os.devnull, "rb") as source:
        log.write(f"$ {' '.join(map(str, command))}\n".encode())
        log.flush()
        exit_code = _wait_with_progress(
            subprocess.Popen(
                [*_with_its_parent(), *map(str, command)],
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=source,
                stdout=log,
                stderr=subprocess.STDOUT,
            ),
            log_path,
        )
    if exit_code != 0:
        raise StepError(f"{title}: failed with exit code {exit_code}; read {log_path}\n{_tail(log_path)}")


def _with_its_parent() -> list[str]:
    """What makes a command end when we are killed, so that nobody goes on building behind a later run's back."""
    return ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


def _wait_with_progress(process: subprocess.Popen[bytes], log_path: Path) -> int:
    started = time.monotonic()
    try:
        while True:
            try:
                return process.wait(timeout=PROGRESS_EVERY_SECONDS)
            except subprocess.TimeoutExpired:
                say(f"    ... {time.monotonic() - started:.0f} s  {_progress(log_path)}")
    finally:
        if process.poll() is None:  # Ctrl-C: the child must not outlive the step
            process.send_signal(signal.SIGTERM)
            process.wait()


def _progress(log_path: Path) -> str:
    """The last `[n/N]` that Ninja wrote, or else the last line."""
    last_lines = _tail(log_path, lines=200)
    if counts := re.findall(r"^\s*(\[\d+/\d+\])", last_lines, re.MULTILINE):
        return str(counts[-1])
    return last_lines.rpartition("\n")[2].strip()[:90]


def _tail(path: Path, lines: int = 8) -> str:
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - 8192))
        text = log.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])
