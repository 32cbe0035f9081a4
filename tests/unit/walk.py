"""Drives the real `decide` through a `World`, and checks every promise after every step.

A reconcile is looked at, decided and applied as the controller does it. A crash between two steps needs no code: there
is nothing in memory to lose. What can go wrong on the way is asked for: an operator that reads an old cache (`stale`),
a write that times out and lands later (`late`), or a hand that reaches in at one point (`meddle`).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from modelbackend_operator.actions import AbortServer, Action, DrainServer, WriteStopRecord
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Decision, Wait
from modelbackend_operator.deferrals import Deferrals
from modelbackend_operator.invariants import Step, breaches, breaches_of_step
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.outcome import Applied, Denied, Outcome, Unknown
from modelbackend_operator.reasons import Reason
from modelbackend_operator.stopping import POLL_SECONDS
from tests.sim.cluster_moves import Move
from tests.sim.state import State
from tests.sim.world import World

STEPS_MAX = 400
IDLE_SECONDS_MAX = 120
"""With nothing written and nothing moved for so long, nothing more is coming."""


@dataclass
class Walk:
    world: World
    held: tuple[str, ...] = ()
    """Names of moves, or beginnings of them, that the cluster does not take."""
    cluster_first: bool = False
    stale: int = 0
    """Before each step, another operator acts on what was true so many steps ago."""
    late: tuple[int, int] | None = None
    """(n, delay): the n-th write times out, and lands after so many steps."""
    meddle: tuple[int, Callable[[World], object]] | None = None
    """(n, act): before the n-th step somebody does this."""
    refuses: Callable[[Action], bool] = lambda _: False
    """What the API server refuses, by a policy or a quota."""

    story: list[str] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    stops: list[tuple[int, str]] = field(default_factory=list)
    """Ordinal and reason of each stop that was recorded, in this order."""
    past: list[State] = field(default_factory=list)
    pending: list[tuple[int, Observation, Action]] = field(default_factory=list)
    deferrals: Deferrals = field(default_factory=Deferrals)
    free_since: dict[str, datetime] = field(default_factory=dict)

    def settle(self, until: Callable[[], bool] = lambda: False) -> "Walk":
        """Until nothing happens any more, or `until` holds. Fails with the story when it does not end."""
        idle_since = self.world.now
        for _ in range(STEPS_MAX):
            if until():
                return self
            decisions = [self._reconcile(uid) for uid in self.world.models] if not self._moved_first() else []
            if not decisions or any(isinstance(decision, Act) for decision in decisions) or self._move():
                idle_since = self.world.now
            elif self.pending:
                self._land()
            elif not self._pass_time(decisions) or self.world.now - idle_since > timedelta(seconds=IDLE_SECONDS_MAX):
                return self
        raise AssertionError("it does not end\n" + self.told())

    def told(self) -> str:
        return "\n".join(self.story)

    # -- the operator -------------------------------------------------------------------------------------------------

    def _reconcile(self, uid: str) -> Decision:
        self._interfere()
        if self.stale and len(self.past) >= self.stale:
            look = self.world.observe(uid, self.past[-self.stale])
            decision = decide(look, self.world.now)
            if isinstance(decision, Act) and not decision.action.LIVE:
                self._write(look, decision.action, "stale ")
        self.past.append(self.world.state)
        look = self._remembering(self.world.observe(uid))
        decision = decide(look, self.world.now)
        if isinstance(decision, Act):
            n = self.writes.total()
            if self.late is not None and n == self.late[0]:
                self.writes["timed out"] += 1
                self.story.append(f"{uid}: {_named(decision.action)} times out")
                self.pending.append((len(self.past) + self.late[1], look, decision.action))
            elif isinstance(self._write_and_remember(look, decision.action), Unknown):
                return Wait("Unknown", "to be tried again", self.world.now + timedelta(seconds=1))
        return decision

    def _remembering(self, look: Observation) -> Observation:
        """What an operator's process keeps to itself between two looks."""
        if look.lease is not None or not look.model_waits:
            self.free_since.pop(look.backend_uid, None)
        else:
            self.free_since.setdefault(look.backend_uid, self.world.now)
        return replace(
            look,
            lease_free_since=self.free_since.get(look.backend_uid),
            deferred=self.deferrals.of(look.backend_uid),
        )

    def _interfere(self) -> None:
        if self.meddle is not None and len(self.past) == self.meddle[0]:
            self.story.append("somebody meddles")
            self.meddle[1](self.world)
            self._check(())
            self.meddle = None
        if self.pending and self.pending[0][0] <= len(self.past):
            self._land()

    def _land(self) -> None:
        _, look, action = self.pending.pop(0)
        self._write(look, action, "late ")

    def _write(self, look: Observation, action: Action, how: str = "") -> Outcome:
        before = self.world.snapshot()
        outcome = Denied("a policy says no") if self.refuses(action) else self.world.apply(action)
        self.story.append(f"{look.backend_uid}: {how}{_named(action)} -> {type(outcome).__name__}")
        if isinstance(outcome, Applied):
            if not isinstance(action, DrainServer | AbortServer):
                self.writes[type(action).__name__] += 1
            if isinstance(action, WriteStopRecord) and action.pod.stop is None:
                self.stops.append((action.pod.ordinal, action.record.reason))
            self._check(breaches_of_step(Step(before, look, action, self.world.now)))
        return outcome

    def _write_and_remember(self, look: Observation, action: Action) -> Outcome:
        outcome = self._write(look, action)
        uid, now = look.backend_uid, self.world.now
        match outcome:
            case Denied(message):
                self.deferrals.refused(uid, action, message, now)
            case Applied() | Unknown() if isinstance(action, DrainServer | AbortServer):
                again = Wait(Reason.DRAINING, "", now + timedelta(seconds=POLL_SECONDS))
                self.deferrals.called(uid, action, again, now)
            case Applied() | Unknown():
                self.deferrals.done(uid, action)
        return outcome

    def _check(self, of_step: Iterable[str]) -> None:
        found = [*of_step, *breaches(self.world.snapshot())]
        assert not found, "\n".join([*self.story, *found])

    # -- the cluster --------------------------------------------------------------------------------------------------

    def _moved_first(self) -> bool:
        return self.cluster_first and self._move()

    def _move(self) -> bool:
        move: Move | None = next((m for m in self.world.moves() if not m[0].startswith(self.held)), None)
        if move is None:
            return False
        name, act = move
        self.story.append(f"    {name}")
        act()
        self._check(())
        return True

    def _pass_time(self, decisions: Iterable[Decision]) -> bool:
        """To the moment that the first wait asked for; False when none did."""
        due = [d.not_after for d in decisions if isinstance(d, Wait) and d.not_after is not None]
        if not due:
            return False
        self.world.now = max(min(due), self.world.now + timedelta(milliseconds=1))
        return True


def _named(action: Action) -> str:
    target = next(
        (getattr(action, name) for name in ("pod", "claim", "service", "lease") if hasattr(action, name)), None
    )
    return f"{type(action).__name__}({target.ref.uid if target is not None else ''})"
