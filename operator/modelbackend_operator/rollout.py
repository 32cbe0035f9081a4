"""Which instance is replaced next, and what its end waits for.

Callers must always find somebody. So of several instances that are to end, those that serve nobody go first; and one
that serves makes way for a new spec only while every other instance serves. With Recreate it ends, and its
replacement starts after proof. With Surge the replacement starts beside it, and it ends once that one serves.
"""

from collections.abc import Iterator
from datetime import datetime

from modelbackend_operator.conditions import publish
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.instances import holds_lease, is_serving, newest_pod, pods_of, reserved_claim, stop_reason
from modelbackend_operator.model.backend import Backend, PortRole, Rollout
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.orders import force_for
from modelbackend_operator.reasons import Reason
from modelbackend_operator.restarts import next_pod_at, restarts_of, status_entry
from modelbackend_operator.spent_budgets import spent_budgets

FAILURES = frozenset({StopReason.REJECTED, StopReason.FAILED, StopReason.RESTARTS_EXHAUSTED})


def in_order_of_ending(observation: Observation) -> tuple[Pod, ...]:
    """Witnesses, whose end is only to be accounted for; who serves nobody; then the highest ordinal, then the oldest.

    The same order for every observer.
    """
    witnesses = [pod for pod in observation.pods if pod.handed_over is not None]
    ordinals = sorted({pod.ordinal for pod in observation.pods}, reverse=True)
    pods = [pod for ordinal in ordinals for pod in pods_of(observation, ordinal)]
    return (*witnesses, *sorted(pods, key=is_serving))


def held_back(observation: Observation, pod: Pod, reason: StopReason, now: datetime) -> Wait | None:
    """Why the end of this pod must not begin yet; None when it may, or has begun."""
    backend = observation.backend
    if backend is None or _has_begun(observation, pod) or force_for(backend, pod) is not None:
        return None
    if reason in (StopReason.REJECTED, StopReason.FAILED):
        return _pause(backend, pod, now)
    if reason is StopReason.SPEC_CHANGED and is_serving(pod):
        return _await_turn(observation, backend, pod)
    return None


def failures(observation: Observation, now: datetime) -> Iterator[Act | Wait]:
    """Counted in status before the pod that shows them goes; an instance that failed too often stays ended."""
    backend, spent = observation.backend, spent_budgets(observation)
    yield from spent
    if backend is None or backend.deleting_since is not None:
        return
    for ordinal in backend.ordinals:
        pod = newest_pod(observation, ordinal)
        if pod is not None and _is_uncounted(observation, backend, pod, now):
            yield Act(publish(observation, spent, now))


def _is_uncounted(observation: Observation, backend: Backend, pod: Pod, now: datetime) -> bool:
    """Its end begins now, and status does not know yet that it failed."""
    reason = stop_reason(observation, pod)
    if reason not in FAILURES or _has_begun(observation, pod) or held_back(observation, pod, reason, now):
        return False
    known = status_entry(backend, pod.ordinal)
    return restarts_of(backend, pod.ordinal, pod).total != known.get("restarts")


def predecessor(observation: Observation, ordinal: int) -> Pod | None:
    """The serving pod of an earlier spec beside which the next one of its instance is to be started now."""
    backend = observation.backend
    if backend is None or backend.rollout is not Rollout.SURGE:
        return None
    ending = [pod for pod in pods_of(observation, ordinal) if stop_reason(observation, pod) is not None]
    if len(ending) != 1 or not _is_outdated(observation, ending[0]):
        return None
    return ending[0] if _surge_ordinal(observation, backend) == ordinal else None


def _pause(backend: Backend, pod: Pod, now: datetime) -> Wait | None:
    """A node that refuses pods is not offered the next one at once."""
    at = next_pod_at(backend, pod)
    if now >= at:
        return None
    words = pod.phase_message or pod.phase_reason or "no reason given"
    message = f"pod {pod.ref.name} failed on node {pod.node}: {words}; the next one is made at {at:%H:%M:%S} UTC"
    return Wait(Reason.REJECTED_BY_NODE, message, at, pod.ordinal)


def _await_turn(observation: Observation, backend: Backend, pod: Pod) -> Wait | None:
    earlier = f"instance {pod.ordinal} serves an earlier spec"
    absent = _first_absent(observation, backend, besides=pod.ordinal)
    if backend.rollout is Rollout.SURGE:
        if any(is_serving(other) for other in pods_of(observation, pod.ordinal) if other is not pod):
            return None
        message = f"{earlier}; it ends once its successor serves beside it"
    elif absent is None:
        return None
    else:
        message = f"{earlier}; it is replaced once instance {absent} serves"
    return Wait(Reason.ROLLING_OUT, message, None, pod.ordinal)


def _surge_ordinal(observation: Observation, backend: Backend) -> int | None:
    """One instance at a time, and only while all others serve: the one that was begun, else the highest."""
    outdated = {pod.ordinal for pod in observation.pods if _is_outdated(observation, pod)}
    begun = {n for n in outdated if len(pods_of(observation, n)) > 1 or _is_reserved(observation, n)}
    chosen = max(begun or outdated, default=None)
    if chosen is None or _first_absent(observation, backend, besides=chosen) is not None:
        return None
    return chosen


def _is_reserved(observation: Observation, ordinal: int) -> bool:
    """A port is kept for its next pod."""
    return any(reserved_claim(observation, ordinal, role) is not None for role in PortRole)


def _is_outdated(observation: Observation, pod: Pod) -> bool:
    """It serves an earlier spec, and its end has not begun."""
    return (
        is_serving(pod)
        and not _has_begun(observation, pod)
        and stop_reason(observation, pod) is StopReason.SPEC_CHANGED
    )


def _first_absent(observation: Observation, backend: Backend, *, besides: int) -> int | None:
    serving = {pod.ordinal for pod in observation.pods if is_serving(pod)}
    return next((ordinal for ordinal in backend.ordinals if ordinal not in serving and ordinal != besides), None)


def _has_begun(observation: Observation, pod: Pod) -> bool:
    return pod.stop is not None or pod.deleting or holds_lease(observation, pod)
