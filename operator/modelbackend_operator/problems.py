"""Why an instance does not serve, in words, from what scheduler, kubelet and server report of its pod."""

from dataclasses import dataclass
from signal import Signals

from modelbackend_operator.instances import own_report
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Container, ContainerState, Pod, PodPhase
from modelbackend_operator.reading import json_object
from modelbackend_operator.reasons import Reason


@dataclass(frozen=True, slots=True)
class Problem:
    reason: Reason
    message: str


_WAITING = {
    "ErrImagePull": Reason.IMAGE_UNAVAILABLE,
    "ImagePullBackOff": Reason.IMAGE_UNAVAILABLE,
    "ErrImageNeverPull": Reason.IMAGE_UNAVAILABLE,
    "InvalidImageName": Reason.IMAGE_UNAVAILABLE,
    "ImageInspectError": Reason.IMAGE_UNAVAILABLE,
    "CreateContainerConfigError": Reason.VOLUME_UNAVAILABLE,
    "CreateContainerError": Reason.VOLUME_UNAVAILABLE,
    "RunContainerError": Reason.VOLUME_UNAVAILABLE,
}
"""The kubelet's waiting reasons that do not pass by themselves."""

_EXIT_CODES = {
    64: Reason.BAD_CONFIGURATION,
    65: Reason.MODEL_UNREADABLE,
    66: Reason.MODEL_MISSING,
    75: Reason.PORT_TAKEN,
    76: Reason.PORT_TAKEN,
    90: Reason.ACCESS_DENIED,
    91: Reason.WRONG_CHECKSUM,
    92: Reason.CACHE_FULL,
    93: Reason.UNKNOWN_HOST,
    94: Reason.UNTRUSTED_SOURCE,
    95: Reason.SOURCE_UNREACHABLE,
    96: Reason.SOURCE_STALLED,
    97: Reason.SOURCE_UNEXPECTED,
    98: Reason.NOT_CACHED,
    99: Reason.CACHE_UNUSABLE,
}
"""Exit codes of the server (modelbackend_server/exits.py) and of the fetcher (modelbackend_fetch/failures.py), which
have none of different meaning; their last words are the termination message."""

_OOM_KILLED = "OOMKilled"
_ENDED_BY_SIGNAL = 128
_LAST_LINES = 3
_LINE_CHARACTERS = 1000


def problem_in(observation: Observation, pod: Pod) -> Problem | None:
    """What a person must look at: on a node that does not report, this, because all else may be out of date."""
    trouble = observation.node_troubles.get(pod.node)
    if trouble and not pod.ready and not pod.deleting:
        return Problem(Reason.NODE_NOT_READY, f"node {pod.node} of pod {pod.ref.name} is not Ready: {trouble}")
    report = own_report(observation, pod)
    if pod.fetching and report is not None and report.message:
        return None  # the last run failed, and in this one bytes come
    return problem_of(pod)


def problem_of(pod: Pod) -> Problem | None:
    """What a person must look at, or None while nothing is known to be wrong."""
    if pod.deleting or pod.containers_ready:
        return None
    if pod.phase is PodPhase.FAILED:
        return Problem(Reason.REJECTED_BY_NODE, f"node {pod.node} ended pod {pod.ref.name}: {pod.phase_message}")
    if pod.unschedulable:
        return Problem(Reason.UNSCHEDULABLE, pod.unschedulable)
    return next((found for container in pod.containers if (found := _of_container(pod, container))), None)


def _of_container(pod: Pod, container: Container) -> Problem | None:
    if container.state is ContainerState.WAITING and container.reason in _WAITING:
        return Problem(_WAITING[container.reason], f"{container.reason} on node {pod.node}: {container.message}")
    if container.exit_code is None or (container.state is ContainerState.TERMINATED and container.exit_code == 0):
        return None
    reason = _EXIT_CODES.get(container.exit_code, Reason.CRASHING)
    if container.reason == _OOM_KILLED:
        return Problem(Reason.OUT_OF_MEMORY, "killed at its memory limit; raise resources.limits.memory")
    return Problem(reason, f"{_how_it_ended(container.exit_code)}: {_last_words(container.message)}")


def _how_it_ended(exit_code: int) -> str:
    """A runtime reports an end by signal N as 128 + N."""
    names = {signal.value: signal.name for signal in Signals}
    by_signal = names.get(exit_code - _ENDED_BY_SIGNAL)
    return f"ended by {by_signal} (exit code {exit_code})" if by_signal else f"exit code {exit_code}"


def _last_words(message: str) -> str:
    """The server's own sentence, or the end of its log, of which a person wants the events and not the records."""
    lines = [line for line in message.splitlines() if line.strip()][-_LAST_LINES:]
    if not lines:
        return "it left no message; see kubectl logs --previous"
    return " | ".join(str(json_object(line).get("event") or line)[:_LINE_CHARACTERS].strip() for line in lines)
