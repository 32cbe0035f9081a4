"""The fake's kubelet does what the real one was seen to do."""

from dataclasses import replace

import pytest

from modelbackend_operator.model.pod import ContainerState, Pod
from tests.sim.hands import hands_of
from tests.sim.kubelet_rows import ROWS, Done, Row
from tests.sim.state import Run
from tests.sim.world import World
from tests.unit.builders import POD_UID, a_serving_pod


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_a_pod_that_runs(row: Row) -> None:
    world = World()
    world.put(a_serving_pod())
    world.state = world.state.with_run(POD_UID, Run("node-1", ()))._replace(owners={POD_UID: "b"})
    world.models["b"] = "models/b"
    for done in row.done:
        do(world, done)
        everybody_acts(world)
    pod = world.state.objects.get(POD_UID)
    assert (POD_UID in world.state.servers, pod is not None) == (row.lives, row.exists)
    if pod is not None:
        assert row.phase in (None, pod.phase)
        assert all(c.state is ContainerState.TERMINATED for c in pod.containers) is row.ended
        assert (pod.grace_seconds, pod.removed_by_pod_gc) == (row.grace_seconds, row.by_pod_gc)


def do(world: World, done: Done) -> None:
    pod: Pod = world.state.objects[POD_UID]
    node = {
        Done.KUBELET_STOPS: "the kubelet of node-1 stops",
        Done.KUBELET_RETURNS: "the kubelet of node-1 returns",
        Done.NODE_REMOVED: "Node node-1 is removed",
    }
    grace = {Done.DELETE: 15, Done.DELETE_LONGER: 20, Done.DELETE_SHORTER: 3, Done.FORCE: 0}
    if done in grace:
        world.delete_pod(pod, grace[done])
    elif done is Done.STRIP:
        world.put(replace(pod, has_finalizer=False))
    else:
        next(hand for hand in hands_of(world) if hand.what == node[done]).act()


def everybody_acts(world: World) -> None:
    """But the garbage collector: the pod here has no backend that it could miss."""
    while moves := [act for name, act in world.moves() if not name.startswith(("collect", "evict"))]:
        moves[0]()
