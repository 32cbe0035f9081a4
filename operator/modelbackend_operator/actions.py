"""What may be done: one API write (or one call to a server) per decision.

Each action names its target by `Ref`, hence by uid and resourceVersion: a write decided from an old look conflicts.
`LIVE` actions destroy, release or take something shared; the controller decides them again from a live read first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from modelbackend_operator.model.backend import Backend, PortRole
from modelbackend_operator.model.budget import Budget
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.lease import Holder, Lease
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.service import Service
from modelbackend_operator.model.stop import StopRecord


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """On the ModelBackend, before anything of it exists."""

    LIVE: ClassVar[bool] = False
    backend: Backend


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """POST of `port-<port>`: creating it is the claim."""

    LIVE: ClassVar[bool] = False
    backend: Backend
    ordinal: int
    port: int
    role: PortRole = PortRole.GRPC


@dataclass(frozen=True, slots=True)
class ReserveClaim:
    """Take the own Cooling claim back for the same instance."""

    LIVE: ClassVar[bool] = True
    claim: Claim


@dataclass(frozen=True, slots=True)
class CreatePod:
    """POST of a gated pod. The control token's Secret is made with it when missing."""

    LIVE: ClassVar[bool] = True
    backend: Backend
    ordinal: int
    name: str
    port: int | None
    replaces: str = ""
    """Uid of the pod that serves until this one does (rollout Surge)."""
    avoided_nodes: frozenset[str] = frozenset()
    """On these one of its ports is taken."""
    http_port: int | None = None


@dataclass(frozen=True, slots=True)
class BindClaim:
    """The claim's status names the pod: phase Bound."""

    LIVE: ClassVar[bool] = False
    claim: Claim
    pod: Pod


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Apply the whole of the backend's status that is ours."""

    LIVE: ClassVar[bool] = False
    backend: Backend
    status: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class CreateService:
    """POST; `ordinal` None makes the shared ClusterIP Service."""

    LIVE: ClassVar[bool] = False
    backend: Backend
    name: str
    ordinal: int | None = None
    node_port: int | None = None
    pod_uid: str = ""
    http_node_port: int | None = None

    @property
    def node_ports(self) -> tuple[int, ...]:
        return tuple(port for port in (self.node_port, self.http_node_port) if port is not None)


@dataclass(frozen=True, slots=True)
class PointService:
    """Write a Service as it is to be: pointed at this pod (the shared one at no pod), all else as it was made."""

    LIVE: ClassVar[bool] = False
    backend: Backend
    service: Service
    pod_uid: str


@dataclass(frozen=True, slots=True)
class CreateBudget:
    """POST of the PodDisruptionBudget. Nothing waits for it, and nothing stops when it is refused."""

    LIVE: ClassVar[bool] = False
    backend: Backend


@dataclass(frozen=True, slots=True)
class DeleteBudget:
    """Edited by others: it is made anew."""

    LIVE: ClassVar[bool] = False
    budget: Budget


@dataclass(frozen=True, slots=True)
class Ungate:
    """One patch: the scheduling gate goes, the labels `pod-uid` and `serving` come."""

    LIVE: ClassVar[bool] = False
    pod: Pod


@dataclass(frozen=True, slots=True)
class RestoreMarks:
    """Mark a pod as ours again: the labels by which watches and lists find it, the finalizer that keeps its end."""

    LIVE: ClassVar[bool] = False
    pod: Pod
    backend_uid: str


@dataclass(frozen=True, slots=True)
class RemakeToken:
    """The control token's Secret is made again when missing, and the pod notes when: its kubelet then looks anew."""

    LIVE: ClassVar[bool] = False
    backend: Backend
    pod: Pod


@dataclass(frozen=True, slots=True)
class RecordNode:
    """The claim's status names the machine its pod runs on."""

    LIVE: ClassVar[bool] = False
    claim: Claim
    node: NodeId


@dataclass(frozen=True, slots=True)
class SetServing:
    """The readiness gate's condition on the pod."""

    LIVE: ClassVar[bool] = False
    pod: Pod
    serving: bool


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """POST of the model's Lease: the point of no return of a stop."""

    LIVE: ClassVar[bool] = True
    backend: Backend
    holder: Holder


@dataclass(frozen=True, slots=True)
class WriteStopRecord:
    """One patch: the stop record comes, the `serving` label goes."""

    LIVE: ClassVar[bool] = False
    pod: Pod
    record: StopRecord


@dataclass(frozen=True, slots=True)
class DrainServer:
    """The Drain call: admit nothing new, finish what runs."""

    LIVE: ClassVar[bool] = False
    pod: Pod
    deadline: datetime


@dataclass(frozen=True, slots=True)
class AbortServer:
    """The Abort call, to a server that was told to end already: cut every request now and exit."""

    LIVE: ClassVar[bool] = False
    pod: Pod
    reason: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """DELETE with this grace. Grace 0 only after proof."""

    LIVE: ClassVar[bool] = True
    pod: Pod
    grace_seconds: int


@dataclass(frozen=True, slots=True)
class DeleteService:
    LIVE: ClassVar[bool] = True
    service: Service


@dataclass(frozen=True, slots=True)
class CoolClaim:
    """Release with evidence: phase Cooling, the holder goes into the history."""

    LIVE: ClassVar[bool] = True
    claim: Claim
    evidence: str
    reason: str = ""
    """Why the port is not to be taken back by its own instance; empty when it may be."""


@dataclass(frozen=True, slots=True)
class WithholdClaim:
    """The pod is gone, or overdue, without proof: phase Withheld, with all facts that can release it later."""

    LIVE: ClassVar[bool] = True
    claim: Claim
    reason: str
    message: str
    node: NodeId | None = None
    """To be recorded where the claim does not know its pod's machine yet."""


@dataclass(frozen=True, slots=True)
class RecordReference:
    """A withheld claim remembers in which boot its node was when the holder could not be started any more."""

    LIVE: ClassVar[bool] = False
    claim: Claim
    boot_id: str


@dataclass(frozen=True, slots=True)
class ExplainClaim:
    """Why the claim is not released, in words; phase and time stay. Empty words take the earlier ones away."""

    LIVE: ClassVar[bool] = False
    claim: Claim
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RecordReturn:
    """A machine that was taken for gone is back, in the same boot: the port of its pod was released wrongly."""

    LIVE: ClassVar[bool] = False
    claim: Claim
    node: NodeId


@dataclass(frozen=True, slots=True)
class HandOver:
    """One patch: the pod is marked as a witness. Its instance goes on without it."""

    LIVE: ClassVar[bool] = True
    pod: Pod


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    LIVE: ClassVar[bool] = True
    claim: Claim


@dataclass(frozen=True, slots=True)
class RemoveClaimFinalizer:
    LIVE: ClassVar[bool] = True
    claim: Claim


@dataclass(frozen=True, slots=True)
class RemovePodFinalizer:
    LIVE: ClassVar[bool] = True
    pod: Pod


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """DELETE of the model's Lease."""

    LIVE: ClassVar[bool] = True
    lease: Lease


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Off the ModelBackend, last of all."""

    LIVE: ClassVar[bool] = True
    backend: Backend


Create = CreateClaim | CreatePod | CreateService | CreateBudget | AcquireLease
Delete = DeletePod | DeleteService | DeleteBudget | DeleteClaim | ReleaseLease
PodPatch = Ungate | RestoreMarks | RemakeToken | SetServing | WriteStopRecord | HandOver | RemovePodFinalizer
ClaimPatch = (
    ReserveClaim | BindClaim | RecordNode | CoolClaim | WithholdClaim | RecordReference | ExplainClaim | RecordReturn
)
Finalize = AddFinalizer | RemoveFinalizer | RemoveClaimFinalizer
ServerCall = DrainServer | AbortServer
Action = Create | Delete | PodPatch | ClaimPatch | Finalize | WriteStatus | PointService | ServerCall
