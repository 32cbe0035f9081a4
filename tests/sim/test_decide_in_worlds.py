"""What `decide` is, whatever happens to it: asked in every state that some runs of the simulator come to.

Each property is a function that yields breaches; each has rules, broken on purpose, with which it must find some. That
it is total and deterministic, and that its waits can end, is asked of any observation in `test_decide_properties.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import pytest

from modelbackend_operator import actions as do
from modelbackend_operator import conditions, settling, stopping
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.outcome import Applied
from modelbackend_operator.reasons import Reason
from tests.sim.mutants import Mutant, applied
from tests.sim.simulate import Mood, a_setup, choose
from tests.sim.simulation import PromiseBroken
from tests.sim.state import State
from tests.sim.stories import told
from tests.sim.world import World

RUNS, STEPS, EVERY = 80, 90, 6
SECONDS = (1, 14, 29, 61, 106, 400, 4000)
Breaches = Iterator[str]


@cache
def worlds() -> list[tuple[World, State]]:
    """Every few steps of each run."""
    found = []
    for seed in range(RUNS):
        random = Random(f"properties/{seed}")
        setup, mood = a_setup(random), Mood.drawn(random)
        simulation = setup.simulation()
        for step in range(STEPS):
            try:
                simulation.take(choose(simulation, mood, random))
            except PromiseBroken as broken:
                raise AssertionError(f"run {seed}") from broken
            if step % EVERY == 0:
                found.append((simulation.world, simulation.world.state))
    return found


def looks() -> Iterator[tuple[World, Observation, datetime]]:
    for world, state in worlds():
        world.state = state
        for uid in world.models:
            yield world, world.observe(uid), state.now
            world.state = state


def write_of(look: Observation, now: datetime) -> Any:
    """But not of a status, which says how long something lasts, and so may change with the time."""
    decision = decide(look, now)
    return decision.action if isinstance(decision, Act) and not isinstance(decision.action, do.WriteStatus) else None


# -- the properties ---------------------------------------------------------------------------------------------------


def what_is_done_is_not_done_again() -> Breaches:
    for world, look, now in looks():
        decision = decide(look, now)
        if isinstance(decision, Act) and isinstance(world.apply(decision.action), Applied):
            again = decide(world.observe(look.backend_uid), now)
            if isinstance(again, Act) and told(again.action) == told(decision.action):
                yield f"{told(again.action)} twice"


def what_is_due_stays_due() -> Breaches:
    """An order to cut is for a server in its grace period, and comes too late after that."""
    for _, look, now in looks():
        first = write_of(look, now)
        if first is None or isinstance(first, do.AbortServer):
            continue
        for seconds in SECONDS:
            if write_of(look, now + timedelta(seconds=seconds)) is None:
                yield f"{told(first)}, and nothing {seconds} s later"


def nothing_is_due_before_a_wait_is_over() -> Breaches:
    """And a wait without a time is for the world: time alone ends it never."""
    for _, look, now in looks():
        decision = decide(look, now)
        if isinstance(decision, Act):
            continue
        until = decision.not_after if isinstance(decision, Wait) else None
        times = [now + timedelta(seconds=seconds) for seconds in SECONDS]
        for moment in times if until is None else [(until - timedelta(seconds=0.5)), *(t for t in times if t < until)]:
            early = write_of(look, moment)
            if early is not None and moment > now:
                yield f"{told(early)} is due at {moment}, and {decision} says otherwise"


def silence_is_taken_for_nothing() -> Breaches:
    """A server that does not answer neither serves, nor is idle."""
    for _, look, now in looks():
        silent = replace(look, servers={})
        match write_of(silent, now):
            case do.SetServing(pod=pod, serving=True):
                yield f"{pod.ref.uid} is published, and nobody heard of it"
            case do.DeletePod(pod=pod) if pod.stop is not None and not pod.deleting and not pod.gated:
                runs = any(container.state.value == "running" for container in pod.containers)
                if runs and pod.stop.cut is None and now < pod.stop.deadline:
                    yield f"{pod.ref.uid} is deleted before its deadline, and nobody heard that it is idle"


PROPERTIES = (
    what_is_done_is_not_done_again,
    what_is_due_stays_due,
    nothing_is_due_before_a_wait_is_over,
    silence_is_taken_for_nothing,
)


@pytest.mark.parametrize("property_", PROPERTIES, ids=lambda property_: property_.__name__)
def test_of_decide(property_: Callable[[], Breaches]) -> None:
    assert list(property_())[:5] == []


# -- that each can fail -----------------------------------------------------------------------------------------------


def a_status_is_never_said_already(*_: object) -> bool:
    return False


def cools_for_nobody_knows_how_long(observation: Observation, claim: Any, now: datetime) -> Any:
    step = _free_when_cooled(observation, claim, now)
    return replace(step, not_after=None) if isinstance(step, Wait) else step


def drains_on_even_dates(observation: Observation, pod: Any, now: datetime) -> Any:
    """Not later than it had to: a rule that looks at the clock, and not at what has passed."""
    return _drain(observation, pod, now) if now.second % 2 == 0 else Wait(Reason.DRAINING, "", None, 0)


_drain = stopping._drain
_free_when_cooled = settling._free_when_cooled

BROKEN = (
    (what_is_done_is_not_done_again, conditions.says_already, a_status_is_never_said_already),
    (what_is_due_stays_due, stopping._drain, drains_on_even_dates),
    (nothing_is_due_before_a_wait_is_over, settling._free_when_cooled, cools_for_nobody_knows_how_long),
    (silence_is_taken_for_nothing, stopping._is_idle, lambda server: server is None or server.in_flight == 0),
)


@pytest.mark.parametrize(("property_", "rule", "broken"), BROKEN, ids=lambda it: getattr(it, "__name__", ""))
def test_a_rule_that_breaks_it_is_found(
    property_: Callable[[], Breaches], rule: Callable[..., Any], broken: Callable[..., Any]
) -> None:
    worlds()
    with applied(Mutant("", broken.__name__, None, ((rule, broken),))):
        assert next(property_(), None) is not None
