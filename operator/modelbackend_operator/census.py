"""How many objects are in which state, as the watches know them: what metrics ask."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from modelbackend_operator.api import Condition, InstancePhase
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.timestamps import parse_time


class Census:
    """`known` gives every object of a kind."""

    def __init__(self, known: Callable[[Kind], Iterable[Raw]]) -> None:
        self._known = known

    def claim_phases(self) -> Mapping[str, int]:
        """How many claims there are, by phase."""
        return Counter(raw.get("status", {}).get("phase", "Reserved") for raw in self._known(Kind.CLAIM))

    def ports_withheld(self) -> Mapping[str, int]:
        """How many claims are withheld, by the reason they give."""
        statuses = (raw.get("status", {}) for raw in self._known(Kind.CLAIM))
        return Counter(s.get("reason") or "Unknown" for s in statuses if s.get("phase") == ClaimPhase.WITHHELD)

    def unconfirmed(self) -> int:
        """As the statuses of all backends tell it."""
        told = (raw.get("status", {}).get("instances") or () for raw in self._known(Kind.BACKEND))
        return sum(entry.get("phase") == InstancePhase.UNCONFIRMED for entries in told for entry in entries)

    def stalled(self) -> Mapping[str, int]:
        """How many backends wait for a person, by the reason that their statuses give."""
        told = (raw.get("status", {}).get("conditions") or () for raw in self._known(Kind.BACKEND))
        return Counter(c["reason"] for conditions in told for c in conditions if c["type"] == Condition.STALLED)

    def oldest_deletion_seconds(self, now: datetime) -> float:
        """Since the deletion of the backend that has been waiting longest for its end; 0 while none waits."""
        times = (parse_time(raw["metadata"].get("deletionTimestamp")) for raw in self._known(Kind.BACKEND))
        return max((max(0.0, (now - since).total_seconds()) for since in times if since), default=0.0)
