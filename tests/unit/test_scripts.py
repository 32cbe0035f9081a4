"""The scripts in tools/: what they refuse to destroy, and what an interrupt leaves to be done."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from e2e import kubectl

TOOLS = Path(__file__).parents[2] / "tools"
CLEANS_UP = """
import signal, sys, time
def clean_up(*_):
    time.sleep(0.2)
    sys.exit("all is put back")
signal.signal(signal.SIGINT, clean_up)
print("begun", flush=True)
time.sleep(60)
"""


def test_an_environment_behind_a_link_is_not_rebuilt(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours / "tools", ours / "requirements", ours / "images"):
        folder.mkdir(parents=True)
    (theirs / "precious").touch()
    shutil.copy(TOOLS / "venv", ours / "tools" / "venv")
    for file in ("requirements/dev.txt", "pyproject.toml", "images/wheel.py"):
        (ours / file).touch()
    (ours / ".venv").symlink_to(theirs)
    done = subprocess.run([ours / "tools" / "venv"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert str(theirs) in done.stderr
    assert (theirs / "precious").exists()


def test_an_interrupted_step_lets_its_command_put_things_back_and_shows_what_it_says(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [TOOLS / "step", "a step", sys.executable, "-c", CLEANS_UP],
        env={**os.environ, "MODELBACKEND_CACHE": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "begun":
        pass
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches every process of the terminal's group
    said, _ = process.communicate(timeout=60)
    assert "all is put back" in said
    assert "FAILED" in said


def test_after_an_interrupt_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl, "INTERRUPTED", interrupted := threading.Event())
    interrupted.set()
    with pytest.raises(AssertionError, match="interrupted, so not waited for: the end of days"):
        kubectl.until("the end of days", lambda: None)
    assert kubectl.until("what is so already", lambda: True)
