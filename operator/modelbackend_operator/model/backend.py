"""A ModelBackend, as the rules need it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from modelbackend_operator.model.ref import Ref


class Exposure(StrEnum):
    """How callers outside reach an instance; `ClusterIP` claims no port."""

    NODE_PORT = "NodePort"
    HOST_PORT = "HostPort"
    CLUSTER_IP = "ClusterIP"

    @property
    def claims_port(self) -> bool:
        return self is not Exposure.CLUSTER_IP


class PortRole(StrEnum):
    """What is served on a claimed port."""

    GRPC = "Grpc"
    HTTP = "Http"


class OrderKind(StrEnum):
    """What a user may order by annotation on a ModelBackend."""

    FORCE = "Force"
    EXTEND = "Extend"
    ATTEST = "Attest"
    """For a pod that no PortClaim stands for: there it would be attested."""


class Rollout(StrEnum):
    """How an instance gets a new spec: ended first, or with its replacement serving first, beside it."""

    RECREATE = "Recreate"
    SURGE = "Surge"


class WhenUnconfirmed(StrEnum):
    """What happens to an instance whose end is overdue and not proven."""

    HAND_OVER = "HandOver"
    """Its port stays withheld, its pod stays as a witness, and a replacement starts beside it."""
    WAIT = "Wait"
    """It blocks its replacement and the deletion of its backend until there is proof."""


@dataclass(frozen=True, slots=True)
class Attestation:
    """An administrator's word, by annotation, that no process of this pod runs any more."""

    pod_uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class Backend:
    """A ModelBackend as the rules need it; `raw` is the object itself, for the manifests."""

    ref: Ref
    model: str
    generation: int
    has_finalizer: bool
    deleting_since: datetime | None
    ordinals: tuple[int, ...]
    """The instances the spec asks for now: empty when suspended, scaled to zero or being deleted."""
    template_hash: str
    exposure: Exposure
    pinned_port: int | None
    port_range: tuple[int, int] | None
    """Inclusive; narrows the operator's pool."""
    drain_seconds: int
    termination_grace_seconds: int
    refused: tuple[str, ...]
    """One sentence for each field of the spec that this operator cannot honour; nothing is started while any stands."""
    escalate: bool = True
    """At the drain deadline, end an instance although requests run."""
    busy_timeout_seconds: int | None = None
    """Age of a request at which its instance is ended; None: no limit."""
    orders: Mapping[OrderKind, str] = field(default_factory=dict)
    """What the user orders by annotation, verbatim (see `orders.py`)."""
    suspended: bool = False
    rollout: Rollout = Rollout.RECREATE
    max_restarts: int | None = None
    """None: no limit."""
    backoff_seconds: int = 10
    max_backoff_seconds: int = 300
    unconfirmed_after_seconds: int = 60
    """From the end of a pod's grace period until its missing proof is overdue."""
    when_unconfirmed: WhenUnconfirmed = WhenUnconfirmed.HAND_OVER
    node_loss_seconds: int | None = None
    """An instance on a node that is lost for so long is ended; None leaves it to the cluster's own eviction."""
    attestation: Attestation | None = None
    """For an instance that has no PortClaim to attest on."""
    http: bool = False
    """Each instance claims a second port, for the OpenAI-compatible API."""
    pinned_http_port: int | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[PortRole, ...]:
        """What each instance claims a port for."""
        if not self.exposure.claims_port:
            return ()
        return (PortRole.GRPC, PortRole.HTTP) if self.http else (PortRole.GRPC,)

    def pin(self, role: PortRole) -> int | None:
        return self.pinned_http_port if role is PortRole.HTTP else self.pinned_port
