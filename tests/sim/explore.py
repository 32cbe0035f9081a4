"""Every state that the real `decide` can reach in a small world, breadth first, within stated bounds.

    python -m tests.sim.explore [scenario ...]

In each state every promise is checked, at each write those of writes. When the search closes, the goal must be
reachable from every state by steps that only need fairness. The shortest way to a breach is printed as a story.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from math import inf
from time import monotonic, process_time
from typing import Any, NamedTuple

from modelbackend_operator.actions import Action, WriteStatus
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act
from modelbackend_operator.invariants import Snapshot, Step, breaches, breaches_of_step
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.outcome import Applied
from tests.sim.canonical import (
    TICK_SECONDS,
    Interner,
    SearchWorld,
    a_tick_later,
    an_action_a_tick_later,
    content_of,
    content_of_action,
    protocol_part,
)
from tests.sim.cluster_moves import quick_moves_of
from tests.sim.effects import target_of
from tests.sim.endings import what_is_wrong
from tests.sim.hands import HEALING, hands_of
from tests.sim.scenario import Scenario
from tests.sim.simulation import CACHED_KINDS, mixed
from tests.sim.state import State
from tests.sim.stories import told
from tests.sim.trail import Trail
from tests.sim.world import World
from tests.unit.builders import NOW

STATES_MAX = 200_000
"""More than any scenario has: one that grows beyond is not closed, however fast the machine is."""


class Look(NamedTuple):
    """An old cache: these kinds as they were in this state."""

    kinds: tuple[type, ...]
    state: State


class Spot(NamedTuple):
    """A state of the search."""

    state: State
    pending: tuple[tuple[Observation, Action], ...]
    """Writes under way, each with the look that it was decided from."""
    views: tuple[Look, ...]
    budget: tuple[int, ...]


class Judged(NamedTuple):
    """What is decided from the truth of a state, by backend; and the first promise that it breaks."""

    acts: dict[str, Action | None]
    breach: str


class Edge(NamedTuple):
    label: str
    spot: Spot
    fair: bool = True
    step: tuple[Observation | str, Action] | None = None
    """The write that was applied, to be checked: with the look behind it, or with the backend of a fresh one."""


@dataclass
class Found:
    scenario: str
    states: int = 0
    edges: int = 0
    depth: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    closed: bool = False
    breach: str = ""
    story: list[str] = field(default_factory=list)

    def line(self) -> str:
        end = "closed" if self.closed else "NOT closed"
        rate = self.edges / max(self.cpu_seconds, 0.001)
        return (
            f"{self.scenario}: {self.states} states, {self.edges} edges, depth {self.depth}, {end}, "
            f"{self.seconds:.1f} s ({self.cpu_seconds:.1f} s of CPU), {rate:.0f} edges/s: "
            f"{self.breach or 'every promise held'}"
        )


class Search:
    def __init__(self, scenario: Scenario, only: str = "") -> None:
        """`only`: the one promise to be checked, where the search is to go on past others."""
        self.scenario = scenario
        self.only = only
        bounds = scenario.bounds
        self.kinds = tuple(name for name, _ in bounds.hands)
        self.slot = {kind: i for i, names in enumerate(self.kinds) for kind in names.split("|")}
        self.late_slot, self.stale_slot, self.pause_slot = (len(self.kinds) + n for n in range(3))
        self.world = SearchWorld(*scenario.backends, later=scenario.later, nodes=scenario.nodes, pool=scenario.pool)
        self.freezes = [tuple(k for k in CACHED_KINDS if k.__name__ == name) or CACHED_KINDS for name in bounds.frozen]
        self.number = Interner()
        self.judged: dict[int, Judged] = {}
        """By the API key: states that differ in their bounds only are judged once."""
        self.checked: dict[Hashable, str] = {}
        """The first breach of a write in a state; empty where there is none."""
        self._last: tuple[State, Snapshot] | None = None
        self.ids: dict[int, tuple[Any, int]] = {}

    # -- keys ---------------------------------------------------------------------------------------------------------

    def start(self) -> Spot:
        if self.scenario.served:
            self._serve()
            self.world.state = a_tick_later(self.world.state)  # it has served for a while
        bounds = self.scenario.bounds
        return Spot(self.world.state, (), (), (*(n for _, n in bounds.hands), bounds.late, bounds.stale, bounds.pauses))

    def _serve(self) -> None:
        """Operator and cluster take turns until nothing is left to do."""
        for _ in range(400):
            state = self.world.state
            acts = [self._fresh_act(uid, state, self.api_key(state)) for uid in self.world.models]
            action = next((action for action in acts if action is not None), None)
            move = next(iter(self.world.moves()), None)
            if action is not None:
                self.world.apply(action)
            elif move is not None:
                move[1]()
            else:
                return
        raise AssertionError("the scenario does not come to serve")

    def objects_key(self, state: State) -> tuple[int, ...]:
        ids, numbered = self.ids, []
        for uid, thing in state.objects.items():
            known = ids.get(id(thing))
            if known is None:
                known = ids[id(thing)] = (thing, self.number(content_of(thing, state.owners.get(uid))))
                if len(ids) > 400_000:
                    ids.clear()
            numbered.append(known[1])
        return tuple(sorted(numbered))

    def api_key(self, state: State) -> int:
        rest = (tuple(state.machines.items()), tuple(sorted(state.runs.items())), state.spent)
        flags = (
            *(state.lagging_ports, state.foreground, state.namespace_terminating, state.forgotten),
            tuple(state.free_since),
        )
        return self.number((self.objects_key(state), self.number(rest), self.number(flags)))

    def key(self, spot: Spot, api_key: int) -> tuple[int, int]:
        """Of everything but the budget."""
        pending = tuple(sorted(self.number(content_of_action(action)) for _, action in spot.pending))
        views = tuple(sorted(self._view_key(spot.state, view) for view in spot.views)) if spot.views else ()
        return (api_key, self.number((pending, views)))

    def _view_key(self, now: State, view: Look) -> int:
        """What an old cache shows, and which of it is still the newest."""
        shown = (
            (uid, self.number(content_of(thing, view.state.owners.get(uid))), _is_newest(thing, now))
            for uid, thing in view.state.objects.items()
            if type(thing) in view.kinds
        )
        return self.number((tuple(kind.__name__ for kind in view.kinds), tuple(sorted(shown))))

    # -- deciding -----------------------------------------------------------------------------------------------------

    def judge(self, state: State, api_key: int) -> Judged:
        known = self.judged.get(api_key)
        if known is None:
            snapshot = self._snapshot(state)
            acts = {look.backend_uid: _protocol_act(look) for look in snapshot.observations}
            known = self.judged[api_key] = Judged(acts, self._first(breaches(snapshot)))
        return known

    def _fresh_act(self, uid: str, state: State, api_key: int) -> Action | None:
        action = self.judge(state, api_key).acts[uid]
        return None if action is None else _renewed(action, state)

    def _snapshot(self, state: State) -> Snapshot:
        """The last one is remembered, because several writes are checked by it."""
        if self._last is None or self._last[0] is not state:
            self._last = (state, self.world.looking.snapshot(state))
        return self._last[1]

    # -- steps --------------------------------------------------------------------------------------------------------

    def edges(self, spot: Spot, api_key: int) -> Iterator[Edge]:
        self.world.mentioned = lambda: repr((spot.pending, [view.state.objects for view in spot.views]))
        busy = False
        for edge in (*self._operator(spot, api_key), *self._cluster(spot)):
            busy = True
            yield edge
        yield from self._old_caches(spot)
        for i, (look, action) in enumerate(spot.pending):
            rest = spot.pending[:i] + spot.pending[i + 1 :]
            yield self._write(spot._replace(pending=rest), look, action, "the late ")
            yield Edge(f"lost: {told(action)}", spot._replace(pending=rest))
        yield from self._hands(spot)
        if not busy or spot.budget[self.pause_slot]:
            budget = _less(spot.budget, self.pause_slot) if busy else spot.budget
            yield Edge(f"    {TICK_SECONDS} s pass", _later(spot)._replace(budget=budget), fair=not busy)

    def _operator(self, spot: Spot, api_key: int) -> Iterator[Edge]:
        for uid in self.world.models:
            action = self._fresh_act(uid, spot.state, api_key)
            if action is None:
                continue
            yield self._write(spot, uid, action, "")
            if spot.budget[self.late_slot]:
                budget = _less(spot.budget, self.late_slot)
                look = self.world.looking.observe(uid, spot.state, spot.state, live=True)
                sent = spot._replace(pending=(*spot.pending, (look, action)), budget=budget)
                yield Edge(f"{told(action)}: no answer", sent, fair=False)

    def _old_caches(self, spot: Spot) -> Iterator[Edge]:
        for i, view in enumerate(spot.views):
            rest = spot.views[:i] + spot.views[i + 1 :]
            yield Edge("an old cache catches up", spot._replace(views=rest))
            cached = mixed({kind: view.state if kind in view.kinds else spot.state for kind in CACHED_KINDS})
            for uid in self.world.models:
                look = self.world.looking.observe(uid, cached._replace(machines=spot.state.machines), spot.state)
                action = _protocol_act(look)
                if action is not None and not action.LIVE:
                    yield self._write(spot._replace(views=rest), look, action, "from an old cache: ")
        if spot.budget[self.stale_slot] and len(spot.views) < self.scenario.bounds.views:
            budget = _less(spot.budget, self.stale_slot)
            for kinds in self.freezes:
                names = ", ".join(kind.__name__ for kind in kinds)
                views = (*spot.views, Look(kinds, spot.state))
                yield Edge(f"(a cache of {names} stands still)", spot._replace(views=views, budget=budget), fair=False)

    def _after(self, spot: Spot, budget: tuple[int, ...] | None = None) -> Spot:
        """Where the world is now, once what nothing comes between has happened too."""
        eager = self.scenario.eager
        while eager:
            acts = (act for name, act in quick_moves_of(self.world) if name.startswith(eager))
            move = next(acts, None)
            if move is None:
                break
            move()
        after = spot._replace(state=self.world.state, budget=spot.budget if budget is None else budget)
        return _still_valid(spot, after)

    def _write(self, spot: Spot, look: Observation | str, action: Action, how: str) -> Edge:
        self.world.state = spot.state
        outcome = self.world.apply(action)
        after = self._after(spot)
        step = (look, action) if isinstance(outcome, Applied) else None
        return Edge(f"{how}{told(action)}: {type(outcome).__name__}", after, step=step)

    def _cluster(self, spot: Spot) -> Iterator[Edge]:
        self.world.state = spot.state
        for name, act in tuple(self.world.moves()):
            self.world.state = spot.state
            act()
            yield Edge(f"    {name}", self._after(spot))

    def _hands(self, spot: Spot) -> Iterator[Edge]:
        self.world.state = spot.state
        allowed = HEALING | {kind for kind, slot in self.slot.items() if spot.budget[slot]}
        for hand in tuple(hands_of(self.world, allowed, self.scenario.struck)):
            slot, heals = self.slot.get(hand.kind), hand.kind in HEALING
            self.world.state = spot.state
            hand.act()
            budget = spot.budget if heals or slot is None else _less(spot.budget, slot)
            after = self._after(spot, budget)
            yield Edge(f"    {hand.what.upper() if not heals else hand.what}", after, fair=heals)

    # -- checking -----------------------------------------------------------------------------------------------------

    def _first(self, found: Iterator[str]) -> str:
        return next((breach for breach in found if breach.startswith(self.only)), "")

    def _breach_of_step(self, state: State, api_key: int, step: tuple[Observation | str, Action]) -> str:
        look, action = step
        if isinstance(look, Observation):
            return self._first(breaches_of_step(Step(self.world.looking.snapshot(state), look, action, NOW)))
        written = (api_key, look, self.number(content_of_action(action)))
        known = self.checked.get(written)
        if known is None:
            before = self._snapshot(state)
            fresh = next(fresh for fresh in before.observations if fresh.backend_uid == look)
            known = self.checked[written] = self._first(breaches_of_step(Step(before, fresh, action, NOW)))
        return known

    # -- the search ---------------------------------------------------------------------------------------------------

    def run(self, *, states_max: int = STATES_MAX, seconds_max: float = inf, liveness: bool = True) -> Found:
        began, cpu_began, found, trail = monotonic(), process_time(), Found(self.scenario.name), Trail()
        first = self.start()
        first_key = self.api_key(first.state)
        trail.add(self.key(first, first_key), first.budget, -1, "(begin)", self.is_goal(first))
        layer = [(0, first, first_key)]
        while layer and not found.breach:
            following: list[tuple[int, Spot, int]] = []
            for number, spot, api_key in layer:
                for edge in self.edges(spot, api_key):
                    found.edges += 1
                    if edge.step is not None:
                        found.breach = self._breach_of_step(spot.state, api_key, edge.step)
                    after_key = self.api_key(edge.spot.state)
                    key = self.key(edge.spot, after_key)
                    known = trail.find(key, edge.spot.budget)
                    if known is None:
                        known = trail.add(key, edge.spot.budget, number, edge.label, self.is_goal(edge.spot))
                        following.append((known, edge.spot, after_key))
                        found.breach = found.breach or self.judge(edge.spot.state, after_key).breach
                    if found.breach:
                        found.story = [*trail.path(number), edge.label]
                        break
                    if edge.fair:
                        trail.join(number, known)
                if found.breach or len(trail.labels) > states_max or monotonic() - began > seconds_max:
                    break
            else:
                layer = following
                found.depth += 1
                continue
            break
        found.closed = not layer and not found.breach
        stuck = trail.first_stuck() if found.closed and liveness else None
        if stuck is not None:
            found.breach = "eventually: no fair way leads from here to where everything is served or gone"
            found.story = trail.path(stuck)
        found.states, found.seconds, found.cpu_seconds = (
            len(trail.labels),
            monotonic() - began,
            process_time() - cpu_began,
        )
        return found

    def is_goal(self, spot: Spot) -> bool:
        self.world.state = spot.state
        return not spot.pending and not spot.views and next(what_is_wrong(self.world), None) is None


def _protocol_act(look: Observation) -> Action | None:
    """What is decided; not a status that says nothing to the rules."""
    decision = decide(look, NOW)
    if not isinstance(decision, Act):
        return None
    action = decision.action
    if isinstance(action, WriteStatus) and look.backend is not None:
        status = protocol_part(action.status)
        return None if status == look.backend.status else replace(action, status=status)
    return action


def _renewed(action: Action, state: State) -> Action:
    """The action as it would be decided from this state, which may have other versions of the same objects."""
    changes: dict[str, Any] = {}
    for name in _referring(type(action)):  # type: ignore[arg-type]
        seen = getattr(action, name)
        current = state.objects[seen.ref.uid]
        if current is not seen:
            changes[name] = current
    return replace(action, **changes) if changes else action


@cache
def _referring(kind: type) -> tuple[str, ...]:
    names = ("backend", "claim", "pod", "service", "lease")
    return tuple(field.name for field in fields(kind) if field.name in names)


def _still_valid(before: Spot, after: Spot) -> Spot:
    """A write on its way to an object that has changed meanwhile can only conflict: it is forgotten."""
    if not before.pending and not after.pending:
        return after
    return after._replace(pending=tuple(p for p in after.pending if _may_still_land(p[1], after.state)))


def _may_still_land(action: Action, state: State) -> bool:
    target = target_of(action)
    if target is None or type(action).__name__ in ("CreateClaim", "CreatePod", "CreateService", "AcquireLease"):
        return True
    if type(target) in World.unchecked:
        return target.ref.uid in state.objects
    return _is_newest(target, state)


def _is_newest(thing: Any, state: State) -> bool:
    current = state.objects.get(thing.ref.uid)
    return current is not None and bool(current.ref == thing.ref)


def _less(budget: tuple[int, ...], slot: int) -> tuple[int, ...]:
    return (*budget[:slot], budget[slot] - 1, *budget[slot + 1 :])


def _later(spot: Spot) -> Spot:
    return spot._replace(
        state=a_tick_later(spot.state),
        pending=tuple((look, an_action_a_tick_later(action)) for look, action in spot.pending),
        views=tuple(view._replace(state=a_tick_later(view.state)) for view in spot.views),
    )
