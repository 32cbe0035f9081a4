"""What the backend's status remembers of a pod that the pod's own object does not say, or not any more."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.reading import entries, mapping
from modelbackend_operator.timestamps import parse_time


def with_status(pod: Pod, status: Mapping[str, Any]) -> Pod:
    """That it ran, and that its stop holds up no other of its model although that could not be written on the pod."""
    entry = _entry(status, pod.ref.uid)
    stop, yielded_at = pod.stop, parse_time(mapping(entry.get("stop")).get("yieldedAt"))
    if stop is not None and stop.yielded_at is None and yielded_at is not None:
        stop = replace(stop, yielded_at=yielded_at)
    return replace(pod, stop=stop, told_running=bool(entry.get("node")))


@dataclass(frozen=True, slots=True)
class Remembered:
    """A pod that status names, with neither a port nor proof of its end: nothing else may remember it."""

    ordinal: int
    pod_name: str
    pod_uid: str
    node: NodeId | None
    since: datetime | None = None
    """When its object was told to be gone; None: it was there when status was written."""
    reference_boot_id: str = ""


def remembered(status: Mapping[str, Any]) -> tuple[Remembered, ...]:
    """Each once, in the order of its being told."""
    found = [_remembered(entry, entry) for entry in entries(status.get("vanished"))]
    for entry in entries(status.get("instances")):
        parts = (entry, mapping(entry.get("successor")))
        found += [_remembered(entry, part) for part in parts if not (part.get("port") or part.get("evidence"))]
    return tuple({pod.pod_uid: pod for pod in reversed(found) if pod.pod_uid}.values())[::-1]


def _remembered(entry: Mapping[str, Any], part: Mapping[str, Any]) -> Remembered:
    pod, node = mapping(part.get("pod")), mapping(part.get("node"))
    return Remembered(
        ordinal=int(entry.get("ordinal", 0)),
        pod_name=str(pod.get("name", "")),
        pod_uid=str(pod.get("uid", "")),
        node=NodeId(str(node["name"]), str(node.get("uid", "")), str(node.get("bootID", ""))) if node else None,
        since=parse_time(part.get("since")),
        reference_boot_id=str(part.get("referenceBootID", "")),
    )


def told_node(backend: Backend, pod_uid: str) -> Mapping[str, Any]:
    """The machine that status told of for this pod; empty where it told of none."""
    return mapping(_entry(backend.status, pod_uid).get("node"))


def waiting_since(backend: Backend, pod_uid: str) -> datetime | None:
    """When this pod began to wait for its model's turn to be shut down."""
    return parse_time(_entry(backend.status, pod_uid).get("waitingSince"))


def _entry(status: Mapping[str, Any], pod_uid: str) -> Mapping[str, Any]:
    """Of the instance for which this pod stands; empty for a pod that is not named."""
    found = (e for e in entries(status.get("instances")) if mapping(e.get("pod")).get("uid") == pod_uid)
    return next(found, {})
