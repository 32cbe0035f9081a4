"""A call waits a moment for its connection: the nodes' proxies learn of a node port shortly after its pod is Ready.

Nothing is sent before there is a connection, so this wait can run no request twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc

from .errors import CallError

CONNECT_SECONDS = 5.0
CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """How a server is known, and the caller to it. All are PEM.

    `authority` signs the server's certificate (None: those that this machine trusts). `name` is what is in that
    certificate, where it is not the address: nodes have many. `certificate` and `key` are the caller's own.
    """

    authority: bytes | None = None
    name: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)

    def options(self) -> tuple[tuple[str, Any], ...]:
        return (("grpc.ssl_target_name_override", self.name),) if self.name is not None else ()


def connect_seconds(left_seconds: float | None) -> float:
    """How long a connection is waited for, by a call that has so much time left."""
    return CONNECT_SECONDS if left_seconds is None else min(CONNECT_SECONDS, left_seconds)


def no_connection(address: str, seconds: float) -> CallError:
    if seconds < CONNECT_SECONDS:
        message = f"the deadline passed before there was a connection to {address}; nothing was sent"
        return CallError(grpc.StatusCode.DEADLINE_EXCEEDED, message, not_started=True)
    message = f"no connection to {address} within {seconds:g} s; compare it with the ModelBackend's status"
    return CallError(grpc.StatusCode.UNAVAILABLE, message, not_started=True, is_no_connection=True)
