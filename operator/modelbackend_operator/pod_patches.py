"""What is patched on a pod: its gate, its marks, its stop record, its readiness."""

import json
from datetime import datetime
from typing import Any

from modelbackend_operator.actions import (
    HandOver,
    PodPatch,
    RemakeToken,
    RemovePodFinalizer,
    RestoreMarks,
    SetServing,
    Ungate,
    WriteStopRecord,
)
from modelbackend_operator.api import (
    ANNOTATION_STOP,
    ANNOTATION_TOKEN_MADE,
    ANNOTATION_UNCONFIRMED,
    FINALIZER,
    LABEL_POD_UID,
    LABEL_SERVING,
    READINESS_GATE,
    SCHEDULING_GATE,
)
from modelbackend_operator.kinds import Kind
from modelbackend_operator.manifests import ownership_labels
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.stop import StopRecord
from modelbackend_operator.timestamps import micro_time, rfc3339
from modelbackend_operator.write import Raw, Verb, Write, conditional


def pod_patch(action: PodPatch, now: datetime) -> Write:
    ref = action.pod.ref
    match action:
        case SetServing(serving=serving):
            return conditional(Verb.STRATEGIC_MERGE, Kind.POD, ref, _serving_condition(serving, now), "status")
        case Ungate(pod=target):
            body = _open_gate(target)
        case RestoreMarks(backend_uid=backend_uid):
            body = {"metadata": _marks(action.pod, backend_uid)}
        case RemakeToken():
            body = {"metadata": {"annotations": {ANNOTATION_TOKEN_MADE: rfc3339(now)}}}
        case WriteStopRecord(record=record):
            body = {"metadata": {"annotations": {ANNOTATION_STOP: stop_json(record)}, "labels": {LABEL_SERVING: None}}}
        case HandOver():
            body = {"metadata": {"annotations": {ANNOTATION_UNCONFIRMED: rfc3339(now)}}}
        case RemovePodFinalizer():
            body = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
    return conditional(Verb.STRATEGIC_MERGE, Kind.POD, ref, body)


def _marks(target: Pod, backend_uid: str) -> Raw:
    """No finalizer can be added to what is being deleted. A strategic merge adds it to those of others."""
    finalizers = {} if target.deleting else {"finalizers": [FINALIZER]}
    return {"labels": ownership_labels(backend_uid), **finalizers}


def _open_gate(target: Pod) -> Raw:
    """Only our gate: others (of a queueing system, say) are for others to open."""
    body: dict[str, Any] = {"metadata": {"labels": {LABEL_POD_UID: target.ref.uid, LABEL_SERVING: "true"}}}
    if target.gated:
        body["spec"] = {"schedulingGates": [{"name": SCHEDULING_GATE, "$patch": "delete"}]}
    return body


def _serving_condition(serving: bool, now: datetime) -> Raw:
    condition = {
        "type": READINESS_GATE,
        "status": "True" if serving else "False",
        "reason": "IdentityConfirmed" if serving else "Withdrawn",
        "message": "the server told its identity" if serving else "the instance is being stopped",
        "lastTransitionTime": rfc3339(now),
    }
    return {"status": {"conditions": [condition]}}


def stop_json(record: StopRecord) -> str:
    """With fractions of seconds: what is read back is what was decided."""
    body: dict[str, Any] = {
        "since": micro_time(record.since),
        "reason": record.reason,
        "deadline": micro_time(record.deadline),
        "epoch": record.epoch,
    }
    if record.extended:
        body["extended"] = record.extended
    if record.cut is not None:
        body["cut"] = {"order": record.cut.order, "requests": record.cut.requests}
    if record.yielded_at is not None:
        body["yieldedAt"] = micro_time(record.yielded_at)
    return json.dumps(body, sort_keys=True)
