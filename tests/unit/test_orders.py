"""What a user orders by annotation: what is accepted and for which pods, what is refused in words, and what acts."""

from dataclasses import replace
from datetime import datetime

import pytest

from modelbackend_operator.actions import (
    AbortServer,
    AcquireLease,
    Action,
    DeletePod,
    SetServing,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.api import OrderEntry
from modelbackend_operator.decide import decide, servers_to_ask
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.model.backend import Backend, OrderKind
from modelbackend_operator.model.lease import Holder
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.model.stop import Cut, StopReason
from modelbackend_operator.orders import answered
from modelbackend_operator.stopping import stop
from tests.unit.builders import (
    BACKEND_UID,
    NOW,
    POD_UID,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_draining_pod,
    a_gated_pod,
    a_lease,
    a_report,
    a_serving_pod,
    a_stop,
    a_terminating_pod,
    an_ended_pod,
    bound,
    later,
    shown,
)

FORCE = f"{POD_UID} the node is needed"
EXTEND = f"{POD_UID} 60"


def ordering(world: Observation, **orders: str) -> Observation:
    """The same world with these annotations on its backend, by kind."""
    assert world.backend is not None
    given = {OrderKind(kind): text for kind, text in orders.items()}
    return replace(world, backend=replace(world.backend, orders=given))


def accepted(world: Observation, **orders: str) -> Observation:
    """And once they are in its status."""
    return shown(ordering(world, **orders))


def ending(pod: Pod, backend: Backend | None = None, **special: object) -> Observation:
    world = bound(pod, backend=backend or a_deleted_backend())
    return replace(world, **{"lease": a_lease(), **special})  # type: ignore[arg-type]


def acted(world: Observation, now: datetime = NOW) -> Action:
    decision = decide(world, now)
    assert isinstance(decision, Act), decision
    return decision.action


def recorded(world: Observation, now: datetime = NOW) -> WriteStopRecord:
    action = acted(world, now)
    assert isinstance(action, WriteStopRecord), action
    return action


# -- what becomes of an order -----------------------------------------------------------------------------------------

NOT_UNDERSTOOD_FORCE = (
    'modelbackend.dev/force: it is not understood and does nothing: write "<pod uid> <reason>" or "all <reason>"'
)
NOT_UNDERSTOOD_EXTEND = (
    'modelbackend.dev/extend: it is not understood and does nothing: write "<pod uid> <seconds>", '
    "with 1 to 604800 seconds"
)
NOT_UNDERSTOOD_ATTEST = 'modelbackend.dev/attest: it is not understood and does nothing: write "<pod uid> <reason>"'
NO_POD = "this backend has no pod with uid p-9; status.instances names those it has"

ANSWERS: dict[str, tuple[str, str, tuple[str, ...], str | None]] = {
    "one pod": ("Force", FORCE, (POD_UID,), None),
    "all pods of this moment": ("Force", "all maintenance", ("p-2", POD_UID), None),
    "more time for one pod": ("Extend", EXTEND, (POD_UID,), None),
    "no reason": ("Force", POD_UID, (), NOT_UNDERSTOOD_FORCE),
    "nothing": ("Force", "", (), NOT_UNDERSTOOD_FORCE),
    "all, and no reason": ("Force", "all", (), NOT_UNDERSTOOD_FORCE),
    "another word than all": ("Force", "All maintenance", (), NO_POD.replace("p-9", "All")),
    "a pod of another day": ("Force", "p-9 maintenance", (), NO_POD),
    "more time for a pod of another day": ("Extend", "p-9 60", (), NO_POD),
    "more time for all": ("Extend", "all 60", (), NOT_UNDERSTOOD_EXTEND),
    "time in words": ("Extend", f"{POD_UID} long", (), NOT_UNDERSTOOD_EXTEND),
    "no time": ("Extend", f"{POD_UID} 0", (), NOT_UNDERSTOOD_EXTEND),
    "less time": ("Extend", f"{POD_UID} -60", (), NOT_UNDERSTOOD_EXTEND),
    "more than a week": ("Extend", f"{POD_UID} 604801", (), NOT_UNDERSTOOD_EXTEND),
    "a number without end": ("Extend", f"{POD_UID} {'9' * 200}", (), NOT_UNDERSTOOD_EXTEND),
    "digits of another script": ("Extend", f"{POD_UID} ٦٠", (), NOT_UNDERSTOOD_EXTEND),
    "an end that is attested": ("Attest", "p-3 unplugged", ("p-3",), None),
    "an end that is attested without a reason": ("Attest", "p-3", (), NOT_UNDERSTOOD_ATTEST),
    "the end of all": ("Attest", "all unplugged", (), NOT_UNDERSTOOD_ATTEST),
    "the end of a pod of another day": ("Attest", "p-9 unplugged", (), NO_POD),
    "the end of a pod that lives": (
        "Attest",
        "p-4 unplugged",
        (),
        "pod smollm2-0 is not being deleted; delete it first",
    ),
    "the end of a pod with a port": (
        "Attest",
        f"{POD_UID} unplugged",
        (),
        "that pod holds port 30007: annotate PortClaim port-30007 with it",
    ),
    "a novel": ("Force", f"{POD_UID} {'because ' * 64}", (), NOT_UNDERSTOOD_FORCE),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_order_is_answered_when_it_is_for(case: str) -> None:
    kind, text, pods, refused = ANSWERS[case]
    world = ordering(bound(a_serving_pod(), a_serving_pod("p-2", ordinal=1)), **{kind: text})
    if kind == "Attest":
        world = replace(world, pods=(*world.pods, a_terminating_pod("p-3"), a_serving_pod("p-4")))
    assert world.backend is not None
    (answer,) = answered(world, world.backend)
    if refused is not None and not refused.startswith("modelbackend.dev/"):
        refused = f"modelbackend.dev/{kind.lower()}: {refused}"
    assert answer == OrderEntry(kind=OrderKind(kind), text=text[:256], pods=pods, refused=refused)


@pytest.mark.parametrize("case", [case for case, (*_, refused) in ANSWERS.items() if refused is not None])
def test_an_order_that_is_refused_stops_nothing(case: str) -> None:
    """Never "stop all" by a malformed order."""
    kind, text, *_ = ANSWERS[case]
    told = accepted(bound(a_serving_pod()), **{kind: text})
    assert not isinstance(decide(told, NOW), Act)


def test_an_order_is_written_down_before_anything_else_is_done_and_advertises_no_dying_instance() -> None:
    advertising = bound(a_serving_pod(), backend=a_deleted_backend())
    serving = bound(a_serving_pod())
    assert advertising.backend is not None
    assert serving.backend is not None
    told_serving = replace(advertising, backend=replace(advertising.backend, status=serving.backend.status))
    world = ordering(replace(told_serving, pods=(a_draining_pod(),), lease=a_lease()), Force=FORCE)
    written = acted(world)
    assert isinstance(written, WriteStatus)
    assert written.status["orders"] == [{"kind": "Force", "text": FORCE, "pods": [POD_UID]}]
    assert written.status["endpoints"] == []
    assert written.status["conditions"] == serving.backend.status["conditions"]


def test_an_accepted_order_stays_for_the_pods_it_named_and_never_reaches_their_successors() -> None:
    world = accepted(bound(a_serving_pod()), Force="all maintenance")
    after = replace(world, pods=(a_serving_pod("p-2"),), claims=(a_claim(pod_uid="p-2"),))
    assert after.backend is not None
    assert [answer.pods for answer in answered(after, after.backend)] == [(POD_UID,)]
    assert stop(after, after.pods[0], NOW) is None


def test_an_order_whose_annotation_was_removed_is_forgotten() -> None:
    world = ordering(accepted(bound(a_serving_pod()), Force=FORCE))
    written = acted(world)
    assert isinstance(written, WriteStatus)
    assert written.status["orders"] == []
    assert stop(world, world.pods[0], NOW) is None


def test_an_answer_that_others_wrote_into_the_status_moves_nothing_without_its_annotation() -> None:
    world = accepted(bound(a_serving_pod()), Force=FORCE)
    other = ordering(world, Force="p-9 something else")
    assert stop(other, other.pods[0], NOW) is None


# -- force ------------------------------------------------------------------------------------------------------------


def test_a_forced_instance_is_stopped_by_order_when_the_turn_of_its_model_comes() -> None:
    world = accepted(bound(a_serving_pod()), Force=FORCE)
    assert world.backend is not None
    assert acted(world) == AcquireLease(world.backend, Holder(BACKEND_UID, 0, POD_UID, StopReason.ORDERED))


FORCED = a_stop(StopReason.DELETED, drain_seconds=30)
BUSY = {POD_UID: a_report(ServerState.DRAINING, in_flight=2)}

FORCES: dict[str, tuple[Observation, Action]] = {
    "the order is recorded with what ran": (
        ending(a_draining_pod(), servers=BUSY),
        WriteStopRecord(a_draining_pod(), replace(FORCED, cut=Cut(FORCE, 2))),
    ),
    "with the first record when none was written yet": (
        ending(a_serving_pod()),
        WriteStopRecord(a_serving_pod(), replace(FORCED, cut=Cut(FORCE, None))),
    ),
    "callers are told before it is ended": (
        ending(a_draining_pod(serving_condition=True, stop=replace(FORCED, cut=Cut(FORCE, 2))), servers=BUSY),
        SetServing(a_draining_pod(serving_condition=True, stop=replace(FORCED, cut=Cut(FORCE, 2))), serving=False),
    ),
    "then it is ended without a drain and without waiting": (
        ending(
            a_draining_pod(stop=replace(FORCED, cut=Cut(FORCE, 2))),
            servers={POD_UID: a_report(ServerState.SERVING, in_flight=2)},
        ),
        DeletePod(a_draining_pod(stop=replace(FORCED, cut=Cut(FORCE, 2))), 15),
    ),
    "one that was told to end already has the order recorded": (
        ending(a_terminating_pod(), servers=BUSY),
        WriteStopRecord(a_terminating_pod(), replace(FORCED, cut=Cut(FORCE, 2))),
    ),
    "also when it was cut at its deadline, whose count stays": (
        ending(a_terminating_pod(stop=replace(FORCED, cut=Cut("", 3))), servers=BUSY),
        WriteStopRecord(a_terminating_pod(stop=replace(FORCED, cut=Cut("", 3))), replace(FORCED, cut=Cut(FORCE, 3))),
    ),
    "then its server is told, because no second DELETE reaches it": (
        ending(a_terminating_pod(stop=replace(FORCED, cut=Cut(FORCE, 2))), servers=BUSY),
        AbortServer(a_terminating_pod(stop=replace(FORCED, cut=Cut(FORCE, 2))), FORCE),
    ),
    "a pod behind its gate is just deleted": (
        bound(a_gated_pod()),
        DeletePod(a_gated_pod(), 15),
    ),
}


@pytest.mark.parametrize("case", FORCES)
def test_a_force(case: str) -> None:
    world, action = FORCES[case]
    assert acted(accepted(world, Force=FORCE)) == action


ABORTED = a_terminating_pod(stop=replace(FORCED, cut=Cut(FORCE, 2)))
NOT_ABORTED: dict[str, tuple[Observation, datetime]] = {
    "a server that does not answer": (ending(ABORTED), NOW),
    "one that is about to exit": (ending(ABORTED, servers={POD_UID: a_report(ServerState.STOPPED)}), NOW),
    "another's server": (ending(ABORTED, servers={POD_UID: a_report(in_flight=2, backend_uid="another")}), NOW),
    "one whose grace has passed, which its kubelet kills": (ending(ABORTED, servers=BUSY), later(15)),
    "one that was cut at its deadline": (
        ending(a_terminating_pod(stop=replace(FORCED, cut=Cut("", 2))), servers=BUSY),
        NOW,
    ),
}


@pytest.mark.parametrize("case", NOT_ABORTED)
def test_no_abort_is_sent_to(case: str) -> None:
    world, now = NOT_ABORTED[case]
    assert isinstance(stop(world, world.pods[0], now), Wait)


def test_a_forced_server_is_asked_while_it_terminates_and_no_other_is() -> None:
    forced = accepted(ending(ABORTED), Force=FORCE)
    assert servers_to_ask(forced) == forced.pods
    assert servers_to_ask(ending(a_terminating_pod())) == ()


def test_an_order_acts_once_also_when_another_follows() -> None:
    world = accepted(ending(ABORTED), Force=f"{POD_UID} once more")
    assert isinstance(stop(world, world.pods[0], NOW), Wait)


def test_a_pod_whose_end_is_proven_is_not_written_by_an_order() -> None:
    world = accepted(ending(an_ended_pod()), Force=FORCE)
    assert not isinstance(acted(world), WriteStopRecord)


# -- extend -----------------------------------------------------------------------------------------------------------


def test_an_extension_moves_the_deadline_to_an_absolute_time_once() -> None:
    world = accepted(ending(a_draining_pod(), servers=BUSY), Extend=EXTEND)
    written = recorded(world, later(20))
    assert written.record == replace(a_stop(), deadline=later(90), extended=EXTEND)
    again = replace(world, pods=(replace(world.pods[0], stop=written.record),))
    assert isinstance(stop(again, again.pods[0], later(20)), Wait)


def test_an_extension_counts_from_the_beginning_and_not_from_the_last_one() -> None:
    first = replace(a_stop(), deadline=later(90), extended=EXTEND)
    world = accepted(ending(a_draining_pod(stop=first), servers=BUSY), Extend=f"{POD_UID} 61")
    assert recorded(world).record == replace(first, deadline=later(91), extended=f"{POD_UID} 61")


def test_an_extension_that_was_ordered_before_the_stop_is_in_its_first_record() -> None:
    world = accepted(ending(a_serving_pod()), Extend=EXTEND)
    assert recorded(world).record.deadline == later(90)


def test_an_extension_of_a_grace_period_is_refused_in_words() -> None:
    world = ordering(ending(a_terminating_pod()), Extend=EXTEND)
    assert world.backend is not None
    (answer,) = answered(world, world.backend)
    assert answer.refused == (
        "modelbackend.dev/extend: pod smollm2-0 was told to end already, and a grace period cannot be lengthened"
    )


def test_the_user_sees_the_order_that_a_stop_obeys() -> None:
    pod = a_draining_pod(stop=replace(a_stop(), deadline=later(90), extended=EXTEND))
    status = shown(ending(pod)).backend.status  # type: ignore[union-attr]
    assert status["instances"][0]["stop"]["order"] == EXTEND
    assert status["instances"][0]["stop"]["deadline"] == "2026-05-04T12:01:30Z"


def test_the_instance_of_a_backend_without_orders_has_none() -> None:
    world = bound(a_serving_pod(), backend=a_backend())
    assert world.backend is not None
    assert answered(world, world.backend) == ()
