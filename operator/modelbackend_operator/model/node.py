"""A machine, in one of its lives."""

from dataclasses import dataclass
from datetime import datetime


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
