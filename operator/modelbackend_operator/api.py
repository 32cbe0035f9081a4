"""The two kinds as Python sees them: every key and name on the wire, PortClaim, and ModelBackend's status.

The spec of a ModelBackend is in `spec.py`. The schemas in `crds/` are what users meet: they hold the defaults
and the rules, and the models here are read after the API server has applied those. They ignore fields that
they do not know, because a newer CRD may be served while an older operator still runs;
`tests/unit/test_crd_schema.py` notices when the two sides drift apart.

JSON names are camelCase, Python names snake_case. Times are UTC, to the second. Durations carry `_seconds`.
"""

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer

from modelbackend_operator.model.backend import Exposure, OrderKind, PortRole
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.timestamps import rfc3339

GROUP = "modelbackend.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

MODELBACKEND_KIND = "ModelBackend"
MODELBACKEND_PLURAL = "modelbackends"
PORTCLAIM_KIND = "PortClaim"
PORTCLAIM_PLURAL = "portclaims"

# On ModelBackends, PortClaims and pods alike: nothing goes away before its end is proven.
FINALIZER = f"{GROUP}/termination"

# A pod waits behind the gate until a claim names it, and is Ready only once its server has told its identity.
SCHEDULING_GATE = f"{GROUP}/claim"
READINESS_GATE = f"{GROUP}/serving"

LABEL_BACKEND_UID = f"{GROUP}/backend-uid"
LABEL_ORDINAL = f"{GROUP}/ordinal"
LABEL_POD_UID = f"{GROUP}/pod-uid"
LABEL_SERVING = f"{GROUP}/serving"  # "true", or absent
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "modelbackend-operator"

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""A taint, put on a node by whoever knows that its machine is off (KEP-2268)."""

# Of a server, in its pod.
GRPC_PORT = 50051
HTTP_PORT = 8080
CONTROL_PORT = 50052
METRICS_PORT = 9090

ANNOTATION_STOP = f"{GROUP}/stop"  # on a pod: its stop record, as JSON
ANNOTATION_UNCONFIRMED = f"{GROUP}/unconfirmed"  # on a pod: since when it is a witness
ANNOTATION_TEMPLATE_HASH = f"{GROUP}/template-hash"  # on a pod: what it was made from
ANNOTATION_TOKEN_MADE = f"{GROUP}/token-made"  # on a pod: when its control token's Secret was made again
ANNOTATION_REPLACES = f"{GROUP}/replaces"  # on a pod of a Surge rollout: the uid of the pod that serves until it does
ANNOTATION_HOLDER = f"{GROUP}/holder"  # on a Lease: whose shutdown it is held for, as JSON
ANNOTATION_FORCE = f"{GROUP}/force"  # order on a ModelBackend: "<pod uid> <reason>" or "all <reason>"
ANNOTATION_EXTEND = f"{GROUP}/extend"  # order on a ModelBackend: "<pod uid> <seconds>"
ANNOTATION_ATTEST = f"{GROUP}/attest"  # order on a ModelBackend or PortClaim: "<pod uid> <reason>"

_ACRONYMS = {"boot_id": "bootID", "pod_uid": "podUID", "reference_boot_id": "referenceBootID"}


def json_name(python_name: str) -> str:
    return _ACRONYMS.get(python_name) or re.sub(r"_(.)", lambda match: match[1].upper(), python_name)


Timestamp = Annotated[AwareDatetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]
Port = Annotated[int, Field(ge=1024, le=65535)]
Ordinal = Annotated[int, Field(ge=0)]
JsonObject = dict[str, Any]
"""A piece of a core Kubernetes type that is handed to the pod as it is."""


class Part(BaseModel):
    model_config = ConfigDict(alias_generator=json_name, populate_by_name=True, frozen=True, extra="ignore")

    def to_json(self) -> JsonObject:
        """The JSON form, without the fields that are absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def by_json_name(self, name: str) -> object:
        """The value of the field that is called `name` in JSON."""
        return next(value for field, value in self if json_name(field) == name)


class Condition(StrEnum):
    """Condition types of a ModelBackend. Reconciling, Stalled (kstatus) and Unconfirmed are present only while true."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    PORT_AVAILABLE = "PortAvailable"
    DRAINED = "Drained"
    UNCONFIRMED = "Unconfirmed"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionEntry(Part):
    """metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    status: ConditionStatus
    observed_generation: int | None = None
    last_transition_time: Timestamp
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: Annotated[str, Field(max_length=32768)]


class PodReference(Part):
    name: str
    uid: str


class NodeReference(Part):
    name: str
    uid: str
    boot_id: str | None = None


class StopEntry(Part):
    """Why and until when an instance is being stopped, from the record on its pod.

    `epoch` (`<Lease uid>/<leaseTransitions>`) is absent when somebody else deleted the pod, `order` (verbatim) unless
    the user ordered it to be ended at once, or its drain to be longer. Since `yieldedAt` it holds up no other instance
    of its model.
    """

    since: Timestamp
    reason: str
    deadline: Timestamp
    epoch: str | None = None
    order: str | None = None
    yielded_at: Timestamp | None = None


class Evidence(StrEnum):
    """The only keys that open a claim."""

    NEVER_STARTED = "NeverStarted"
    CONTAINERS_TERMINATED = "ContainersTerminated"
    NODE_REBOOTED = "NodeRebooted"
    OUT_OF_SERVICE = "OutOfService"
    NODE_REMOVED = "NodeRemoved"
    ATTESTED = "Attested"


class InstancePhase(StrEnum):
    WAITING = "Waiting"  # no pod yet: waits for a port or for a predecessor's end
    PENDING = "Pending"  # a pod, not running yet: gated, unscheduled, pulling
    LOADING = "Loading"
    SERVING = "Serving"
    FAILING = "Failing"  # ran and stopped, or runs and does not answer
    DRAINING = "Draining"
    TERMINATING = "Terminating"
    UNCONFIRMED = "Unconfirmed"  # should have ended, and nothing proves it


class Successor(Part):
    """The pod that takes an instance's place: beside one that still serves (rollout Surge), or while it ends."""

    phase: InstancePhase
    pod: PodReference
    address: str | None = None
    port: int | None = None
    evidence: Evidence | None = None
    http_port: int | None = None
    reason: str | None = None
    message: str | None = None


class Instance(Part):
    ordinal: Ordinal
    phase: InstancePhase
    pod: PodReference | None = None
    node: NodeReference | None = None
    address: str | None = None
    port: int | None = None
    http_port: int | None = None
    in_flight: int | None = None
    stop: StopEntry | None = None
    evidence: Evidence | None = None
    reason: str | None = None
    message: str | None = None
    restarts: int | None = None
    pod_restarts: int | None = None
    failed_starts: int | None = None
    successor: Successor | None = None
    waiting_since: Timestamp | None = None


class VanishedPod(Part):
    """One without a PortClaim that would remember it, whose object went without proof of its end."""

    ordinal: Ordinal
    pod: PodReference
    node: NodeReference | None = None
    since: Timestamp
    reference_boot_id: str | None = None


class Endpoint(Part):
    ordinal: Ordinal
    role: PortRole
    pod_uid: str
    address: str


class ModelFacts(Part):
    """What is served; all but `name` as the server read it from the file (modelbackend.v1.ModelInfo)."""

    name: str
    description: str | None = None
    architecture: str | None = None
    parameter_count: int | None = None
    size_bytes: int | None = None
    context_length: int | None = None
    trained_context_length: int | None = None
    sha256: str | None = None


class OrderEntry(Part):
    """A user's order, verbatim: the uids of the pods that it is for, or in words why it does nothing."""

    kind: OrderKind
    text: Annotated[str, Field(max_length=256)]
    pods: tuple[str, ...] = ()
    refused: str | None = None


class ShutdownOutcome(StrEnum):
    DRAINED = "Drained"
    FORCED = "Forced"
    NOT_SERVING = "NotServing"
    DELETED_BY_OTHERS = "DeletedByOthers"
    UNCONFIRMED = "Unconfirmed"


class LastShutdown(Part):
    outcome: ShutdownOutcome
    pod: PodReference | None = None
    finished: Timestamp | None = None
    seconds: int
    requests_cut: int | None = None


class ModelBackendStatus(Part):
    observed_generation: int | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    in_flight: int | None = None
    selector: str | None = None
    service_name: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    instances: tuple[Instance, ...] = ()
    vanished: tuple[VanishedPod, ...] = ()
    model: ModelFacts | None = None
    last_shutdown: LastShutdown | None = None
    orders: tuple[OrderEntry, ...] = ()
    conditions: tuple[ConditionEntry, ...] = ()


def claim_name(port: int) -> str:
    """The name of the claim on `port`: to create the object is to take the port."""
    return f"port-{port}"


class BackendReference(Part):
    namespace: str
    name: str
    uid: str


class PortClaimSpec(Part):
    port: Port
    exposure: Literal[Exposure.NODE_PORT, Exposure.HOST_PORT]
    role: PortRole = PortRole.GRPC
    backend: BackendReference
    ordinal: Annotated[int, Field(ge=0, le=1023)]


class PastHolder(Part):
    """A pod that held the port before, and what proved its end.

    `reason` is what an administrator attested; `returned` tells when a machine that had counted as removed was back.
    """

    pod: PodReference
    node: NodeReference | None = None
    since: Timestamp | None = None
    until: Timestamp
    evidence: Evidence
    reason: Annotated[str, Field(max_length=1024)] | None = None
    returned: Timestamp | None = None


class PortClaimStatus(Part):
    phase: ClaimPhase | None = None
    pod: PodReference | None = None
    node: NodeReference | None = None
    reference_boot_id: str | None = None
    since: Timestamp | None = None
    evidence: Evidence | None = None
    reason: Annotated[str, Field(max_length=1024)] | None = None
    message: Annotated[str, Field(max_length=32768)] | None = None
    history: tuple[PastHolder, ...] = ()
