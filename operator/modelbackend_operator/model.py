"""The vocabulary of the operator: what is observed, and nothing else. Start reading here.

A reconcile is `observe -> decide -> act`. This module holds the first noun: an `Observation` is everything that
`decide` may know about one ModelBackend, frozen and free of I/O. The second noun, what may be done, is in
`actions.py`. All instants are timezone-aware UTC; all durations are whole seconds and say so in their names.

An observation may be old. That is not a fault to be hidden: every write carries the uid and resourceVersion it was
decided from, so an old observation leads to a conflict and to another look, never to a wrong effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Ref:
    """Which object, in which version: the precondition that every update and delete carries."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""


class Exposure(StrEnum):
    """How callers outside reach an instance; `ClusterIP` claims no port."""

    NODE_PORT = "NodePort"
    HOST_PORT = "HostPort"
    CLUSTER_IP = "ClusterIP"

    @property
    def claims_port(self) -> bool:
        return self is not Exposure.CLUSTER_IP


class OrderKind(StrEnum):
    """What a user may order by annotation on a ModelBackend."""

    FORCE = "Force"
    EXTEND = "Extend"


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


# -- the ModelBackend ------------------------------------------------------------------------------------------------


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
    status: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)


# -- the ledger ------------------------------------------------------------------------------------------------------


class ClaimPhase(StrEnum):
    """Reserved: no pod yet. Bound: a pod may listen. Withheld: its pod is gone, unproven. Cooling: proven ended."""

    RESERVED = "Reserved"
    BOUND = "Bound"
    WITHHELD = "Withheld"
    COOLING = "Cooling"


@dataclass(frozen=True, slots=True)
class NodeId:
    """A machine in one life: a re-registered Node has another uid, a rebooted one another boot id."""

    name: str
    uid: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Node(NodeId):
    """A machine as its Node object tells of it now."""

    heartbeat_at: datetime | None = None
    """When its kubelet wrote this status, boot id included, by its own clock."""
    lost_since: datetime | None = None
    """Since when it is not Ready; None while it is."""
    out_of_service: bool = False
    """Tainted by an administrator (or a fencing agent) who knows that the machine is off."""
    address: str = ""
    """InternalIP, for asking a port; never written down, because nodes may swap addresses."""

    @property
    def identity(self) -> NodeId:
        return NodeId(self.name, self.uid, self.boot_id)


@dataclass(frozen=True, slots=True)
class Claim:
    """A PortClaim of this backend."""

    ref: Ref
    port: int
    ordinal: int
    exposure: Exposure
    phase: ClaimPhase
    pod_name: str
    pod_uid: str
    node: NodeId | None
    since: datetime
    has_finalizer: bool
    terminating: bool
    reference_boot_id: str = ""
    """In which boot the node was after its kubelet could not start the holder any more; another one proves its end."""
    reason: str = ""
    message: str = ""
    """Why it is withheld, as written in its status."""
    attestation: Attestation | None = None
    past_pods: frozenset[str] = frozenset()
    """Uids of holders whose end was proven, as far as the claim remembers."""
    removed_nodes: tuple[NodeId, ...] = ()
    """Machines of past holders that counted as ended because the Node was removed, and that nobody has seen since."""
    raw: Mapping[str, Any] = field(default_factory=dict)


# -- pods ------------------------------------------------------------------------------------------------------------


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def terminal(self) -> bool:
        return self in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class ContainerState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class Container:
    """One entry of init-, main or ephemeral container statuses."""

    name: str
    state: ContainerState
    ever_created: bool
    """The runtime made this container at some time: containerID set, lastState set, or restartCount > 0."""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    """Of the current `terminated`, else of the last one."""
    restarts: int = 0


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


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod whose controller is this backend."""

    ref: Ref
    ordinal: int
    template_hash: str
    host_port: int | None
    gated: bool
    serving_label: bool
    serving_condition: bool
    """Our readiness gate's condition is True."""
    stop: StopRecord | None
    has_finalizer: bool
    created_at: datetime
    deleted_at: datetime | None
    """When deletion was asked for (deletionTimestamp less the grace period); None while not deleted."""
    grace_seconds: int | None
    phase: PodPhase
    phase_reason: str
    phase_message: str
    unschedulable: str
    """The scheduler's own words, empty when it has none."""
    node: str
    host_ip: str
    ip: str
    containers: tuple[Container, ...]
    containers_ready: bool
    ready: bool
    removed_by_pod_gc: bool
    """Condition DisruptionTarget, reason DeletionByPodGC: the phase may then be written without a kubelet's word."""
    containers_changed_after_pod_gc: bool = False
    replaces: str = ""
    """Uid of the pod beside which a Surge rollout made this one; empty for all others."""
    token_made_at: datetime | None = None
    """When the control token's Secret was made again for it; None: it was made with the pod, and not since."""
    handed_over: datetime | None = None
    """When its missing proof was overdue and it was given up as this instance: from then on it is a witness, which
    holds neither Lease nor ordinal nor the backend's deletion; its port stays withheld until there is proof."""
    volume_claims: frozenset[str] = frozenset()
    """PersistentVolumeClaims that it mounts."""
    labels_intact: bool = True
    """Still labelled as ours; a watch that asks for our label does not show a pod that has lost it."""
    withdrawn: bool = False
    """Our readiness gate's condition was True once and is False now: it served, and is to serve no more."""

    @property
    def deleting(self) -> bool:
        return self.deleted_at is not None


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


class TokenRefused(Enum):
    """The answer of a server that was given another control token than the one derived for its backend."""

    ANSWER = 0


# -- the rest --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Service:
    """A Service of this backend; `ordinal` is None for the ClusterIP one that all instances share."""

    ref: Ref
    ordinal: int | None
    node_port: int | None
    pod_uid: str
    """The pod it selects; empty for the shared one, or when it selects nothing."""
    terminating: bool = False
    intact: bool = True
    """Labels, selector and port are those that this operator writes; others may edit them."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The PodDisruptionBudget of this backend: what a node drain may take at once."""

    ref: Ref
    intact: bool = True
    """As this operator makes it; others may edit it."""
    terminating: bool = False


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


class Key(NamedTuple):
    """Which write a decision asks for, whatever version of its object it was decided from."""

    kind: str
    uid: str
    """Of the object that is written; of the backend, for one that is created."""
    ordinal: int | None


@dataclass(frozen=True, slots=True)
class Deferral:
    """A write that is not to be tried again before `until`: refused by the API server, or a call just made."""

    reason: str
    message: str
    since: datetime
    """When it was put aside first; it was not possible ever since."""
    last: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class ModelWait:
    """An instance of another backend of the same namespace and model that waits for its turn to be shut down."""

    since: datetime
    backend_uid: str
    description: str
    """`namespace/name, instance N`, for people."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The pools for this backend's exposure and what is known to be taken in them."""

    pools: tuple[tuple[int, int], ...]
    """First and last port of each, inclusive."""
    reuse_delay_seconds: int
    taken: frozenset[int]
    """Claimed by others, in any phase, or held by a foreign Service."""
    taken_by: Mapping[int, str] = field(default_factory=dict)
    """Port to `namespace/name` of who holds it, for messages."""
    taken_in: Mapping[str, int] = field(default_factory=dict)
    """How many claims of others there are in the pools, by phase, for messages; what no claim holds is not counted."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One ModelBackend and everything of it, at about one moment."""

    backend_uid: str
    backend: Backend | None
    """None: the object is gone, and what it left is to be settled."""
    namespace_terminating: bool
    claims: tuple[Claim, ...]
    pods: tuple[Pod, ...]
    services: tuple[Service, ...]
    lease: Lease | None
    nodes: Mapping[str, Node]
    servers: Mapping[str, ServerReport]
    """By pod uid; only reachable servers that were asked."""
    ports: Ports
    taken_names: frozenset[str]
    """Names of pods and Services in the namespace that are not this backend's."""
    live: bool = False
    """Read from the API server just now, not from the cache."""
    node_troubles: Mapping[str, str] = field(default_factory=dict)
    """By name, of nodes that are not Ready: what is known of why."""
    model_stops: tuple[ModelStop, ...] = ()
    model_waits: tuple[ModelWait, ...] = ()
    lease_free_since: datetime | None = None
    """Since when this observer has seen the model's Lease free while others wait for it; None: it has not."""
    deferred: Mapping[Key, Deferral] = field(default_factory=dict)
    budgets: tuple[Budget, ...] | None = None
    """None: the operator may not read or make them here, and leaves them alone."""
    accepts_node_removed: bool = False
    """The operator is told that a Node object goes only when its machine is gone (evidence.nodeRemoved: Accept)."""
    answering: frozenset[str] = frozenset()
    """Uids of pods that still answer under their own identity on their port, against the word that they have ended."""
    refusing: frozenset[str] = frozenset()
    """Uids of asked pods whose server does not accept the operator's control token."""
