"""Chooses the CPU code of ggml for this machine, and proves that it runs before the server depends on it.

The wheel is portable: it carries one libggml-cpu per generation of CPU, in `bin/` beside its packages, and none
is loaded by itself. A better one is worth 2-5x in speed. A CPU that has an instruction set is no proof that the
code for it works (a compiler once dropped the AMX tile set-up, and the first prompt died of SIGILL), so a
variant is first tried in a child process (self_test.py), and a worse one is taken where it dies.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from .exits import ExitCode, UnservableError
from .log import logger

# By SONAME it is the copy that libllama uses. By path it would be a second one, with a registry nobody reads.
LIBGGML = "libggml.so.0"
PREFIX = "libggml-cpu-"
SELF_TEST_SECONDS_MAX = 60
MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class Trial:
    """What a child process made of the best library outside those it was told to leave out."""

    library: Path
    passed: bool
    words: str


@functools.cache
def first_trial() -> subprocess.Popen[str] | None:
    """Starts to try the best library, once per process; `load` waits for it, and starts it if nobody has.

    Early, because a trial takes as long as the imports of this process: on two CPUs they run side by side. A wheel
    built for one machine, or for CUDA without loadable backends, has nothing to choose from: None.
    """
    folder = libraries_folder()
    return _child(folder, ()) if any(folder.glob(f"{PREFIX}*.so")) else None


@functools.cache
def load() -> None:
    """Registers the CPU code with ggml, once per process. Call after llama_cpp is imported."""
    first = first_trial()
    if first is None:
        return
    folder = libraries_folder()
    library = choose(lambda excluded: _end(folder, _child(folder, excluded) if excluded else first))
    for other in sorted(folder.glob("libggml-*.so")):
        if not other.name.startswith(PREFIX):
            register(other)
    if not register(library):
        raise UnservableError(ExitCode.INTERNAL, f"ggml refused {library}, which had passed its self-test")


def libraries_folder() -> Path:
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise UnservableError(ExitCode.INTERNAL, "llama-cpp-python is not installed")
    return Path(spec.origin).parent.parent / "bin"


def choose(attempt: Callable[[Collection[Path]], Trial | None]) -> Path:
    """The best library that passes; `attempt` tries the best one outside the given, None when none is left."""
    failed: dict[Path, str] = {}
    while (trial := attempt(failed.keys())) is not None:
        if trial.passed:
            return trial.library
        failed[trial.library] = trial.words
        logger().warning("cpu variant failed its self-test", library=trial.library.name, words=trial.words)
    tried = ", ".join(f"{library.name}: {words}" for library, words in failed.items())
    raise UnservableError(ExitCode.INTERNAL, f"no CPU code of llama.cpp runs on this machine ({tried or 'none fits'})")


def try_in_child(folder: Path, excluded: Collection[Path]) -> Trial | None:
    """Runs the self-test of the best library outside `excluded`; None where none is left."""
    return _end(folder, _child(folder, excluded))


def _child(folder: Path, excluded: Collection[Path]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"{__package__}.self_test", str(folder), *(lib.name for lib in excluded)]
    # The child finds this very package, wherever it was imported from.
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def _end(folder: Path, child: subprocess.Popen[str]) -> Trial | None:
    """The first line that a self-test prints names the library, the second says that it passed."""
    try:
        output, errors = child.communicate(timeout=SELF_TEST_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
        ending = f"no end after {SELF_TEST_SECONDS_MAX} s"
    else:
        ending = f"killed by signal {-child.returncode}" if child.returncode < 0 else errors.strip()[-500:]
    match output.splitlines():
        case [name, "passed"]:
            return Trial(folder / name, passed=True, words="")
        case [name]:
            return Trial(folder / name, passed=False, words=ending)
        case []:
            if ending:
                raise _no_child(ending)
            return None
        case _:
            raise _no_child(output)


def _no_child(words: str) -> UnservableError:
    return UnservableError(ExitCode.INTERNAL, f"the self-test of the CPU code could not run: {words}")


def ranked(folder: Path) -> list[Path]:
    """The libraries this CPU can run, best first, by ggml's own score. Leaves them mapped: for a child process."""
    scored = []
    for path in sorted(folder.glob(f"{PREFIX}*.so")):
        score = int(ctypes.CDLL(str(path)).ggml_backend_score())
        if score > 0:
            scored.append((score, path))
    return [path for _, path in sorted(scored, reverse=True)]


def register(library: Path) -> bool:
    """Loads one library into ggml. False where ggml finds that this machine lacks what it needs."""
    backend_load = ctypes.CDLL(LIBGGML).ggml_backend_load
    backend_load.argtypes = [ctypes.c_char_p]
    backend_load.restype = ctypes.c_void_p
    return bool(backend_load(str(library).encode()))


def mapped_library(maps: Path = MAPS) -> str:
    """Path of the libggml-cpu that is mapped into this process; "" before one is.

    What is mapped, not what was asked for: it is easy to measure the wrong library.
    """
    for line in maps.read_text().splitlines():
        path = line.partition("/")[2]
        if "libggml-cpu" in path:
            return "/" + path
    return ""
