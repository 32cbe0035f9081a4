"""What the backend's status remembers of a pod that the pod's own object does not say, or not any more."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from modelbackend_operator.model.backend import Backend
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


def waiting_since(backend: Backend, pod_uid: str) -> datetime | None:
    """When this pod began to wait for its model's turn to be shut down."""
    return parse_time(_entry(backend.status, pod_uid).get("waitingSince"))


def _entry(status: Mapping[str, Any], pod_uid: str) -> Mapping[str, Any]:
    """Of the instance for which this pod stands; empty for a pod that is not named."""
    found = (e for e in entries(status.get("instances")) if mapping(e.get("pod")).get("uid") == pod_uid)
    return next(found, {})
