"""How the last instance that ended did so: told once, while its pod can still be read, and kept in status."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from modelbackend_operator.api import LastShutdown, PodReference, ShutdownOutcome
from modelbackend_operator.conditions import publish
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.deferrals import refused_since
from modelbackend_operator.evidence import evidence_of
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.stop import StopReason, StopRecord
from modelbackend_operator.reasons import Reason
from modelbackend_operator.timestamps import parse_time


def outcome_of(stop: StopRecord) -> ShutdownOutcome:
    """What the stop record says of the end that followed it."""
    if stop.cut is not None:
        return ShutdownOutcome.FORCED
    if stop.reason is StopReason.FOREIGN:
        return ShutdownOutcome.DELETED_BY_OTHERS
    return ShutdownOutcome.NOT_SERVING if stop.deadline == stop.since else ShutdownOutcome.DRAINED


def requests_cut(stop: StopRecord) -> int | None:
    """None when nobody knows: its server did not say, or others ended it."""
    if stop.cut is not None:
        return stop.cut.requests
    return None if stop.reason is StopReason.FOREIGN else 0


def tell_shutdown(observation: Observation, pod: Pod, now: datetime) -> Act | None:
    """The last step before the pod's object goes, or once its end counts as unconfirmed.

    Where the status cannot be written it goes untold; and of a backend that ends itself, which nobody could read.
    """
    backend = observation.backend
    if backend is None or backend.deleting_since is not None or pod.stop is None or not pod.has_finalizer:
        return None
    if not _is_news(observation, backend, pod):
        return None
    if any(refused_since(observation, uid, now) is not None for uid in (pod.ref.uid, backend.ref.uid)):
        return None
    finished = pod.handed_over or now
    ended = LastShutdown(
        outcome=ShutdownOutcome.UNCONFIRMED if pod.handed_over is not None else outcome_of(pod.stop),
        pod=PodReference(name=pod.ref.name, uid=pod.ref.uid),
        finished=finished,
        seconds=round((finished - pod.stop.since).total_seconds()),
        requests_cut=requests_cut(pod.stop),
    )
    if pod.handed_over is not None:
        return Act(publish(observation, (), now, ended))
    wait = Wait(Reason.TERMINATING, f"pod {pod.ref.name} has ended; its object is being removed", None, pod.ordinal)
    return Act(publish(observation, (wait,), now, ended))


def _is_news(observation: Observation, backend: Backend, pod: Pod) -> bool:
    """Once a pod: the last one that was told, or for a witness a later one, is remembered in status."""
    told: Mapping[str, Any] = backend.status.get("lastShutdown") or {}
    if (told.get("pod") or {}).get("uid") == pod.ref.uid:
        return False
    phases = {claim.phase for claim in observation.claims if claim.pod_uid == pod.ref.uid}
    if pod.handed_over is not None:  # the ledger comes first
        finished = parse_time(told.get("finished"))
        is_latest = finished is None or finished < pod.handed_over.replace(microsecond=0)
        return is_latest and ClaimPhase.BOUND not in phases
    released = phases.isdisjoint({ClaimPhase.BOUND, ClaimPhase.WITHHELD})
    return released and evidence_of(observation, pod) is not None
