"""From an action to the one HTTP write that it is, without sending it.

Which verb, and why:
- Create (POST) for whatever must be made by one writer only: an apply would take over another's object.
- Merge (RFC 7386) for custom resources, strategic merge for pods, where it can name one finalizer, gate or condition
  and leaves those of others alone. Both carry uid and resourceVersion: an outdated one is answered with 409. (A failed
  `test` of a JSON patch would be answered with 422, like a request that makes no sense.)
- Apply for what this operator owns in whole: its part of a status, and the selector of a Service.
- Delete with uid and resourceVersion as preconditions.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from modelbackend_operator.actions import (
    AbortServer,
    AcquireLease,
    Action,
    AddFinalizer,
    BindClaim,
    CoolClaim,
    CreateBudget,
    CreateClaim,
    CreatePod,
    CreateService,
    DeleteBudget,
    DeleteClaim,
    DeletePod,
    DeleteService,
    DrainServer,
    ExplainClaim,
    HandOver,
    PointService,
    RecordNode,
    RecordReference,
    RecordReturn,
    ReleaseLease,
    RemakeToken,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    RemovePodFinalizer,
    ReserveClaim,
    RestoreMarks,
    SetServing,
    Ungate,
    WithholdClaim,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.api import (
    ANNOTATION_STOP,
    ANNOTATION_TOKEN_MADE,
    ANNOTATION_UNCONFIRMED,
    API_VERSION,
    FINALIZER,
    LABEL_POD_UID,
    LABEL_SERVING,
    MANAGED_BY,
    MODELBACKEND_KIND,
    READINESS_GATE,
    SCHEDULING_GATE,
    Evidence,
)
from modelbackend_operator.kinds import Kind
from modelbackend_operator.manifests import budget, claim, instance_service, lease, ownership_labels, shared_service
from modelbackend_operator.model import Budget, Claim, ClaimPhase, Lease, NodeId, Pod, Ref, Service, StopRecord
from modelbackend_operator.pod_template import pod
from modelbackend_operator.settings import Settings
from modelbackend_operator.timestamps import micro_time, rfc3339

HISTORY_LENGTH = 5
"""How many past holders a claim remembers."""
REASON_MAX_CHARACTERS = 1024

Raw = Mapping[str, Any]


class Verb(Enum):
    CREATE = ("POST", "application/json")
    MERGE = ("PATCH", "application/merge-patch+json")
    STRATEGIC_MERGE = ("PATCH", "application/strategic-merge-patch+json")
    APPLY = ("PATCH", "application/apply-patch+yaml")
    DELETE = ("DELETE", "application/json")

    def __init__(self, method: str, content_type: str) -> None:
        self.method = method
        self.content_type = content_type


@dataclass(frozen=True, slots=True)
class Write:
    """`name` is that of the object written, also of one that is to be created."""

    verb: Verb
    kind: Kind
    namespace: str
    name: str
    body: Raw
    subresource: str = ""

    @property
    def path(self) -> str:
        if self.verb is Verb.CREATE:
            return self.kind.path(self.namespace)
        return self.kind.path(self.namespace, self.name) + (f"/{self.subresource}" if self.subresource else "")

    @property
    def query(self) -> Sequence[tuple[str, str]]:
        if self.verb is Verb.DELETE:
            return ()
        manager = ("fieldManager", MANAGED_BY)
        return (manager, ("force", "true")) if self.verb is Verb.APPLY else (manager,)


def write_of(action: Action, settings: Settings, now: datetime) -> Write:
    """The write that `action` asks for. Raises ValueError for a call to the server in a pod."""
    match action:
        case DrainServer() | AbortServer():
            raise ValueError(f"{type(action).__name__} is a call to the server in a pod, not a write to the API server")
        case CreateClaim() | CreatePod() | CreateService() | CreateBudget() | AcquireLease():
            return _create(action, settings, now)
        case DeletePod() | DeleteService() | DeleteBudget() | DeleteClaim() | ReleaseLease():
            return _delete(action)
        case (
            Ungate()
            | RestoreMarks()
            | RemakeToken()
            | SetServing()
            | WriteStopRecord()
            | HandOver()
            | RemovePodFinalizer()
        ):
            return _pod_patch(action, now)
        case (
            ReserveClaim()
            | BindClaim()
            | RecordNode()
            | CoolClaim()
            | WithholdClaim()
            | RecordReference()
            | ExplainClaim()
            | RecordReturn()
        ):
            return _claim_status(action.claim, _claim_change(action, now))
        case AddFinalizer(backend=backend):
            return _finalizers(Kind.BACKEND, backend.ref, backend.raw, present=True)
        case RemoveFinalizer(backend=backend):
            return _finalizers(Kind.BACKEND, backend.ref, backend.raw, present=False)
        case RemoveClaimFinalizer(claim=target):
            return _finalizers(Kind.CLAIM, target.ref, target.raw, present=False)
        case WriteStatus(backend=backend, status=status):
            body = {"apiVersion": API_VERSION, "kind": MODELBACKEND_KIND, "status": status}
            return _conditional(Verb.APPLY, Kind.BACKEND, backend.ref, body, "status")
        case PointService(service=service):
            return _conditional(Verb.APPLY, Kind.SERVICE, service.ref, _service_body(action))


# -- creates and deletes ---------------------------------------------------------------------------------------------


Create = CreateClaim | CreatePod | CreateService | CreateBudget | AcquireLease


def _create(action: Create, settings: Settings, now: datetime) -> Write:
    backend = action.backend
    match action:
        case CreateClaim(ordinal=ordinal, port=port):
            kind, body = Kind.CLAIM, claim(backend, ordinal, port)
        case CreatePod(ordinal=ordinal, name=name, port=port, replaces=replaces):
            kind, body = Kind.POD, pod(backend, ordinal, name, port, settings.server_image, replaces=replaces)
        case CreateService(name=name, ordinal=None):
            kind, body = Kind.SERVICE, shared_service(backend, name)
        case CreateService(name=name, ordinal=int(ordinal), node_port=int(port), pod_uid=pod_uid):
            kind, body = Kind.SERVICE, instance_service(backend, name, ordinal, port, pod_uid)
        case CreateBudget():
            kind, body = Kind.BUDGET, budget(backend)
        case AcquireLease(holder=holder):
            kind, body = Kind.LEASE, lease(backend, holder, settings.namespace, now)
        case CreateService(name=name):
            raise ValueError(f"Service {name} of one instance has no node port")
    metadata = body["metadata"]
    return Write(Verb.CREATE, kind, metadata.get("namespace", ""), metadata["name"], body)


def _delete(action: DeletePod | DeleteService | DeleteBudget | DeleteClaim | ReleaseLease) -> Write:
    match action:
        case DeletePod(pod=Pod(ref=ref)):
            kind = Kind.POD
        case DeleteService(service=Service(ref=ref)):
            kind = Kind.SERVICE
        case DeleteBudget(budget=Budget(ref=ref)):
            kind = Kind.BUDGET
        case DeleteClaim(claim=Claim(ref=ref)):
            kind = Kind.CLAIM
        case ReleaseLease(lease=Lease(ref=ref)):
            kind = Kind.LEASE
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": ref.uid, "resourceVersion": ref.resource_version},
    }
    if isinstance(action, DeletePod):
        body["gracePeriodSeconds"] = action.grace_seconds
    return Write(Verb.DELETE, kind, ref.namespace, ref.name, body)


def _conditional(verb: Verb, kind: Kind, ref: Ref, body: Raw, subresource: str = "") -> Write:
    """The body, valid only for this very object in this very version."""
    metadata = {**body.get("metadata", {}), "uid": ref.uid, "resourceVersion": ref.resource_version}
    if verb is Verb.APPLY:
        metadata |= {"name": ref.name} | ({"namespace": ref.namespace} if ref.namespace else {})
    return Write(verb, kind, ref.namespace, ref.name, {**body, "metadata": metadata}, subresource)


def _finalizers(kind: Kind, ref: Ref, raw: Raw, *, present: bool) -> Write:
    """A merge patch replaces the whole list, so it repeats those of others."""
    others = [name for name in raw["metadata"].get("finalizers") or () if name != FINALIZER]
    body = {"metadata": {"finalizers": [*others, FINALIZER] if present else others}}
    return _conditional(Verb.MERGE, kind, ref, body)


def _service_body(action: PointService) -> Raw:
    """Selector and labels are replaced as they stand, a port by its number; what others added besides stays."""
    backend, service = action.backend, action.service
    if service.ordinal is None or service.node_port is None:
        return shared_service(backend, service.ref.name)
    return instance_service(backend, service.ref.name, service.ordinal, service.node_port, action.pod_uid)


# -- pods ------------------------------------------------------------------------------------------------------------


def _pod_patch(
    action: Ungate | RestoreMarks | RemakeToken | SetServing | WriteStopRecord | HandOver | RemovePodFinalizer,
    now: datetime,
) -> Write:
    ref = action.pod.ref
    match action:
        case SetServing(serving=serving):
            return _conditional(Verb.STRATEGIC_MERGE, Kind.POD, ref, _serving_condition(serving, now), "status")
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
    return _conditional(Verb.STRATEGIC_MERGE, Kind.POD, ref, body)


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


# -- claims ----------------------------------------------------------------------------------------------------------


def _claim_status(target: Claim, change: Raw) -> Write:
    return _conditional(Verb.MERGE, Kind.CLAIM, target.ref, {"status": change}, "status")


ClaimWrite = (
    ReserveClaim | BindClaim | RecordNode | CoolClaim | WithholdClaim | RecordReference | ExplainClaim | RecordReturn
)


def _claim_change(action: ClaimWrite, now: datetime) -> Raw:
    """None takes a field away (RFC 7386). Pod and node stay until the next holder: they are the facts of the last."""
    match action:
        case RecordNode(node=node):
            return {"node": _node_reference(node)}
        case ReserveClaim():
            return _phase(ClaimPhase.RESERVED, now) | {"pod": None, "node": None}
        case BindClaim(pod=holder):
            named = {"name": holder.ref.name, "uid": holder.ref.uid}
            return _phase(ClaimPhase.BOUND, now) | {"pod": named, "node": None}
        case WithholdClaim(reason=reason, message=message, node=node):
            machine = {"node": _node_reference(node)} if node is not None else {}
            return _phase(ClaimPhase.WITHHELD, now) | {"reason": reason, "message": message, **machine}
        case RecordReference(boot_id=boot_id):
            return {"referenceBootID": boot_id}
        case ExplainClaim(reason=reason, message=message):
            return {"reason": reason or None, "message": message or None}
        case RecordReturn(claim=target, node=node):
            return {"history": [_returned(past, node, now) for past in _past(target)]}
        case CoolClaim(claim=target, evidence=evidence, reason=reason):
            history = _history(target, evidence, now)
            return _phase(ClaimPhase.COOLING, now) | {
                "evidence": evidence,
                "reason": reason or None,
                "history": history,
            }


def _phase(phase: ClaimPhase, now: datetime) -> dict[str, Any]:
    cleared = dict.fromkeys(("referenceBootID", "evidence", "reason", "message"))
    return {"phase": phase, "since": rfc3339(now), **cleared}


def _history(target: Claim, evidence: str, now: datetime) -> list[Raw]:
    """Oldest first, with the holder that has just ended as the last."""
    past: dict[str, Any] = {
        "pod": {"name": target.pod_name, "uid": target.pod_uid},
        "until": rfc3339(now),
        "evidence": evidence,
    }
    if target.node is not None:
        past["node"] = _node_reference(target.node)
    if target.phase is ClaimPhase.BOUND:
        past["since"] = rfc3339(target.since)
    if evidence == Evidence.ATTESTED and target.attestation is not None:
        past["reason"] = target.attestation.reason[:REASON_MAX_CHARACTERS]
    return [*_past(target), past][-HISTORY_LENGTH:]


def _past(target: Claim) -> list[Raw]:
    return list((target.raw.get("status") or {}).get("history") or ())


def _returned(past: Raw, node: NodeId, now: datetime) -> Raw:
    came_back = past.get("evidence") == Evidence.NODE_REMOVED and (past.get("node") or {}).get("bootID") == node.boot_id
    return {**past, "returned": rfc3339(now)} if came_back and not past.get("returned") else past


def _node_reference(node: NodeId) -> Raw:
    """A merge patch must say that a boot id is not known, or the last machine's would stay."""
    return {"name": node.name, "uid": node.uid, "bootID": node.boot_id or None}
