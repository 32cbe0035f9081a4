"""A pod of a backend and its containers."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from modelbackend_operator.model.backend import Attestation, PortRole
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.stop import StopRecord


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
    init: bool = False
    """It runs before the others and is to end."""

    @property
    def completed(self) -> bool:
        """It has done what it was there for."""
        return self.init and self.state is ContainerState.TERMINATED and self.exit_code == 0


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
    attestation: Attestation | None = None
    """For a pod that has neither a PortClaim nor a ModelBackend any more to attest on."""
    labels_intact: bool = True
    """Still labelled as ours; a watch that asks for our label does not show a pod that has lost it."""
    told_running: bool = False
    """The backend's status told of its machine, which it does once a container was made there."""
    http_host_port: int | None = None
    withdrawn: bool = False
    """Our readiness gate's condition was True once and is False now: it served, and is to serve no more."""

    @property
    def fetching(self) -> bool:
        """Its model is being downloaded: the server's container is not there yet."""
        return any(container.init and container.state is ContainerState.RUNNING for container in self.containers)

    def host_port_for(self, role: PortRole) -> int | None:
        return self.http_host_port if role is PortRole.HTTP else self.host_port

    @property
    def deleting(self) -> bool:
        return self.deleted_at is not None
