"""An observation as the protocol's specification sees it (tests/model/ModelBackend.tla), for traces that are replayed.

Only what a rule of the specification reads, under its names; no machine, no word for people, no time of day.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from modelbackend_operator.evidence import evidence_elsewhere, trail_of_claim
from modelbackend_operator.instances import node_lost_at, stop_reason
from modelbackend_operator.model.backend import Backend, Rollout
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod, PodPhase
from modelbackend_operator.model.stop import StopRecord
from modelbackend_operator.proof import evidence_of_end, rejected_at_admission
from modelbackend_operator.restarts import given_up

Abstract = dict[str, Any]


def abstract(observation: Observation, now: datetime) -> Abstract:
    """JSON-ready: backend (None when it is gone), pods, claims, Services of claimed ports, the Lease's holder."""
    lease = observation.lease
    return {
        "backend": _backend(observation.backend) if observation.backend is not None else None,
        "pods": [_pod(observation, pod, now) for pod in observation.pods],
        "claims": [_claim(observation, claim) for claim in observation.claims],
        "services": [
            {"ordinal": service.ordinal, "port": service.node_port}
            for service in observation.services
            if service.ordinal is not None
        ],
        "lease": lease.holder.pod_uid if lease is not None and lease.holder is not None else None,
    }


def _backend(backend: Backend) -> Abstract:
    return {
        "life": "live" if backend.deleting_since is None else "deleting",
        "finalizer": backend.has_finalizer,
        "wanted": list(backend.ordinals),
        "exposure": backend.exposure.value,
        "surges": backend.rollout is Rollout.SURGE,
        **abstract_status(backend.status),
    }


def abstract_status(status: Mapping[str, Any]) -> Abstract:
    """Uids of the pods that it names for an ordinal, successors too, and of those whose address it tells."""
    entries = [part for entry in status.get("instances") or () for part in (entry, entry.get("successor") or {})]
    named = ((part.get("pod") or {}).get("uid") for part in entries)
    told = (entry["podUID"] for entry in status.get("endpoints") or ())
    return {"named": sorted({uid for uid in named if uid}), "told": sorted(told)}


def _pod(observation: Observation, pod: Pod, now: datetime) -> Abstract:
    return {
        "uid": pod.ref.uid,
        "ordinal": pod.ordinal,
        "gated": pod.gated,
        "bound": bool(pod.node),
        "port": pod.host_port,
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


def _claim(observation: Observation, claim: Claim) -> Abstract:
    return {
        "port": claim.port,
        "ordinal": claim.ordinal,
        "phase": claim.phase.value,
        "pod": claim.pod_uid or None,
        "going": claim.terminating,
        "vouched": bool(claim.pod_uid)
        and evidence_elsewhere(observation, trail_of_claim(observation, claim)) is not None,
    }
