"""Who knows where a backend is served: a fixed address, or the ModelBackend's status in the cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from .routing import OWNER_WAIT_SECONDS, Endpoint, View

# No address has a slash: `namespace/name` of a ModelBackend (names as Kubernetes has them).
_BACKEND = re.compile(r"(?P<namespace>[a-z0-9]([-a-z0-9]*[a-z0-9])?)/(?P<name>[a-z0-9]([-.a-z0-9]*[a-z0-9])?)")


class Directory(Protocol):
    """`view` may be read from any thread; a listener is told of each new view, on any thread."""

    @property
    def view(self) -> View: ...
    def listen(self, listener: Callable[[], None]) -> None: ...
    def close(self) -> None: ...


class Fixed:
    """One address, for ever; `uid` is what its caller believes about it."""

    def __init__(self, address: str, uid: str | None) -> None:
        self.view = View((Endpoint(address, uid),))

    def listen(self, listener: Callable[[], None]) -> None:
        """Nothing will be told."""

    def close(self) -> None:
        """Nothing is held."""


def directory_of(target: str, uid: str | None) -> tuple[Directory, float]:
    """The directory for `host:port` or `namespace/name`, and how long a call then waits for an instance, in seconds.

    An address is taken at its word: a call to it is sent once.
    """
    match = _BACKEND.fullmatch(target)
    if match is None:
        return Fixed(target, uid), 0.0
    try:
        from .kubernetes_directory import KubernetesDirectory
    except ImportError as missing:
        message = f"{target} is looked up in the cluster: pip install 'modelbackend-operator[client-kubernetes]'"
        raise ImportError(message) from missing
    return KubernetesDirectory(match["namespace"], match["name"], uid), OWNER_WAIT_SECONDS
