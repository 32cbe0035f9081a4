"""How many CPUs this process may use, so that llama.cpp starts no more threads than can run.

More threads than CPUs is not a small mistake: they wait for each other at every layer, and decoding loses up to
42 %. A container's CPU limit is a cgroup quota, which os.cpu_count() does not know.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cpus(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """CPUs of the affinity mask, or whole CPUs of the smallest quota above us if that is less; at least 1."""
    affinity = len(os.sched_getaffinity(0))
    return max(1, min([affinity, *(int(quota) for quota in quotas_cpus(cgroups, membership))]))


def quotas_cpus(cgroups: Path, membership: Path) -> Iterator[float]:
    """The CPU quota of each cgroup from ours up to the root, in CPUs; nothing where there is no limit."""
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [cgroups, cgroups / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [cgroups / controllers, cgroups / "cpu"]
        else:
            continue
        # In a container the path may be the host's while the mount shows our cgroup as its root: the
        # root is always looked at, and a path that is not there is no limit.
        ours = Path(path.lstrip("/"))
        for mount in mounts:
            for folder in (ours, *ours.parents):
                yield from _quota(mount / folder)


def _quota(folder: Path) -> Iterator[float]:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
    except OSError:
        return
    if quota not in ("max", "-1"):
        yield int(quota) / int(period)
