"""Why a backend does not (only) serve: what each part of it waits for, since when, who holds it, what would release it.

Pure: from a `Sight` to the causes, the most telling first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from kubectl_mb.advice import About, advice
from kubectl_mb.holders import ending_sharer, holders_of
from kubectl_mb.sight import Sight, condition, deleted_at
from modelbackend_operator.api import FINALIZER, Condition, ConditionEntry, Instance, InstancePhase, PortClaimStatus
from modelbackend_operator.kinds import Raw
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.reading import mapping
from modelbackend_operator.reasons import Reason

NOT_OBSERVED = "NotObserved"
UNSEEN = -1
"""observedGeneration by default."""
FOREIGN_FINALIZER = "ForeignFinalizer"
PROOF_FINALIZER = "AwaitingFinalizer"


@dataclass(frozen=True, slots=True)
class Cause:
    subject: str
    """`backend`, `instance 0` or `port 30007`."""
    reason: str
    waits_for: str
    since: datetime | None
    held_by: tuple[str, ...]
    until: datetime | None
    """When it ends by itself at the latest."""
    release: str


def causes_of(sight: Sight) -> tuple[Cause, ...]:
    """Empty where all that is asked for serves, and nothing of it is withheld."""
    found = [*_unseen(sight), *_instances(sight)]
    told = {(cause.reason, cause.waits_for) for cause in found}
    found += [cause for cause in _conditions(sight) if (cause.reason, cause.waits_for) not in told]
    ports = {cause.subject for cause in found}
    found += [cause for cause in _withheld(sight) if cause.subject not in ports]
    return tuple(found) + tuple(_finalizers(sight, bool(found)))


def _unseen(sight: Sight) -> Iterator[Cause]:
    """The operator has not answered to this version of the object; all else that is told may be out of date."""
    if sight.backend is None:
        return
    observed, generation = sight.status.observed_generation, sight.backend["metadata"].get("generation", 0)
    if observed is None or observed < generation:
        seen = "has not been looked at yet" if observed in (None, UNSEEN) else f"was seen at generation {observed}"
        yield Cause(
            "backend",
            NOT_OBSERVED,
            f"the operator: the object is at generation {generation} and {seen}",
            None,
            ("the operator",),
            None,
            "an operator that runs: kubectl get pods -n modelbackend-system, and its log",
        )


def _instances(sight: Sight) -> Iterator[Cause]:
    for entry in sight.status.instances:
        cause = _instance(sight, entry)
        if cause is not None:
            yield cause
        successor = entry.successor
        if successor is not None and successor.reason:
            about = About(sight.as_typed, successor.pod.name, None, successor.port, successor.pod.uid)
            yield Cause(
                f"instance {entry.ordinal}, successor",
                successor.reason,
                successor.message or "its start",
                _condition_since(sight, successor.reason),
                holders_of(sight, successor.reason, entry),
                None,
                advice(successor.reason, about),
            )


def _instance(sight: Sight, entry: Instance) -> Cause | None:
    reason = entry.reason
    if reason is None:
        if entry.phase in (InstancePhase.SERVING, InstancePhase.WAITING) and entry.stop is None:
            return None
        reason = _reason_of_phase(entry)
    stop = entry.stop
    why = f" ({stop.reason})" if stop is not None else ""
    return Cause(
        f"instance {entry.ordinal}{why}",
        reason,
        entry.message or f"the end of phase {entry.phase}",
        entry.waiting_since or (stop.since if stop is not None else None) or _condition_since(sight, reason),
        holders_of(sight, reason, entry),
        stop.deadline if stop is not None and reason == Reason.DRAINING else None,
        advice(reason, _about(sight, entry)),
    )


def _reason_of_phase(entry: Instance) -> str:
    match entry.phase:
        case InstancePhase.DRAINING:
            return Reason.DRAINING
        case InstancePhase.TERMINATING:
            return Reason.TERMINATING
        case InstancePhase.UNCONFIRMED:
            return Reason.UNCONFIRMED
        case InstancePhase.LOADING:
            return Reason.LOADING
        case _:
            return Reason.STARTING


def _about(sight: Sight, entry: Instance) -> About:
    pod, node = entry.pod, entry.node.name if entry.node is not None else None
    if node is None and pod is not None:
        node = mapping(mapping(sight.pod(pod.uid)).get("spec")).get("nodeName")
    other = ending_sharer(sight)
    typed = f"{other} -n {sight.namespace}" if other is not None else None
    return About(sight.as_typed, pod.name if pod else None, node, entry.port, pod.uid if pod else None, typed)


def _condition_since(sight: Sight, reason: str) -> datetime | None:
    """Since when the condition that tells this reason has had its status."""
    told = [entry for entry in sight.status.conditions if entry.reason == reason]
    stalled_first = sorted(told, key=lambda entry: entry.type not in (Condition.STALLED, Condition.RECONCILING))
    return stalled_first[0].last_transition_time if stalled_first else None


def _conditions(sight: Sight) -> Iterator[Cause]:
    """What the status says of the whole and no instance says of itself; before the first look it says nothing."""
    if sight.status.observed_generation == UNSEEN:
        return
    told = {entry.reason for entry in sight.status.instances}
    for kind in (Condition.STALLED, Condition.RECONCILING, Condition.READY):
        entry = condition(sight.status, kind)
        if entry is not None and entry.reason != Reason.READY and entry.reason not in told:
            yield _of_condition(sight, entry)
            return


def _of_condition(sight: Sight, entry: ConditionEntry) -> Cause:
    reason = entry.reason
    return Cause(
        "backend",
        reason,
        entry.message,
        entry.last_transition_time,
        holders_of(sight, reason, None),
        None,
        advice(reason, About(sight.as_typed)),
    )


def _withheld(sight: Sight) -> Iterator[Cause]:
    """Nothing of the backend waits for these, but the ports are closed; also when the backend is gone."""
    for claim in sight.claims:
        status = PortClaimStatus.model_validate(mapping(claim.get("status")))
        gone = sight.backend is None or claim["spec"]["backend"]["uid"] != sight.backend["metadata"]["uid"]
        if status.phase is ClaimPhase.WITHHELD or (gone and status.phase is ClaimPhase.BOUND):
            yield _port(sight, claim, status)


def _port(sight: Sight, claim: Raw, status: PortClaimStatus) -> Cause:
    port, pod, node = claim["spec"]["port"], status.pod, status.node
    reason = status.reason or Reason.PORT_WITHHELD
    return Cause(
        f"port {port}",
        reason,
        status.message or f"proof that pod {pod.name if pod else '?'} has ended",
        status.since,
        holders_of(sight, reason, None, claim),
        None,
        advice(
            reason,
            About(
                sight.as_typed, pod.name if pod else None, node.name if node else None, port, pod.uid if pod else None
            ),
        ),
    )


def _finalizers(sight: Sight, explained: bool) -> Iterator[Cause]:
    """What keeps a deleted object, besides what was told."""
    since = deleted_at(sight.backend)
    if sight.backend is None or since is None:
        return
    finalizers = sight.backend["metadata"].get("finalizers") or ()
    for name in finalizers:
        if name != FINALIZER:
            yield Cause(
                "backend",
                FOREIGN_FINALIZER,
                f"the finalizer {name}, which is not this operator's",
                since,
                (name,),
                None,
                "whoever put that finalizer there",
            )
    if FINALIZER in finalizers and not explained:
        yield Cause(
            "backend",
            PROOF_FINALIZER,
            "the operator, which lets a deleted backend go when nothing of it runs",
            since,
            ("the operator",),
            None,
            "an operator that runs; without one, kubectl mb release-finalizers says what that gives up",
        )
