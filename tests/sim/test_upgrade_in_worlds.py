"""An operator is replaced by a later version in the middle of a shutdown, after each of its writes.

The later one makes other pods of the same spec (another template hash). What the earlier one began is finished as it
was begun; whatever runs on is replaced after that, once.
"""

from dataclasses import replace

import pytest

from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.stop import StopRecord
from tests.sim.endings import what_is_wrong
from tests.sim.scenarios import B1, SURGING, on_host
from tests.sim.simulation import Simulation
from tests.sim.world import World

LATER_HASH = "hash-of-the-later-version"
UPGRADE_SECONDS = 5
WRITES_MAX = 40
INSIDE = replace(B1, exposure=Exposure.CLUSTER_IP)
ENDS: dict[str, tuple[Backend, str]] = {
    "deleted": (B1, "delete b1"),
    "deleted, behind a host port": (on_host(B1)[0], "delete b1"),
    "deleted, inside": (INSIDE, "delete b1"),
    "suspended": (B1, "suspend b1"),
    "edited": (B1, "edit the template of b1"),
    "edited, and surging": (SURGING, "edit the template of b1"),
    "evicted": (B1, "evict pod-{}"),
}


def a_serving_life(backend: Backend) -> Simulation:
    simulation = Simulation(World(backend, nodes=("node-1", "node-2"), pool=(30000, 30003)))
    simulation.settle()
    return simulation


def begin(simulation: Simulation, end: str) -> Pod:
    [pod] = simulation.world.state.all(Pod)
    assert simulation.take(("hand", end.format(pod.ref.uid.removeprefix("pod-"))))
    return pod


def write(simulation: Simulation) -> bool:
    """The next write of the operator; cluster moves and, where nothing else is left, time come before it."""
    world = simulation.world
    for _ in range(WRITES_MAX):
        decision = decide(world.observe("b1"), world.now)
        if isinstance(decision, Act):
            simulation._write(world.observe("b1"), decision.action, "the earlier version: ")
            return True
        move = next(world.moves(), None)
        if move is None:
            return False
        simulation.take(("cluster", move[0]))
    return False


def upgrade(simulation: Simulation) -> None:
    simulation.take(("clock", UPGRADE_SECONDS))
    backend = simulation.world.state.objects.get("b1")
    if backend is not None:
        simulation.world.edit(backend, template_hash=LATER_HASH)


def record_of(simulation: Simulation, pod: Pod) -> StopRecord | None:
    there = simulation.world.state.objects.get(pod.ref.uid)
    return there.stop if there is not None else None


@pytest.mark.parametrize("case", ENDS)
def test_a_later_version_finishes_what_the_earlier_one_began_after_each_of_its_writes(case: str) -> None:
    backend, end = ENDS[case]
    for writes in range(WRITES_MAX):
        simulation = a_serving_life(backend)
        ended = begin(simulation, end)
        done = all(write(simulation) for _ in range(writes))
        before = record_of(simulation, ended)
        upgrade(simulation)
        simulation.settle()
        assert list(what_is_wrong(simulation.world)) == [], f"after {writes} writes"
        story = "\n".join(simulation.story)
        kept = before is None or story.count(f"WriteStopRecord on {ended.ref.uid}") == 1
        assert kept, f"after {writes} writes its stop is recorded anew:\n{story}"
        left = {pod.template_hash for pod in simulation.world.state.all(Pod)}
        assert left <= {LATER_HASH}
        assert story.count("CreatePod") <= 3, f"after {writes} writes:\n{story}"
        if not done:
            return
    raise AssertionError(f"its end is not over after {WRITES_MAX} writes")
