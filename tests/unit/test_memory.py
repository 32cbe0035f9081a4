"""What is left of the memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modelbackend_server import loading, memory
from modelbackend_server.exits import ExitCode, UnservableError
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
        loading.check_memory(shape, shape.cache_bytes(model))
    assert refused.value.exit.code is ExitCode.BAD_CONFIGURATION
    assert "4 slots of 4000 tokens takes 2048 MiB, and 1000 MiB of memory are left" in refused.value.exit.words
    quantised = ContextShape(4000, 4, 1, 1, 1, kv_cache_type="q4_0", flash_attention="enabled")
    loading.check_memory(quantised, quantised.cache_bytes(model))
