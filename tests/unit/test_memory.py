"""What is left of the memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from modelbackend_server import memory
from modelbackend_server.exits import ExitCode, UnservableError
from modelbackend_server.fitting import Needs, fitting
from modelbackend_server.llama import ContextShape

MEBIBYTE = 2**20


def machine(folder: Path, *, available_mib: int, groups: dict[str, tuple[str, int, int]]) -> dict[str, Path]:
    """Files as the kernel shows them; of each group its limit, what it uses and how much of that is cached files."""
    for name, (limit, used_mib, cached_mib) in groups.items():
        group = folder / "cgroup" / name
        group.mkdir(parents=True, exist_ok=True)
        (group / "memory.max").write_text(limit + "\n")
        (group / "memory.current").write_text(f"{used_mib * MEBIBYTE}\n")
        (group / "memory.stat").write_text(f"anon 1\nfile {cached_mib * MEBIBYTE}\n")
    (folder / "self").write_text("0::/pod/container\n")
    (folder / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {available_mib * 1024} kB\n")
    return {"cgroups": folder / "cgroup", "membership": folder / "self", "meminfo": folder / "meminfo"}


@pytest.mark.parametrize(
    ("groups", "left_mib"),
    [
        ({}, 1000),
        ({"pod/container": ("max", 5, 0)}, 1000),
        ({"pod/container": (str(800 * MEBIBYTE), 300, 0)}, 500),
        ({"pod/container": (str(800 * MEBIBYTE), 300, 200)}, 700),
        ({"pod/container": ("max", 5, 0), "pod": (str(400 * MEBIBYTE), 100, 0)}, 300),
    ],
)
def test_the_least_of_the_machine_and_the_limits_counts(
    tmp_path: Path, groups: dict[str, tuple[str, int, int]], left_mib: int
) -> None:
    assert memory.available_bytes(**machine(tmp_path, available_mib=1000, groups=groups)) == left_mib * MEBIBYTE


def test_a_cache_that_cannot_fit_is_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000 * MEBIBYTE)
    model: Any = SimpleNamespace(cache_values_per_token=2 * 32 * 1024)
    shape = ContextShape(context_length=4000, slots=4, batch_tokens=1, micro_batch_tokens=1, threads=1)
    # 4096 cells of 65,536 numbers of 2 bytes, four times.
    assert shape.cache_bytes(model) == 2048 * MEBIBYTE
    with pytest.raises(UnservableError) as refused:
        Needs("4 slots", weights=0, cache=shape.cache_bytes(model)).check()
    assert refused.value.exit.code is ExitCode.BAD_CONFIGURATION
    assert "2048 MiB of memory are needed for 4 slots and 1000 MiB are there" in refused.value.exit.words
    quantised = ContextShape(4000, 4, 1, 1, 1, kv_cache_type="q4_0", flash_attention="enabled")
    Needs("4 slots", weights=0, cache=quantised.cache_bytes(model)).check()


class Made:
    """A context that takes a cache, which is written, and something to compute in, which is not."""

    def __init__(self, left: list[int], cache: int) -> None:
        left[0] -= cache
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("left_mib", "fits"), [(1000, True), (999, False), (401, False)], ids=["all", "not to compute in", "only the cache"]
)
def test_weights_cache_computing_and_kept_prompts_must_fit_together(
    monkeypatch: pytest.MonkeyPatch, left_mib: int, fits: bool
) -> None:
    left, allocated = [left_mib * MEBIBYTE], iter([0, (400 + 200) * MEBIBYTE])
    monkeypatch.setattr(memory, "available_bytes", lambda: left[0])
    monkeypatch.setattr(memory, "allocated_bytes", lambda: next(allocated))
    needs = Needs("2 slots", weights=300 * MEBIBYTE, cache=400 * MEBIBYTE, kept_prompts=100 * MEBIBYTE)
    made: list[Made] = []

    def make() -> Made:
        made.append(Made(left, needs.cache))
        return made[-1]

    if fits:
        assert not fitting(needs, make).closed
        return
    with pytest.raises(UnservableError) as refused:
        fitting(needs, make)
    assert refused.value.exit.code is ExitCode.BAD_CONFIGURATION
    words = refused.value.exit.words
    assert all(one.closed for one in made)
    assert "300 MiB for the weights, 400 MiB for the KV cache" in words
    assert "100 MiB for kept prompts" in words
    assert (f"1000 MiB of memory are needed for 2 slots and {left_mib} MiB are there" in words) is bool(made)
    assert ("200 MiB for computing" in words) is bool(made)


def test_what_is_allocated_counts_before_it_is_written_to() -> None:
    before = memory.allocated_bytes()
    room = np.empty(300 * MEBIBYTE, np.uint8)
    assert room.nbytes <= memory.allocated_bytes() - before < room.nbytes + 20 * MEBIBYTE
    del room
    assert memory.allocated_bytes() - before < 20 * MEBIBYTE


def test_mapped_weights_are_counted_by_their_files_end(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "1000-3000 r--s 00000000 fe:00 1    /models/a b-00001-of-00002.gguf\n"
        "5000-6000 r--s 00000000 fe:00 2    /models/a b-00002-of-00002.gguf\n"
        "7000-9000 r-xp 00000000 fe:00 3    /lib/libc.so.6\n"
        "a000-b000 rw-p 00000000 00:00 0 \n"
    )
    assert memory.mapped_bytes(".gguf", maps) == 0x3000
