"""Several instances through changes of their spec, in a fake cluster: who ends when, and who serves meanwhile."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from modelbackend_operator.model.backend import Backend, Exposure, Rollout
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.pod import Pod, PodPhase
from tests.sim.world import World
from tests.unit.test_lifecycle_walk import (
    MAIN,
    a_new_backend,
    backend,
    by_hand,
    claims,
    nothing_is_left,
    pods,
    serves,
    started,
)
from tests.unit.walk import Walk

ROLLOUTS = pytest.mark.parametrize("rollout", list(Rollout), ids=lambda rollout: rollout.value)
THREE = (0, 1, 2)


def edit_spec(world: World, **changes: Any) -> None:
    """As the API server does it: each change of the spec is another generation."""
    found = world.state.objects.get(MAIN)
    if isinstance(found, Backend):
        world.edit(found, generation=found.generation + 1, **changes)


def a_rollout(rollout: Rollout, ordinals: tuple[int, ...] = THREE, **faults: Any) -> Walk:
    return started(a_new_backend(ordinals=ordinals, rollout=rollout), **faults)


def serving(walk: Walk) -> set[int]:
    """By ordinal, of all specs."""
    return {pod.ordinal for pod in pods(walk) if pod.ready and pod.stop is None and not pod.deleting}


def roll(walk: Walk, template_hash: str, least: int) -> Walk:
    """To a new spec; fails when fewer than so many instances serve at some moment."""
    edit_spec(walk.world, template_hash=template_hash)
    fewest = [3]

    def done() -> bool:
        fewest.append(len(serving(walk)))
        return False

    walk.settle(until=done)
    assert min(fewest) == least, walk.told()
    return walk


def ready_condition(walk: Walk) -> tuple[str, str]:
    found = next(c for c in backend(walk).status["conditions"] if c["type"] == "Ready")
    return found["status"], found["reason"]


def stalled(walk: Walk) -> dict[str, str]:
    return next((c for c in backend(walk).status["conditions"] if c["type"] == "Stalled"), {})


def entry(walk: Walk, ordinal: int = 0) -> dict[str, Any]:
    return next(e for e in backend(walk).status["instances"] if e["ordinal"] == ordinal)


# -- one instance after the other --------------------------------------------------------------------------------------


def test_recreate_gives_one_instance_at_a_time_the_new_spec_from_the_highest_ordinal_down() -> None:
    walk = roll(a_rollout(Rollout.RECREATE), "hash-2", least=2)
    assert serves(walk, instances=3), walk.told()
    assert {pod.template_hash for pod in pods(walk)} == {"hash-2"}
    assert [e["ordinal"] for e in sorted(backend(walk).status["instances"], key=lambda e: e["ordinal"])] == [0, 1, 2]
    assert stop_order(walk) == [2, 1, 0]


def stop_order(walk: Walk) -> list[int]:
    """Ordinals by the moment their first replaced pod was recorded to stop."""
    return [ordinal for ordinal, _ in walk.stops]


def test_recreate_keeps_the_ports_of_all_instances() -> None:
    walk = a_rollout(Rollout.RECREATE)
    before = {claim.ordinal: claim.port for claim in claims(walk)}
    roll(walk, "hash-2", least=2)
    assert {claim.ordinal: claim.port for claim in claims(walk)} == before


@pytest.mark.parametrize("exposure", list(Exposure))
def test_surge_never_serves_with_fewer_instances_than_before(exposure: Exposure) -> None:
    walk = started(a_new_backend(ordinals=THREE, rollout=Rollout.SURGE, exposure=exposure))
    roll(walk, "hash-2", least=3)
    assert serves(walk, instances=3), walk.told()
    assert {pod.template_hash for pod in pods(walk)} == {"hash-2"}
    assert len([claim for claim in claims(walk) if claim.phase is ClaimPhase.BOUND]) == (
        3 if exposure.claims_port else 0
    )


def test_during_a_surge_the_instance_shows_both_its_pods_and_one_address() -> None:
    walk = a_rollout(Rollout.SURGE, (0,), held=("load",))
    walk.held = ()
    walk.settle()
    (old,) = pods(walk)
    walk.held = ("load",)
    edit_spec(walk.world, template_hash="hash-2")
    walk.settle()
    (new,) = (pod for pod in pods(walk) if pod.ref.uid != old.ref.uid)
    shown = entry(walk)
    assert (shown["pod"]["uid"], shown["phase"]) == (old.ref.uid, "Serving")
    assert (shown["successor"]["pod"]["uid"], shown["successor"]["phase"]) == (new.ref.uid, "Loading")
    assert [e["podUID"] for e in backend(walk).status["endpoints"]] == [old.ref.uid]
    assert ready_condition(walk) == ("False", "RollingOut")
    walk.held = ()
    walk.settle()
    assert "successor" not in entry(walk)
    assert entry(walk)["pod"]["uid"] == new.ref.uid


def test_no_lease_is_held_while_the_second_pod_of_a_surge_starts() -> None:
    walk = a_rollout(Rollout.SURGE, (0,))
    walk.held = ("load",)
    edit_spec(walk.world, template_hash="hash-2")
    walk.settle()
    assert len(pods(walk)) == 2
    assert not walk.writes["AcquireLease"]


@ROLLOUTS
def test_a_rollout_stops_at_the_first_instance_that_does_not_come_up(rollout: Rollout) -> None:
    walk = a_rollout(rollout)
    walk.held = ("load",)
    edit_spec(walk.world, template_hash="broken")
    walk.settle()
    assert serving(walk) >= {0, 1}, walk.told()
    assert [pod.template_hash for pod in pods(walk)].count("broken") == 1
    walk.held = ()
    edit_spec(walk.world, template_hash="hash-1")
    walk.settle()
    assert serves(walk, instances=3), walk.told()
    assert {pod.template_hash for pod in pods(walk)} == {"hash-1"}


@ROLLOUTS
def test_an_instance_that_does_not_serve_is_replaced_before_those_that_do(rollout: Rollout) -> None:
    walk = a_rollout(rollout)
    (broken,) = (pod for pod in pods(walk) if pod.ordinal == 0)
    walk.world.edit(broken, containers_ready=False, ready=False)
    walk.held = (f"report {broken.ref.uid}",)
    walk.settle()
    edit_spec(walk.world, template_hash="hash-2")
    walk.held = ()
    walk.settle()
    assert stop_order(walk)[0] == 0
    assert serves(walk, instances=3), walk.told()


# -- a Surge that cannot go on -----------------------------------------------------------------------------------------


def unschedulable_surge() -> Walk:
    walk = a_rollout(Rollout.SURGE, (0,))
    walk.held = ("schedule",)
    edit_spec(walk.world, template_hash="hash-2")
    walk.settle()
    (new,) = (pod for pod in pods(walk) if not pod.node)
    walk.world.edit(new, unschedulable="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    return walk.settle()


def test_a_second_pod_that_finds_no_node_is_told_while_the_first_serves_on() -> None:
    walk = unschedulable_surge()
    (old,) = (pod for pod in pods(walk) if pod.node)
    new = next(pod for pod in pods(walk) if pod is not old)
    assert serving(walk) == {0}
    assert stalled(walk)["reason"] == "SurgeUnschedulable"
    assert stalled(walk)["message"] == (
        f"pod {new.ref.name} finds no node beside pod {old.ref.name}, which goes on serving the earlier spec: "
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.; "
        "make room, take the change of the spec back, or set rollout to Recreate"
    )


@pytest.mark.parametrize(
    ("way_out", "left"),
    [
        ({"template_hash": "hash-1"}, "hash-1"),
        ({"template_hash": "hash-3"}, "hash-3"),
        ({"rollout": Rollout.RECREATE}, "hash-2"),
    ],
    ids=["the change is taken back", "another change", "Recreate"],
)
def test_a_surge_that_found_no_node_is_left_by(way_out: dict[str, Any], left: str) -> None:
    walk = unschedulable_surge()
    edit_spec(walk.world, **way_out)
    walk.held = ()
    walk.settle()
    assert serves(walk), walk.told()
    assert [pod.template_hash for pod in pods(walk)] == [left]
    assert not stalled(walk)


# -- replicas and suspend ----------------------------------------------------------------------------------------------


def test_scaling_down_ends_the_highest_ordinals_one_after_the_other_and_frees_their_ports() -> None:
    walk = a_rollout(Rollout.RECREATE)
    edit_spec(walk.world, ordinals=(0,))
    walk.settle()
    assert stop_order(walk) == [2, 1]
    assert serves(walk), walk.told()
    assert [claim.ordinal for claim in claims(walk)] == [0]


def test_of_the_instances_that_must_go_one_that_does_not_serve_goes_first() -> None:
    walk = a_rollout(Rollout.RECREATE)
    (broken,) = (pod for pod in pods(walk) if pod.ordinal == 1)
    walk.world.edit(broken, containers_ready=False, ready=False)
    walk.held = (f"report {broken.ref.uid}",)
    walk.settle()
    edit_spec(walk.world, ordinals=(0,))
    walk.held = ()
    walk.settle()
    assert stop_order(walk) == [1, 2]


def test_a_suspended_backend_ends_its_instances_and_comes_back_behind_the_same_ports_in_time() -> None:
    walk = a_rollout(Rollout.RECREATE, (0, 1))
    before = {claim.ordinal: claim.port for claim in claims(walk)}
    edit_spec(walk.world, ordinals=(), suspended=True)
    walk.settle()
    assert not pods(walk)
    assert {reason for _, reason in walk.stops} == {"Suspended"}
    assert ready_condition(walk) == ("True", "Suspended")
    assert {c["type"] for c in backend(walk).status["conditions"]} == {"Ready"}
    edit_spec(walk.world, ordinals=(0, 1), suspended=False)
    walk.settle()
    assert serves(walk, instances=2), walk.told()
    assert {claim.ordinal: claim.port for claim in claims(walk)} == before


# -- faults at every step ----------------------------------------------------------------------------------------------


def whole_rollout(rollout: Rollout, **faults: Any) -> Walk:
    walk = a_rollout(rollout, (0, 1), **faults)
    edit_spec(walk.world, template_hash="hash-2")
    walk.settle()
    assert serves(walk, instances=2), walk.told()
    walk.world.delete_backend(MAIN)
    return walk.settle()


@ROLLOUTS
@pytest.mark.parametrize("lag", [2, 5, 13])
def test_a_second_operator_with_an_old_cache_breaks_no_promise_of_a_rollout(rollout: Rollout, lag: int) -> None:
    walk = whole_rollout(rollout, stale=lag)
    assert nothing_is_left(walk), walk.told()


def test_a_write_of_a_surge_that_lands_late_breaks_no_promise_whichever_it_is() -> None:
    for n in range(whole_rollout(Rollout.SURGE).writes.total()):
        walk = whole_rollout(Rollout.SURGE, late=(n, 6))
        assert nothing_is_left(walk), walk.told()


MEDDLERS: dict[str, Callable[[World], object]] = {
    "the change is taken back": lambda world: edit_spec(world, template_hash="hash-1"),
    "another change": lambda world: edit_spec(world, template_hash="hash-3"),
    "Recreate instead": lambda world: edit_spec(world, rollout=Rollout.RECREATE),
    "Surge instead": lambda world: edit_spec(world, rollout=Rollout.SURGE),
    "scaled down": lambda world: edit_spec(world, ordinals=(0,)),
    "suspended": lambda world: edit_spec(world, ordinals=(), suspended=True),
    "deleted": lambda world: world.delete_backend(MAIN) if MAIN in world.state.objects else None,
    "every pod evicted": by_hand(Pod),
}


@ROLLOUTS
@pytest.mark.parametrize("hand", MEDDLERS)
def test_whatever_is_wished_in_the_middle_of_a_rollout_comes_true(rollout: Rollout, hand: str) -> None:
    begin = len(a_rollout(rollout, (0, 1)).past)
    end = len(whole_rollout(rollout).past)
    for n in range(begin, end, 5):
        walk = a_rollout(rollout, (0, 1), meddle=(n, MEDDLERS[hand]))
        edit_spec(walk.world, template_hash="hash-2")
        walk.settle()
        found = walk.world.state.objects.get(MAIN)
        if isinstance(found, Backend):
            assert serves(walk, instances=len(found.ordinals)), walk.told()
            assert {pod.template_hash for pod in pods(walk)} <= {found.template_hash}
            walk.world.delete_backend(MAIN)
            walk.settle()
        assert nothing_is_left(walk), walk.told()


# -- failures ----------------------------------------------------------------------------------------------------------


def reject(world: World, pod: Pod) -> None:
    words = "Pod was rejected: Allocate failed due to no healthy devices present"
    world.edit(pod, phase=PodPhase.FAILED, phase_reason="UnexpectedAdmissionError", phase_message=words)


def rejected_again_and_again(times: int, **special: Any) -> tuple[Walk, list[float]]:
    """Every pod is refused by its node; seconds between the makings of two pods."""
    walk = started(a_new_backend(**special), held=("run",))
    made = []
    for _ in range(times):
        found = pods(walk)
        if not found:
            break
        made.append(found[0].created_at)
        reject(walk.world, found[0])
        for _ in range(3):  # a pause may be longer than a walk waits at a time
            walk.settle(until=lambda last=found[0].ref.uid: any(p.node and p.ref.uid != last for p in pods(walk)))  # type: ignore[misc]
    return walk, [(b - a).total_seconds() for a, b in pairwise(made)]


def test_pods_that_a_node_refuses_are_made_ten_seconds_apart_then_twice_as_long_up_to_five_minutes() -> None:
    walk, pauses = rejected_again_and_again(8)
    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    assert len(pods(walk)) == 1
    assert entry(walk)["failedStarts"] == 8


def test_a_start_that_succeeds_begins_the_pauses_anew() -> None:
    walk, _ = rejected_again_and_again(3)
    walk.held = ()
    walk.settle()
    assert serves(walk), walk.told()
    assert "failedStarts" not in entry(walk)
    assert entry(walk)["restarts"] == 3


def test_an_instance_that_failed_too_often_is_ended_says_why_and_is_tried_again_when_the_spec_changes() -> None:
    walk, _ = rejected_again_and_again(9, max_restarts=2)
    walk.settle()
    assert not pods(walk), walk.told()
    assert stalled(walk)["reason"] == "RestartBudgetExhausted"
    assert stalled(walk)["message"] == (
        "instance 0 failed 3 times under this spec, and restart.maxRestarts allows 2; the last time: node node-1 ended "
        "pod main-71978d1f-0: Pod was rejected: Allocate failed due to no healthy devices present; "
        "it is started again when the spec changes"
    )
    walk.held = ()
    edit_spec(walk.world, max_restarts=3)
    walk.settle()
    assert serves(walk), walk.told()
    assert entry(walk)["restarts"] == 0


def test_a_pod_that_its_kubelet_evicts_is_replaced_after_proof_behind_the_same_port() -> None:
    walk = a_rollout(Rollout.RECREATE, (0, 1))
    evicted = next(pod for pod in pods(walk) if pod.ordinal == 1)
    before = {claim.ordinal: claim.port for claim in claims(walk)}
    walk.world.now += timedelta(days=1)
    words = "The node was low on resource: memory."
    walk.world.edit(evicted, phase=PodPhase.FAILED, phase_reason="Evicted", phase_message=words, ready=False)
    walk.settle()
    assert walk.stops == [(1, "PodFailed")]
    assert serves(walk, instances=2), walk.told()
    assert {claim.ordinal: claim.port for claim in claims(walk)} == before
    assert entry(walk, 1)["restarts"] == 1


def test_a_node_drain_takes_no_instance_but_those_it_evicts() -> None:
    walk = a_rollout(Rollout.RECREATE, (0, 1))
    (kept,) = (pod for pod in pods(walk) if pod.ordinal == 0)
    walk.world.delete_pod(next(pod for pod in pods(walk) if pod.ordinal == 1))
    walk.settle()
    assert serves(walk, instances=2), walk.told()
    assert kept.ref.uid in {pod.ref.uid for pod in pods(walk)}
    assert not walk.writes["AcquireLease"]
    assert entry(walk, 1)["restarts"] == 0
