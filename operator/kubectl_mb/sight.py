"""What one user may see of one ModelBackend, read at about one moment. Everything shown is worked out from this."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from modelbackend_operator.api import Condition, ConditionEntry, Instance, ModelBackendStatus
from modelbackend_operator.kinds import Raw
from modelbackend_operator.observe.backend import model_of
from modelbackend_operator.reading import mapping
from modelbackend_operator.timestamps import parse_time


@dataclass(frozen=True, slots=True)
class Sight:
    """Raw objects as the API server sent them; the ModelBackend itself is None once it is gone."""

    namespace: str
    name: str
    backend: Raw | None = None
    pods: tuple[Raw, ...] = ()
    ledger: tuple[Raw, ...] = ()
    """Every PortClaim of the cluster."""
    lease: Raw | None = None
    """That of the model, while an instance of it is being shut down."""
    nodes: Mapping[str, Raw] = field(default_factory=dict)
    neighbours: tuple[Raw, ...] = ()
    """The other ModelBackends of the namespace."""
    services: tuple[Raw, ...] = ()
    """Of all namespaces; read only where a port is in question."""
    events: tuple[Raw, ...] = ()
    hidden: frozenset[str] = frozenset()
    """Plural names of what this user may not read: nothing may be concluded from its absence."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def as_typed(self) -> str:
        return f"{self.name} -n {self.namespace}"

    @property
    def status(self) -> ModelBackendStatus:
        return status_of(self.backend)

    @property
    def claims(self) -> tuple[Raw, ...]:
        """Of this backend, also of an earlier one of the same name: the port may still be held for that."""
        mine = (claim for claim in self.ledger if self._is_mine(claim["spec"]["backend"]))
        return tuple(sorted(mine, key=lambda claim: int(claim["spec"]["port"])))

    def _is_mine(self, owner: Raw) -> bool:
        return (owner["namespace"], owner["name"]) == (self.namespace, self.name)

    def claim_on(self, port: int) -> Raw | None:
        return next((claim for claim in self.ledger if claim["spec"]["port"] == port), None)

    def pod(self, uid: str) -> Raw | None:
        return next((pod for pod in self.pods if pod["metadata"]["uid"] == uid), None)

    def sharers(self) -> Iterator[Raw]:
        """The neighbours with the same model: one instance of all of them is shut down at a time."""
        if self.backend is not None:
            model = model_of(self.backend)
            yield from (other for other in self.neighbours if model_of(other) == model)


def status_of(backend: Raw | None) -> ModelBackendStatus:
    return ModelBackendStatus.model_validate(mapping(mapping(backend).get("status")))


def condition(status: ModelBackendStatus, kind: Condition) -> ConditionEntry | None:
    return next((entry for entry in status.conditions if entry.type == kind), None)


def deleted_at(raw: Raw | None) -> datetime | None:
    """When its deletion was asked for; of an object without a grace period."""
    return parse_time(mapping(mapping(raw).get("metadata")).get("deletionTimestamp"))


def instance(status: ModelBackendStatus, ordinal: int) -> Instance | None:
    return next((entry for entry in status.instances if entry.ordinal == ordinal), None)
