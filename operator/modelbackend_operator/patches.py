"""From an action to the one HTTP write that it is, without sending it."""

from datetime import datetime
from typing import Any

from modelbackend_operator.actions import (
    AbortServer,
    AcquireLease,
    Action,
    AddFinalizer,
    ClaimPatch,
    Create,
    CreateBudget,
    CreateClaim,
    CreatePod,
    CreateService,
    Delete,
    DeleteBudget,
    DeleteClaim,
    DeletePod,
    DeleteService,
    DrainServer,
    PodPatch,
    PointService,
    ReleaseLease,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    WriteStatus,
)
from modelbackend_operator.api import API_VERSION, FINALIZER, MODELBACKEND_KIND
from modelbackend_operator.claim_patches import claim_patch
from modelbackend_operator.kinds import Kind
from modelbackend_operator.manifests import budget, claim, instance_service, lease, shared_service
from modelbackend_operator.model.budget import Budget
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.service import Service
from modelbackend_operator.placement import avoiding
from modelbackend_operator.pod_patches import pod_patch
from modelbackend_operator.pod_template import pod
from modelbackend_operator.settings import Settings
from modelbackend_operator.write import Raw, Verb, Write, conditional


def write_of(action: Action, settings: Settings, now: datetime) -> Write:
    """The write that `action` asks for. Raises ValueError for a call to the server in a pod."""
    if isinstance(action, Create):
        return _create(action, settings, now)
    if isinstance(action, Delete):
        return _delete(action)
    if isinstance(action, PodPatch):
        return pod_patch(action, now)
    if isinstance(action, ClaimPatch):
        return claim_patch(action, now)
    match action:
        case DrainServer() | AbortServer():
            raise ValueError(f"{type(action).__name__} is a call to the server in a pod, not a write to the API server")
        case AddFinalizer(backend=backend):
            return _finalizers(Kind.BACKEND, backend.ref, backend.raw, present=True)
        case RemoveFinalizer(backend=backend):
            return _finalizers(Kind.BACKEND, backend.ref, backend.raw, present=False)
        case RemoveClaimFinalizer(claim=target):
            return _finalizers(Kind.CLAIM, target.ref, target.raw, present=False)
        case WriteStatus(backend=backend, status=status):
            body = {"apiVersion": API_VERSION, "kind": MODELBACKEND_KIND, "status": status}
            return conditional(Verb.APPLY, Kind.BACKEND, backend.ref, body, "status")
        case PointService(service=service):
            return conditional(Verb.APPLY, Kind.SERVICE, service.ref, _service_body(action))


def _create(action: Create, settings: Settings, now: datetime) -> Write:
    backend = action.backend
    match action:
        case CreateClaim(ordinal=ordinal, port=port, role=role):
            kind, body = Kind.CLAIM, claim(backend, ordinal, port, role)
        case CreatePod(ordinal=ordinal, name=name, port=port, replaces=replaces, avoided_nodes=avoided):
            image, http_port = settings.server_image, action.http_port
            body = pod(backend, ordinal, name, port, image, replaces=replaces, http_port=http_port)
            kind = Kind.POD
            if avoided:
                body["spec"]["affinity"] = avoiding(body["spec"].get("affinity"), avoided)
        case CreateService(name=name, ordinal=None):
            kind, body = Kind.SERVICE, shared_service(backend, name)
        case CreateService(name=name, ordinal=int(ordinal), node_port=int(port), pod_uid=pod_uid):
            kind = Kind.SERVICE
            body = instance_service(backend, name, ordinal, port, pod_uid, action.http_node_port)
        case CreateBudget():
            kind, body = Kind.BUDGET, budget(backend)
        case AcquireLease(holder=holder):
            kind, body = Kind.LEASE, lease(backend, holder, settings.namespace, now)
        case CreateService(name=name):
            raise ValueError(f"Service {name} of one instance has no node port")
    metadata = body["metadata"]
    return Write(Verb.CREATE, kind, metadata.get("namespace", ""), metadata["name"], body)


def _delete(action: Delete) -> Write:
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


def _finalizers(kind: Kind, ref: Ref, raw: Raw, *, present: bool) -> Write:
    """A merge patch replaces the whole list, so it repeats those of others."""
    others = [name for name in raw["metadata"].get("finalizers") or () if name != FINALIZER]
    body = {"metadata": {"finalizers": [*others, FINALIZER] if present else others}}
    return conditional(Verb.MERGE, kind, ref, body)


def _service_body(action: PointService) -> Raw:
    """Selector and labels are replaced as they stand, a port by its number; what others added besides stays."""
    backend, service = action.backend, action.service
    if service.ordinal is None or service.node_port is None:
        return shared_service(backend, service.ref.name)
    return instance_service(
        backend, service.ref.name, service.ordinal, service.node_port, action.pod_uid, service.http_node_port
    )
