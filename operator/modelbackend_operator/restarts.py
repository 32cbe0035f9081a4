"""How often an instance failed, and what follows: the pause before its next pod, and the end of its budget.

The count is kept in the backend's status, because a pod's own count goes with the pod. It is about the present
generation of the spec: whoever changes the spec gives the instance all its attempts anew. A run that ended by itself
counts, and a pod that the kubelet refused or gave up; an end that we or others ordered does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.pod import Container, ContainerState, Pod


@dataclass(frozen=True, slots=True)
class Restarts:
    total: int
    """Failures of the instance under the present generation."""
    of_pod: int
    """Failures of the present pod that are counted, so that none is counted twice."""
    failed_starts: int
    """Pods in a row that failed before they served."""


def restarts_of(backend: Backend, ordinal: int, pod: Pod | None) -> Restarts:
    """What status remembers, brought up to what `pod` (the newest of the instance) shows."""
    entry = status_entry(backend, ordinal)
    same_spec = backend.status.get("observedGeneration") == backend.generation
    total, failed_starts = (_number(entry, "restarts"), _number(entry, "failedStarts")) if same_spec else (0, 0)
    if pod is None:
        return Restarts(total, 0, failed_starts)
    failures = _failures(pod)
    counted = _counted(entry, pod, failures) if same_spec or not _names(entry, pod) else failures
    new = max(0, failures - counted)
    if pod.ready and pod.serving_condition:
        failed_starts = 0
    elif given_up(pod):
        failed_starts += new
    return Restarts(total + new, max(failures, counted), failed_starts)


def exhausted(backend: Backend, ordinal: int, pod: Pod | None) -> bool:
    """The instance failed more often than `restart.maxRestarts` allows for this generation of the spec."""
    return backend.max_restarts is not None and restarts_of(backend, ordinal, pod).total > backend.max_restarts


def next_pod_at(backend: Backend, pod: Pod) -> datetime:
    """When a pod that failed before it served may make way for the next one: later after each in a row."""
    failed_starts = restarts_of(backend, pod.ordinal, pod).failed_starts
    pause_seconds = min(backend.max_backoff_seconds, backend.backoff_seconds * 2 ** min(max(failed_starts - 1, 0), 30))
    return pod.created_at + timedelta(seconds=pause_seconds)


def given_up(pod: Pod) -> bool:
    """The kubelet refused or ended it, and restarts nothing in it any more; nobody had asked for its end."""
    return pod.phase.terminal and not pod.deleting


def status_entry(backend: Backend, ordinal: int) -> Mapping[str, Any]:
    entries = backend.status.get("instances") or ()
    return next((entry for entry in entries if entry.get("ordinal") == ordinal), {})


def _failures(pod: Pod) -> int:
    """Runs of its server that ended by themselves; a pod that is given up counts as one, too."""
    if pod.stop is not None or pod.deleting:
        return max((container.restarts for container in pod.containers), default=0)
    ended = max((container.restarts + _is_down(container) for container in pod.containers), default=0)
    return max(ended, 1) if given_up(pod) else ended


def _is_down(container: Container) -> bool:
    """Between two runs: the restart count moves only when the next begins."""
    if container.completed:
        return False
    return container.state is not ContainerState.RUNNING and container.exit_code is not None


def _names(entry: Mapping[str, Any], pod: Pod) -> bool:
    return pod.ref.uid in (_uid(entry), _uid(entry.get("successor") or {}))


def _counted(entry: Mapping[str, Any], pod: Pod, failures: int) -> int:
    """Of this pod's failures. Beside a successor, which is the one that is counted, the older pod's are settled."""
    newest = entry.get("successor") or entry
    if _uid(newest) == pod.ref.uid:
        return _number(entry, "podRestarts")
    return failures if _names(entry, pod) else 0


def _uid(entry: Mapping[str, Any]) -> str:
    return str((entry.get("pod") or {}).get("uid", ""))


def _number(entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name)
    return value if isinstance(value, int) else 0
