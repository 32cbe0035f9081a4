"""Kubernetes Events: which applied action a person hears about, and in which words."""

from dataclasses import dataclass
from enum import StrEnum

from modelbackend_operator.actions import (
    Action,
    CoolClaim,
    CreateClaim,
    CreatePod,
    DeletePod,
    ExplainClaim,
    HandOver,
    RecordReturn,
    ReserveClaim,
    SetServing,
    WithholdClaim,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.api import MODELBACKEND_KIND, PORTCLAIM_KIND, Condition, Evidence
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.stop import StopRecord
from modelbackend_operator.reasons import Reason
from modelbackend_operator.timestamps import rfc3339
from modelbackend_operator.words import unconfirmed_words


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One Event about a ModelBackend or a PortClaim (`kubectl describe` shows it)."""

    namespace: str
    """Empty for a PortClaim, which is in none."""
    name: str
    uid: str
    type: EventType
    reason: str
    """UpperCamelCase, of a small fixed set."""
    message: str
    kind: str = MODELBACKEND_KIND


def events_of(action: Action, observation: Observation) -> tuple[Event, ...]:
    """To be posted once the action is applied; empty when there is no object left to speak of."""
    backend, words = observation.backend, _words(action, observation)
    if words is None:
        return ()
    claim = getattr(action, "claim", None)
    if claim is not None and (backend is None or isinstance(action, ExplainClaim | RecordReturn)):
        return (Event("", claim.ref.name, claim.ref.uid, *words, kind=PORTCLAIM_KIND),)
    return (Event(backend.ref.namespace, backend.ref.name, backend.ref.uid, *words),) if backend is not None else ()


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
            return _recorded(pod, pod.stop, record)
        case DeletePod(pod=pod) if pod.stop is not None and not pod.deleting:
            return _ended(action)
        case HandOver(pod=pod):
            message = f"instance {pod.ordinal} goes on without proof: {unconfirmed_words(observation, pod)}"
            return EventType.WARNING, Reason.UNCONFIRMED, message
        case WriteStatus():
            return _newly_refused(action) or _newly_stalled(action)
        case _:
            return _words_of_ledger(action)


def _words_of_ledger(action: Action) -> tuple[EventType, str, str] | None:
    match action:
        case CoolClaim(claim=claim, evidence=evidence):
            word = claim.attestation if evidence == Evidence.ATTESTED else None
            why = f"{evidence}: {word.reason}" if word is not None else evidence
            message = f"port {claim.port} of pod {claim.pod_name} is free again after its reuse delay: {why}"
            return EventType.NORMAL, "PortReleased", message
        case ExplainClaim(reason=Reason.ATTESTATION_REFUSED | Reason.STILL_ANSWERING as reason, message=message):
            return EventType.WARNING, reason, message
        case RecordReturn(claim=claim, node=node):
            message = (
                f"node {node.name} is back in boot {node.boot_id}, in which a pod ran behind port {claim.port}; it was "
                "taken as ended when the Node was removed: evidence.nodeRemoved must not be Accept in this cluster"
            )
            return EventType.WARNING, Reason.NODE_RETURNED, message
        case WithholdClaim(claim=claim, message=message):
            return EventType.WARNING, "PortWithheld", f"port {claim.port} stays withheld: {message}"
        case _:
            return None


def _recorded(pod: Pod, before: StopRecord | None, record: StopRecord) -> tuple[EventType, str, str] | None:
    """What is new in a stop record."""
    who = f"instance {pod.ordinal} (pod {pod.ref.name})"
    if record.cut is not None and record.cut.order and (before is None or before.cut != record.cut):
        return EventType.WARNING, "ForceOrdered", f"{who} is ended now, by order: {record.cut.order}"
    if before is None:
        return EventType.NORMAL, "Stopping", f"stopping {who}: {record.reason}; {_time_left(pod, record)}"
    if record.extended != before.extended:
        return EventType.NORMAL, "Extended", f"{who} may drain until {rfc3339(record.deadline)}: {record.extended}"
    if record.yielded_at is not None and before.yielded_at is None:
        message = f"the stop of {who} goes on past its time; others of the model need not wait for it any more"
        return EventType.WARNING, Reason.UNCONFIRMED if pod.deleting else "Busy", message
    return None


def _time_left(pod: Pod, record: StopRecord) -> str:
    if pod.deleting:
        return f"it has {pod.grace_seconds} s of grace"
    seconds = round((record.deadline - record.since).total_seconds())
    return f"draining for at most {seconds} s" if seconds else "nothing to drain"


def _ended(action: DeletePod) -> tuple[EventType, str, str]:
    """Drained, or cut: the user learns which, at whose word, and how many requests it cost."""
    name, cut = action.pod.ref.name, action.pod.stop.cut if action.pod.stop is not None else None
    if cut is None:
        return EventType.NORMAL, "Terminating", f"pod {name} is told to end, with {action.grace_seconds} s of grace"
    why = f"ended by order ({cut.order})" if cut.order else "drain deadline passed"
    return EventType.WARNING, "Forced", f"{why} for pod {name}, with {cut.words} in flight"


def _newly_refused(action: WriteStatus) -> tuple[EventType, str, str] | None:
    """An order that does nothing, once."""
    before = {entry.get("kind"): entry.get("text") for entry in action.backend.status.get("orders") or ()}
    for entry in action.status.get("orders") or ():
        if entry.get("refused") and before.get(entry["kind"]) != entry["text"]:
            return EventType.WARNING, "OrderRefused", entry["refused"]
    return None


def _newly_stalled(action: WriteStatus) -> tuple[EventType, str, str] | None:
    """Once per cause: the next write with the same reason is silent."""
    stalled = _stalled(action.status.get("conditions"))
    before = _stalled(action.backend.status.get("conditions"))
    if stalled is None or (before is not None and before["reason"] == stalled["reason"]):
        return None
    return EventType.WARNING, stalled["reason"], stalled["message"]


def _stalled(conditions: list[dict[str, str]] | None) -> dict[str, str] | None:
    return next((entry for entry in conditions or () if entry.get("type") == Condition.STALLED), None)
