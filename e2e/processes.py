"""Which programs of ours really run, whatever the API server knows: read from this host's process table.

The nodes' containers run on this kernel, so their processes are seen here, also while a kubelet is away or a node is
cut off or frozen. Where the nodes are elsewhere, nothing is seen. What other clusters, or people, run on this host is
told apart by the control groups of the nodes' containers.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

SERVER = "modelbackend-server"
OPERATOR = "modelbackend-operator"
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Program:
    """One process; a pid is used again, so its start belongs to its name."""

    pid: int
    started: int
    """Clock ticks since boot."""
    pod_uid: str
    """As the server was told; empty for an operator."""
    backend_uid: str


def running(program: str, containers: Collection[str] | None = None) -> frozenset[Program]:
    """Those inside of these containers (their ids); None is everywhere. One that has ended and waits to be reaped is
    not among them, nor is the child of one that is about to run another program: until it does, it looks like it."""
    inside = None if containers is None else [container.encode() for container in containers]
    found = dict(_running(program.encode(), inside))
    pids = {one.pid for one in found}
    return frozenset(one for one, parent in found.items() if parent not in pids)


def _running(program: bytes, containers: Collection[bytes] | None) -> Iterator[tuple[Program, int]]:
    """Each with the pid of its parent."""
    for pid in os.listdir(PROC):
        words = _bytes(pid, "cmdline").split(b"\0") if pid.isdigit() else []
        if not any(word.endswith(b"/" + program) for word in words[:2]):
            continue
        if containers is not None and not any(container in _bytes(pid, "cgroup") for container in containers):
            continue
        told = dict(entry.partition(b"=")[::2] for entry in _bytes(pid, "environ").split(b"\0"))
        pod_uid, backend_uid = told.get(b"MODELBACKEND_POD_UID", b""), told.get(b"MODELBACKEND_UID", b"")
        fields = _stat(pid)
        yield Program(int(pid), fields[22], pod_uid.decode(), backend_uid.decode()), fields[4]


def _bytes(pid: str, name: str) -> bytes:
    try:
        return (PROC / pid / name).read_bytes()
    except OSError:  # it has ended
        return b""


def _stat(pid: str) -> dict[int, int]:
    """Fields 4 (the parent) and 22 (the start) of /proc/PID/stat, counted as proc(5) does; the second one, a name in
    brackets, may have spaces. -1 where the process has ended."""
    after_name = _bytes(pid, "stat").rpartition(b")")[2].split()
    return {field: int(after_name[field - 3]) if len(after_name) > field - 3 else -1 for field in (4, 22)}


def lives_in_pod(pod_uid: str) -> bool:
    """Whether any program of its containers runs; the one that only holds the pod's network does not count."""
    names = {pod_uid.encode(), pod_uid.replace("-", "_").encode()}  # as the two drivers of control groups write it
    inside = (pid for pid in os.listdir(PROC) if pid.isdigit() and any(name in _bytes(pid, "cgroup") for name in names))
    return any(words and not words.startswith(b"/pause") for words in (_bytes(pid, "cmdline") for pid in inside))
