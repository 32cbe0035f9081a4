"""An observation as the protocol's specification sees it (tests/model/ModelBackend.tla), for traces that are replayed.

Only what a rule of the specification reads, under its names; no machine, no word for people, no time of day.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from modelbackend_operator.evidence import evidence_elsewhere, trail_of_claim, trail_of_pod
from modelbackend_operator.instances import node_lost_at, stop_reason
from modelbackend_operator.model.backend import Backend, PortRole, Rollout, WhenUnconfirmed
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod, PodPhase
from modelbackend_operator.model.stop import StopRecord
from modelbackend_operator.proof import evidence_of_end, rejected_at_admission
from modelbackend_operator.restarts import given_up
from modelbackend_operator.vanished import missing

Abstract = dict[str, Any]


def abstract(observation: Observation, now: datetime) -> Abstract:
    """JSON-ready: backend (None when it is gone), pods, claims, Services of claimed ports, the Lease's holder.

    And `vouched`: uids of pods whose end is proven by something else than their own objects.
    """
    lease = observation.lease
    return {
        "backend": _backend(observation.backend) if observation.backend is not None else None,
        "pods": [_pod(observation, pod, now) for pod in observation.pods],
        "claims": [_claim(claim) for claim in observation.claims],
        "services": [
            {"ordinal": service.ordinal, "ports": abstract_ports(service.node_port, service.http_node_port)}
            for service in observation.services
            if service.ordinal is not None
        ],
        "lease": lease.holder.pod_uid if lease is not None and lease.holder is not None else None,
        "vouched": sorted(_vouched(observation)),
    }


def _backend(backend: Backend) -> Abstract:
    return {
        "life": "live" if backend.deleting_since is None else "deleting",
        "finalizer": backend.has_finalizer,
        "wanted": list(backend.ordinals),
        "exposure": backend.exposure.value,
        "roles": [role.value for role in backend.roles],
        "surges": backend.rollout is Rollout.SURGE,
        "waits": backend.when_unconfirmed is WhenUnconfirmed.WAIT,
        **abstract_status(backend.status),
    }


def abstract_status(status: Mapping[str, Any]) -> Abstract:
    """Uids of the pods that it names for an ordinal, successors and those that vanished too, and of whose end it tells
    nothing; and of those whose address it tells."""
    entries = [part for entry in status.get("instances") or () for part in (entry, entry.get("successor") or {})]
    entries += status.get("vanished") or ()
    named = ((part.get("pod") or {}).get("uid") for part in entries if not part.get("evidence"))
    told = (entry["podUID"] for entry in status.get("endpoints") or ())
    return {"named": sorted({uid for uid in named if uid}), "told": sorted(told)}


def _pod(observation: Observation, pod: Pod, now: datetime) -> Abstract:
    return {
        "uid": pod.ref.uid,
        "ordinal": pod.ordinal,
        "gated": pod.gated,
        "bound": bool(pod.node),
        "ports": abstract_ports(pod.host_port, pod.http_host_port),
        "word": _word(pod),
        "ready": pod.serving_condition,
        "outgrown": _is_outgrown(observation, pod, now),
        **abstract_stop(pod.stop, now),
        "deleting": pod.deleting,
        "finalizer": pod.has_finalizer,
        "witness": pod.handed_over is not None,
    }


def abstract_stop(stop: StopRecord | None, now: datetime) -> Abstract:
    """Whose decision a stop is (`yielded`: ours, and it holds up no other of its model), and may requests be cut."""
    if stop is None:
        return {"record": "none", "due": False}
    whose = "foreign" if not stop.epoch else ("ours" if stop.yielded_at is None else "yielded")
    return {"record": whose, "due": now >= stop.deadline or stop.cut is not None}


def abstract_ports(grpc: int | None, http: int | None) -> Abstract:
    """By role, of those that are there."""
    return {role.value: port for role, port in ((PortRole.GRPC, grpc), (PortRole.HTTP, http)) if port is not None}


def _word(pod: Pod) -> str:
    """What the API server was told of the pod's end."""
    if rejected_at_admission(pod):
        return "rejected"
    if pod.deleting and pod.node and evidence_of_end(pod) is not None:
        return "ended"
    if pod.removed_by_pod_gc:
        return "lost"
    return "failed" if given_up(pod) else "none"


def _is_outgrown(observation: Observation, pod: Pod, now: datetime) -> bool:
    """The spec, or a limit of it, asks for this pod no longer; apart from orders and facts that are told elsewhere."""
    backend = observation.backend
    if backend is None or pod.ordinal not in backend.ordinals:
        return False
    without = replace(pod, stop=None, deleted_at=None, phase=PodPhase.RUNNING)
    lost_at = node_lost_at(observation, pod)
    if lost_at is not None and now >= lost_at:
        return True
    return stop_reason(replace(observation, lease=None), without) is not None


def _claim(claim: Claim) -> Abstract:
    return {
        "port": claim.port,
        "role": claim.role.value,
        "ordinal": claim.ordinal,
        "phase": claim.phase.value,
        "pod": claim.pod_uid or None,
        "going": claim.terminating,
    }


def _vouched(observation: Observation) -> Iterator[str]:
    named = {claim.pod_uid: trail_of_claim(observation, claim) for claim in observation.claims if claim.pod_uid}
    unnamed = {pod.ref.uid: trail_of_pod(observation, pod) for pod in observation.pods if pod.ref.uid not in named}
    yield from (uid for uid, trail in (named | unnamed).items() if evidence_elsewhere(observation, trail) is not None)
    yield from (pod.pod_uid for pod, evidence in missing(observation) if evidence is not None)
