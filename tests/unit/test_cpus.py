"""CPUs that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from modelbackend_server.cpus import usable_cpus

MINE = len(os.sched_getaffinity(0))


def machine(folder: Path, membership: str, **files: str) -> tuple[Path, Path]:
    """A /sys/fs/cgroup with these files, and a /proc/self/cgroup."""
    for name, content in files.items():
        path = folder / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "membership").write_text(membership)
    return folder / "cgroup", folder / "membership"


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, MINE),
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/kubepods/pod1/c1\n", {"kubepods/pod1/cpu.max": "100000 100000\n"}, 1),
        # In a container the path may be the host's, and the mount our own cgroup.
        ("0::/kubepods/pod1/c1\n", {"cpu.max": "100000 100000\n"}, 1),
        ("4:cpu,cpuacct:/pod1\n", {"cpu,cpuacct/pod1/cpu.cfs_quota_us": "100000\n"}, MINE),
        (
            "4:cpu,cpuacct:/pod1\n",
            {"cpu,cpuacct/pod1/cpu.cfs_quota_us": "100000\n", "cpu,cpuacct/pod1/cpu.cfs_period_us": "100000\n"},
            1,
        ),
        (
            "4:cpu,cpuacct:/pod1\n",
            {"cpu,cpuacct/pod1/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/pod1/cpu.cfs_period_us": "100000\n"},
            MINE,
        ),
        ("3:memory:/pod1\n0::/pod1\n", {"unified/pod1/cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "100000000 100000\n"}, MINE),
    ],
    ids=[
        "no limit",
        "one CPU",
        "half a CPU still computes",
        "a limit of the pod above",
        "a limit at the mount's root",
        "version 1 without a period is no limit",
        "version 1",
        "version 1 without limit",
        "hybrid",
        "a limit above the machine",
    ],
)
def test_the_quota_is_found_where_the_kernel_keeps_it(
    tmp_path: Path, membership: str, files: dict[str, str], cpus: int
) -> None:
    assert usable_cpus(*machine(tmp_path, membership, **files)) == cpus


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path / "none", tmp_path / "none") == MINE
