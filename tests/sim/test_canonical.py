"""What the search leaves out of a state, no rule reads."""

from dataclasses import replace
from datetime import datetime
from random import Random

from modelbackend_operator.actions import Action, WriteStatus
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act
from modelbackend_operator.model.observation import Observation
from tests.sim.canonical import protocol_part
from tests.sim.simulate import Mood, a_setup, choose
from tests.sim.simulation import PromiseBroken
from tests.sim.stories import told


def step_of(look: Observation, now: datetime) -> Action | None:
    """The write that the protocol asks for; a status that says nothing to the rules is none."""
    decision = decide(look, now)
    if not isinstance(decision, Act):
        return None
    action = decision.action
    if isinstance(action, WriteStatus) and look.backend is not None:
        return None if protocol_part(action.status) == protocol_part(look.backend.status) else action
    return action


def said(look: Observation, now: datetime) -> str:
    step = step_of(look, now)
    return told(step).partition("(")[0] if step is not None else ""


def test_no_rule_reads_what_is_left_out_of_a_status() -> None:
    compared = 0
    for seed in range(40):
        random = Random(f"canonical/{seed}")
        setup, mood = a_setup(random), Mood.drawn(random)
        simulation = setup.simulation()
        for _ in range(60):
            try:
                simulation.take(choose(simulation, mood, random))
            except PromiseBroken:
                break
            for uid in simulation.world.models:
                look = simulation.world.observe(uid)
                if look.backend is None:
                    continue
                reduced = replace(look.backend, status=protocol_part(look.backend.status))
                assert said(look, simulation.world.now) == said(replace(look, backend=reduced), simulation.world.now)
                compared += 1
    assert compared > 1000
