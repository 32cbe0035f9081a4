"""Which applied action a person hears about, and in which words."""

import pytest

from modelbackend_operator.actions import (
    Action,
    AddFinalizer,
    BindClaim,
    CoolClaim,
    CreateClaim,
    CreatePod,
    DeletePod,
    ReserveClaim,
    SetServing,
    WithholdClaim,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.api import Evidence
from modelbackend_operator.events import Event, events_of
from modelbackend_operator.model import ClaimPhase, Observation, ServerState, StopReason
from tests.unit.builders import (
    BACKEND_UID,
    NOW,
    POD_UID,
    a_backend,
    a_claim,
    a_draining_pod,
    a_gated_pod,
    a_loading_pod,
    a_report,
    a_serving_pod,
    a_stop,
    a_terminating_pod,
    a_world,
)


def a_status(*stalled: tuple[str, str]) -> dict[str, object]:
    conditions = [{"type": "Ready", "status": "False", "reason": "x", "message": "x"}]
    conditions += [{"type": "Stalled", "status": "True", "reason": r, "message": m} for r, m in stalled]
    return {"conditions": conditions}


BACKEND = a_backend()
DRAINED = a_report(ServerState.DRAINING)
BUSY = a_report(ServerState.DRAINING, in_flight=3)

SPOKEN: dict[str, tuple[Action, Observation, tuple[str, str, str]]] = {
    "a port is claimed": (
        CreateClaim(BACKEND, 0, 30007),
        a_world(BACKEND),
        ("Normal", "PortClaimed", "claimed port 30007 for instance 0"),
    ),
    "a port is taken back": (
        ReserveClaim(a_claim(ClaimPhase.COOLING)),
        a_world(BACKEND),
        ("Normal", "PortClaimed", "took port 30007 back for instance 0"),
    ),
    "a pod is created": (
        CreatePod(BACKEND, 0, "smollm2-1f-0", 30007),
        a_world(BACKEND),
        ("Normal", "PodCreated", "created pod smollm2-1f-0 for instance 0"),
    ),
    "an instance serves": (
        SetServing(a_serving_pod(), serving=True),
        a_world(BACKEND),
        ("Normal", "Serving", "instance 0 (pod smollm2-0) serves"),
    ),
    "a stop begins": (
        WriteStopRecord(a_serving_pod(), a_stop(StopReason.SPEC_CHANGED)),
        a_world(BACKEND),
        ("Normal", "Stopping", "stopping instance 0 (pod smollm2-0): SpecChanged; draining for at most 30 s"),
    ),
    "a stop begins with nothing to drain": (
        WriteStopRecord(a_loading_pod(), a_stop(StopReason.SCALED_DOWN, 0)),
        a_world(BACKEND),
        ("Normal", "Stopping", "stopping instance 0 (pod smollm2-0): ScaledDown; nothing to drain"),
    ),
    "others stop an instance": (
        WriteStopRecord(a_serving_pod(deleted_at=NOW, grace_seconds=45), a_stop(StopReason.FOREIGN, 0)),
        a_world(BACKEND),
        ("Normal", "Stopping", "stopping instance 0 (pod smollm2-0): PodDeletedByOthers; it has 45 s of grace"),
    ),
    "a drained pod is told to end": (
        DeletePod(a_draining_pod(), 15),
        a_world(BACKEND, servers={POD_UID: DRAINED}),
        ("Normal", "Terminating", "pod smollm2-0 is told to end, with 15 s of grace"),
    ),
    "a busy pod is told to end": (
        DeletePod(a_draining_pod(), 15),
        a_world(BACKEND, servers={POD_UID: BUSY}),
        ("Warning", "Forced", "drain deadline of pod smollm2-0 passed with 3 requests in flight"),
    ),
    "a port is released": (
        CoolClaim(a_claim(), Evidence.CONTAINERS_TERMINATED),
        a_world(BACKEND),
        (
            "Normal",
            "PortReleased",
            "port 30007 of pod smollm2-0 is free again after its reuse delay: ContainersTerminated",
        ),
    ),
    "a port is withheld": (
        WithholdClaim(a_claim(), "PodMissing", "pod smollm2-0 vanished"),
        a_world(BACKEND),
        ("Warning", "PortWithheld", "port 30007 stays withheld: pod smollm2-0 vanished"),
    ),
    "a backend stalls": (
        WriteStatus(BACKEND, a_status(("PortPoolExhausted", "no free port"))),
        a_world(BACKEND),
        ("Warning", "PortPoolExhausted", "no free port"),
    ),
    "a backend stalls for another reason": (
        WriteStatus(a_backend(status=a_status(("Unschedulable", "no node"))), a_status(("Crashing", "exit code 1"))),
        a_world(BACKEND),
        ("Warning", "Crashing", "exit code 1"),
    ),
}


@pytest.mark.parametrize("case", SPOKEN)
def test_an_event_when(case: str) -> None:
    action, world, (kind, reason, message) = SPOKEN[case]
    (event,) = events_of(action, world)
    assert event == Event("models", "smollm2", BACKEND_UID, event.type, reason, message)
    assert event.type == kind


SILENT: dict[str, tuple[Action, Observation]] = {
    "nothing a person cares about is done": (AddFinalizer(BACKEND), a_world(BACKEND)),
    "a claim is bound": (BindClaim(a_claim(), a_gated_pod()), a_world(BACKEND)),
    "a readiness gate closes": (SetServing(a_serving_pod(), serving=False), a_world(BACKEND)),
    "a pod that never ran is deleted": (DeletePod(a_gated_pod(), 15), a_world(BACKEND)),
    "an ended pod's object is removed": (DeletePod(a_terminating_pod(), 0), a_world(BACKEND)),
    "a backend is as stalled as before": (
        WriteStatus(a_backend(status=a_status(("Crashing", "exit code 1"))), a_status(("Crashing", "exit code 2"))),
        a_world(BACKEND),
    ),
    "a backend recovers": (
        WriteStatus(a_backend(status=a_status(("Crashing", "exit code 1"))), a_status()),
        a_world(BACKEND),
    ),
    "the backend is gone": (CoolClaim(a_claim(), Evidence.NEVER_STARTED), a_world(None)),
}


@pytest.mark.parametrize("case", SILENT)
def test_no_event_when(case: str) -> None:
    action, world = SILENT[case]
    assert events_of(action, world) == ()


def test_another_servers_requests_are_not_counted_as_cut() -> None:
    stranger = {POD_UID: a_report(in_flight=3, backend_uid="another")}
    (event,) = events_of(DeletePod(a_draining_pod(), 15), a_world(BACKEND, servers=stranger))
    assert event.reason == "Terminating"
