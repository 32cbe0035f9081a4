"""Operators, a cluster and bad luck, one step at a time; every promise is checked after every step.

To look and to act are separate steps, so anything may happen between them. Nothing here is random: a step is a
`Choice`, and a list of choices is a run that can be played again, also with some of them left out.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from modelbackend_operator.actions import Action
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.invariants import Step, breaches, breaches_of_step
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.service import Service
from modelbackend_operator.outcome import Applied, Outcome
from tests.sim.hands import HEALING, hands_of
from tests.sim.state import State
from tests.sim.stories import told
from tests.sim.world import World

Choice = tuple[object, ...]
CACHED_KINDS = (Backend, Claim, Pod, Service, Lease)
HISTORY_LENGTH = 12
"""How many states a cache may lag behind."""
SETTLING_STEPS_MAX = 3000
IDLE_SECONDS_MAX = 400
LONGEST_WAIT = timedelta(seconds=IDLE_SECONDS_MAX)
"""Nobody waits here for what comes later than that."""


class PromiseBroken(AssertionError):  # noqa: N818 - what it says
    """Names the promise first, then the object."""


@dataclass
class Operator:
    """One process. All that it remembers is a cache, and what it is about to write."""

    cached: dict[type, State]
    """Each kind as it was at one moment, not the same for all."""
    intent: tuple[Observation, Action] | None = None


@dataclass
class Simulation:
    world: World
    operators: list[Operator] = field(default_factory=list)
    past: deque[State] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    pending: list[tuple[Observation, Action]] = field(default_factory=list)
    """Writes whose answer was lost and that may still land."""
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.past.append(self.world.state)
        self.operators = [Operator(dict.fromkeys(CACHED_KINDS, self.world.state)) for _ in range(2)]

    # -- steps --------------------------------------------------------------------------------------------------------

    def take(self, choice: Choice) -> bool:
        """False where it is not possible now (a run is played again with other steps missing)."""
        before = self.world.state
        match choice:
            case ("look", int(number), str(uid), tuple(lags)):
                self._look(self.operators[number], uid, lags)
                return True
            case ("act", int(number), str(fate)):
                done = self._act(number, fate)
            case ("land", int(index)):
                done = index < len(self.pending)
                if done:
                    self._write(*self.pending.pop(index), "late ")
            case ("lose", int(index)):
                done = index < len(self.pending)
                if done:
                    del self.pending[index]
            case ("cluster", str(what)):
                done = self._do(what, ((name, act) for name, act in self.world.moves()))
            case ("hand", str(what)):
                done = self._do(what, ((hand.what, hand.act) for hand in hands_of(self.world)))
            case ("clock", int(seconds)):
                self.world.now += timedelta(seconds=seconds)
                self.story.append(f"    {seconds} s pass")
                done = True
            case _:
                raise ValueError(choice)
        if self.world.state is not before:
            self.past.append(self.world.state)
            self._check(breaches(self.world.snapshot()))
        return done

    def _do(self, what: str, possible: Iterator[tuple[str, object]]) -> bool:
        for name, act in possible:
            if name == what:
                self.story.append(f"    {what}")
                act()  # type: ignore[operator]
                return True
        return False

    def _look(self, operator: Operator, uid: str, lags: tuple[int, ...]) -> None:
        for kind, lag in zip(CACHED_KINDS, lags, strict=True):
            seen = self.past[max(0, len(self.past) - 1 - lag)]
            if seen.version >= operator.cached[kind].version:
                operator.cached[kind] = seen
        look = self.world.observe(uid, mixed(operator.cached))
        decision = decide(look, self.world.now)
        if isinstance(decision, Act) and decision.action.LIVE:
            operator.cached = dict.fromkeys(CACHED_KINDS, self.world.state)
            look = self.world.observe(uid)
            decision = decide(look, self.world.now)
        operator.intent = (look, decision.action) if isinstance(decision, Act) else None

    def _act(self, number: int, fate: str) -> bool:
        operator = self.operators[number]
        if operator.intent is None:
            return False
        (look, action), operator.intent = operator.intent, None
        who = f"operator {number + 1} "
        if fate == "crashes before":
            operator.cached = dict.fromkeys(CACHED_KINDS, self.world.state)
        elif fate == "is answered late":
            self.story.append(f"{who}{told(action)}: no answer")
            self.pending.append((look, action))
        else:
            self._write(look, action, who)
            if fate == "sees the answer":
                operator.cached = dict.fromkeys(CACHED_KINDS, self.world.state)
        return True

    def _write(self, look: Observation, action: Action, who: str) -> Outcome:
        before, now = self.world.snapshot(), self.world.now
        outcome = self.world.apply(action)
        self.story.append(f"{who}{told(action)}: {type(outcome).__name__}")
        if isinstance(outcome, Applied):
            self._check(breaches_of_step(Step(before, look, action, now)))
        return outcome

    def _check(self, found: Iterator[str]) -> None:
        for breach in found:
            raise PromiseBroken(breach)

    # -- the quiet that comes after -----------------------------------------------------------------------------------

    def settle(self, *, heals: bool = True, held: tuple[str, ...] = ()) -> None:
        """No more faults, every wait fair: until nothing is left to do, within a bound.

        `held`: beginnings of moves that the cluster does not take.
        """
        self.pending.clear()
        if heals:
            self._heal()
        idle_since = self.world.now
        for _ in range(SETTLING_STEPS_MAX):
            wrote, waits = self._reconcile_all()
            move = next((name for name, _ in self.world.moves() if not name.startswith(held)), None)
            if move is not None:
                self.take(("cluster", move))
            if wrote or move is not None:
                idle_since = self.world.now
                continue
            due = [wait.not_after for wait in waits if wait.not_after is not None]
            patience_ends = idle_since + timedelta(seconds=IDLE_SECONDS_MAX)
            if not due or self.world.now > patience_ends or min(due) > self.world.now + LONGEST_WAIT:
                return
            self._pass_time(max(min(due), self.world.now + timedelta(seconds=1)))
        raise PromiseBroken(f"eventually: not settled after {SETTLING_STEPS_MAX} steps")

    def _pass_time(self, moment: datetime) -> None:
        """Told as one line, however often somebody looks meanwhile."""
        passed = (moment - self.world.now).total_seconds()
        self.world.now = moment
        last = self.story[-1].split() if self.story else []
        if last[1:] == ["s", "pass"]:
            passed += float(last[0])
            del self.story[-1]
        self.story.append(f"    {passed:g} s pass")

    def _reconcile_all(self) -> tuple[bool, list[Wait]]:
        wrote, waits = False, []
        for uid in self.world.models:
            look = self.world.observe(uid)
            decision = decide(look, self.world.now)
            if isinstance(decision, Wait):
                waits.append(decision)
            elif isinstance(decision, Act):
                before = self.world.state
                self._write(look, decision.action, "")
                self._check(breaches(self.world.snapshot()))
                wrote = wrote or self.world.state is not before
        return wrote, waits

    def _heal(self) -> None:
        while True:
            hand = next((hand for hand in hands_of(self.world) if hand.kind in HEALING), None)
            if hand is None:
                return
            self.take(("hand", hand.what))


def mixed(cached: dict[type, State]) -> State:
    """A cache in which each kind is as old as its own watch."""
    newest = max(cached.values(), key=lambda state: state.version)
    if all(state is newest for state in cached.values()):
        return newest
    objects, owners = {}, {}
    for kind, state in cached.items():
        for uid, thing in state.objects.items():
            if type(thing) is kind:
                objects[uid] = thing
                if uid in state.owners:
                    owners[uid] = state.owners[uid]
    return newest._replace(objects=objects, owners=owners)
