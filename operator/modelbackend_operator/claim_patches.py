"""The patches of a PortClaim's status."""

from datetime import datetime
from typing import Any

from modelbackend_operator.actions import (
    BindClaim,
    ClaimPatch,
    CoolClaim,
    ExplainClaim,
    RecordNode,
    RecordReference,
    RecordReturn,
    ReserveClaim,
    WithholdClaim,
)
from modelbackend_operator.api import Evidence
from modelbackend_operator.kinds import Kind
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.timestamps import rfc3339
from modelbackend_operator.write import Raw, Verb, Write, conditional

HISTORY_LENGTH = 5
"""How many past holders a claim remembers."""
REASON_MAX_CHARACTERS = 1024


def claim_patch(action: ClaimPatch, now: datetime) -> Write:
    return conditional(Verb.MERGE, Kind.CLAIM, action.claim.ref, {"status": _change(action, now)}, "status")


def _change(action: ClaimPatch, now: datetime) -> Raw:
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
