"""Talks to a ModelBackend's server.

    from modelbackend_client import Client

    with Client("node-1:30007", uid="...") as client:
        for event in client.stream("The capital of France is", max_tokens=16):
            ...

A ModelBackend of the cluster is `Client("namespace/name")`: its instances are followed in its status, and each call
says whom it means. `AsyncClient` is the same on asyncio; `ControlClient` asks for status and drains. All raise
`CallError`.
"""

from modelbackend_client.aio import AsyncClient
from modelbackend_client.client import Client
from modelbackend_client.connecting import Tls
from modelbackend_client.control import ControlClient
from modelbackend_client.errors import CallError
from modelbackend_client.requests import assistant, system, user

__all__ = ["AsyncClient", "CallError", "Client", "ControlClient", "Tls", "assistant", "system", "user"]
