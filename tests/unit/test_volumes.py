"""A new pod that waits for a volume which a witness on another node still has."""

from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.decision import Wait
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.volumes import await_volume
from tests.unit.builders import (
    NEVER_MADE,
    NOW,
    a_backend,
    a_claim,
    a_gated_pod,
    a_loading_pod,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    an_unscheduled_pod,
    later,
)

WEIGHTS = frozenset({"weights", "cache"})
WITNESS = a_terminating_pod("old", handed_over=NOW, volume_claims=frozenset({"weights"}))
ELSEWHERE: dict[str, Any] = {"node": "node-2", "volume_claims": WEIGHTS}
BEING_MADE = a_loading_pod("new", containers=(NEVER_MADE,), **ELSEWHERE)
MESSAGE = (
    "PersistentVolumeClaim weights is still mounted on node node-1 by pod smollm2-0, whose end is not proven: "
    "if it is ReadWriteOnce, this instance starts once that node is back, or is out of service"
)


def waited(pod: Pod, seconds: float, witness: Pod = WITNESS) -> Wait | None:
    return await_volume(a_world(a_backend(), claims=[a_claim()], pods=[witness, pod]), pod, later(seconds))


def test_a_pod_that_is_being_made_for_too_long_waits_for_the_witnesss_volume() -> None:
    assert waited(BEING_MADE, 30) == Wait("VolumeHeldByWitness", MESSAGE, None, 0)
    assert waited(BEING_MADE, 29) == Wait("Starting", "pod smollm2-0 is being made", later(30), 0)


def test_a_witness_of_an_earlier_backend_holds_its_volume_too() -> None:
    world = a_world(a_backend(), claims=[a_claim()], pods=[BEING_MADE], other_witnesses=(WITNESS,))
    assert await_volume(world, BEING_MADE, later(30)) == Wait("VolumeHeldByWitness", MESSAGE, None, 0)


def test_a_pod_that_no_node_takes_waits_for_it_too() -> None:
    pod = an_unscheduled_pod("new", unschedulable="volume node affinity conflict", volume_claims=WEIGHTS)
    assert waited(pod, 0) == Wait("VolumeHeldByWitness", MESSAGE, None, 0)


OTHERS: dict[str, tuple[Pod, Pod]] = {
    "a pod of another volume": (a_loading_pod("new", containers=(NEVER_MADE,), node="node-2"), WITNESS),
    "a pod on the witness's node": (
        a_loading_pod("new", containers=(NEVER_MADE,), volume_claims=WEIGHTS),
        WITNESS,
    ),
    "a pod that runs": (a_loading_pod("new", **ELSEWHERE), WITNESS),
    "a pod that waits for its image": (
        a_loading_pod("new", containers=(replace(NEVER_MADE, reason="ErrImagePull"),), **ELSEWHERE),
        WITNESS,
    ),
    "a pod behind its gate": (a_gated_pod("new", volume_claims=WEIGHTS), WITNESS),
    "a pod that nobody tried to place yet": (an_unscheduled_pod("new", volume_claims=WEIGHTS), WITNESS),
    "a pod that is deleted": (a_terminating_pod("new", **ELSEWHERE), WITNESS),
    "a witness whose end is proven": (
        BEING_MADE,
        an_ended_pod("old", handed_over=NOW, volume_claims=frozenset({"weights"})),
    ),
    "a predecessor that is no witness": (BEING_MADE, a_terminating_pod("old", volume_claims=WEIGHTS)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_nothing_is_said_of_a_volume_to(case: str) -> None:
    pod, other = OTHERS[case]
    assert waited(pod, 3600, other) is None
