"""What a real kubelet was seen to do, as a table: the fake's kubelet must do the same, and so must the real one.

Seen on Kubernetes 1.35. Each row begins with a pod that runs, and with our finalizer on it unless it says otherwise.
"""

from dataclasses import dataclass
from enum import StrEnum

from modelbackend_operator.model.pod import PodPhase


class Done(StrEnum):
    """What is done to the pod or to its node, in this order."""

    DELETE = "deleted with 15 s"
    DELETE_LONGER = "deleted with 20 s"
    DELETE_SHORTER = "deleted again with 3 s"
    FORCE = "deleted with grace 0"
    STRIP = "its finalizer removed"
    KUBELET_STOPS = "its kubelet stopped"
    NODE_REMOVED = "the Node object removed"
    KUBELET_RETURNS = "its kubelet started"


@dataclass(frozen=True)
class Row:
    case: str
    done: tuple[Done, ...]
    lives: bool
    """The process, once everybody who can act has acted."""
    exists: bool
    """The pod's object."""
    phase: PodPhase | None = None
    ended: bool | None = None
    """Every container is reported as terminated."""
    grace_seconds: int | None = None
    by_pod_gc: bool = False


ROWS = (
    Row("deleted", (Done.DELETE,), lives=False, exists=True, phase=PodPhase.SUCCEEDED, ended=True, grace_seconds=0),
    Row("force-deleted with our finalizer", (Done.FORCE,), lives=False, exists=True, ended=True, grace_seconds=0),
    Row("force-deleted without a finalizer", (Done.STRIP, Done.FORCE), lives=False, exists=False),
    Row(
        "a second deletion shows the shorter grace",
        (Done.KUBELET_STOPS, Done.DELETE_LONGER, Done.DELETE_SHORTER),
        lives=True,
        exists=True,
        phase=PodPhase.RUNNING,
        ended=False,
        grace_seconds=3,
    ),
    Row(
        "deleted while its kubelet is away",
        (Done.KUBELET_STOPS, Done.DELETE),
        lives=True,
        exists=True,
        phase=PodPhase.RUNNING,
        ended=False,
        grace_seconds=15,
    ),
    Row(
        "its Node object removed, its kubelet away",
        (Done.KUBELET_STOPS, Done.DELETE, Done.NODE_REMOVED),
        lives=True,
        exists=True,
        phase=PodPhase.FAILED,
        ended=False,
        grace_seconds=0,
        by_pod_gc=True,
    ),
    Row(
        "its Node object removed, and its kubelet back",
        (Done.KUBELET_STOPS, Done.DELETE, Done.NODE_REMOVED, Done.KUBELET_RETURNS),
        lives=False,
        exists=True,
        phase=PodPhase.FAILED,
        ended=True,
        grace_seconds=0,
        by_pod_gc=True,
    ),
)
