"""Which applied action a person hears about, and in which words."""

from dataclasses import replace

import pytest

from modelbackend_operator.actions import (
    Action,
    AddFinalizer,
    BindClaim,
    CoolClaim,
    CreateClaim,
    CreatePod,
    DeletePod,
    ExplainClaim,
    HandOver,
    RecordReturn,
    ReserveClaim,
    SetServing,
    WithholdClaim,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.api import Evidence
from modelbackend_operator.events import Event, events_of
from modelbackend_operator.model.backend import Attestation
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.stop import Cut, StopReason
from modelbackend_operator.words import unconfirmed_words
from tests.unit.builders import (
    BACKEND_UID,
    NODE,
    NOW,
    POD_UID,
    a_backend,
    a_claim,
    a_draining_pod,
    a_gated_pod,
    a_loading_pod,
    a_serving_pod,
    a_stop,
    a_terminating_pod,
    a_world,
    later,
)


def a_status(*stalled: tuple[str, str]) -> dict[str, object]:
    conditions = [{"type": "Ready", "status": "False", "reason": "x", "message": "x"}]
    conditions += [{"type": "Stalled", "status": "True", "reason": r, "message": m} for r, m in stalled]
    return {"conditions": conditions}


BACKEND = a_backend()

REFUSED = {"kind": "Force", "text": "p-9 now", "refused": "modelbackend.dev/force: no such pod"}

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
        a_world(BACKEND),
        ("Normal", "Terminating", "pod smollm2-0 is told to end, with 15 s of grace"),
    ),
    "a busy pod is told to end": (
        DeletePod(a_draining_pod(stop=replace(a_stop(), cut=Cut("", 3))), 15),
        a_world(BACKEND),
        ("Warning", "Forced", "drain deadline passed for pod smollm2-0, with 3 requests in flight"),
    ),
    "a silent pod is told to end": (
        DeletePod(a_draining_pod(stop=replace(a_stop(), cut=Cut("", None))), 15),
        a_world(BACKEND),
        ("Warning", "Forced", "drain deadline passed for pod smollm2-0, with an unknown number of requests in flight"),
    ),
    "a pod is told to end by order": (
        DeletePod(a_draining_pod(stop=replace(a_stop(), cut=Cut("all maintenance", 3))), 15),
        a_world(BACKEND),
        ("Warning", "Forced", "ended by order (all maintenance) for pod smollm2-0, with 3 requests in flight"),
    ),
    "force is ordered": (
        WriteStopRecord(a_draining_pod(), replace(a_stop(), cut=Cut("all maintenance", 3))),
        a_world(BACKEND),
        ("Warning", "ForceOrdered", "instance 0 (pod smollm2-0) is ended now, by order: all maintenance"),
    ),
    "more time is ordered": (
        WriteStopRecord(a_draining_pod(), replace(a_stop(), deadline=later(90), extended="p-uid 60")),
        a_world(BACKEND),
        ("Normal", "Extended", "instance 0 (pod smollm2-0) may drain until 2026-05-04T12:01:30Z: p-uid 60"),
    ),
    "a busy instance gives way": (
        WriteStopRecord(a_draining_pod(), replace(a_stop(), yielded_at=later(30))),
        a_world(BACKEND),
        (
            "Warning",
            "Busy",
            "the stop of instance 0 (pod smollm2-0) goes on past its time; "
            "others of the model need not wait for it any more",
        ),
    ),
    "an order is refused": (
        WriteStatus(BACKEND, {**a_status(), "orders": [REFUSED]}),
        a_world(BACKEND),
        ("Warning", "OrderRefused", "modelbackend.dev/force: no such pod"),
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
    "a port is released on an administrator's word": (
        CoolClaim(a_claim(attestation=Attestation(POD_UID, "unplugged")), Evidence.ATTESTED),
        a_world(BACKEND),
        (
            "Normal",
            "PortReleased",
            "port 30007 of pod smollm2-0 is free again after its reuse delay: Attested: unplugged",
        ),
    ),
    "an instance is handed over": (
        HandOver(a_terminating_pod()),
        a_world(BACKEND, claims=[a_claim()]),
        (
            "Warning",
            "Unconfirmed",
            "instance 0 goes on without proof: "
            + unconfirmed_words(a_world(BACKEND, claims=[a_claim()]), a_terminating_pod()),
        ),
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


LEDGER: dict[str, tuple[Action, Observation, tuple[str, str, str]]] = {
    "a port is released after its backend is gone": (
        CoolClaim(a_claim(), Evidence.CONTAINERS_TERMINATED),
        a_world(None),
        (
            "Normal",
            "PortReleased",
            "port 30007 of pod smollm2-0 is free again after its reuse delay: ContainersTerminated",
        ),
    ),
    "an attestation is refused": (
        ExplainClaim(a_claim(ClaimPhase.WITHHELD), "AttestationRefused", "it names another pod"),
        a_world(BACKEND),
        ("Warning", "AttestationRefused", "it names another pod"),
    ),
    "a port answers against the word that its pod has ended": (
        ExplainClaim(a_claim(ClaimPhase.WITHHELD), "StillAnswering", "it answers"),
        a_world(None),
        ("Warning", "StillAnswering", "it answers"),
    ),
    "a machine is back": (
        RecordReturn(a_claim(), NODE),
        a_world(BACKEND),
        (
            "Warning",
            "NodeReturned",
            "node node-1 is back in boot boot-1, in which a pod ran behind port 30007; it was taken as ended when the "
            "Node was removed: evidence.nodeRemoved must not be Accept in this cluster",
        ),
    ),
}


@pytest.mark.parametrize("case", LEDGER)
def test_an_event_on_the_claim_when(case: str) -> None:
    action, world, (kind, reason, message) = LEDGER[case]
    (event,) = events_of(action, world)
    assert event == Event("", "port-30007", "claim-30007-uid", event.type, reason, message, kind="PortClaim")
    assert event.type == kind


@pytest.mark.parametrize("case", SPOKEN)
def test_an_event_when(case: str) -> None:
    action, world, (kind, reason, message) = SPOKEN[case]
    (event,) = events_of(action, world)
    assert event == Event("models", "smollm2", BACKEND_UID, event.type, reason, message)
    assert event.type == kind


SILENT: dict[str, tuple[Action, Observation]] = {
    "an order is refused as before": (
        WriteStatus(a_backend(status={"orders": [REFUSED]}), {**a_status(), "orders": [REFUSED]}),
        a_world(BACKEND),
    ),
    "the label of a stopping pod is taken off again": (
        WriteStopRecord(a_draining_pod(serving_label=True), a_stop()),
        a_world(BACKEND),
    ),
    "it is recorded that a deadline cut requests, which the DELETE tells": (
        WriteStopRecord(a_draining_pod(), replace(a_stop(), cut=Cut("", 3))),
        a_world(BACKEND),
    ),
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
    "the backend is gone": (HandOver(a_terminating_pod()), a_world(None)),
    "a claim is explained as before": (ExplainClaim(a_claim(), "Unconfirmed", "words"), a_world(BACKEND)),
}


@pytest.mark.parametrize("case", SILENT)
def test_no_event_when(case: str) -> None:
    action, world = SILENT[case]
    assert events_of(action, world) == ()
