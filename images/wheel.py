"""The portable llama-cpp-python wheel: built once per machine, for the host's tests and for the server image.

    python3 -m images.wheel [--cmake-args="-DGGML_CUDA=ON"]      prints the path of the cached wheel

The package index has llama-cpp-python as source only, and its default build is tuned to the building machine
(`-march=native`). This one has a `libggml-cpu-*.so` for every generation of CPU, in `<site-packages>/bin`, of
which llama.cpp's loader (`ggml_backend_load_all_from_path`) takes the best that the CPU can run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import sys
import tempfile
import zipfile
from pathlib import Path

from images.cache import cache_root, digest_of, publish
from images.debian_packages import ensure_command
from images.registry import PinnedPackage, pip, requirements_file
from images.steps import StepError

SOURCE = PinnedPackage(
    name="llama-cpp-python",
    version="0.3.36",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
)
TOOLS = Path(__file__).parent.parent / "requirements" / "wheel-tools.txt"
LLAMA_ONLY = Path(__file__).parent / "llama_only.cmake"

CMAKE_ARGS = (
    "-DGGML_NATIVE=OFF",
    "-DGGML_BACKEND_DL=ON",
    "-DGGML_CPU_ALL_VARIANTS=ON",
    "-DLLAVA_BUILD=OFF",
    # GCC takes the stores that fill an AMX tile configuration for dead: the AMX code then dies with SIGILL
    # (ggml-org/llama.cpp#26954).
    "-DCMAKE_CXX_FLAGS=-fno-tree-dse -fno-dse",
)

# llama-cpp-python installs each library in two folders, and under three names where links would be. Python
# opens libllama.so and the dynamic linker finds the others by SONAME; a further copy is only good for being
# opened by mistake.
SURPLUS_FOLDERS = ("lib/", "include/")
LIBRARY_FOLDER = "llama_cpp/lib/"
KEPT_LIBRARIES = r"libllama\.so|libggml(-base)?\.so\.\d+"


def portable_wheel(extra_cmake_args: str = "") -> Path:
    """The wheel file, built at the first call (8 minutes on two cores) and cached afterwards.

    `extra_cmake_args` are in shell syntax and come after `CMAKE_ARGS`.
    """
    cmake_args = (*CMAKE_ARGS, *shlex.split(extra_cmake_args))
    key = digest_of(SOURCE.requirement, *cmake_args, LLAMA_ONLY, platform.machine(), KEPT_LIBRARIES)
    folder = cache_root() / "wheels" / f"llama_cpp_python-{SOURCE.version}+{key}"
    if not folder.exists():
        with (
            publish(folder) as draft,
            tempfile.TemporaryDirectory(prefix="wheel-", dir="/var/tmp") as workplace,
        ):
            draft.mkdir()
            built = _build(Path(workplace), cmake_args)
            without_surplus(built, draft / built.name)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _build(workplace: Path, cmake_args: tuple[str, ...]) -> Path:
    """Compile the wheel from source, with build tools pinned by hash."""
    ensure_command("g++", "g++")
    tools = workplace / "tools"
    pip(
        "build tools of the llama-cpp-python wheel",
        *("install", "--no-deps", "--require-hashes", "--target", tools, "--requirement", TOOLS),
        log_name="wheel-tools",
    )
    jobs = len(os.sched_getaffinity(0))
    all_args = (*cmake_args, f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={LLAMA_ONLY}")
    with requirements_file(SOURCE) as requirements:
        pip(
            f"llama-cpp-python {SOURCE.version}, {jobs} jobs (about 8 minutes on two cores, once per machine)",
            # pip's own cache would hand out a wheel that other flags made.
            *("wheel", "--verbose", "--no-cache-dir", "--no-deps", "--no-build-isolation"),
            *("--no-binary", SOURCE.name, "--require-hashes", "--requirement", requirements),
            *("--wheel-dir", workplace),
            log_name="wheel",
            env={
                "CMAKE_ARGS": shlex.join(all_args),
                "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
                "CMAKE_GENERATOR": "Ninja",
                "PATH": f"{tools}/bin:{os.environ['PATH']}",
                "PYTHONPATH": str(tools),
            },
        )
    (wheel,) = workplace.glob("*.whl")
    return wheel


def without_surplus(wheel: Path, target: Path) -> None:
    """Copy a wheel without the libraries, headers and CMake files that nothing opens."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as output:
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                lines = content.decode().splitlines(keepends=True)
                content = "".join(line for line in lines if not _is_surplus(line.partition(",")[0])).encode()
            if not _is_surplus(entry.filename):
                output.writestr(entry, content)


def _is_surplus(name: str) -> bool:
    if name.startswith(LIBRARY_FOLDER):
        return re.fullmatch(KEPT_LIBRARIES, name.removeprefix(LIBRARY_FOLDER)) is None
    return name.startswith(SURPLUS_FOLDERS)


def main() -> None:
    """Print the path of the wheel."""
    parser = argparse.ArgumentParser(prog="python3 -m images.wheel", description="The portable llama-cpp-python wheel.")
    parser.add_argument(
        "--cmake-args", default="", metavar="ARGS", help='more flags for llama.cpp, such as "-DGGML_CUDA=ON"'
    )
    try:
        print(portable_wheel(parser.parse_args().cmake_args))
    except StepError as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
