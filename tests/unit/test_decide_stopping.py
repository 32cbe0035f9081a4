"""How an instance ends: for each stage from the wish to the removed object, the one step that comes next."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest

from modelbackend_operator.actions import (
    AcquireLease,
    Action,
    CoolClaim,
    CreateClaim,
    DeletePod,
    DeleteService,
    DrainServer,
    ReleaseLease,
    RemovePodFinalizer,
    SetServing,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.api import Evidence
from modelbackend_operator.decide import decide, servers_to_ask
from modelbackend_operator.decision import Act, Done, Wait
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.lease import Holder, Lease, ModelStop
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.model.stop import Cut, StopReason
from modelbackend_operator.stopping import stop
from tests.unit.builders import (
    BACKEND_UID,
    ENDED,
    NODE,
    NOW,
    POD_UID,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_draining_pod,
    a_gated_pod,
    a_lease,
    a_loading_pod,
    a_neighbours_lease,
    a_rejected_pod,
    a_report,
    a_service,
    a_serving_pod,
    a_shared_service,
    a_stop,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    an_unscheduled_pod,
    bound,
    later,
)


def ending(pod: Pod, *, backend: Backend | None = None, told: bool = True, **special: object) -> Observation:
    """The usual instance of a deleted backend, its Lease held; `told` says whether status shows the pod as it is."""
    shown = bound(pod, backend=backend or a_deleted_backend())
    advertising = bound(a_serving_pod(pod.ref.uid), backend=backend or a_deleted_backend())
    world = shown if told else replace(advertising, pods=(pod,))
    return replace(world, **{"lease": a_lease(), **special})  # type: ignore[arg-type]


def acted(world: Observation, now: datetime = NOW) -> Action:
    decision = decide(world, now)
    assert isinstance(decision, Act), decision
    return decision.action


def waited(world: Observation, now: datetime = NOW) -> Wait:
    """What the ending of the world's first pod waits for."""
    step = stop(world, world.pods[0], now)
    assert isinstance(step, Wait), step
    return step


def settled(world: Observation) -> Observation:
    """The same world once its last write, that of the status, was made."""
    written = acted(world)
    assert isinstance(written, WriteStatus), written
    return replace(world, backend=replace(written.backend, status=written.status))


# -- why --------------------------------------------------------------------------------------------------------------

WISHES: dict[str, tuple[Observation, StopReason]] = {
    "the backend is deleted": (bound(a_serving_pod(), backend=a_deleted_backend()), StopReason.DELETED),
    "the instance is scaled away": (bound(a_serving_pod(), backend=a_backend(ordinals=())), StopReason.SCALED_DOWN),
    "the spec has changed": (
        bound(a_serving_pod(), backend=a_backend(template_hash="hash-2")),
        StopReason.SPEC_CHANGED,
    ),
    "another port was pinned": (
        bound(a_serving_pod(), backend=a_backend(pinned_port=30001)),
        StopReason.SPEC_CHANGED,
    ),
    "it is behind a port that no claim holds for it": (
        replace(bound(a_serving_pod()), claims=(), services=(a_shared_service(),)),
        StopReason.CLAIM_LOST,
    ),
}


@pytest.mark.parametrize("wish", WISHES)
def test_a_stop_begins_with_the_models_lease_naming_pod_and_purpose(wish: str) -> None:
    world, purpose = WISHES[wish]
    assert acted(world) == AcquireLease(world.backend, Holder(BACKEND_UID, 0, POD_UID, purpose))  # type: ignore[arg-type]


def test_a_spec_that_cannot_be_honoured_ends_nothing_that_runs() -> None:
    world = bound(a_serving_pod(), backend=a_backend(template_hash="hash-2", refused=("spec.x is unsupported.",)))
    assert stop(world, world.pods[0], NOW) is None


OVERDUE = a_stop(since=later(-30))
GIVEN_WAY = replace(OVERDUE, yielded_at=later(0))
PATIENT = a_deleted_backend(escalate=False)
STILL_BUSY = {POD_UID: a_report(ServerState.DRAINING, in_flight=1)}

STAGES: dict[str, tuple[Observation, Callable[[Observation], Action]]] = {
    "with the Lease, one patch records the stop and takes the label off": (
        ending(a_serving_pod()),
        lambda w: WriteStopRecord(w.pods[0], a_stop()),
    ),
    "a record whose label came back is written again, with the same deadline": (
        ending(a_draining_pod(serving_label=True, stop=a_stop(since=later(-20)))),
        lambda w: WriteStopRecord(w.pods[0], a_stop(since=later(-20))),
    ),
    "then the readiness gate closes": (
        ending(a_draining_pod(serving_condition=True)),
        lambda w: SetServing(w.pods[0], serving=False),
    ),
    "then the server is told to drain": (
        ending(a_draining_pod(), servers={POD_UID: a_report(in_flight=2)}),
        lambda w: DrainServer(w.pods[0], later(30)),
    ),
    "an idle server is ended before its deadline": (
        ending(a_draining_pod(), servers={POD_UID: a_report(ServerState.DRAINING)}),
        lambda w: DeletePod(w.pods[0], 15),
    ),
    "of a busy one it is recorded at its deadline how many requests are cut": (
        ending(a_draining_pod(stop=OVERDUE), servers={POD_UID: a_report(in_flight=2)}),
        lambda w: WriteStopRecord(w.pods[0], replace(OVERDUE, cut=Cut("", 2))),
    ),
    "of a silent one, that nobody knows": (
        ending(a_draining_pod(stop=OVERDUE)),
        lambda w: WriteStopRecord(w.pods[0], replace(OVERDUE, cut=Cut("", None))),
    ),
    "then it is ended": (
        ending(a_draining_pod(stop=replace(OVERDUE, cut=Cut("", 2))), servers={POD_UID: a_report(in_flight=2)}),
        lambda w: DeletePod(w.pods[0], 15),
    ),
    "without escalation a busy one is recorded as giving way to others": (
        ending(a_draining_pod(stop=OVERDUE), backend=PATIENT, servers=STILL_BUSY),
        lambda w: WriteStopRecord(w.pods[0], replace(OVERDUE, yielded_at=NOW)),
    ),
    "then its Lease is given back": (
        ending(a_draining_pod(stop=GIVEN_WAY), backend=PATIENT, servers=STILL_BUSY),
        lambda w: ReleaseLease(w.lease),  # type: ignore[arg-type]
    ),
    "one that answers as if it served is told to drain also then": (
        ending(a_draining_pod(stop=GIVEN_WAY), backend=PATIENT, servers={POD_UID: a_report(in_flight=1)}, lease=None),
        lambda w: DrainServer(w.pods[0], NOW),
    ),
    "it is ended once it is idle, without asking for its turn again": (
        ending(
            a_draining_pod(stop=GIVEN_WAY),
            backend=PATIENT,
            servers={POD_UID: a_report(ServerState.DRAINING)},
            lease=a_neighbours_lease(),
        ),
        lambda w: DeletePod(w.pods[0], 15),
    ),
    "and cut when it is silent: that nobody knows whether it is busy is no reason to wait for ever": (
        ending(a_draining_pod(stop=GIVEN_WAY), backend=PATIENT, lease=None),
        lambda w: WriteStopRecord(w.pods[0], replace(GIVEN_WAY, cut=Cut("", None))),
    ),
    "or when the user asks for escalation after all": (
        ending(a_draining_pod(stop=GIVEN_WAY), servers=STILL_BUSY, lease=None),
        lambda w: WriteStopRecord(w.pods[0], replace(GIVEN_WAY, cut=Cut("", 1))),
    ),
    "a request older than the busy limit is cut also without escalation": (
        ending(
            a_draining_pod(stop=replace(OVERDUE, reason=StopReason.BUSY_TIMEOUT)), backend=PATIENT, servers=STILL_BUSY
        ),
        lambda w: WriteStopRecord(w.pods[0], replace(OVERDUE, reason=StopReason.BUSY_TIMEOUT, cut=Cut("", 1))),
    ),
    "one that does not run has nothing to wait for": (
        ending(a_draining_pod(containers=(ENDED,), containers_ready=False)),
        lambda w: DeletePod(w.pods[0], 15),
    ),
    "with proof and the backend gone, the port's Service goes first": (
        ending(an_ended_pod()),
        lambda w: DeleteService(w.services[1]),
    ),
    "then the claim cools": (
        ending(an_ended_pod(), services=(a_shared_service(),)),
        lambda w: CoolClaim(w.claims[0], Evidence.CONTAINERS_TERMINATED),
    ),
    "an instance that starts again keeps its Service, and its claim cools at once": (
        ending(an_ended_pod(template_hash="old"), backend=a_backend()),
        lambda w: CoolClaim(w.claims[0], Evidence.CONTAINERS_TERMINATED),
    ),
    "a withheld claim whose pod came back and ended cools too": (
        ending(an_ended_pod(), services=(), claims=(a_claim(ClaimPhase.WITHHELD),)),
        lambda w: CoolClaim(w.claims[0], Evidence.CONTAINERS_TERMINATED),
    ),
    "of two claims that name the ended pod, the second cools after the first": (
        ending(an_ended_pod(), services=(), claims=(a_claim(ClaimPhase.COOLING), a_claim(port=30042))),
        lambda w: CoolClaim(w.claims[1], Evidence.CONTAINERS_TERMINATED),
    ),
    "then the pod's finalizer goes": (
        ending(an_ended_pod(), services=(), claims=(a_claim(ClaimPhase.COOLING),)),
        lambda w: RemovePodFinalizer(w.pods[0]),
    ),
    "with the pod gone, the Lease is given back": (
        ending(a_serving_pod(), pods=(), services=(), claims=(a_claim(ClaimPhase.COOLING),)),
        lambda w: ReleaseLease(w.lease),  # type: ignore[arg-type]
    ),
    "a pod behind its gate is deleted without a Lease": (
        bound(a_gated_pod(), backend=a_deleted_backend()),
        lambda w: DeletePod(w.pods[0], 15),
    ),
    "one deleted behind its gate never ran": (
        bound(a_gated_pod(deleted_at=NOW, grace_seconds=0), backend=a_backend(template_hash="hash-2")),
        lambda w: CoolClaim(w.claims[0], Evidence.NEVER_STARTED),
    ),
    "an unscheduled one is recorded with a deadline of now": (
        ending(an_unscheduled_pod()),
        lambda w: WriteStopRecord(w.pods[0], a_stop(drain_seconds=0)),
    ),
    "a loading one is recorded with a deadline of now": (
        ending(a_loading_pod()),
        lambda w: WriteStopRecord(w.pods[0], a_stop(drain_seconds=0)),
    ),
    "a pod that others delete is recorded without a Lease, its drain being theirs": (
        bound(a_serving_pod(deleted_at=NOW, grace_seconds=45)),
        lambda w: WriteStopRecord(w.pods[0], a_stop(StopReason.FOREIGN, 0, epoch="")),
    ),
    "a pod without its backend is ended without a Lease, whose model nobody knows": (
        a_world(None, pods=[a_serving_pod()], claims=[a_claim()]),
        lambda w: WriteStopRecord(w.pods[0], a_stop(drain_seconds=0, epoch="")),
    ),
}


@pytest.mark.parametrize("stage", STAGES)
def test_the_next_step_of_a_stop(stage: str) -> None:
    world, expected = STAGES[stage]
    assert acted(world) == expected(world)


def test_the_address_is_withdrawn_before_the_server_is_told_to_drain() -> None:
    world = ending(a_draining_pod(), told=False, servers={POD_UID: a_report(in_flight=2)})
    written = acted(world)
    assert isinstance(written, WriteStatus)
    assert written.status["endpoints"] == []


def test_an_end_that_others_ordered_is_withdrawn_before_anything_else_is_awaited() -> None:
    world = ending(a_terminating_pod(), told=False, lease=None, backend=a_backend())
    written = acted(world)
    assert isinstance(written, WriteStatus)
    assert written.status["endpoints"] == []


def test_a_busy_server_whose_probes_fail_just_now_still_gets_its_time() -> None:
    """Not ready is not idle: a long step may miss its probes, and its requests would be cut."""
    record = acted(ending(a_serving_pod(containers_ready=False, ready=False)))
    assert record == WriteStopRecord(ending(a_serving_pod(containers_ready=False, ready=False)).pods[0], a_stop())


def test_a_server_of_which_its_kubelet_says_nothing_gets_its_time() -> None:
    pod = a_serving_pod(containers=(), containers_ready=False, ready=False)
    assert acted(ending(pod)) == WriteStopRecord(pod, a_stop())


BROKEN = a_draining_pod(containers_ready=False, ready=False)


def test_a_broken_server_that_is_silent_has_its_deadline_moved_up_and_is_then_ended() -> None:
    world = ending(BROKEN)
    assert waited(world, later(14)).reason == "Draining"
    moved = replace(a_stop(), deadline=later(15))
    assert acted(world, later(15)) == WriteStopRecord(BROKEN, moved)
    told = replace(world, pods=(replace(BROKEN, stop=moved),))
    cut = acted(told, later(15))
    assert isinstance(cut, WriteStopRecord)
    assert cut.record.cut == Cut("", None)


@pytest.mark.parametrize(
    "world",
    [
        ending(a_draining_pod()),
        ending(BROKEN, servers={POD_UID: a_report(ServerState.DRAINING, in_flight=1)}),
        ending(replace(BROKEN, stop=a_stop(extended="p-uid 60"))),
        ending(replace(BROKEN, containers=())),
    ],
    ids=["its probes pass", "it answers", "the user gave it more time", "its kubelet says nothing of it"],
)
def test_the_deadline_stays_where_it_is_when(world: Observation) -> None:
    assert waited(world, later(29)).reason == "Draining"


def test_another_servers_word_does_not_end_a_drain() -> None:
    report = a_report(ServerState.DRAINING, pod_uid="another-pod")
    assert waited(ending(a_draining_pod(), servers={POD_UID: report})).reason == "Draining"


# -- waits, and what wakes them ---------------------------------------------------------------------------------------

NEIGHBOURS_STOP = ModelStop("other-pod-uid", "models/neighbour, instance 0")

WAITS: dict[str, tuple[Observation, str, str, datetime | None]] = {
    "for a neighbour of the same model": (
        bound(a_serving_pod(), backend=a_deleted_backend(), lease=a_neighbours_lease()),
        "WaitingForModelLock",
        "models/neighbour, instance 0 is being shut down; this instance of the same model waits for its turn",
        later(10),
    ),
    "for a Lease that nobody we know wrote": (
        bound(a_serving_pod(), backend=a_deleted_backend(), lease=a_lease(holder=None, description="")),
        "WaitingForModelLock",
        "an unknown holder of Lease modelbackend-system/modelbackend-1 is being shut down; "
        "this instance of the same model waits for its turn",
        later(10),
    ),
    "for a shutdown of our own whose Lease was deleted by hand": (
        bound(
            a_serving_pod(),
            a_terminating_pod("p-1", ordinal=1, ref=replace(a_serving_pod("p-1").ref, name="smollm2-1")),
            backend=a_deleted_backend(),
        ),
        "WaitingForModelLock",
        "pod smollm2-1 is being shut down; this instance of the same model waits for its turn",
        later(10),
    ),
    "for an open stop of a neighbour whose Lease was deleted by hand": (
        bound(a_serving_pod(), backend=a_deleted_backend(), model_stops=(NEIGHBOURS_STOP,)),
        "WaitingForModelLock",
        "models/neighbour, instance 0 is being shut down; this instance of the same model waits for its turn",
        later(10),
    ),
    "for it also when the Lease was taken all the same": (
        ending(a_serving_pod(), model_stops=(NEIGHBOURS_STOP,)),
        "WaitingForModelLock",
        "models/neighbour, instance 0 is being shut down; this instance of the same model waits for its turn",
        later(10),
    ),
    "as the second of two whose stops are recorded": (
        ending(a_draining_pod(), lease=a_neighbours_lease(), model_stops=(NEIGHBOURS_STOP,)),
        "WaitingForModelLock",
        "models/neighbour, instance 0 is being shut down; this instance of the same model waits for its turn",
        later(10),
    ),
    "for requests past the deadline, without escalation": (
        ending(a_draining_pod(stop=GIVEN_WAY), backend=PATIENT, servers=STILL_BUSY),
        "Busy",
        "1 requests run past the drain deadline, and shutdown.escalate is false; "
        'to end them now, annotate the ModelBackend: modelbackend.dev/force="p-uid <reason>"',
        later(5),
    ),
    "for requests in flight": (
        ending(a_draining_pod(), servers={POD_UID: a_report(ServerState.DRAINING, in_flight=1)}),
        "Draining",
        "requests in flight are finishing",
        later(1),
    ),
    "for a silent server, until the deadline": (
        ending(a_draining_pod(stop=a_stop(since=later(-29.5)))),
        "Draining",
        "the server does not answer; waiting for it until the drain deadline",
        later(0.5),
    ),
    "for a server of which a kubelet that was just restarted says nothing": (
        ending(a_draining_pod(containers=(), containers_ready=False)),
        "Draining",
        "the server does not answer; waiting for it until the drain deadline",
        later(1),
    ),
    "for the kubelet's word": (
        ending(a_terminating_pod()),
        "AwaitingProof",
        "waiting for the kubelet to report that every container of pod smollm2-0 on node node-1 has ended",
        later(75),
    ),
    "for the word of a kubelet that is away": (
        ending(a_terminating_pod(), node_troubles={NODE.name: "Kubelet stopped posting node status."}),
        "AwaitingProof",
        "waiting for the kubelet to report that every container of pod smollm2-0 on node node-1 has ended; "
        "the node is not Ready: Kubelet stopped posting node status.",
        later(75),
    ),
    "for the port's Service to be gone": (
        ending(an_ended_pod(), services=(a_service(terminating=True),)),
        "AwaitingProof",
        "Service smollm2-0 is being deleted",
        None,
    ),
    "for the kubelet to remove the object": (
        ending(an_ended_pod(has_finalizer=False), services=(), claims=(a_claim(ClaimPhase.COOLING),)),
        "AwaitingProof",
        "pod smollm2-0 has ended; its object is being removed",
        later(25),
    ),
    "to replace a pod that its node rejected": (
        bound(a_rejected_pod()),
        "RejectedByNode",
        "pod smollm2-0 failed on node node-1: Pod was rejected: Allocate failed due to no healthy devices present; "
        "the next one is made at 12:00:10 UTC",
        later(10),
    ),
}


@pytest.mark.parametrize("case", WAITS)
def test_what_a_stop_waits_for(case: str) -> None:
    world, reason, message, not_after = WAITS[case]
    assert waited(world) == Wait(reason, message, not_after, 0)


def test_an_ended_pod_that_nobody_removes_is_removed_with_grace_0_once_and_after_proof() -> None:
    world = ending(an_ended_pod(has_finalizer=False), services=(), claims=(a_claim(ClaimPhase.COOLING),))
    assert acted(world, later(25)) == DeletePod(world.pods[0], 0)
    again = replace(world, pods=(replace(world.pods[0], grace_seconds=0),))  # held by somebody else's finalizer
    assert waited(again, later(3600)).not_after is None


def test_a_rejected_pod_is_replaced_without_a_drain_and_without_waiting_for_its_model() -> None:
    """Nothing of it ever ran, so a neighbour's shutdown, however long, is none of its business."""
    world = replace(bound(a_rejected_pod()), lease=a_neighbours_lease())
    since = later(10)
    assert acted(world, since) == WriteStopRecord(world.pods[0], a_stop(StopReason.REJECTED, 0, "", since))


# -- points of no return ----------------------------------------------------------------------------------------------


def test_a_lease_that_was_taken_is_used_although_nobody_wishes_the_stop_any_more() -> None:
    world = replace(bound(a_serving_pod()), lease=a_lease(purpose=StopReason.SPEC_CHANGED))
    assert acted(world) == WriteStopRecord(world.pods[0], a_stop(StopReason.SPEC_CHANGED))


def test_a_recorded_stop_is_finished_although_nobody_wishes_it_any_more() -> None:
    world = bound(a_draining_pod(), lease=a_lease(), servers={POD_UID: a_report(ServerState.DRAINING)})
    assert acted(world) == DeletePod(world.pods[0], 15)


def test_a_recorded_stop_takes_its_lost_lease_again_for_the_recorded_reason() -> None:
    world = bound(a_draining_pod(stop=a_stop(StopReason.SCALED_DOWN)))
    lease = acted(world)
    assert isinstance(lease, AcquireLease)
    assert lease.holder.purpose is StopReason.SCALED_DOWN


def test_a_recorded_stop_goes_on_while_a_neighbour_holds_the_lease_that_was_deleted_by_hand() -> None:
    """Who took the Lease sees the open record, and waits: so exactly one of the two goes on."""
    world = ending(a_draining_pod(), lease=a_neighbours_lease(), servers={POD_UID: a_report(in_flight=2)})
    assert acted(world) == DrainServer(world.pods[0], later(30))


@pytest.mark.parametrize(
    ("lease", "since"),
    [(a_lease(acquired_at=later(-20)), later(-20)), (None, later(-25))],
    ids=["from the Lease", "from the deletion of the backend"],
)
def test_a_wiped_record_gets_its_deadline_back_from_what_is_still_known(lease: Lease | None, since: datetime) -> None:
    """The pod is withdrawn and its requests run: a deadline of now would cut them."""
    deleted = a_backend(deleting_since=later(-25), ordinals=())
    pod = a_draining_pod(stop=None, withdrawn=True)
    world = replace(bound(pod, backend=deleted), lease=lease)
    if lease is None:
        world = replace(world, lease=a_lease(acquired_at=None))
    assert acted(world) == WriteStopRecord(pod, a_stop(since=since))


def test_an_ended_pod_gives_its_models_turn_back_before_its_object_is_removed() -> None:
    world = ending(an_ended_pod(has_finalizer=False), services=(), claims=(a_claim(ClaimPhase.COOLING),))
    assert acted(world) == ReleaseLease(world.lease)  # type: ignore[arg-type]


def test_nothing_of_the_instance_starts_while_its_last_pod_is_unproven() -> None:
    world = settled(ending(a_terminating_pod(template_hash="old"), backend=a_backend()))
    assert decide(world, NOW) == waited(world)


def test_a_neighbours_lease_is_never_released_by_us() -> None:
    assert decide(settled(a_world(a_backend(ordinals=()), lease=a_neighbours_lease())), NOW) == Done()


def test_a_host_port_claim_cools_without_a_service() -> None:
    claim = a_claim(exposure=Exposure.HOST_PORT)
    world = ending(an_ended_pod(), claims=(claim,), services=(a_shared_service(),))
    assert acted(world) == CoolClaim(claim, Evidence.CONTAINERS_TERMINATED)


# -- whom to ask ------------------------------------------------------------------------------------------------------

ASKED: dict[str, tuple[Observation, bool]] = {
    "one about to serve": (bound(a_loading_pod(containers_ready=True)), True),
    "one that drains": (bound(a_draining_pod()), True),
    "one that drains without its backend": (a_world(None, pods=[a_draining_pod()]), True),
    "one that serves and whose model is not yet told": (bound(a_serving_pod()), True),
    "one that serves and whose backend is gone": (a_world(None, pods=[a_serving_pod()]), False),
    "one that still loads": (bound(a_loading_pod()), False),
    "one behind its gate": (bound(a_gated_pod()), False),
    "one that was told to end": (bound(a_terminating_pod()), False),
    "one whose container has ended": (bound(a_draining_pod(containers=(ENDED,))), False),
}


@pytest.mark.parametrize("case", ASKED)
def test_which_servers_are_asked(case: str) -> None:
    world, asked = ASKED[case]
    assert servers_to_ask(world) == (world.pods if asked else ())


def test_a_server_is_not_asked_again_once_it_is_advertised_with_its_models_facts() -> None:
    world = bound(a_serving_pod())
    assert world.backend is not None
    told = {**world.backend.status, "model": {"name": "smollm2", "architecture": "llama"}}
    assert servers_to_ask(replace(world, backend=replace(world.backend, status=told))) == ()


def test_a_new_pod_is_asked_although_the_facts_of_the_last_model_are_known() -> None:
    world = bound(a_loading_pod(containers_ready=True, serving_condition=True))  # let into service, not yet Ready
    assert world.backend is not None
    told = {**world.backend.status, "model": {"name": "smollm2", "architecture": "llama"}}
    assert servers_to_ask(replace(world, backend=replace(world.backend, status=told))) == world.pods


# -- the busy limit ---------------------------------------------------------------------------------------------------

LIMITED = a_backend(busy_timeout_seconds=600)


def busy(oldest_seconds: float, in_flight: int = 3, backend: Backend = LIMITED) -> Observation:
    world = bound(a_serving_pod(), backend=backend)
    return replace(world, servers={POD_UID: a_report(in_flight=in_flight, oldest_seconds=oldest_seconds)})


def test_an_instance_whose_oldest_request_is_too_old_is_stopped_for_that() -> None:
    lease = acted(busy(600.1))
    assert isinstance(lease, AcquireLease)
    assert lease.holder.purpose is StopReason.BUSY_TIMEOUT


@pytest.mark.parametrize(
    ("world", "again"),
    [
        (busy(600, in_flight=64), later(1)),
        (busy(2.5, in_flight=64), later(597.5)),
        (busy(0, in_flight=0), later(600)),
        (replace(busy(0), servers={}), later(10)),
    ],
    ids=["at the limit", "steady short requests", "idle", "silent"],
)
def test_an_instance_within_its_busy_limit_stays_and_is_asked_when_it_could_have_passed_it(
    world: Observation, again: datetime
) -> None:
    assert stop(world, world.pods[0], NOW) == Wait("BusyLimit", "", again, 0)
    assert decide(settled(world) if isinstance(decide(world, NOW), Act) else world, NOW) == stop(
        world, world.pods[0], NOW
    )


def test_without_a_busy_limit_nobody_looks_how_old_requests_are() -> None:
    assert stop(busy(1e6, backend=a_backend()), a_serving_pod(), NOW) is None


def test_a_serving_instance_with_a_busy_limit_is_asked_although_all_is_told() -> None:
    world = bound(a_serving_pod(), backend=LIMITED)
    assert world.backend is not None
    told = {**world.backend.status, "model": {"name": "smollm2", "architecture": "llama"}}
    assert servers_to_ask(replace(world, backend=replace(world.backend, status=told))) == world.pods


# -- a stopping instance and the others -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod",
    [a_draining_pod(template_hash="old"), a_terminating_pod(template_hash="old"), a_serving_pod(template_hash="old")],
    ids=["drains", "awaits proof", "waits for its turn"],
)
def test_an_instance_that_is_stopped_holds_up_no_repair_of_another(pod: Pod) -> None:
    world = bound(pod, backend=a_backend(ordinals=(0, 1)))
    lease = a_neighbours_lease() if pod.stop is None else a_lease()
    servers = {POD_UID: a_report(ServerState.DRAINING, in_flight=1)}
    action = acted(replace(world, lease=lease, servers=servers))
    assert isinstance(action, CreateClaim)
    assert action.ordinal == 1
