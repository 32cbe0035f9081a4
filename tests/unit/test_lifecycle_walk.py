"""Whole lifecycles in a fake cluster, every promise checked after every step; a failure prints its story."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from modelbackend_operator.model.backend import Backend, Exposure, WhenUnconfirmed
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.pod import Pod, PodPhase
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.service import Service
from tests.sim.world import World
from tests.unit.builders import a_backend
from tests.unit.walk import Walk

MAIN = "main-uid"
OTHER = "other-uid"
WRITES_MAX = 12
"""To the API server, for one start and for one stop."""
EXPOSURES = list(Exposure)


def a_new_backend(uid: str = MAIN, **special: Any) -> Backend:
    name = uid.removesuffix("-uid")
    return a_backend(**{"ref": Ref(name, uid, "", "models"), "has_finalizer": False, "model": "shared", **special})


def started(*backends: Backend, **faults: Any) -> Walk:
    return Walk(World(*(backends or (a_new_backend(),))), **faults).settle()


def pods(walk: Walk, uid: str = MAIN) -> list[Pod]:
    return walk.world.state.all(Pod, uid)


def claims(walk: Walk, uid: str = MAIN) -> list[Claim]:
    return walk.world.state.all(Claim, uid)


def backend(walk: Walk, uid: str = MAIN) -> Backend:
    found: Backend = walk.world.state.objects[uid]
    return found


def serves(walk: Walk, uid: str = MAIN, instances: int = 1) -> bool:
    status = backend(walk, uid).status
    told = {endpoint["podUID"] for endpoint in status["endpoints"]}
    ready = {pod.ref.uid for pod in pods(walk, uid) if pod.ready and pod.handed_over is None}
    return told == ready and len(ready) == instances and status["readyReplicas"] == instances


def nothing_is_left(walk: Walk) -> bool:
    state = walk.world.state
    return not state.objects and not state.servers


# -- one instance from beginning to end -------------------------------------------------------------------------------


PACES = pytest.mark.parametrize("cluster_first", [False, True], ids=["operator first", "cluster first"])


@pytest.mark.parametrize("exposure", EXPOSURES)
@PACES
def test_an_instance_starts_and_serves(exposure: Exposure, cluster_first: bool) -> None:
    walk = started(a_new_backend(exposure=exposure), cluster_first=cluster_first)
    assert serves(walk), walk.told()
    assert [claim.phase for claim in claims(walk)] == ([ClaimPhase.BOUND] if exposure.claims_port else [])


@pytest.mark.parametrize("exposure", EXPOSURES)
@PACES
def test_a_deletion_lets_a_request_finish_and_leaves_nothing(exposure: Exposure, cluster_first: bool) -> None:
    walk = started(a_new_backend(exposure=exposure), cluster_first=cluster_first)
    walk.world.request(pods(walk)[0])
    walk.world.delete_backend(MAIN)
    walk.settle()
    assert nothing_is_left(walk), walk.told()
    assert "    finish pod-" in walk.told()


@PACES
def test_a_start_and_a_stop_take_few_writes(cluster_first: bool) -> None:
    """In a cluster that lets the operator see each of its moves, the status follows scheduled, running and ready."""
    walk = started(cluster_first=cluster_first)
    assert walk.writes.total() - walk.writes["WriteStatus"] == 9
    assert walk.writes.total() <= WRITES_MAX + (not cluster_first), walk.writes
    walk.writes.clear()
    walk.world.delete_backend(MAIN)
    walk.settle(until=lambda: MAIN not in walk.world.state.objects)
    assert walk.writes.total() <= WRITES_MAX, walk.writes
    walk.writes.clear()
    walk.settle()  # until the port has cooled
    assert walk.writes == {"DeleteClaim": 1, "RemoveClaimFinalizer": 1}


def test_a_settled_backend_is_not_written_however_long_it_lives() -> None:
    walk = started(a_new_backend(), a_new_backend(OTHER, port_range=(30005, 30004)))
    walk.writes.clear()
    for _ in range(10):
        walk.world.now += timedelta(days=30)
        walk.settle()
    assert not walk.writes


def test_a_request_that_does_not_finish_is_cut_at_the_deadline_and_not_before() -> None:
    walk = started(held=("finish",))
    walk.world.request(pods(walk)[0])
    asked_at = walk.world.now
    walk.world.delete_backend(MAIN)
    walk.settle(until=lambda: pods(walk)[0].deleting)
    assert (walk.world.now - asked_at).total_seconds() == backend(walk).drain_seconds
    walk.settle()
    assert nothing_is_left(walk), walk.told()


@pytest.mark.parametrize("exposure", [Exposure.NODE_PORT, Exposure.HOST_PORT])
def test_a_changed_spec_restarts_the_instance_behind_the_same_port(exposure: Exposure) -> None:
    walk = started(a_new_backend(exposure=exposure))
    (before,), (pod,) = claims(walk), pods(walk)
    walk.world.edit(backend(walk), template_hash="hash-2", generation=2)
    walk.settle()
    assert serves(walk), walk.told()
    assert [claim.port for claim in claims(walk)] == [before.port]
    assert pods(walk)[0].ref.uid != pod.ref.uid
    assert pods(walk)[0].template_hash == "hash-2"


def test_the_service_of_an_instance_that_restarts_is_kept_and_pointed_at_the_new_pod() -> None:
    walk = started()
    of_instance = [service.ref.uid for service in walk.world.state.all(Service) if service.ordinal is not None]
    walk.world.edit(backend(walk), template_hash="hash-2")
    walk.settle()
    after = [service for service in walk.world.state.all(Service) if service.ordinal is not None]
    assert [service.ref.uid for service in after] == of_instance
    assert [service.pod_uid for service in after] == [pods(walk)[0].ref.uid]


def test_scaling_to_nothing_and_back_loses_nothing() -> None:
    walk = started(a_new_backend(ordinals=(0, 1)))
    assert serves(walk, instances=2), walk.told()
    walk.world.edit(backend(walk), ordinals=())
    walk.settle()
    assert not pods(walk)
    walk.world.edit(backend(walk), ordinals=(0, 1))
    walk.settle()
    assert serves(walk, instances=2), walk.told()


# -- deletion in any phase --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exposure", EXPOSURES)
@PACES
def test_a_deletion_at_every_step_of_a_start_leaves_nothing(exposure: Exposure, cluster_first: bool) -> None:
    steps = len(started(a_new_backend(exposure=exposure), cluster_first=cluster_first).past)
    for n in range(steps):
        meddle = (n, lambda world: world.delete_backend(MAIN))
        walk = started(a_new_backend(exposure=exposure), cluster_first=cluster_first, meddle=meddle)
        walk.settle()
        assert nothing_is_left(walk), walk.told()


@pytest.mark.parametrize("phase", ["schedule", "run", "load"], ids=["unscheduled", "image pull failing", "loading"])
@pytest.mark.parametrize("exposure", EXPOSURES)
def test_a_deletion_of_an_instance_that_is_stuck_leaves_nothing(phase: str, exposure: Exposure) -> None:
    walk = started(a_new_backend(exposure=exposure), held=(phase,))
    assert not serves(walk)
    walk.world.delete_backend(MAIN)
    walk.settle()
    assert nothing_is_left(walk), walk.told()


@pytest.mark.parametrize("before", EXPOSURES)
@pytest.mark.parametrize("after", EXPOSURES)
def test_another_exposure_leaves_nothing_of_the_last_one(before: Exposure, after: Exposure) -> None:
    walk = started(a_new_backend(exposure=before))
    walk.world.edit(backend(walk), exposure=after, template_hash=f"hash-{after}")
    walk.settle()
    assert serves(walk), walk.told()
    assert [claim.exposure for claim in claims(walk)] == ([after] if after.claims_port else [])
    of_instances = [service for service in walk.world.state.all(Service) if service.ordinal is not None]
    assert len(of_instances) == (after is Exposure.NODE_PORT)


def delete_in_the_foreground(world: World) -> None:
    """As GitOps tools prune: the garbage collector takes the children while the object is still there."""
    world.state = world.state._replace(foreground=world.state.foreground | {MAIN})
    world.delete_backend(MAIN)


def delete_the_namespace(world: World) -> None:
    world.state = world.state._replace(namespace_terminating=True)


CASCADES: dict[str, Callable[[World], object]] = {
    "in the foreground": delete_in_the_foreground,
    "with its namespace": delete_the_namespace,
}


@pytest.mark.parametrize("cascade", CASCADES)
@PACES
def test_a_backend_that_is_deleted_from_above_at_whatever_step_ends_and_leaves_nothing(
    cascade: str, cluster_first: bool
) -> None:
    steps = len(started(cluster_first=cluster_first).past)
    for n in range(0, steps, 2):
        walk = started(cluster_first=cluster_first, meddle=(n, CASCADES[cascade]))
        walk.settle()
        assert nothing_is_left(walk), walk.told()
        begun = next(at for at, line in enumerate(walk.story) if line == "somebody meddles")
        late = [line for line in walk.story[begun:] if "CreatePod" in line or "CreateService" in line]
        assert [line for line in late if "Applied" in line] == [], walk.told()


# -- others end pods --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grace_seconds", [45, 0], ids=["evicted", "force-deleted"])
def test_a_pod_that_others_delete_is_replaced_behind_the_same_port_after_proof(grace_seconds: int) -> None:
    walk = started(a_new_backend(when_unconfirmed=WhenUnconfirmed.WAIT))
    (pod,), (claim,) = pods(walk), claims(walk)
    walk.world.delete_pod(pod, grace_seconds)
    walk.held = ("end",)
    walk.settle()
    assert [found.ref.uid for found in pods(walk)] == [pod.ref.uid]  # no proof, no replacement
    assert backend(walk).status["endpoints"] == []
    walk.held = ()
    walk.settle()
    assert serves(walk), walk.told()
    assert [found.port for found in claims(walk)] == [claim.port]
    assert not walk.writes["AcquireLease"]


def force_deleted_past_its_finalizer() -> tuple[Walk, Claim]:
    walk = started()
    (pod,), (claim,) = pods(walk), claims(walk)
    walk.world.remove(pod)
    walk.settle()
    return walk, claim


def test_a_vanished_pod_leaves_its_port_withheld_and_the_instance_starts_on_another() -> None:
    walk, claim = force_deleted_past_its_finalizer()
    assert serves(walk), walk.told()
    assert {found.port: found.phase for found in claims(walk)} == {
        claim.port: ClaimPhase.WITHHELD,
        pods_port(walk): ClaimPhase.BOUND,
    }
    assert pods_port(walk) != claim.port


def pods_port(walk: Walk) -> int:
    (pod,) = pods(walk)
    return next(claim.port for claim in claims(walk) if claim.pod_uid == pod.ref.uid)


def test_a_backend_with_a_vanished_pod_can_be_deleted_and_its_port_stays_withheld_for_ever() -> None:
    walk, claim = force_deleted_past_its_finalizer()
    walk.world.delete_backend(MAIN)
    walk.settle()
    left = walk.world.state.objects.values()
    assert [(c.port, c.phase) for c in left] == [(claim.port, ClaimPhase.WITHHELD)], walk.told()
    assert not walk.world.state.servers  # the kubelet ended it, and there was no object to say so on


def test_a_pod_that_its_node_rejects_is_replaced() -> None:
    walk = started(held=("run",))
    (pod,) = pods(walk)
    words = "Pod was rejected: Allocate failed due to no healthy devices present"
    walk.world.edit(pod, phase=PodPhase.FAILED, phase_reason="UnexpectedAdmissionError", phase_message=words)
    walk.held = ()
    walk.settle()
    assert serves(walk), walk.told()
    assert pods(walk)[0].ref.uid != pod.ref.uid


def test_an_ended_pod_whose_kubelet_is_lost_before_it_removes_the_object_does_not_hold_up_anybody() -> None:
    walk = started(held=("remove",))
    walk.world.delete_backend(MAIN)
    walk.settle()
    assert nothing_is_left(walk), walk.told()


# -- two backends -----------------------------------------------------------------------------------------------------


@PACES
def test_two_backends_of_one_model_are_shut_down_one_after_the_other(cluster_first: bool) -> None:
    walk = started(a_new_backend(), a_new_backend(OTHER, ordinals=(0, 1)), cluster_first=cluster_first)
    for uid in (MAIN, OTHER):
        for pod in pods(walk, uid):
            walk.world.request(pod)
        walk.world.edit(backend(walk, uid), template_hash="hash-2")
    walk.settle()
    assert serves(walk, MAIN), walk.told()
    assert serves(walk, OTHER, instances=2), walk.told()
    assert walk.writes["AcquireLease"] == 3
    assert walk.writes["ReleaseLease"] == 3
    for uid in (MAIN, OTHER):
        walk.world.delete_backend(uid)
    walk.settle()
    assert nothing_is_left(walk), walk.told()


@pytest.mark.parametrize("exposure", [Exposure.NODE_PORT, Exposure.HOST_PORT])
def test_to_pin_the_port_that_an_instance_has_restarts_nothing_and_to_pin_another_moves_it(exposure: Exposure) -> None:
    walk = started(a_new_backend(exposure=exposure))
    (claim,), (pod,) = claims(walk), pods(walk)
    walk.writes.clear()
    walk.world.edit(backend(walk), pinned_port=claim.port)
    walk.settle()
    assert pods(walk) == [pod]
    assert not walk.writes
    other = 30000 if claim.port != 30000 else 30001
    walk.world.edit(backend(walk), pinned_port=other)
    walk.settle()
    assert serves(walk), walk.told()
    assert [claim.port for claim in claims(walk)] == [other]


def test_the_second_of_two_backends_with_one_pinned_port_waits_says_so_and_gets_it() -> None:
    pinned = 30004
    walk = started(a_new_backend(pinned_port=pinned), a_new_backend(OTHER, pinned_port=pinned, model="another"))
    assert serves(walk, MAIN), walk.told()
    stalled = [c for c in backend(walk, OTHER).status["conditions"] if c["type"] == "Stalled"]
    assert [c["reason"] for c in stalled] == ["PinnedPortTaken"]
    walk.world.delete_backend(MAIN)
    walk.settle()
    assert serves(walk, OTHER), walk.told()
    assert pods_port_of(walk, OTHER) == pinned


def pods_port_of(walk: Walk, uid: str) -> int:
    (claim,) = claims(walk, uid)
    return claim.port


def test_more_instances_than_ports_serve_as_many_as_there_are_ports() -> None:
    walk = started(a_new_backend(ordinals=tuple(range(3)), port_range=(30000, 30001)))
    assert serves(walk, instances=2), walk.told()
    stalled = [c for c in backend(walk).status["conditions"] if c["type"] == "Stalled"]
    assert [c["reason"] for c in stalled] == ["PortPoolExhausted"]


# -- faults at every step ---------------------------------------------------------------------------------------------


def whole_life(exposure: Exposure = Exposure.NODE_PORT, **faults: Any) -> Walk:
    """Started, restarted for a new spec, deleted: the same steps each time, whatever the faults."""
    walk = started(a_new_backend(exposure=exposure), **faults)
    walk.world.request(pods(walk)[0])
    walk.world.edit(backend(walk), template_hash="hash-2")
    walk.settle()
    assert serves(walk), walk.told()
    walk.world.delete_backend(MAIN)
    return walk.settle()


@pytest.mark.parametrize("exposure", EXPOSURES)
@pytest.mark.parametrize("lag", [1, 2, 3, 5, 8, 13])
@PACES
def test_a_second_operator_with_an_old_cache_breaks_no_promise(
    exposure: Exposure, lag: int, cluster_first: bool
) -> None:
    walk = whole_life(exposure, stale=lag, cluster_first=cluster_first)
    assert nothing_is_left(walk), walk.told()


@pytest.mark.parametrize("exposure", [Exposure.NODE_PORT, Exposure.HOST_PORT])
@pytest.mark.parametrize("delay", [1, 6])
def test_a_write_that_lands_late_breaks_no_promise_whichever_it_is(exposure: Exposure, delay: int) -> None:
    for n in range(whole_life(exposure).writes.total()):
        walk = whole_life(exposure, late=(n, delay))
        assert nothing_is_left(walk), walk.told()


def by_hand(kind: type[Any]) -> Callable[[World], None]:
    """`kubectl delete` of every object of this kind, which the finalizer of a claim or pod outlives."""

    def delete(world: World) -> None:
        for found in world.state.all(kind):
            if isinstance(found, Pod):
                world.delete_pod(found)
            elif isinstance(found, Claim):
                world.delete_claim(found)
            else:
                world.remove(found)

    return delete


def with_labels_edited(world: World) -> None:
    for pod in world.state.all(Pod):
        world.edit(pod, serving_label=False)


def with_pod_finalizers_edited(world: World) -> None:
    for pod in world.state.all(Pod):
        if not pod.deleting:
            world.edit(pod, has_finalizer=False)


def with_the_finalizer_edited(world: World) -> None:
    if MAIN in world.state.objects:
        world.edit(world.state.objects[MAIN], has_finalizer=False)


def with_the_status_wiped(world: World) -> None:
    if MAIN in world.state.objects:
        world.edit(world.state.objects[MAIN], status={})


def with_the_stop_record_wiped(world: World) -> None:
    for pod in world.state.all(Pod):
        world.edit(pod, stop=None)


HANDS: dict[str, Callable[[World], None]] = {
    "pods deleted": by_hand(Pod),
    "claims deleted": by_hand(Claim),
    "Services deleted": by_hand(Service),
    "the Lease deleted": by_hand(Lease),
    "labels edited": with_labels_edited,
    "finalizers of pods edited away": with_pod_finalizers_edited,
    "the backend's finalizer edited away": with_the_finalizer_edited,
    "the status wiped": with_the_status_wiped,
    "the stop record wiped": with_the_stop_record_wiped,
}


@pytest.mark.parametrize("hand", HANDS)
def test_whatever_is_done_by_hand_at_whatever_step_the_life_goes_on_and_ends(hand: str) -> None:
    for n in range(len(whole_life().past)):
        walk = whole_life(meddle=(n, HANDS[hand]))
        assert nothing_is_left(walk), walk.told()


# -- that the walk can fail -------------------------------------------------------------------------------------------


def test_without_resource_versions_a_late_write_would_break_a_promise() -> None:
    """The negative control: the fake and the checks see what the preconditions prevent."""
    breaches = [breach for n in range(whole_life().writes.total()) if (breach := breach_without_versions(n))]
    assert breaches
    assert all(
        name in ("PortWithheld", "GateBeforeClaim", "NeverAdvertiseDying", "EvidenceNotAbsence") for name in breaches
    ), breaches


def breach_without_versions(late_write: int) -> str | None:
    """The name of the first promise that is broken, if one is."""
    world = World(a_new_backend())
    world.unchecked = frozenset({Backend, Claim, Lease, Pod, Service})
    walk = Walk(world, late=(late_write, 16)).settle()
    walk.world.edit(backend(walk), template_hash="hash-2")
    try:
        walk.settle()
    except AssertionError as error:
        return str(error).splitlines()[-1].partition(":")[0]
    return None
