"""How an instance is being stopped: since when, why, until when, and what was cut."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class StopReason(StrEnum):
    """Why an instance is being stopped; written into its stop record."""

    DELETED = "BackendDeleted"
    SCALED_DOWN = "ScaledDown"
    SUSPENDED = "Suspended"
    SPEC_CHANGED = "SpecChanged"
    CLAIM_LOST = "PortClaimLost"
    REJECTED = "RejectedByNode"
    FAILED = "PodFailed"
    """The kubelet gave the pod up: evicted it, or shut its node down."""
    RESTARTS_EXHAUSTED = "RestartBudgetExhausted"
    FOREIGN = "PodDeletedByOthers"
    NODE_LOST = "NodeLost"
    PORT_TAKEN = "PortInUse"
    """Its server found its port taken by somebody else; it starts behind another."""
    HTTP_PORT_TAKEN = "HttpPortInUse"
    BUSY_TIMEOUT = "BusyTimeout"
    ORDERED = "Ordered"


@dataclass(frozen=True, slots=True)
class Cut:
    """The decision to end an instance although requests may run."""

    order: str
    """The user's order, verbatim; empty: the drain deadline has passed."""
    requests: int | None
    """How many ran then; None when the server did not say."""

    @property
    def words(self) -> str:
        return "an unknown number of requests" if self.requests is None else f"{self.requests} requests"


@dataclass(frozen=True, slots=True)
class StopRecord:
    """Written on the pod before anything depends on it; the deadline is absolute, so a restart never moves it."""

    since: datetime
    reason: StopReason
    deadline: datetime
    epoch: str
    """`<Lease uid>/<leaseTransitions>`; empty for an end that others ordered."""
    extended: str = ""
    """The order that moved the deadline, verbatim: an order acts once."""
    cut: Cut | None = None
    yielded_at: datetime | None = None
    """Since then this stop holds up no other of its model: its instance is busy past the deadline, or unconfirmed."""
