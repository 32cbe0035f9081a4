"""A PortClaim, from the object as the API server sent it."""

from modelbackend_operator.api import Evidence
from modelbackend_operator.model.backend import PortRole
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.observe.backend import exposure_from
from modelbackend_operator.observe.orders import attestation_from
from modelbackend_operator.observe.pod import NOBODYS_ORDINAL
from modelbackend_operator.reading import Raw, created_at, entries, has_finalizer, mapping, ref, terminating, word
from modelbackend_operator.timestamps import parse_time


def claim_from(raw: Raw) -> Claim:
    spec, status = mapping(raw.get("spec")), mapping(raw.get("status"))
    pod, past = mapping(status.get("pod")), entries(status.get("history"))
    removed = [entry for entry in past if entry.get("evidence") == Evidence.NODE_REMOVED and not entry.get("returned")]
    nodes = [_node_id(entry.get("node")) for entry in removed]
    return Claim(
        ref=ref(raw),
        port=spec["port"],
        ordinal=spec.get("ordinal", NOBODYS_ORDINAL),
        exposure=exposure_from(spec.get("exposure")),
        phase=_claim_phase(status.get("phase")),
        pod_name=pod.get("name", ""),
        pod_uid=pod.get("uid", ""),
        node=_node_id(status.get("node")),
        since=parse_time(status.get("since")) or created_at(raw),
        has_finalizer=has_finalizer(raw),
        terminating=terminating(raw),
        role=word(PortRole, spec.get("role")) or PortRole.GRPC,
        reference_boot_id=status.get("referenceBootID", ""),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        evidence=status.get("evidence", ""),
        attestation=attestation_from(raw),
        past_pods=frozenset(str(mapping(entry.get("pod")).get("uid")) for entry in past),
        removed_nodes=tuple(node for node in nodes if node is not None and node.boot_id),
        returned=bool(past) and _has_returned(past[-1], pod.get("uid")),
        raw=raw,
    )


def _has_returned(past: Raw, pod_uid: object) -> bool:
    """Nothing has proven its end since, or a later entry would say so."""
    return bool(past.get("returned")) and mapping(past.get("pod")).get("uid") == pod_uid


def _node_id(node: object) -> NodeId | None:
    told = mapping(node)
    return NodeId(told["name"], told.get("uid", ""), told.get("bootID", "")) if told.get("name") else None


def _claim_phase(phase: object) -> ClaimPhase:
    """A new claim has none. One that a later version wrote counts as Withheld: only proof opens it."""
    if not phase:
        return ClaimPhase.RESERVED
    return word(ClaimPhase, phase) or ClaimPhase.WITHHELD
