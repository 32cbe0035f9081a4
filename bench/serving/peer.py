"""llama-server from the very source of our llama-cpp-python wheel, linked to the very libraries in it.

    python3 -m bench.serving.peer        prints the path of the cached program

Only what llama-server has beyond the libraries is compiled (about 10 minutes on two cores, once per machine). At run
time it opens libllama, libggml and libggml-cpu of the installed wheel by links beside it, so that a comparison of the
two servers compares the servers.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from images.cache import cache_root, digest_of, publish
from images.debian_packages import ensure_command
from images.registry import pip, requirements_file
from images.steps import run_logged
from images.wheel import CMAKE_ARGS, SOURCE

PROGRAM = "llama-server"
# No library of its own that computes: the CPU code comes from the wheel. No web page, no TLS, no downloads.
PEER_CMAKE_ARGS = (
    *CMAKE_ARGS,
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_CPU=OFF",
    "-DGGML_CPU_ALL_VARIANTS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
FROM_THE_WHEEL = ("libllama.", "libggml")
"""What the installed wheel has is not kept."""


def llama_server() -> Path:
    """The program's path; built at the first call and cached afterwards."""
    folder = cache_root() / "peer" / f"{PROGRAM}-{SOURCE.version}+{digest_of(SOURCE.requirement, *PEER_CMAKE_ARGS)}"
    if not folder.exists():
        with (
            publish(folder) as draft,
            tempfile.TemporaryDirectory(prefix="peer-", dir="/var/tmp") as workplace,
        ):
            _build(Path(workplace))
            draft.mkdir()
            for built in (Path(workplace) / "build" / "bin").iterdir():
                if built.name == PROGRAM or (
                    ".so" in built.name and not built.name.startswith(("libllama.", "libggml"))
                ):
                    shutil.copy2(built, draft / built.name, follow_symlinks=True)
    return folder / PROGRAM


def _build(workplace: Path) -> None:
    for command in ("g++", "cmake", "ninja"):
        ensure_command(command, {"ninja": "ninja-build"}.get(command, command))
    with requirements_file(SOURCE) as requirements:
        pip(
            f"source of {SOURCE.name} {SOURCE.version}",
            *("download", "--no-deps", "--no-binary", SOURCE.name, "--require-hashes"),
            *("--requirement", requirements, "--dest", workplace),
            log_name="peer-source",
        )
    (archive,) = workplace.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(workplace, filter="data")
    (tree,) = workplace.glob("*/vendor/llama.cpp")
    build = workplace / "build"
    run_logged(
        "configuring llama-server",
        ["cmake", "-G", "Ninja", "-S", tree, "-B", build, *PEER_CMAKE_ARGS],
        log_name="peer-configure",
    )
    jobs = len(os.sched_getaffinity(0))
    run_logged(
        f"llama-server, {jobs} jobs (about 10 minutes on two cores, once per machine)",
        ["nice", "-n", "15", "cmake", "--build", build, "--target", PROGRAM, "--parallel", str(jobs)],
        log_name="peer-build",
    )


if __name__ == "__main__":
    sys.exit(print(llama_server()))
