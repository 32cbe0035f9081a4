"""All that is true of a fake cluster at one moment: what its API server holds, and what really runs.

A `State` is never changed, only replaced: so an old one is a stale cache, a set of them is what a search has seen,
and a test may go back to any. It keeps the rules' own dataclasses (`model/`) as the API server's objects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.model.service import Service

Kind = TypeVar("Kind", Backend, Claim, Pod, Service, Lease)


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a pod on its node, whether or not the API server was told."""

    node: str
    ports: tuple[int, ...]
    """The claimed ones that its server is exposed behind."""
    instance: tuple[str, int] = ("", 0)
    """Uid of its backend, and its ordinal."""
    server: ServerState = ServerState.LOADING
    alive: bool = True
    in_flight: int = 0
    killable: bool = True
    """False: hung in the kernel; neither SIGTERM nor SIGKILL ends it."""

    def ended(self) -> "Run":
        """Of a process that is no more nothing matters but where it was."""
        return Run(self.node, self.ports, self.instance, alive=False)


@dataclass(frozen=True, slots=True)
class Machine:
    """A node's machine, and the Node object that stands for it."""

    node: NodeId | None
    """As the API server has it, perhaps with the boot id of an earlier life. None: the object was removed."""
    boot_id: str
    """The truth."""
    powered: bool = True
    kubelet: bool = True
    """It runs and reaches the API server."""
    ready: bool = True
    """In the node controller's opinion."""
    lost_since: datetime | None = None
    """When that opinion last became that it is not."""
    out_of_service: bool = False

    @property
    def works(self) -> bool:
        return self.powered and self.kubelet


class State(NamedTuple):
    """A tuple, because a search makes a new one for every step."""

    now: datetime
    objects: Mapping[str, Any] = {}
    """The API server's, by uid."""
    owners: Mapping[str, str] = {}
    """By uid: the uid of the backend that each is of."""
    runs: Mapping[str, Run] = {}
    """By pod uid; kept until the pod's object and its process are both gone."""
    machines: Mapping[str, Machine] = {}
    lagging_ports: frozenset[int] = frozenset()
    """Node ports of Services that are gone, which the allocator has yet to take back."""
    free_since: Mapping[str, datetime] = {}
    """Of Leases that are shared and were given back: when, by name."""
    foreground: frozenset[str] = frozenset()
    """Backends that the garbage collector holds until their dependants were deleted."""
    namespace_terminating: bool = False
    forgotten: frozenset[str] = frozenset()
    """Pods whose kubelet has said its last word and will not remove their objects."""
    spent: frozenset[str] = frozenset()
    """Backends that were to come and have been created."""
    version: int = 0
    """Of the API server's last write."""
    created: int = 0
    """Objects so far; uids are numbered by it."""

    def all(self, kind: type[Kind], owner: str | None = None) -> list[Kind]:
        return [
            found
            for uid, found in self.objects.items()
            if isinstance(found, kind) and owner in (None, self.owners.get(uid))
        ]

    @property
    def servers(self) -> Mapping[str, Run]:
        """The processes that live, by pod uid."""
        return {uid: run for uid, run in self.runs.items() if run.alive}

    def with_run(self, pod_uid: str, run: Run) -> "State":
        return self._replace(runs={**self.runs, pod_uid: run})

    def with_machine(self, name: str, **changes: Any) -> "State":
        return self._replace(machines={**self.machines, name: replace(self.machines[name], **changes)})
