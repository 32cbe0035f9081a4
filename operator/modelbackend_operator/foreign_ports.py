"""Ports that something outside the ledger has: known for a while, and forgotten with the process.

Nothing rests on it. Who does not know it tries such a port once more, is told again, and takes another.
"""

import time
from collections import defaultdict
from collections.abc import Callable

HELD_SECONDS = 60
"""How long a node port is believed to be another Service's, after the API server said so."""
TAKEN_SECONDS = 300
"""How long a port is believed to be taken on a node, after a server found it so."""


class ForeignPorts:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._held: dict[int, tuple[str, float]] = {}
        self._taken: dict[tuple[int, str], float] = {}

    def held(self, port: int, who: str) -> None:
        """Cluster-wide, by `who`, in words."""
        self._held[port] = who, self._monotonic() + HELD_SECONDS

    def taken(self, port: int, node: str) -> None:
        """On this node only."""
        self._taken[port, node] = self._monotonic() + TAKEN_SECONDS

    def holders(self) -> dict[int, str]:
        """In words, by port."""
        now = self._monotonic()
        self._held = {port: (who, until) for port, (who, until) in self._held.items() if until > now}
        return {port: who for port, (who, _) in self._held.items()}

    def nodes(self) -> dict[int, frozenset[str]]:
        """Names of those on which a port is taken, by port."""
        now = self._monotonic()
        self._taken = {where: until for where, until in self._taken.items() if until > now}
        found: dict[int, set[str]] = defaultdict(set)
        for port, node in self._taken:
            found[port].add(node)
        return {port: frozenset(names) for port, names in found.items()}
