"""A drain as it goes on: which lines `kubectl mb watch` prints, and when it has seen the end."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from kubectl_mb.clock import span
from kubectl_mb.printable import printable
from kubectl_mb.sight import condition, status_of
from modelbackend_operator.api import Condition, Instance, InstancePhase
from modelbackend_operator.kinds import Raw
from modelbackend_operator.reading import mapping

ENDING = frozenset({InstancePhase.DRAINING, InstancePhase.TERMINATING, InstancePhase.UNCONFIRMED})


@dataclass(frozen=True, slots=True)
class Seen:
    """One instance, as of one look; two that are equal need be told once."""

    ordinal: int
    stage: str
    pod: str
    in_flight: int | None
    why: str
    deadline: datetime | None
    message: str

    def line(self, now: datetime) -> str:
        flight = f", {self.in_flight} in flight" if self.in_flight is not None else ""
        why = f" ({self.why})" if self.why else ""
        left = self.deadline - now if self.deadline is not None else None
        deadline = (
            "" if left is None else f", deadline in {span(left)}" if left.total_seconds() > 0 else ", past its deadline"
        )
        message = f": {printable(self.message)}" if self.message else ""
        return f"instance {self.ordinal} {self.stage}{why}{flight}{deadline}{message}"


def seen(backend: Raw) -> tuple[Seen, ...]:
    return tuple(map(_seen, status_of(backend).instances))


def _seen(entry: Instance) -> Seen:
    draining = entry.phase is InstancePhase.DRAINING
    return Seen(
        entry.ordinal,
        entry.phase,
        entry.pod.name if entry.pod is not None else "",
        entry.in_flight,
        entry.stop.reason if entry.stop is not None else "",
        entry.stop.deadline if entry.stop is not None and draining else None,
        entry.message or "",
    )


def is_settled(backend: Raw) -> bool:
    """Nothing of it ends or starts: what is asked for serves, or nothing is asked for and nothing runs."""
    status, spec = status_of(backend), mapping(backend.get("spec"))
    metadata = backend["metadata"]
    if metadata.get("deletionTimestamp") or status.observed_generation != metadata.get("generation"):
        return False
    if any(entry.stop is not None or entry.phase in ENDING for entry in status.instances):
        return False
    ready = condition(status, Condition.READY)
    wanted = 0 if spec.get("suspend") else spec.get("replicas", 1)
    return (ready is not None and ready.status == "True") or (wanted == 0 and not status.replicas)


def ending_words(backend: Raw) -> str:
    """How its last shutdown ended."""
    last = status_of(backend).last_shutdown
    if last is None:
        return ""
    cut = f", {last.requests_cut} requests cut" if last.requests_cut else ""
    pod = f" of pod {last.pod.name}" if last.pod is not None else ""
    return f"the last shutdown{pod}: {last.outcome} after {last.seconds} s{cut}"


def changes(before: tuple[Seen, ...], now_seen: tuple[Seen, ...]) -> Iterator[Seen]:
    """What is new since the last look, and instances that are gone."""
    known = {entry.ordinal: entry for entry in before}
    for entry in now_seen:
        if known.pop(entry.ordinal, None) != entry:
            yield entry
    for ordinal in known:
        yield Seen(ordinal, "Gone", "", None, "", None, "")
