"""Which CPU code is taken, and that the one taken has been tried."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from modelbackend_server import variants
from modelbackend_server.exits import ExitCode, UnservableError
from modelbackend_server.variants import Trial
from tests.server.process import environment

BEST, WORSE, WORST = Path("libggml-cpu-best.so"), Path("libggml-cpu-worse.so"), Path("libggml-cpu-worst.so")


class Machine:
    """A CPU on which only some of the libraries work."""

    def __init__(self, *working: Path) -> None:
        self.working = working
        self.tried: list[Path] = []

    def attempt(self, excluded: Collection[Path]) -> Trial | None:
        for library in (BEST, WORSE, WORST):
            if library not in excluded:
                self.tried.append(library)
                return Trial(library, passed=library in self.working, words="killed by signal 4")
        return None


def test_the_best_library_that_passes_is_taken_and_no_other_tried() -> None:
    machine = Machine(BEST, WORST)
    assert variants.choose(machine.attempt) == BEST
    assert machine.tried == [BEST]


def test_a_library_that_dies_is_passed_over() -> None:
    machine = Machine(WORST)
    assert variants.choose(machine.attempt) == WORST
    assert machine.tried == [BEST, WORSE, WORST]


def test_a_machine_on_which_none_works_is_told_why() -> None:
    with pytest.raises(UnservableError) as none:
        variants.choose(Machine().attempt)
    assert none.value.exit.code is ExitCode.INTERNAL
    assert "libggml-cpu-worse.so: killed by signal 4" in none.value.exit.words


def self_test(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "modelbackend_server.self_test", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)


def test_every_library_that_this_machine_can_load_computes_the_same() -> None:
    folder = variants.libraries_folder()
    passed: list[str] = []
    while lines := self_test(str(folder), *passed).stdout.splitlines():
        name = lines[0]
        assert lines == [name, "passed"]
        assert name not in passed
        passed.append(name)
    # The plainest is always among them: every x86-64 machine can run it.
    assert "libggml-cpu-x64.so" in passed


def test_a_library_that_is_broken_is_found_out_in_the_child(tmp_path: Path) -> None:
    folder = variants.libraries_folder()
    shutil.copy(folder / "libggml-cpu-x64.so", tmp_path)
    (tmp_path / "libggml-cpu-broken.so").write_bytes(_with_illegal_entry(folder / "libggml-cpu-x64.so"))
    outcomes = {}
    excluded: list[Path] = []
    while (trial := variants.try_in_child(tmp_path, excluded)) is not None:
        outcomes[trial.library.name] = (trial.passed, trial.words)
        excluded.append(trial.library)
    assert outcomes == {
        "libggml-cpu-x64.so": (True, ""),
        "libggml-cpu-broken.so": (False, "killed by signal 4"),
    }


def test_what_is_mapped_is_read_from_the_process_itself(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 1   /usr/lib/libc.so.6\n"
        "7f02-7f03 r-xp 00000000 08:01 2   /opt/bin/libggml-cpu-haswell.so\n"
        "7f04-7f05 rw-p 00000000 00:00 0\n"
    )
    assert variants.mapped_library(maps) == "/opt/bin/libggml-cpu-haswell.so"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 1   /usr/lib/libc.so.6\n")
    assert variants.mapped_library(maps) == ""


def _with_illegal_entry(library: Path) -> bytes:
    """The library with ud2 at the beginning of ggml_backend_init (ELF64: symbol value = file offset in .text)."""
    symbols = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in symbols.splitlines() if line.endswith(" T ggml_backend_init")]
    offset = int(line.split()[0], 16)
    data = bytearray(library.read_bytes())
    data[offset : offset + 2] = b"\x0f\x0b"
    return bytes(data)
