"""A picture of a life: what its pods, ports and Lease were doing when, from Events, status, claims and pods.

Pure: from a `Sight` to lanes of spans and marks. Nothing is parsed out of messages. `drawing.py` draws it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from kubectl_mb.sight import Sight
from modelbackend_operator.api import READINESS_GATE, PortClaimStatus
from modelbackend_operator.kinds import Raw
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.observe.lease import lease_from
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.reading import created_at, entries, mapping
from modelbackend_operator.timestamps import parse_time


class Tone(StrEnum):
    """What kind of time a span is; the letter is its stroke in text."""

    WAITING = "."
    LOADING = "l"
    SERVING = "S"
    DRAINING = "d"
    ENDING = "t"
    UNPROVEN = "?"
    HELD = "="
    COOLING = "c"


@dataclass(frozen=True, slots=True)
class Span:
    start: datetime
    end: datetime | None
    """None: it goes on."""
    tone: Tone
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    at: datetime
    label: str
    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    title: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    title: str
    start: datetime
    end: datetime
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]


def timeline_of(sight: Sight, now: datetime) -> Timeline:
    """From the first thing known to `now`."""
    lanes = tuple(lane for lane in _lanes(sight) if lane.spans)
    marks = tuple(sorted(_marks(sight), key=lambda mark: (mark.at, mark.label)))
    known = [span.start for lane in lanes for span in lane.spans] + [mark.at for mark in marks]
    if sight.backend is not None:
        known.append(created_at(sight.backend))
    start = min(known, default=now)
    return Timeline(sight.title, start, max(now, start + timedelta(seconds=1)), lanes, marks)


def _lanes(sight: Sight) -> Iterator[Lane]:
    past = _last_shutdown(sight)
    if past is not None:
        yield past
    for pod in sorted(sight.pods, key=created_at):
        yield Lane(f"pod {pod['metadata']['name']}", tuple(_of_pod(pod)))
    for claim in sight.claims:
        yield Lane(f"port {claim['spec']['port']}", tuple(_of_claim(claim)))
    if sight.lease is not None:
        lease = lease_from(sight.lease)
        if lease.acquired_at is not None:
            yield Lane("model's Lease", (Span(lease.acquired_at, None, Tone.HELD, f"held for {lease.description}"),))


def _last_shutdown(sight: Sight) -> Lane | None:
    """Of a pod whose object is gone."""
    last = sight.status.last_shutdown
    if last is None or last.pod is None or last.finished is None or sight.pod(last.pod.uid) is not None:
        return None
    began = last.finished - timedelta(seconds=last.seconds)
    return Lane(f"pod {last.pod.name}", (Span(began, last.finished, Tone.ENDING, f"ended: {last.outcome}"),))


def _of_pod(raw: Raw) -> Iterator[Span]:
    pod = pod_from(raw)
    began, ended = _container_times(raw)
    gate = next(
        (c for c in entries(mapping(raw.get("status")).get("conditions")) if c.get("type") == READINESS_GATE), {}
    )
    changed = parse_time(gate.get("lastTransitionTime"))
    withdrawn = pod.stop.since if pod.stop is not None else pod.deleted_at
    serving = changed if pod.serving_condition else None
    yield Span(pod.created_at, began or withdrawn, Tone.WAITING, "waits for a node, its image, its container")
    if began is not None:
        yield Span(began, serving or withdrawn or ended, Tone.LOADING, "runs" if pod.withdrawn else "loads the model")
    if serving is not None:
        yield Span(serving, withdrawn, Tone.SERVING, "serves")
    if pod.stop is not None:
        order = " (by order)" if pod.stop.cut is not None and pod.stop.cut.order else ""
        yield Span(pod.stop.since, pod.deleted_at or ended, Tone.DRAINING, f"drains: {pod.stop.reason}{order}")
    if pod.deleted_at is not None:
        proof_due = pod.handed_over
        yield Span(pod.deleted_at, ended or proof_due, Tone.ENDING, "was told to end")
        if proof_due is not None and ended is None:
            yield Span(proof_due, None, Tone.UNPROVEN, "its end is not proven")


def _container_times(raw: Raw) -> tuple[datetime | None, datetime | None]:
    """When its first container began, and when its last one ended."""
    states = [mapping(entry.get("state")) for entry in entries(mapping(raw.get("status")).get("containerStatuses"))]
    told = [mapping(state.get(name)) for state in states for name in ("running", "terminated")]
    began = [moment for state in told if (moment := parse_time(state.get("startedAt"))) is not None]
    ended = [parse_time(mapping(state.get("terminated")).get("finishedAt")) for state in states]
    all_ended = [moment for moment in ended if moment is not None]
    return min(began, default=None), max(all_ended) if ended and len(all_ended) == len(ended) else None


_CLAIM_TONES = {
    ClaimPhase.RESERVED: Tone.WAITING,
    ClaimPhase.BOUND: Tone.HELD,
    ClaimPhase.WITHHELD: Tone.UNPROVEN,
    ClaimPhase.COOLING: Tone.COOLING,
}


def _of_claim(claim: Raw) -> Iterator[Span]:
    status = PortClaimStatus.model_validate(mapping(claim.get("status")))
    for past in status.history:
        yield Span(past.since or past.until, past.until, Tone.HELD, f"held for {past.pod.name}, then {past.evidence}")
    phase = status.phase or ClaimPhase.RESERVED
    holder = f" for {status.pod.name}" if status.pod is not None and phase is not ClaimPhase.COOLING else ""
    yield Span(status.since or created_at(claim), None, _CLAIM_TONES[phase], f"{phase}{holder}")


def _marks(sight: Sight) -> Iterator[Mark]:
    for event in sight.events:
        at = parse_time(event.get("firstTimestamp")) or parse_time(event.get("eventTime"))
        if at is not None:
            yield Mark(at, str(event.get("reason")), str(event.get("message")), event.get("type") == "Warning")
    if sight.backend is not None:
        yield Mark(created_at(sight.backend), "Created", f"ModelBackend {sight.title} was made")
        deleted = parse_time(sight.backend["metadata"].get("deletionTimestamp"))
        if deleted is not None:
            yield Mark(deleted, "Deleted", "its deletion was asked for")
