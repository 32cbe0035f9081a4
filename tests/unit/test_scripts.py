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


def interrupted(command: list[str | Path], cache: Path, begun: str = "begun") -> str:
    """What it says when it is interrupted as by Ctrl-C, which reaches every process of a terminal's group."""
    process = subprocess.Popen(
        command,
        env={**os.environ, "MODELBACKEND_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != begun:
        pass
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    return said


def test_an_interrupted_step_lets_its_command_put_things_back_and_shows_what_it_says(tmp_path: Path) -> None:
    said = interrupted([TOOLS / "step", "a step", sys.executable, "-c", CLEANS_UP], tmp_path)
    assert "all is put back" in said
    assert "FAILED" in said


def test_an_interrupted_lane_shows_what_its_command_says_after_it_and_whose_words_they_are(tmp_path: Path) -> None:
    lane: list[str | Path] = [TOOLS / "lane", "faults", TOOLS / "step", "e2e", sys.executable, "-c", CLEANS_UP]
    said = interrupted(lane, tmp_path, begun="faults | begun")
    assert "faults | all is put back\n" in said
    assert "faults | ==> e2e FAILED" in said


def test_two_lanes_run_at_once_and_one_that_fails_fails_both_and_ends_neither(tmp_path: Path) -> None:
    """Each waits for the other, so that they can end only together."""
    rules = [
        "both: one other",
        "one:\n\t@tools/lane one bash -c 'echo > a; until [ -e b ]; do sleep 0.1; done; exit 3'",
        "other:\n\t@tools/lane other bash -c 'echo > b; until [ -e a ]; do sleep 0.1; done; sleep 0.3; echo whole'",
    ]
    (tmp_path / "Makefile").write_text("\n".join(rules) + "\n")
    shutil.copytree(TOOLS, tmp_path / "tools")
    run = ["make", "--no-print-directory", "--jobs=2", "--keep-going", "both"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "other | whole\n" in done.stdout


def test_an_interrupted_run_of_everything_ends_in_the_step_that_runs_and_takes_its_cluster_away(tmp_path: Path) -> None:
    for folder in ("tools", "e2e/cluster"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(TOOLS / "test", tmp_path / "tools" / "test")
    (tmp_path / "clean_up.py").write_text(CLEANS_UP)
    (tmp_path / "e2e" / "cluster" / "__main__.py").write_text("import sys; print('cluster:', *sys.argv[1:])")
    step = tmp_path / "tools" / "step"
    step.write_text(f"#!/bin/sh\necho step $1\n[ $1 = preflight ] || exec {sys.executable} clean_up.py\n")
    step.chmod(0o755)
    said = interrupted([tmp_path / "tools" / "test"], tmp_path)
    assert "all is put back" in said
    assert "step" not in said, "another step was begun"
    assert "cluster: down --name mb-test\n" in said
    assert "cluster: down --name mb-test-faults\n" in said
    assert "make test: FAILED" in said


def test_after_an_interrupt_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl, "INTERRUPTED", interrupted := threading.Event())
    interrupted.set()
    with pytest.raises(AssertionError, match="interrupted, so not waited for: the end of days"):
        kubectl.until("the end of days", lambda: None)
    assert kubectl.until("what is so already", lambda: True)
