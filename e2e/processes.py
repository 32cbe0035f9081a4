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
    not among them."""
    inside = None if containers is None else [container.encode() for container in containers]
    return frozenset(_running(program.encode(), inside))


def _running(program: bytes, containers: Collection[bytes] | None) -> Iterator[Program]:
    for pid in os.listdir(PROC):
        words = _bytes(pid, "cmdline").split(b"\0") if pid.isdigit() else []
        if not any(word.endswith(b"/" + program) for word in words[:2]):
            continue
        if containers is not None and not any(container in _bytes(pid, "cgroup") for container in containers):
            continue
        told = dict(entry.partition(b"=")[::2] for entry in _bytes(pid, "environ").split(b"\0"))
        pod_uid, backend_uid = told.get(b"MODELBACKEND_POD_UID", b""), told.get(b"MODELBACKEND_UID", b"")
        yield Program(int(pid), _started(pid), pod_uid.decode(), backend_uid.decode())


def _bytes(pid: str, name: str) -> bytes:
    try:
        return (PROC / pid / name).read_bytes()
    except OSError:  # it has ended
        return b""


def _started(pid: str) -> int:
    """The 22nd field of /proc/PID/stat; the second one, a name in brackets, may have spaces (proc(5))."""
    fields = _bytes(pid, "stat").rpartition(b")")[2].split()
    return int(fields[19]) if len(fields) > 19 else -1


def lives_in_pod(pod_uid: str) -> bool:
    """Whether any program of its containers runs; the one that only holds the pod's network does not count."""
    names = {pod_uid.encode(), pod_uid.replace("-", "_").encode()}  # as the two drivers of control groups write it
    inside = (pid for pid in os.listdir(PROC) if pid.isdigit() and any(name in _bytes(pid, "cgroup") for name in names))
    return any(words and not words.startswith(b"/pause") for words in (_bytes(pid, "cmdline") for pid in inside))
