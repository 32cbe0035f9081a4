"""One ModelBackend and all that belongs to it: what `decide` may know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.budget import Budget
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.deferral import Deferral, Key
from modelbackend_operator.model.lease import Lease, ModelStop, ModelWait
from modelbackend_operator.model.node import Node
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.model.server import ServerReport
from modelbackend_operator.model.service import Service


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
    other_witnesses: tuple[Pod, ...] = ()
    """Witnesses of other backends in the namespace: they may hold a volume that a pod of this one asks for."""
    accepts_node_removed: bool = False
    """The operator is told that a Node object goes only when its machine is gone (evidence.nodeRemoved: Accept)."""
    answering: frozenset[str] = frozenset()
    """Uids of pods that still answer under their own identity on their port, against the word that they have ended."""
    refusing: frozenset[str] = frozenset()
    """Uids of asked pods whose server does not accept the operator's control token."""
