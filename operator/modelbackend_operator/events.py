"""Kubernetes Events: which applied action a person hears about, and in which words."""

from dataclasses import dataclass
from enum import StrEnum

from modelbackend_operator.actions import (
    Action,
    CoolClaim,
    CreateClaim,
    CreatePod,
    DeletePod,
    ReserveClaim,
    SetServing,
    WithholdClaim,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.api import Condition
from modelbackend_operator.instances import own_report
from modelbackend_operator.model import Observation, Pod, StopRecord


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One Event about a ModelBackend (`kubectl describe mb` shows it)."""

    namespace: str
    name: str
    uid: str
    type: EventType
    reason: str
    """UpperCamelCase, of a small fixed set."""
    message: str


def events_of(action: Action, observation: Observation) -> tuple[Event, ...]:
    """To be posted once the action is applied; empty when there is no object left to speak of."""
    backend, words = observation.backend, _words(action, observation)
    if backend is None or words is None:
        return ()
    kind, reason, message = words
    return (Event(backend.ref.namespace, backend.ref.name, backend.ref.uid, kind, reason, message),)


def _words(action: Action, observation: Observation) -> tuple[EventType, str, str] | None:
    match action:
        case CreateClaim(port=port, ordinal=ordinal):
            return EventType.NORMAL, "PortClaimed", f"claimed port {port} for instance {ordinal}"
        case ReserveClaim(claim=claim):
            return (
                EventType.NORMAL,
                "PortClaimed",
                f"took port {claim.port} back for instance {claim.ordinal}",
            )
        case CreatePod(ordinal=ordinal, name=name):
            return EventType.NORMAL, "PodCreated", f"created pod {name} for instance {ordinal}"
        case SetServing(pod=pod, serving=True):
            return EventType.NORMAL, "Serving", f"instance {pod.ordinal} (pod {pod.ref.name}) serves"
        case WriteStopRecord(pod=pod, record=record):
            why = f"{record.reason}; {_time_left(pod, record)}"
            return EventType.NORMAL, "Stopping", f"stopping instance {pod.ordinal} (pod {pod.ref.name}): {why}"
        case DeletePod(pod=pod) if pod.stop is not None and not pod.deleting:
            return _ended(action, observation)
        case CoolClaim(claim=claim, evidence=evidence):
            message = f"port {claim.port} of pod {claim.pod_name} is free again after its reuse delay: {evidence}"
            return EventType.NORMAL, "PortReleased", message
        case WithholdClaim(claim=claim, message=message):
            return EventType.WARNING, "PortWithheld", f"port {claim.port} stays withheld: {message}"
        case WriteStatus():
            return _newly_stalled(action)
        case _:
            return None


def _time_left(pod: Pod, record: StopRecord) -> str:
    if pod.deleting:
        return f"it has {pod.grace_seconds} s of grace"
    seconds = round((record.deadline - record.since).total_seconds())
    return f"draining for at most {seconds} s" if seconds else "nothing to drain"


def _ended(action: DeletePod, observation: Observation) -> tuple[EventType, str, str]:
    """Drained, or cut at the deadline: the user learns which, and how many requests it cost."""
    server = own_report(observation, action.pod)
    if server is not None and server.in_flight:
        message = f"drain deadline of pod {action.pod.ref.name} passed with {server.in_flight} requests in flight"
        return EventType.WARNING, "Forced", message
    message = f"pod {action.pod.ref.name} is told to end, with {action.grace_seconds} s of grace"
    return EventType.NORMAL, "Terminating", message


def _newly_stalled(action: WriteStatus) -> tuple[EventType, str, str] | None:
    """Once per cause: the next write with the same reason is silent."""
    stalled = _stalled(action.status.get("conditions"))
    before = _stalled(action.backend.status.get("conditions"))
    if stalled is None or (before is not None and before["reason"] == stalled["reason"]):
        return None
    return EventType.WARNING, stalled["reason"], stalled["message"]


def _stalled(conditions: list[dict[str, str]] | None) -> dict[str, str] | None:
    return next((entry for entry in conditions or () if entry.get("type") == Condition.STALLED), None)
