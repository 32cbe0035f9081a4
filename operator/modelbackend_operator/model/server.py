"""What the server in a pod says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any


class ServerState(StrEnum):
    """What the server in the pod says of itself (modelbackend.v1.State)."""

    LOADING = "LOADING"
    SERVING = "SERVING"
    DRAINING = "DRAINING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class ServerReport:
    """An answer of GetStatus. No report means unknown, never idle."""

    state: ServerState
    backend_uid: str
    model: str
    pod_uid: str
    in_flight: int
    """Requests queued or running."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of the loaded model, for status.model."""
    oldest_seconds: float = 0.0
    """Age of the oldest request that is queued or runs; 0 when there is none."""
    message: str = ""
    """While it loads: what it does just now, in words that stay the same for a while."""


class TokenRefused(Enum):
    """The answer of a server that was given another control token than the one derived for its backend."""

    ANSWER = 0
