"""Whole stops in a fake cluster: busy ones, ordered ones, and those of several backends that share a model."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from modelbackend_operator.model.backend import Backend, OrderKind
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.stop import StopReason
from tests.sim.effects import target_of
from tests.sim.world import World
from tests.unit.test_lifecycle_walk import (
    MAIN,
    OTHER,
    a_new_backend,
    backend,
    nothing_is_left,
    pods,
    serves,
    started,
)
from tests.unit.walk import Walk

HELD = ("finish",)
"""Requests that never end by themselves."""
STRIDE = 4
"""Of the steps of a long life, every so many are tried; the simulator tries the rest."""


def order(walk: Walk, kind: OrderKind, text: str, uid: str = MAIN) -> None:
    walk.world.edit(backend(walk, uid), orders={kind: text})


def force(walk: Walk, text: str, uid: str = MAIN) -> None:
    order(walk, OrderKind.FORCE, text, uid)


def busy(walk: Walk, uid: str = MAIN, requests: int = 1) -> Pod:
    (pod,) = pods(walk, uid)
    for _ in range(requests):
        walk.world.request(pod)
    return pod


def condition(walk: Walk, kind: str, uid: str = MAIN) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in backend(walk, uid).status["conditions"] if c["type"] == kind)
    return found


# -- Busy -------------------------------------------------------------------------------------------------------------


def test_without_escalation_a_busy_instance_stays_says_so_and_ends_when_it_is_idle() -> None:
    walk = started(a_new_backend(escalate=False), held=HELD)
    pod = busy(walk, requests=2)
    walk.world.delete_backend(MAIN)
    walk.settle()
    (left,) = pods(walk)
    assert left.ref.uid == pod.ref.uid
    assert not left.deleting
    assert condition(walk, "Ready")["reason"] == "Busy"
    assert backend(walk).status["inFlight"] == 2
    assert not walk.world.state.all(Lease)
    walk.held = ()
    walk.settle()
    assert nothing_is_left(walk), walk.told()


def test_a_busy_instance_past_its_deadline_does_not_hold_up_its_neighbour() -> None:
    walk = started(a_new_backend(escalate=False), a_new_backend(OTHER), held=HELD)
    busy(walk)
    walk.world.delete_backend(MAIN)
    walk.settle(until=lambda: bool(pods(walk)[0].stop))
    walk.world.edit(backend(walk, OTHER), template_hash="hash-2")
    walk.settle()
    assert serves(walk, OTHER), walk.told()
    assert pods(walk, OTHER)[0].template_hash == "hash-2"
    assert len(pods(walk)) == 1  # still busy


def test_a_busy_instance_is_ended_by_order() -> None:
    walk = started(a_new_backend(escalate=False), held=HELD)
    pod = busy(walk)
    walk.world.delete_backend(MAIN)
    walk.settle()
    force(walk, f"{pod.ref.uid} enough")
    walk.settle()
    assert nothing_is_left(walk), walk.told()


def test_a_busy_instance_is_ended_when_escalation_is_turned_on_after_all() -> None:
    walk = started(a_new_backend(escalate=False), held=HELD)
    busy(walk)
    walk.world.delete_backend(MAIN)
    walk.settle()
    walk.world.edit(backend(walk), escalate=True)
    walk.settle()
    assert nothing_is_left(walk), walk.told()


# -- orders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["pod", "all"])
def test_a_forced_instance_is_ended_at_once_without_a_drain_and_replaced_once(target: str) -> None:
    walk = started(held=HELD)
    pod, asked_at = busy(walk), walk.world.now
    force(walk, f"{'all' if target == 'all' else pod.ref.uid} the node is needed")
    walk.settle(until=lambda: bool(pods(walk)[0].deleting))
    assert walk.world.now == asked_at
    assert pods(walk)[0].stop.reason is StopReason.ORDERED  # type: ignore[union-attr]
    walk.settle()
    assert serves(walk), walk.told()
    assert pods(walk)[0].ref.uid != pod.ref.uid
    assert "DrainServer" not in walk.told()
    assert walk.writes["AcquireLease"] == 1  # the order is still there, and acts no more


def test_force_during_a_graceful_deletion_ends_one_termination_sooner() -> None:
    """A graceful stop and a forced one race: one DELETE, one release."""
    walk = started(held=HELD)
    pod = busy(walk)
    walk.world.delete_backend(MAIN)
    walk.settle(until=lambda: "DrainServer" in walk.told())
    asked_at = walk.world.now
    force(walk, f"{pod.ref.uid} enough")
    walk.settle(until=lambda: bool(pods(walk)[0].deleting))
    assert (walk.world.now - asked_at).total_seconds() <= 1
    walk.settle()
    assert nothing_is_left(walk), walk.told()
    assert walk.writes["DeletePod"] == 1
    assert walk.writes["CoolClaim"] == 1


def test_force_on_a_terminating_pod_reaches_its_server_and_is_no_second_delete() -> None:
    walk = started(held=(*HELD, "end"))
    pod = busy(walk, requests=2)
    walk.world.delete_pod(pod)
    walk.settle(until=lambda: bool(walk.writes["WriteStopRecord"]))
    force(walk, f"{pod.ref.uid} enough")
    walk.settle(until=lambda: "AbortServer" in walk.told())
    assert walk.world.state.servers[pod.ref.uid].in_flight == 0
    assert not walk.writes["DeletePod"]
    walk.held = ()
    walk.settle()
    assert serves(walk), walk.told()


def test_an_extension_moves_the_end_of_a_drain() -> None:
    walk = started(held=HELD)
    pod, asked_at = busy(walk), walk.world.now
    walk.world.delete_backend(MAIN)
    order(walk, OrderKind.EXTEND, f"{pod.ref.uid} 60")
    walk.settle(until=lambda: pods(walk)[0].deleting)
    assert (walk.world.now - asked_at).total_seconds() == 90


@pytest.mark.parametrize("text", ["", "all", "stop everything", "another-uid now", "*", "ALL now"])
def test_a_malformed_or_stale_order_stops_nothing(text: str) -> None:
    walk = started(a_new_backend(ordinals=(0, 1)))
    before = {pod.ref.uid for pod in pods(walk)}
    force(walk, text)
    walk.settle()
    assert {pod.ref.uid for pod in pods(walk)} == before
    assert serves(walk, instances=2)
    assert "refused" in backend(walk).status["orders"][0]


def test_an_order_along_a_life_ends_or_spares_it_but_never_hangs() -> None:
    def force_all(world: World) -> None:
        for found in world.state.all(Backend):
            world.edit(found, orders={OrderKind.FORCE: "all at once"})

    for n in range(0, len(a_life().past), STRIDE):
        assert nothing_is_left(a_life(meddle=(n, force_all))), n


def a_life(**faults: Any) -> Walk:
    """Of two backends of one model: one is changed, then both are deleted."""
    walk = started(a_new_backend(), a_new_backend(OTHER), **faults)
    for uid in (MAIN, OTHER):
        for pod in pods(walk, uid)[:1]:
            if pod.ref.uid in walk.world.state.servers:
                walk.world.request(pod)
    walk.world.edit(backend(walk), template_hash="hash-2")
    walk.world.delete_backend(OTHER)
    walk.settle()
    walk.world.delete_backend(MAIN)
    return walk.settle()


# -- one model, two backends ------------------------------------------------------------------------------------------


def lease_deleted(world: World) -> None:
    for lease in world.state.all(Lease):
        world.remove(lease)


def test_a_lease_deleted_by_hand_along_a_life_lets_no_neighbour_in() -> None:
    """Every promise is checked after every step, that of one shutdown a model too."""
    for n in range(0, len(a_life().past), STRIDE):
        assert nothing_is_left(a_life(meddle=(n, lease_deleted))), n


@pytest.mark.parametrize("delay", [1, 5])
def test_late_writes_of_two_backends_of_one_model_break_no_promise(delay: int) -> None:
    for n in range(delay, a_life().writes.total(), STRIDE):
        assert nothing_is_left(a_life(late=(n, delay))), n


@pytest.mark.parametrize("lag", [1, 3, 8])
def test_a_second_operator_with_an_old_cache_breaks_no_promise_of_two_backends(lag: int) -> None:
    assert nothing_is_left(a_life(stale=lag))


REVERTS: dict[str, Callable[[Walk], None]] = {
    "the spec is reverted": lambda walk: walk.world.edit(backend(walk), template_hash="hash-1"),
    "it is resumed": lambda walk: walk.world.edit(backend(walk), ordinals=(0,)),
}


@pytest.mark.parametrize("revert", REVERTS)
def test_a_taken_lease_is_a_point_of_no_return(revert: str) -> None:
    walk = started()
    (pod,) = pods(walk)
    walk.world.edit(backend(walk), **({"ordinals": ()} if "resumed" in revert else {"template_hash": "hash-2"}))
    walk.settle(until=lambda: bool(walk.world.state.all(Lease)))
    REVERTS[revert](walk)
    walk.settle()
    assert serves(walk), walk.told()
    assert pods(walk)[0].ref.uid != pod.ref.uid


def test_backends_of_one_model_are_shut_down_in_the_order_in_which_they_began_to_wait() -> None:
    third = "a-third-uid"
    walk = started(a_new_backend(), a_new_backend(OTHER), a_new_backend(third))
    walk.world.request(pods(walk)[0])
    walk.held = HELD
    walk.world.delete_backend(MAIN)
    walk.settle(until=lambda: "DrainServer" in walk.told())
    for uid in (OTHER, third):
        walk.world.now += timedelta(seconds=1)
        walk.world.edit(backend(walk, uid), template_hash="hash-2")
        walk.settle(until=lambda uid=uid: "waitingSince" in str(backend(walk, uid).status))  # type: ignore[misc]
    walk.held = ()
    walk.settle()
    assert serves(walk, OTHER), walk.told()
    assert serves(walk, third), walk.told()
    taken = [line.partition(":")[0] for line in walk.story if "AcquireLease" in line]
    assert taken == [MAIN, OTHER, third]


REFUSED = {"the stop record": "WriteStopRecord", "the DELETE": "DeletePod", "the withdrawal": "SetServing"}


@pytest.mark.parametrize("what", REFUSED)
def test_a_holder_that_cannot_write_does_not_keep_its_neighbour_waiting_for_ever(what: str) -> None:
    walk = started(a_new_backend(), a_new_backend(OTHER))
    (pod,) = pods(walk)
    walk.refuses = lambda action: type(action).__name__ == REFUSED[what] and target_of(action).ref.uid == pod.ref.uid
    walk.world.delete_backend(MAIN)
    walk.settle(until=lambda: bool(walk.world.state.all(Lease)))
    walk.world.edit(backend(walk, OTHER), template_hash="hash-2")
    walk.settle(until=lambda: serves(walk, OTHER) and pods(walk, OTHER)[0].template_hash == "hash-2")
    assert "a policy says no" in str(backend(walk).status["instances"])
    walk.refuses = lambda _: False
    walk.settle()
    assert MAIN not in walk.world.state.objects, walk.told()
    assert serves(walk, OTHER), walk.told()


def test_a_wiped_stop_record_gets_its_drain_time_back() -> None:
    walk = started(held=HELD)
    pod, asked_at = busy(walk), walk.world.now
    walk.world.delete_backend(MAIN)
    walk.settle(until=lambda: "DrainServer" in walk.told())
    walk.world.edit(pod, stop=None)
    walk.settle(until=lambda: pods(walk)[0].deleting)
    assert (walk.world.now - asked_at).total_seconds() == backend(walk).drain_seconds
