"""A call waits a moment for its connection: the nodes' proxies learn of a node port shortly after its pod is Ready.

Nothing is sent before there is a connection, so this wait can run no request twice.
"""

from __future__ import annotations

import grpc

from .errors import CallError

CONNECT_SECONDS = 5.0
CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


def no_connection(address: str) -> CallError:
    message = f"no connection to {address} within {CONNECT_SECONDS:g} s; compare it with the ModelBackend's status"
    return CallError(grpc.StatusCode.UNAVAILABLE, message, not_started=True, is_no_connection=True)
