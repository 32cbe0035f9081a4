"""What the portable wheel keeps of the one that llama-cpp-python's build makes."""

from __future__ import annotations

import zipfile
from pathlib import Path

from images.wheel import without_surplus

RECORD = "llama_cpp_python-0.3.36.dist-info/RECORD"
KEPT = [
    "bin/libggml-cpu-haswell.so",
    "llama_cpp/__init__.py",
    "llama_cpp/lib/libggml-base.so.0",
    "llama_cpp/lib/libggml.so.0",
    "llama_cpp/lib/libllama.so",
]
SURPLUS = [
    "include/llama.h",
    "lib/cmake/llama/llama-config.cmake",
    "lib/libllama.so",
    "llama_cpp/lib/libggml-base.so",
    "llama_cpp/lib/libggml.so",
    "llama_cpp/lib/libggml.so.0.25.3",
    "llama_cpp/lib/libllama.so.0",
]


def test_each_library_stays_under_the_one_name_that_is_opened(tmp_path: Path) -> None:
    built, slim = tmp_path / "built.whl", tmp_path / "slim.whl"
    with zipfile.ZipFile(built, "w") as wheel:
        for name in (*KEPT, *SURPLUS):
            wheel.writestr(name, name)
        wheel.writestr(RECORD, "".join(f"{name},sha256=x,1\n" for name in (*KEPT, *SURPLUS, RECORD)))

    without_surplus(built, slim)

    with zipfile.ZipFile(slim) as wheel:
        assert sorted(wheel.namelist()) == sorted([*KEPT, RECORD])
        recorded = [line.partition(",")[0] for line in wheel.read(RECORD).decode().splitlines()]
        assert recorded == [*KEPT, RECORD]
        assert wheel.read("llama_cpp/lib/libllama.so") == b"llama_cpp/lib/libllama.so"
