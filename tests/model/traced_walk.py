"""A walk that writes the operator's own trace, with what only the walk knows: which write landed late, from when."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from modelbackend_operator.actions import Action
from modelbackend_operator.decision import Decision
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.outcome import Applied, Outcome, Unknown
from modelbackend_operator.trace import Trace
from tests.unit.walk import Walk


@dataclass
class TracedWalk(Walk):
    written: list[tuple[tuple[int, int], dict[str, Any]]] = field(default_factory=list)
    """Lines, each with its place: how many lines there were when its look was taken."""
    marks: list[tuple[int, datetime]] = field(default_factory=list)
    """For each state of `past`: the place of a look at it, and when it was."""

    def settle_traced(self, until: Callable[[], bool] = lambda: False) -> "TracedWalk":
        self.settle(until)
        return self

    def lines(self) -> list[dict[str, Any]]:
        """The finished trace, in order, numbered."""
        for uid in self.world.models:
            self._line(self.world.observe(uid), None, Applied(), self._place(), self.world.now)
        ordered = [line for _, line in sorted(self.written, key=lambda entry: entry[0])]
        return [{**line, "seq": number} for number, line in enumerate(ordered, 1)]

    def _place(self) -> tuple[int, int]:
        return len(self.written), 0

    def _line(
        self,
        look: Observation,
        action: Action | None,
        outcome: Outcome,
        place: tuple[int, int],
        now: datetime,
        **more: str,
    ) -> None:
        told: list[dict[str, Any]] = []
        trace = Trace(Told(told), now=lambda: now)
        trace.step(look, action, outcome) if action is not None else trace.tell_settled(look)
        self.written.append((place, {**told[0], **more}))

    def _reconcile(self, uid: str) -> Decision:
        waiting = len(self.pending)
        decision = super()._reconcile(uid)
        self._mark(len(self.written))
        if len(self.pending) > waiting:
            _, look, action = self.pending[-1]
            self._line(look, action, Unknown("timed out"), self._place(), self.world.now)
        return decision

    def _mark(self, place: int) -> None:
        while len(self.marks) < len(self.past):
            self.marks.append((place, self.world.now))

    def _write(self, look: Observation, action: Action, how: str = "") -> Outcome:
        if how == "stale ":
            at, then = self.marks[len(self.past) - self.stale]
            self._line(look, action, Unknown("decided from an old look"), (at, -1), then)
        current = self.world.observe(look.backend_uid) if how else look
        place, now = self._place(), self.world.now
        self._mark(place[0])
        outcome = super()._write(look, action, how)
        more = {"landing": "Landed" if isinstance(outcome, Applied) else "Void"} if how else {}
        self._line(current, action, outcome, place, now, **more)
        return outcome


@dataclass(frozen=True)
class Told:
    """A log of trace lines."""

    told: list[dict[str, Any]]

    def info(self, event: str, **fields: Any) -> None:
        self.told.append({"event": event, **fields})
