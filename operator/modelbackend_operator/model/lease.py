"""Whose turn it is to be shut down, of all instances of one model."""

from dataclasses import dataclass
from datetime import datetime

from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.stop import StopReason


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a model's Lease: the shutdown in progress, not an operator process."""

    backend_uid: str
    ordinal: int
    pod_uid: str
    purpose: StopReason


@dataclass(frozen=True, slots=True)
class Lease:
    """The model's Lease; it exists exactly while one instance of the model is being stopped by our decision."""

    ref: Ref
    holder: Holder | None
    """None: written by nobody we know; it is never taken for ours."""
    transitions: int
    description: str
    """`namespace/name, instance N` of the holder, for people."""
    acquired_at: datetime | None = None

    @property
    def epoch(self) -> str:
        return f"{self.ref.uid}/{self.transitions}"


@dataclass(frozen=True, slots=True)
class ModelStop:
    """An open shutdown, by our decision, of an instance of another backend of the same namespace and model."""

    pod_uid: str
    description: str
    """`namespace/name, instance N`, for people."""


@dataclass(frozen=True, slots=True)
class ModelWait:
    """An instance of another backend of the same namespace and model that waits for its turn to be shut down."""

    since: datetime
    backend_uid: str
    description: str
    """`namespace/name, instance N`, for people."""
