"""Instances that failed more often than the spec allows: said in every status until the spec changes."""

from modelbackend_operator.decision import Wait
from modelbackend_operator.instances import newest_pod
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.problems import problem_of
from modelbackend_operator.reasons import Reason
from modelbackend_operator.restarts import exhausted, restarts_of, status_entry


def spent_budgets(observation: Observation) -> tuple[Wait, ...]:
    """One for each such instance, which waits for another generation of the spec."""
    backend = observation.backend
    if backend is None or backend.deleting_since is not None:
        return ()
    newest = ((ordinal, newest_pod(observation, ordinal)) for ordinal in backend.ordinals)
    return tuple(
        Wait(Reason.RESTART_BUDGET_EXHAUSTED, _message(backend, ordinal, pod), None, ordinal)
        for ordinal, pod in newest
        if exhausted(backend, ordinal, pod)
    )


def _message(backend: Backend, ordinal: int, pod: Pod | None) -> str:
    """With the words of the last failure, which go with the pod: from then on they are remembered in status."""
    known = status_entry(backend, ordinal)
    if known.get("reason") == Reason.RESTART_BUDGET_EXHAUSTED:
        return str(known.get("message"))
    problem = problem_of(pod) if pod is not None else None
    words = f"; the last time: {problem.message}" if problem is not None else ""
    count = restarts_of(backend, ordinal, pod).total
    return (
        f"instance {ordinal} failed {count} times under this spec, and restart.maxRestarts allows "
        f"{backend.max_restarts}{words}; it is started again when the spec changes"
    )
