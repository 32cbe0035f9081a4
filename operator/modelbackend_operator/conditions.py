"""The status a person reads, derived in one place from an observation and from what the protocol waits for.

Conditions follow kstatus: `Ready` sums up; `Reconciling` and `Stalled` are present only while true, and never both.
`observedGeneration` moves at every write. Nothing ticks: no message carries a duration or a count that changes while
nothing happens, so an idle backend is never written.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from modelbackend_operator.actions import WriteStatus
from modelbackend_operator.api import (
    LABEL_BACKEND_UID,
    Condition,
    ConditionEntry,
    ConditionStatus,
    Endpoint,
    Instance,
    LastShutdown,
    ModelBackendStatus,
    ModelFacts,
)
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.instance_status import endpoints_of, instance_of
from modelbackend_operator.instances import is_serving, own_report, pods_of, shared_service, stop_reason
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.orders import answered
from modelbackend_operator.problems import Problem, problem_in
from modelbackend_operator.reasons import Reason
from modelbackend_operator.spent_budgets import spent_budgets
from modelbackend_operator.vanished import told_vanished
from modelbackend_operator.words import unconfirmed_words

STALLING = frozenset(
    {
        Reason.UNSUPPORTED_FIELD,
        Reason.WRONG_IDENTITY,
        Reason.TOKEN_REFUSED,
        Reason.PORT_POOL_EXHAUSTED,
        Reason.PORT_TAKEN,
        Reason.PINNED_PORT_TAKEN,
        Reason.PINNED_PORT_WITHHELD,
        Reason.UNCONFIRMED,
        Reason.VOLUME_HELD_BY_WITNESS,
        Reason.DENIED,
        Reason.SURGE_UNSCHEDULABLE,
        Reason.RESTART_BUDGET_EXHAUSTED,
    }
)
"""Waits that a person, not time, ends."""

QUIET = frozenset({Reason.PORT_COOLING, Reason.PORT_WITHHELD, Reason.BUSY_LIMIT, Reason.NODE_LOSS_LIMIT})
"""Waits that concern nobody who reads the status, like every one without words: it only says when to look again."""

PORT_TROUBLES = frozenset(
    {Reason.PORT_POOL_EXHAUSTED, Reason.PORT_TAKEN, Reason.PINNED_PORT_TAKEN, Reason.PINNED_PORT_WITHHELD}
)


def publish(
    observation: Observation, waits: Sequence[Wait], now: datetime, last_shutdown: LastShutdown | None = None
) -> WriteStatus:
    """Write this status; the caller compares when an equal one need not be written.

    `last_shutdown` is news; without it, what was told before stays.
    """
    backend = observation.backend
    assert backend is not None
    status = status_of(observation, backend, waits, now).to_json()
    told = last_shutdown.to_json() if last_shutdown is not None else backend.status.get("lastShutdown")
    return WriteStatus(backend, {**status, "lastShutdown": told} if told else status)


def says_already(status: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """Whether to write this would change nothing.

    The order of entries is the API server's, and a condition of a type that is not ours is another writer's: neither
    may be a reason to write, or it would be one for ever.
    """
    return _comparable(status) == _comparable(written)


def answer_orders(observation: Observation) -> Act | None:
    """Write down what was ordered and for which pods, ahead of all that acts on it; the rest as it was told before."""
    backend = observation.backend
    if backend is None:
        return None
    answers = [answer.to_json() for answer in answered(observation, backend)]
    serving = {pod.ref.uid for pod in observation.pods if is_serving(pod)}
    endpoints = [entry for entry in backend.status.get("endpoints") or () if entry.get("podUID") in serving]
    status = {**backend.status, "endpoints": endpoints, "orders": answers}
    told = _comparable(backend.status)["orders"] == _comparable(status)["orders"]
    return None if told else Act(WriteStatus(backend, status))


def _comparable(status: Mapping[str, Any]) -> dict[str, Any]:
    conditions = {entry.get("type"): entry for entry in status.get("conditions") or ()}
    return {
        **status,
        "conditions": {kind: conditions[kind] for kind in Condition if kind in conditions},
        "instances": {entry.get("ordinal"): entry for entry in status.get("instances") or ()},
        "endpoints": {(entry.get("ordinal"), entry.get("role")): entry for entry in status.get("endpoints") or ()},
        "vanished": list(status.get("vanished") or ()),
        "orders": {entry.get("kind"): entry for entry in status.get("orders") or ()},
    }


def status_of(observation: Observation, backend: Backend, waits: Sequence[Wait], now: datetime) -> ModelBackendStatus:
    """The whole status; `waits` are what the protocol could not go on with."""
    spent = spent_budgets(observation)  # also in a status that is written for another's sake: its words stay
    told = [*spent, *(w for w in waits if w.message and w.reason not in QUIET and w not in spent)]
    instances = tuple(_instances(observation, backend, told, now))
    serving = [pod for pod in observation.pods if is_serving(pod)]
    service = shared_service(observation)
    in_flight = [instance.in_flight for instance in instances if instance.in_flight is not None]
    return ModelBackendStatus(
        observed_generation=backend.generation,
        replicas=len({pod.ordinal for pod in observation.pods if pod.stop is None and not pod.deleting}),
        ready_replicas=len({pod.ordinal for pod in serving}),
        in_flight=sum(in_flight) if in_flight else None,
        selector=f"{LABEL_BACKEND_UID}={backend.ref.uid}",
        service_name=service.ref.name if service is not None else None,
        endpoints=tuple(_endpoints(observation, backend)),
        instances=instances,
        vanished=told_vanished(observation, now),
        model=_model_facts(observation, backend),
        orders=answered(observation, backend),
        conditions=tuple(_conditions(observation, backend, told, now)),
    )


def _instances(observation: Observation, backend: Backend, waits: Sequence[Wait], now: datetime) -> list[Instance]:
    """One entry per ordinal that is wanted or still has a pod or an unproven claim."""
    ordinals = {*backend.ordinals, *(pod.ordinal for pod in observation.pods)}
    ordinals |= {c.ordinal for c in observation.claims if c.phase in (ClaimPhase.BOUND, ClaimPhase.WITHHELD)}
    return [instance_of(observation, backend, ordinal, waits, now) for ordinal in sorted(ordinals)]


def _endpoints(observation: Observation, backend: Backend) -> Iterator[Endpoint]:
    """The addresses of each instance; of two pods that serve, those of the one which is to stay."""
    for ordinal in sorted({pod.ordinal for pod in observation.pods}):
        serving = [pod for pod in pods_of(observation, ordinal) if is_serving(pod)]
        told = min(serving, key=lambda pod: stop_reason(observation, pod) is not None, default=None)
        if told is not None:
            yield from endpoints_of(observation, backend, told)


def _model_facts(observation: Observation, backend: Backend) -> ModelFacts:
    """As a server that serves told them last; they are kept while none is asked."""
    reports = (own_report(observation, pod) for pod in observation.pods if is_serving(pod))
    told = next((report.facts for report in reports if report and report.facts and report.model == backend.model), None)
    known: dict[str, Any] = dict(told or backend.status.get("model") or {})
    return ModelFacts.model_validate({**known, "name": backend.model})


# -- conditions -------------------------------------------------------------------------------------------------------


def _conditions(
    observation: Observation, backend: Backend, waits: Sequence[Wait], now: datetime
) -> list[ConditionEntry]:
    problem = _first_problem(observation, waits)
    progress = None if problem else _progress(observation, backend, waits)
    entries = [_ready(observation, backend, problem, progress)]
    if progress is not None:
        entries.append((Condition.RECONCILING, ConditionStatus.TRUE, progress.reason, progress.message))
    if problem is not None:
        entries.append((Condition.STALLED, ConditionStatus.TRUE, problem.reason, problem.message))
    entries += _port_available(observation, backend, waits)
    entries += _drained(observation, waits)
    entries += _unconfirmed(observation, waits)
    return [_entry(backend, now, *entry) for entry in entries]


_Told = tuple[Condition, ConditionStatus, Reason, str]


def _ready(observation: Observation, backend: Backend, problem: Problem | None, progress: Problem | None) -> _Told:
    """Only instances of the present spec count: whoever waits for Ready after an edit waits for what was edited."""
    ready = {pod.ordinal for pod in observation.pods if is_serving(pod) and stop_reason(observation, pod) is None}
    if backend.deleting_since is None and backend.ordinals and ready.issuperset(backend.ordinals) and not problem:
        return (Condition.READY, ConditionStatus.TRUE, Reason.READY, "serving")
    cause = problem or progress
    if cause is None:  # all that is asked for is there; False would read as "not yet" (kstatus)
        nothing = _nothing_asked_for(backend)
        return (Condition.READY, ConditionStatus.TRUE, nothing.reason, nothing.message)
    return (Condition.READY, ConditionStatus.FALSE, cause.reason, cause.message)


def _nothing_asked_for(backend: Backend) -> Problem:
    if backend.suspended:
        return Problem(Reason.SUSPENDED, "spec.suspend is true: no instance runs until it is false again")
    return Problem(Reason.NO_INSTANCES, "the spec asks for no instance")


def _first_problem(observation: Observation, waits: Sequence[Wait]) -> Problem | None:
    for wait in waits:
        if wait.reason in STALLING:
            return Problem(Reason(wait.reason), wait.message)
    return next((found for pod in observation.pods if (found := problem_in(observation, pod))), None)


def _progress(observation: Observation, backend: Backend, waits: Sequence[Wait]) -> Problem | None:
    for wait in waits:
        return Problem(Reason(wait.reason), wait.message or "in progress")
    if backend.deleting_since is not None:
        return Problem(Reason.TERMINATING, "the backend is being deleted")
    for ordinal in backend.ordinals:
        pods = pods_of(observation, ordinal)
        if any(is_serving(pod) and stop_reason(observation, pod) is None for pod in pods):
            continue
        if any(is_serving(pod) for pod in pods):
            return Problem(Reason.ROLLING_OUT, f"instance {ordinal} serves an earlier spec")
        if any(pod.serving_condition and not pod.containers_ready for pod in pods):
            message = f"instance {ordinal} served, and fails its readiness probe now"
            return Problem(Reason.SERVER_SILENT, message)
        return Problem(Reason.STARTING, f"instance {ordinal} is starting")
    return None


def _port_available(observation: Observation, backend: Backend, waits: Sequence[Wait]) -> list[_Told]:
    if not backend.exposure.claims_port:
        return []
    trouble = next((wait for wait in waits if wait.reason in PORT_TROUBLES), None)
    if trouble is not None:
        return [(Condition.PORT_AVAILABLE, ConditionStatus.FALSE, Reason(trouble.reason), trouble.message)]
    held = [claim for claim in observation.claims if claim.phase in (ClaimPhase.RESERVED, ClaimPhase.BOUND)]
    if not held:
        return []
    ports = ", ".join(str(claim.port) for claim in sorted(held, key=lambda claim: (claim.ordinal, claim.role)))
    return [(Condition.PORT_AVAILABLE, ConditionStatus.TRUE, Reason.PORT_CLAIMED, f"claimed: {ports}")]


def _drained(observation: Observation, waits: Sequence[Wait]) -> list[_Told]:
    """Present while an instance ends: False while requests run or when they were cut, True when none was."""
    stopping = [pod for pod in observation.pods if pod.stop is not None and pod.handed_over is None]
    if not stopping:
        return []
    if not all(pod.deleting for pod in stopping):
        running = (wait for wait in waits if wait.reason in (Reason.DRAINING, Reason.BUSY))
        wait = next(running, Wait(Reason.DRAINING, "admission is closing"))
        return [(Condition.DRAINED, ConditionStatus.FALSE, Reason(wait.reason), wait.message)]
    cuts = [(pod.ref.name, pod.stop.cut) for pod in stopping if pod.stop is not None and pod.stop.cut is not None]
    if cuts:
        told = "; ".join(f"pod {name} was ended with {cut.words} in flight" for name, cut in cuts)
        return [(Condition.DRAINED, ConditionStatus.FALSE, Reason.FORCED, told)]
    told = "admission closed; the pod was told to end"
    return [(Condition.DRAINED, ConditionStatus.TRUE, Reason.TERMINATING, told)]


def _unconfirmed(observation: Observation, waits: Sequence[Wait]) -> list[_Told]:
    """Present while a process may run on that was given up, or whose end is waited for beyond its time."""
    withheld = {claim.message for claim in observation.claims if claim.phase is ClaimPhase.WITHHELD}
    witnesses = {unconfirmed_words(observation, pod) for pod in observation.pods if pod.handed_over is not None}
    waited_for = {wait.message for wait in waits if wait.reason == Reason.UNCONFIRMED}
    told = sorted(withheld | witnesses | waited_for)
    return [(Condition.UNCONFIRMED, ConditionStatus.TRUE, Reason.UNCONFIRMED, "; ".join(told))] if told else []


def _entry(
    backend: Backend, now: datetime, kind: Condition, status: ConditionStatus, reason: Reason, message: str
) -> ConditionEntry:
    """`lastTransitionTime` moves only when the status does (metav1.Condition)."""
    before = next((c for c in backend.status.get("conditions") or () if c.get("type") == kind), None)
    unchanged = before is not None and before.get("status") == status
    return ConditionEntry(
        type=kind,
        status=status,
        observed_generation=backend.generation,
        last_transition_time=before["lastTransitionTime"] if before is not None and unchanged else now,
        reason=reason,
        message=message[:MESSAGE_MAX_CHARACTERS],
    )


MESSAGE_MAX_CHARACTERS = 2048
"""Well under the 32768 that the API allows; a scheduler's list of nodes can be long."""
