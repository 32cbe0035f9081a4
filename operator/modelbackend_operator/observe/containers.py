"""What the kubelet tells of a pod's containers."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from modelbackend_operator.model.pod import Container, ContainerState
from modelbackend_operator.reading import Raw, entries, mapping
from modelbackend_operator.timestamps import parse_time

_CRASH_LOOP = "CrashLoopBackOff"


def container_statuses(status: Raw) -> Iterator[Raw]:
    for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        yield from entries(status.get(kind))


def containers_from(status: Raw) -> tuple[Container, ...]:
    """Of a pod's status; those first that run first."""
    init = entries(status.get("initContainerStatuses"))
    return tuple(_container(entry, init=index < len(init)) for index, entry in enumerate(container_statuses(status)))


def _container(status: Raw, *, init: bool) -> Container:
    """What is told is the present state, except between restarts, where it is how the last run ended."""
    state, told = _state(status.get("state"))
    last_run = mapping(mapping(status.get("lastState")).get("terminated"))
    restarts = status.get("restartCount", 0)
    between_restarts = state is ContainerState.RUNNING or told.get("reason") == _CRASH_LOOP
    if last_run and between_restarts:
        told = last_run
    exit_code = told.get("exitCode", last_run.get("exitCode"))
    return Container(
        name=status.get("name", ""),
        state=state,
        ever_created=state is ContainerState.RUNNING
        or bool(status.get("containerID") or status.get("lastState"))
        or restarts > 0,
        reason=told.get("reason", ""),
        message=told.get("message", ""),
        exit_code=exit_code,
        restarts=restarts,
        init=init,
    )


def _state(state: object) -> tuple[ContainerState, Raw]:
    """At most one member is set; none means waiting (core/v1 ContainerState)."""
    for name in (ContainerState.RUNNING, ContainerState.TERMINATED):
        if isinstance(told := mapping(state).get(name), Mapping):
            return name, told
    return ContainerState.WAITING, mapping(mapping(state).get(ContainerState.WAITING))


def any_ended_after(status: Raw, moment: datetime | None) -> bool:
    """Only a kubelet writes when a container ended, so such an entry is its word after that moment."""
    ends = (mapping(mapping(c.get("state")).get("terminated")).get("finishedAt") for c in container_statuses(status))
    return moment is not None and any(end > moment for end in map(parse_time, ends) if end is not None)
