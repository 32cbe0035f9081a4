"""A PortClaim: one port, whose it is, and what may still listen behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from modelbackend_operator.model.backend import Attestation, Exposure, PortRole
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.ref import Ref


class ClaimPhase(StrEnum):
    """Reserved: no pod yet. Bound: a pod may listen. Withheld: its pod is gone, unproven. Cooling: proven ended."""

    RESERVED = "Reserved"
    BOUND = "Bound"
    WITHHELD = "Withheld"
    COOLING = "Cooling"


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
    role: PortRole = PortRole.GRPC
    """What is served behind it. An instance has at most one claim of each role for one pod."""
    reference_boot_id: str = ""
    """In which boot the node was after its kubelet could not start the holder any more; another one proves its end."""
    reason: str = ""
    message: str = ""
    """Why it is withheld, as written in its status."""
    evidence: str = ""
    """While Cooling: what proved the end of its pod, and so opens every other port of that pod."""
    attestation: Attestation | None = None
    past_pods: frozenset[str] = frozenset()
    """Uids of holders whose end was proven, as far as the claim remembers."""
    removed_nodes: tuple[NodeId, ...] = ()
    """Machines of past holders that counted as ended because the Node was removed, and that nobody has seen since."""
    returned: bool = False
    """The machine of its holder is back, whose removal had counted as that one's end: it is unproven again."""
    raw: Mapping[str, Any] = field(default_factory=dict)
