"""How much memory this process may still take, so that what cannot fit is refused with numbers and not killed later."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

from .cpus import CGROUPS, MEMBERSHIP

MEMINFO = Path("/proc/meminfo")
MAPS = Path("/proc/self/maps")


class _MallocInfo(ctypes.Structure):
    """struct mallinfo2 of the GNU C library (mallinfo(3))."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated_bytes() -> int:
    """What this process has asked of malloc and not given back, written to or not."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallocInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def mapped_bytes(suffix: str, maps: Path = MAPS) -> int:
    """Of files whose names end so. llama.cpp unmaps what it has made a copy of."""
    lines = (line for line in maps.read_text().splitlines() if line.endswith(suffix))
    ranges = (line.split(maxsplit=1)[0].split("-") for line in lines)
    return sum(int(end, 16) - int(start, 16) for start, end in ranges)


def available_bytes(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP, meminfo: Path = MEMINFO) -> int:
    """The least of what the machine has to give and what the limits of the cgroups above us leave."""
    return min((_machine_bytes(meminfo), *_limits_bytes(cgroups, membership)))


def _machine_bytes(meminfo: Path) -> int:
    for line in meminfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise ValueError(f"{meminfo} has no MemAvailable")


def _limits_bytes(cgroups: Path, membership: Path) -> Iterator[int]:
    """Of cgroup v2; where there is no limit, or only v1, nothing."""
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers:
            continue
        # In a container the path may be the host's while the mount shows our cgroup as its root.
        ours = Path(path.lstrip("/"))
        for folder in (ours, *ours.parents):
            yield from _limit_bytes(cgroups / folder)


def _limit_bytes(folder: Path) -> Iterator[int]:
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return
    if limit != "max":
        # What is only cached of files (the weights are mapped) is given up when memory is wanted.
        yield int(limit) - used + int(cached.get("file", 0))
