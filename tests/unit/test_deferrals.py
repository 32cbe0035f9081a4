"""Writes that are put aside: for how long, and what goes on meanwhile."""

from dataclasses import replace

import pytest

from modelbackend_operator.actions import (
    AcquireLease,
    Action,
    AddFinalizer,
    CreateClaim,
    CreatePod,
    DeletePod,
    DrainServer,
    ReleaseLease,
    SetServing,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.deferrals import (
    MOST_SECONDS,
    REMEMBERED_SECONDS,
    Deferrals,
    key_of,
    put_aside,
    refused_since,
)
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.model_lease import give_way, stop_is_open
from modelbackend_operator.stopping import stop
from modelbackend_operator.told_in_status import with_status
from tests.unit.builders import (
    BACKEND_UID,
    NOW,
    POD_UID,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_draining_pod,
    a_lease,
    a_report,
    a_serving_pod,
    a_stop,
    a_world,
    bound,
    later,
)

WRITE = WriteStopRecord(a_serving_pod(), a_stop())
MESSAGE = "WriteStopRecord was refused: a policy says no"


def refused(*actions: Action, times: int = 1) -> Deferrals:
    """Each as often, as soon as it could be tried again; the last time at NOW."""
    found = Deferrals()
    seconds = [sum(min(2**n, MOST_SECONDS) for n in range(k)) for k in range(times)]
    for second in seconds:
        for action in actions:
            found.refused(BACKEND_UID, action, "a policy says no", later(second - seconds[-1]))
    return found


def without(world: Observation, *actions: Action, times: int = 1) -> Observation:
    return replace(world, deferred=refused(*actions, times=times).of(BACKEND_UID))


def acted(world: Observation) -> Action:
    decision = decide(world, NOW)
    assert isinstance(decision, Act), decision
    return decision.action


# -- for how long -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("times", "seconds"), [(1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (9, 30)])
def test_a_refused_write_is_tried_again_after_a_delay_that_doubles(times: int, seconds: int) -> None:
    world = without(a_world(), WRITE, times=times)
    assert put_aside(world, key_of(WRITE), NOW) == Wait("DeniedByAPIServer", MESSAGE, later(seconds), 0)
    assert put_aside(world, key_of(WRITE), later(seconds)) is None


def test_another_version_of_the_object_is_refused_too_and_another_write_is_not() -> None:
    world = without(a_world(), WRITE)
    newer = replace(WRITE.pod, ref=replace(WRITE.pod.ref, resource_version="2"))
    assert put_aside(world, key_of(WriteStopRecord(newer, a_stop())), NOW) is not None
    assert put_aside(world, key_of(SetServing(newer, serving=False)), NOW) is None
    assert put_aside(world, key_of(WriteStopRecord(a_serving_pod("p-2"), a_stop())), NOW) is None


def test_a_clock_that_was_set_back_ends_every_delay() -> None:
    assert put_aside(without(a_world(), WRITE), key_of(WRITE), later(-3600)) is None


def test_a_write_that_succeeds_is_not_put_aside_any_more() -> None:
    found = refused(WRITE, times=4)
    found.done(BACKEND_UID, WRITE)
    assert found.of(BACKEND_UID) == {}
    assert refused(WRITE).of("another-backend") == {}


def test_a_refusal_counts_from_its_first_and_is_forgotten_when_nobody_tries_again() -> None:
    world = without(a_world(), WRITE, times=5)
    assert refused_since(world, POD_UID, NOW) == later(-15)
    assert refused_since(world, "another-pod", NOW) is None
    found = refused(WRITE)
    found.refused(BACKEND_UID, AddFinalizer(a_backend()), "no", later(REMEMBERED_SECONDS + 2))
    assert [key.kind for key in found.of(BACKEND_UID)] == ["AddFinalizer"]


def test_a_call_to_a_server_is_no_refusal() -> None:
    found = Deferrals()
    call = DrainServer(a_draining_pod(), later(30))
    found.called(BACKEND_UID, call, Wait("Draining", "requests in flight are finishing", later(1)), NOW)
    world = replace(a_world(), deferred=found.of(BACKEND_UID))
    assert put_aside(world, key_of(call), NOW) == Wait("Draining", "requests in flight are finishing", later(1), 0)
    assert refused_since(world, POD_UID, NOW) is None


# -- what goes on meanwhile -------------------------------------------------------------------------------------------


def test_an_instance_that_cannot_be_made_holds_up_no_other() -> None:
    backend = a_backend(ordinals=(0, 1))
    claims = [a_claim(ClaimPhase.RESERVED), a_claim(ClaimPhase.RESERVED, 30008, ordinal=1)]
    world = a_world(backend, claims=claims)
    first = acted(world)
    assert isinstance(first, CreatePod)
    assert first.ordinal == 0
    second = acted(without(world, first))
    assert isinstance(second, CreatePod)
    assert second.ordinal == 1
    third = acted(without(world, first, second))
    assert isinstance(third, WriteStatus)
    said = {entry["ordinal"]: entry["reason"] for entry in third.status["instances"]}
    assert said == {0: "DeniedByAPIServer", 1: "DeniedByAPIServer"}


def test_what_the_api_server_refuses_is_shown_once() -> None:
    world = a_world(a_backend(), claims=[a_claim(ClaimPhase.RESERVED)])
    world = without(world, acted(world))
    shown = acted(world)
    assert isinstance(shown, WriteStatus)
    stalled = next(c for c in shown.status["conditions"] if c["type"] == "Stalled")
    assert stalled["message"] == "CreatePod was refused: a policy says no"
    again = replace(world, backend=a_backend(status=shown.status))
    assert decide(again, NOW) == Wait("DeniedByAPIServer", stalled["message"], later(1), 0)


def test_a_stop_that_is_refused_holds_up_no_start_of_another_instance() -> None:
    world = bound(a_serving_pod(template_hash="old"), backend=a_backend(ordinals=(0, 1)), lease=a_lease())
    record = acted(world)
    assert isinstance(record, WriteStopRecord)
    assert isinstance(acted(without(world, record)), CreateClaim)


def test_nothing_is_started_while_the_finalizer_is_refused() -> None:
    world = a_world(a_backend(has_finalizer=False))
    finalizer = acted(world)
    assert isinstance(finalizer, AddFinalizer)
    told = acted(without(world, finalizer))
    assert isinstance(told, WriteStatus)
    assert "a policy says no" in str(told.status["conditions"])


def test_a_refused_status_is_waited_for_and_not_answered_by_another() -> None:
    world = a_world(a_backend(refused=("spec.x is unsupported.",)))
    status = acted(world)
    decision = decide(without(world, status), NOW)
    assert decision == Wait("DeniedByAPIServer", "WriteStatus was refused: a policy says no", later(1), None)


# -- a Lease that is held and cannot be used --------------------------------------------------------------------------

HOLDING = replace(bound(a_serving_pod(), backend=a_deleted_backend()), lease=a_lease())


@pytest.mark.parametrize(("times", "released"), [(1, False), (5, False), (6, True)], ids=["at once", "15 s", "31 s"])
def test_a_lease_whose_stop_record_is_refused_for_long_is_given_back(times: int, released: bool) -> None:
    decision = decide(without(HOLDING, WRITE, times=times), NOW)
    assert (isinstance(decision, Act) and isinstance(decision.action, ReleaseLease)) is released


def test_it_is_not_taken_again_while_the_record_would_be_refused() -> None:
    world = without(replace(HOLDING, lease=None), WRITE, times=6)
    assert stop(world, world.pods[0], NOW) == Wait("DeniedByAPIServer", MESSAGE, later(30), 0)
    assert isinstance(stop(world, world.pods[0], later(30)), Act)


IDLE = a_draining_pod(stop=a_stop(since=later(-30)))
STUCK = replace(
    bound(IDLE, backend=a_deleted_backend()),
    lease=a_lease(),
    servers={POD_UID: a_report(ServerState.DRAINING)},
)


def test_a_stop_whose_end_is_refused_past_its_deadline_gives_way_to_others() -> None:
    world = without(STUCK, DeletePod(IDLE, 15), times=6)
    record = WriteStopRecord(IDLE, replace(a_stop(since=later(-30)), yielded_at=NOW))
    assert acted(world) == record
    given_way = replace(world, pods=(replace(IDLE, stop=record.record),))
    assert isinstance(acted(given_way), ReleaseLease)


def test_it_gives_way_in_status_where_its_pod_takes_no_write_at_all() -> None:
    giving_way = WriteStopRecord(IDLE, replace(a_stop(since=later(-30)), yielded_at=NOW))
    world = without(STUCK, DeletePod(IDLE, 15), giving_way, times=6)
    told = acted(world)
    assert isinstance(told, WriteStatus)
    assert told.status["instances"][0]["stop"]["yieldedAt"] == "2026-05-04T12:00:00Z"
    assert world.backend is not None
    read_back = with_status(IDLE, told.status)
    assert read_back.stop is not None
    assert not stop_is_open(read_back)
    seen = replace(world, backend=replace(world.backend, status=told.status), pods=(read_back,))
    assert isinstance(acted(seen), ReleaseLease)


def test_without_a_backend_there_is_no_status_to_give_way_in() -> None:
    giving_way = WriteStopRecord(IDLE, replace(a_stop(since=later(-30)), yielded_at=NOW))
    world = without(STUCK, DeletePod(IDLE, 15), giving_way, times=6)
    assert give_way(replace(world, backend=None), IDLE, NOW) is None


@pytest.mark.parametrize("times", [1, 5])
def test_it_does_not_give_way_at_once(times: int) -> None:
    decision = decide(without(STUCK, DeletePod(IDLE, 15), times=times), NOW)
    assert not (isinstance(decision, Act) and isinstance(decision.action, WriteStopRecord | ReleaseLease))


def test_it_does_not_give_way_before_its_deadline() -> None:
    pod = a_draining_pod(stop=a_stop(since=later(-29)))
    world = without(replace(STUCK, pods=(pod,)), DeletePod(pod, 15), times=6)
    assert not isinstance(decide(world, NOW), Act) or not isinstance(acted(world), WriteStopRecord)


def test_a_lease_that_cannot_be_taken_is_said_and_tried_again() -> None:
    world = replace(HOLDING, lease=None)
    take = acted(world)
    assert isinstance(take, AcquireLease)
    decision = acted(without(world, take))
    assert isinstance(decision, WriteStatus)
    assert "AcquireLease was refused" in str(decision.status["instances"])
