"""What each write of the operator makes of the object it names."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from modelbackend_operator import actions as do
from modelbackend_operator.api import Evidence
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.service import Service
from tests.unit.builders import a_claim, a_gated_pod, a_lease

Create = do.CreateClaim | do.CreatePod | do.CreateService | do.AcquireLease
ClaimWrite = (
    do.ReserveClaim
    | do.BindClaim
    | do.RecordNode
    | do.CoolClaim
    | do.WithholdClaim
    | do.RecordReference
    | do.ExplainClaim
    | do.RecordReturn
    | do.DeleteClaim
    | do.RemoveClaimFinalizer
)


def made_by(action: Create, models: dict[str, str], now: datetime) -> Any:
    """The object that a create asks for, still without uid and version."""
    owner = action.backend
    match action:
        case do.CreateClaim(ordinal=ordinal, port=port, role=role):
            claim = a_claim(ClaimPhase.RESERVED, port, ordinal=ordinal, exposure=owner.exposure, role=role, since=now)
            return replace(claim, ref=Ref(claim.ref.name, "", ""))
        case do.CreatePod(ordinal=ordinal, name=name, port=port, replaces=replaces):
            return a_gated_pod(
                ref=Ref(name, "", "", owner.ref.namespace),
                created_at=now,
                ordinal=ordinal,
                template_hash=owner.template_hash,
                host_port=port if owner.exposure is Exposure.HOST_PORT else None,
                http_host_port=action.http_port if owner.exposure is Exposure.HOST_PORT else None,
                replaces=replaces,
            )
        case do.CreateService(name=name, ordinal=of, node_port=node_port, pod_uid=pod_uid):
            ref = Ref(name, "", "", owner.ref.namespace)
            return Service(ref, of, node_port, pod_uid, http_node_port=action.http_node_port)
        case do.AcquireLease(holder=holder):
            described = f"{owner.ref.namespace}/{owner.ref.name}, instance {holder.ordinal}"
            ref = Ref(models[owner.ref.uid], "", "")
            return a_lease(ref=ref, holder=holder, description=described, acquired_at=now)


def target_of(action: do.Action) -> Any:
    """The object, as the writer saw it, that the write is to change or remove."""
    match action:
        case do.PointService(service=seen) | do.DeleteService(service=seen):
            return seen
        case do.ReleaseLease(lease=seen):
            return seen
        case do.AddFinalizer(backend=seen) | do.RemoveFinalizer(backend=seen) | do.WriteStatus(backend=seen):
            return seen
    return action.claim if hasattr(action, "claim") else getattr(action, "pod", None)


def changed_by(action: do.Action, current: Any, now: datetime) -> Any:
    """What the write leaves of its target; None where it removes it."""
    match action:
        case do.DeleteService() | do.ReleaseLease():
            return None
        case do.DeletePod(grace_seconds=grace_seconds):
            return deleted(current, grace_seconds, now)
        case do.PointService(pod_uid=pod_uid):
            return replace(current, pod_uid=pod_uid, intact=True)
        case do.AddFinalizer() | do.RemoveFinalizer():
            return replace(current, has_finalizer=isinstance(action, do.AddFinalizer))
        case do.WriteStatus(status=status):
            return replace(current, status=status)
    if isinstance(current, Pod):
        return replace(current, **_pod_patch(action, current, now))
    return replace(current, **_claim_patch(action, now))


def _pod_patch(action: do.Action, current: Pod, now: datetime) -> dict[str, Any]:
    match action:
        case do.Ungate():
            return {"gated": False, "serving_label": True}
        case do.SetServing(serving=serving):
            return {"serving_condition": serving, "withdrawn": not serving}
        case do.WriteStopRecord(record=record):
            return {"stop": record, "serving_label": False}
        case do.RemakeToken():
            return {"token_made_at": now}
        case do.HandOver():
            return {"handed_over": now}
        case do.RestoreMarks():
            return {"labels_intact": True, "has_finalizer": current.has_finalizer or not current.deleting}
        case do.RemovePodFinalizer():
            return {"has_finalizer": False}
    raise TypeError(f"this fake does not know what {type(action).__name__} does to a pod")


_NOTHING_TOLD = {"reference_boot_id": "", "evidence": "", "reason": "", "message": ""}
"""What a claim says of its last holder goes with its phase."""


def _claim_patch(action: do.Action, now: datetime) -> dict[str, Any]:
    match action:
        case do.ReserveClaim():
            nobody = {"pod_name": "", "pod_uid": "", "node": None, "returned": False}
            return {"phase": ClaimPhase.RESERVED, "since": now, **nobody, **_NOTHING_TOLD}
        case do.BindClaim(pod=pod):
            named = {"pod_name": pod.ref.name, "pod_uid": pod.ref.uid, "node": None, "returned": False}
            return {"phase": ClaimPhase.BOUND, "since": now, **named, **_NOTHING_TOLD}
        case do.RecordNode(node=node):
            return {"node": node}
        case do.CoolClaim(claim=claim, evidence=evidence, reason=reason):
            removed = (claim.node,) if claim.node is not None and evidence == Evidence.NODE_REMOVED else ()
            known: dict[str, Any] = {
                "reference_boot_id": "",
                "evidence": evidence,
                "reason": reason,
                "message": "",
                "removed_nodes": claim.removed_nodes + removed,
                "past_pods": claim.past_pods | {claim.pod_uid},
                "returned": False,
            }
            return {"phase": ClaimPhase.COOLING, "since": now, **known}
        case do.WithholdClaim(claim=claim, reason=reason, message=message, node=node):
            told: dict[str, Any] = {"reason": reason, "message": message, "node": node or claim.node}
            return {"phase": ClaimPhase.WITHHELD, "since": now, **_NOTHING_TOLD, **told}
        case do.RecordReference(boot_id=boot_id):
            return {"reference_boot_id": boot_id}
        case do.ExplainClaim(reason=reason, message=message):
            return {"reason": reason, "message": message}
        case do.RecordReturn(claim=claim, node=node):
            gone = tuple(other for other in claim.removed_nodes if other.boot_id != node.boot_id)
            is_its_holders = claim.phase is ClaimPhase.COOLING and claim.node is not None
            back = is_its_holders and claim.node.boot_id == node.boot_id  # type: ignore[union-attr]
            return {"removed_nodes": gone, "returned": claim.returned or back}
        case do.DeleteClaim():
            return {"terminating": True}
        case do.RemoveClaimFinalizer():
            return {"has_finalizer": False}
    raise TypeError(f"this fake does not know what {type(action).__name__} does to a claim")


def deleted(pod: Pod, grace_seconds: int, now: datetime) -> Pod:
    """A pod without a node, and one that has ended, get no grace; a second deletion only shortens it.

    The moment that the API server stores is the end of the grace period, never one in the past; that of the request
    is what `deleted_at` is computed from it.
    """
    grace = grace_seconds if pod.node and not pod.phase.terminal else 0
    if pod.deleted_at is None:
        return replace(pod, deleted_at=now, grace_seconds=grace)
    if grace >= (pod.grace_seconds or 0):
        return pod
    ends_at = max(pod.deleted_at + timedelta(seconds=grace), now)
    return replace(pod, deleted_at=ends_at - timedelta(seconds=grace), grace_seconds=grace)


def is_released(thing: Any) -> bool:
    """Deleted, and neither a finalizer nor a grace period holds it."""
    match thing:
        case Backend(has_finalizer=False):
            return thing.deleting_since is not None
        case Claim(has_finalizer=False):
            return thing.terminating
        case Pod(has_finalizer=False):
            return thing.deleting and not thing.grace_seconds
        case Lease() | Service():
            return False
    return False
