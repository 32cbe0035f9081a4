"""The pools of ports, and what is taken in them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ports:
    """The pools for this backend's exposure and what is known to be taken in them."""

    pools: tuple[tuple[int, int], ...]
    """First and last port of each, inclusive."""
    reuse_delay_seconds: int
    taken: frozenset[int]
    """Claimed by others, in any phase, or held by a foreign Service."""
    taken_by: Mapping[int, str] = field(default_factory=dict)
    """Port to `namespace/name` of who holds it, for messages."""
    taken_in: Mapping[str, int] = field(default_factory=dict)
    """How many claims of others there are in the pools, by phase, for messages; what no claim holds is not counted."""
    taken_on: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Names of nodes on which a server found a port taken lately, by port; elsewhere it is as good as any."""
