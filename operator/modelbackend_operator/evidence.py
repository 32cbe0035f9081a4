"""What proves the end of a pod whose own object does not: what is known of its machine, and an administrator's word.

And what contradicts them. The words themselves are explained in `proof.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from modelbackend_operator.api import GRPC_PORT, Evidence
from modelbackend_operator.instances import claim_naming, pod_lives
from modelbackend_operator.model.backend import Attestation, PortRole
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.node import Node, NodeId
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.proof import evidence_of_end


@dataclass(frozen=True, slots=True)
class Trail:
    """What is known of a pod whose own object proves nothing, or is gone."""

    pod_uid: str
    object_is_gone: bool
    node: NodeId | None
    """As it was recorded; the uid is empty where none was."""
    reference_boot_id: str = ""
    attestation: Attestation | None = None
    proven: Evidence | None = None
    """By what another of its ports was released already."""


def trail_of_pod(observation: Observation, pod: Pod) -> Trail:
    claim = claim_naming(observation, pod)
    told = trail_of_claim(observation, claim) if claim is not None else None
    if told is not None and told.node is not None:
        return replace(told, object_is_gone=False)
    node = observation.nodes.get(pod.node)
    recorded = NodeId(pod.node, node.uid if node is not None else "", "") if pod.node else None
    if told is not None:
        word = told.attestation
    else:
        word = observation.backend.attestation if observation.backend is not None else pod.attestation
    return Trail(pod.ref.uid, False, recorded, attestation=word)


def trail_of_claim(observation: Observation, claim: Claim) -> Trail:
    """What one claim of a pod tells holds for all of them: it is one process."""
    ports = [claim, *(other for other in observation.claims if other.pod_uid == claim.pod_uid and other != claim)]
    words = (port.attestation for port in ports if port.attestation is not None)
    valid = (word for word in words if word.pod_uid == claim.pod_uid and word.reason)
    return Trail(
        claim.pod_uid,
        not pod_lives(observation, claim.pod_uid),
        next((port.node for port in ports if port.node is not None), None),
        next((port.reference_boot_id for port in ports if port.reference_boot_id), ""),
        next(valid, claim.attestation),
        next(filter(None, map(_proof_on, ports[1:])), None),
    )


def _proof_on(claim: Claim) -> Evidence | None:
    """Not that its Node was removed: this stands for as long as the machine stays away, and each claim looks itself."""
    told = claim.evidence if claim.phase is ClaimPhase.COOLING else ""
    return next((evidence for evidence in Evidence if evidence == told and told != Evidence.NODE_REMOVED), None)


def evidence_of(observation: Observation, pod: Pod) -> Evidence | None:
    """By the pod's own object, or else by what is known of its machine; None while it may run on."""
    own = evidence_of_end(pod)
    if own is not None or not pod.deleting:
        return own
    return evidence_elsewhere(observation, trail_of_pod(observation, pod))


def evidence_elsewhere(observation: Observation, trail: Trail) -> Evidence | None:
    """Without the pod's own word. A port that answers as this very pod outweighs what anybody says of its machine."""
    if trail.object_is_gone and trail.proven is not None:
        return trail.proven
    if _rebooted(observation, trail):
        return Evidence.NODE_REBOOTED
    return None if trail.pod_uid in observation.answering else said_to_have_ended(observation, trail)


def said_to_have_ended(observation: Observation, trail: Trail) -> Evidence | None:
    """By a person, or by what happened to the Node object: words that the pod's own port can contradict."""
    if _out_of_service(observation, trail):
        return Evidence.OUT_OF_SERVICE
    if observation.accepts_node_removed and _node_removed(observation, trail):
        return Evidence.NODE_REMOVED
    word = trail.attestation
    return Evidence.ATTESTED if word is not None and word.pod_uid == trail.pod_uid and word.reason else None


def _rebooted(observation: Observation, trail: Trail) -> bool:
    """While the object is held nobody needs this: the returning kubelet reports the end itself."""
    node = _same_node(observation, trail)
    if node is None or not trail.object_is_gone or not trail.reference_boot_id:
        return False
    return bool(node.boot_id) and node.boot_id != trail.reference_boot_id


def _out_of_service(observation: Observation, trail: Trail) -> bool:
    node = _same_node(observation, trail)
    return node is not None and node.out_of_service


def _node_removed(observation: Observation, trail: Trail) -> bool:
    """Also when the name is another Node's now, unless that is the same machine in the same boot."""
    recorded = trail.node
    if recorded is None:
        return False
    node = observation.nodes.get(recorded.name)
    if node is None:
        return True
    return bool(recorded.uid) and node.uid != recorded.uid and (not node.boot_id or node.boot_id != recorded.boot_id)


def _same_node(observation: Observation, trail: Trail) -> Node | None:
    """The Node on which the pod was, unless it was registered anew since."""
    if trail.node is None:
        return None
    node = observation.nodes.get(trail.node.name)
    return node if node is not None and node.uid == trail.node.uid else None


def reference_boot(observation: Observation, claim: Claim) -> str:
    """In which boot the holder's node is, by a status written after the holder could not be started any more.

    Empty while no such status is known. One that is older may tell the boot before the one in which the pod ran, and
    its successor would then look like a reboot.
    """
    pod = next((pod for pod in observation.pods if pod.ref.uid == claim.pod_uid), None)
    since = claim.since
    if pod is not None and pod.deleted_at is not None:
        since = max(since, pod.deleted_at + timedelta(seconds=pod.grace_seconds or 0))
    return boot_after(observation, trail_of_claim(observation, claim), since)


def boot_after(observation: Observation, trail: Trail, since: datetime) -> str:
    """In which boot the node of the trail is, by a status of it that is younger; empty where there is none."""
    node = _same_node(observation, trail)
    return node.boot_id if node is not None and node.heartbeat_at is not None and node.heartbeat_at > since else ""


# -- and what contradicts them ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pod that is said to have ended, and where its server would answer if it had not."""

    pod_uid: str
    addresses: tuple[str, ...]


def ports_to_ask(observation: Observation) -> tuple[Suspect, ...]:
    """Before a port is released on somebody's word, it is asked who answers. No answer proves nothing."""
    ending = [pod for pod in observation.pods if pod.deleting and evidence_of_end(pod) is None]
    said: list[tuple[Trail, Pod | None]] = [(trail_of_pod(observation, pod), pod) for pod in ending]
    said += [
        (trail_of_claim(observation, claim), None)
        for claim in observation.claims
        if claim.phase in (ClaimPhase.BOUND, ClaimPhase.WITHHELD) and not pod_lives(observation, claim.pod_uid)
    ]
    return tuple(
        Suspect(trail.pod_uid, tuple(_addresses(observation, trail, pod)))
        for trail, pod in said
        if said_to_have_ended(observation, trail) is not None
    )


def _addresses(observation: Observation, trail: Trail, pod: Pod | None) -> Iterator[str]:
    """Of the pod itself, and of its gRPC port on the machine that has the node's name now."""
    if pod is not None and pod.ip:
        yield _dialled(pod.ip, GRPC_PORT)
    node = observation.nodes.get(trail.node.name) if trail.node is not None else None
    host = node.address if node is not None else pod.host_ip if pod is not None else ""
    named = (claim for claim in observation.claims if claim.pod_uid == trail.pod_uid)
    ports = (claim.port for claim in named if claim.role is PortRole.GRPC)
    if host:
        yield from (_dialled(host, port) for port in ports)


def _dialled(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
