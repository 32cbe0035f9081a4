"""What a search is given: a small world to begin with, and how much may go wrong in it."""

from dataclasses import dataclass

from modelbackend_operator.model.backend import Backend


@dataclass(frozen=True)
class Bounds:
    """How much may go wrong in one trace. All else is unbounded."""

    hands: tuple[tuple[str, int], ...] = ()
    """Kinds of `hands.py`, and how often each may be done. A kind may be a sum: `force|evict`."""
    late: int = 0
    """Writes without an answer, that land later or never: a crash in mid-write, or a slow second operator."""
    stale: int = 0
    """Times that some operator acts from an old cache."""
    frozen: tuple[str, ...] = ("Backend", "Pod", "Claim")
    """Kinds whose watch may lag, each alone, or all together (`all`)."""
    views: int = 1
    """Old caches at once."""
    pauses: int = 0
    """Times that a tick passes although somebody has something to do: an operator that was away, a slow kubelet.
    When nobody has, time passes freely."""


@dataclass(frozen=True)
class Scenario:
    name: str
    backends: tuple[Backend, ...]
    bounds: Bounds
    later: tuple[Backend, ...] = ()
    nodes: tuple[str, ...] = ("node-1",)
    struck: tuple[str, ...] = ()
    """The nodes to which something may happen, where not all: of two that are alike, one is enough."""
    pool: tuple[int, int] = (30000, 30001)
    eager: tuple[str, ...] = ("ready", "remove", "give node port")
    """Moves of the cluster, by their beginnings, that are taken at once: nothing comes between."""
    served: bool = True
    """Begin where every backend serves."""
    asks: str = ""
    """What it is to find out, in words."""
    quick: bool = False
    """Small enough for every run of the tests."""
