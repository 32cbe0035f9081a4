"""The operator's settings: environment variables with the prefix MODELBACKEND_OPERATOR_.

For example MODELBACKEND_OPERATOR_NODE_PORTS=30000-30085. Durations say their unit in the name.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from modelbackend_operator.kinds import Kind
from modelbackend_operator.model.backend import Exposure


class ControlPath(StrEnum):
    """How the operator reaches the control port of a server."""

    POD_ADDRESS = "PodAddress"
    """Straight to the pod: for an operator that runs inside the cluster."""
    PORT_FORWARD = "PortForward"
    """Through the API server: for an operator that runs outside."""


class NodeRemoved(StrEnum):
    """Whether the removal of a Node object proves that its machine, and what ran on it, is gone."""

    WITHHOLD = "Withhold"
    """It does not: a process serves on after `kubectl delete node`."""
    ACCEPT = "Accept"
    """It does: the cloud of this cluster removes a Node only once its machine is gone."""


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


def _parse_ranges(value: object) -> object:
    return tuple(_parse_range(part) for part in value.split(",")) if isinstance(value, str) else value


def _parse_range(text: str) -> tuple[int, int]:
    first, separator, last = text.partition("-")
    if not separator or not first.strip().isdigit() or not last.strip().isdigit():
        raise ValueError(f"{text!r} is no range of ports; write it as FIRST-LAST, for example 30000-30085")
    return int(first), int(last)


def _parse_names(value: object) -> object:
    return tuple(name for part in value.split(",") if (name := part.strip())) if isinstance(value, str) else value


_Port = Annotated[int, Field(ge=1, le=65535)]
PortRanges = Annotated[
    tuple[tuple[_Port, _Port], ...],
    Field(min_length=1),
    BeforeValidator(_parse_ranges),
    PlainSerializer(lambda ranges: ",".join(f"{first}-{last}" for first, last in ranges), return_type=str),
]
"""First and last port of each range, inclusive, written `FIRST-LAST` or `FIRST-LAST,FIRST-LAST`."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="MODELBACKEND_OPERATOR_", frozen=True, extra="ignore", enable_decoding=False
    )

    namespace: str = "modelbackend-system"
    """The operator's own: Leases and the operator's control key are here."""
    watch_namespaces: Annotated[tuple[str, ...], BeforeValidator(_parse_names)] = ()
    """Whose ModelBackends are looked after, besides the operator's own; separated by commas. None means all."""
    server_image: str = "localhost/modelbackend-server:dev"
    """Of every instance whose spec names no other."""
    allow_host_path: bool = False
    """Whether model.source.hostPath is honoured: it lets a tenant read the node's files."""

    node_ports: PortRanges = ((30000, 30085),)
    """The default is the band that the API server does not hand out by itself (KEP-3668)."""
    host_ports: PortRanges = ((20000, 24999),)
    """Outside the NodePort range and outside Linux' ephemeral range."""
    reuse_delay_seconds: Annotated[int, Field(ge=0)] = 15
    """How long a released port is kept from other backends."""

    evidence_node_removed: NodeRemoved = NodeRemoved.WITHHOLD

    workers: Annotated[int, Field(ge=1, le=256)] = 8
    """Backends that are reconciled at the same time."""
    resync_seconds: Annotated[float, Field(gt=0)] = 300
    """Between two complete readings of the cluster."""
    request_timeout_seconds: Annotated[float, Field(gt=0)] = 15
    """For one call of the API server."""
    backoff_seconds: Annotated[float, Field(gt=0)] = 0.5
    """After the first failure of a key; doubled at each further one."""
    max_backoff_seconds: Annotated[float, Field(gt=0)] = 60
    stop_seconds: Annotated[float, Field(gt=0)] = 3
    """For reconciles that run when the operator is told to stop."""

    leader_election: bool = False
    """For more than one replica: only the one that holds the Lease works, the others keep their view warm."""
    leader_lease_seconds: Annotated[int, Field(ge=2)] = 15
    """Unrenewed for so long, the Lease is taken over."""
    leader_renew_deadline_seconds: Annotated[float, Field(gt=0)] = 10
    """A leader that has not renewed it for so long stops."""
    leader_retry_seconds: Annotated[float, Field(gt=0)] = 2

    control_path: ControlPath | None = None
    """None: PodAddress by a service account, PortForward by a kubeconfig."""
    control_timeout_seconds: Annotated[float, Field(gt=0)] = 2
    """For one call of a server's control port."""

    http_port: Annotated[int, Field(ge=0, le=65535)] = 8081
    """Of /healthz, /readyz and /metrics; 0 takes any free one."""
    http_host: str = ""
    """Empty: every address of every family."""
    status_page_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Of the read-only status page, on 127.0.0.1 alone, hence behind `kubectl port-forward`; None: there is none."""
    log_format: LogFormat = LogFormat.JSON
    log_level: str = "INFO"

    @model_validator(mode="after")
    def _ranges_in_order(self) -> Self:
        for name in ("node_ports", "host_ports"):
            for first, last in getattr(self, name):
                if first > last:
                    raise ValueError(f"{name} {first}-{last} is empty; the first port comes first")
        return self

    @model_validator(mode="after")
    def _leader_times_in_order(self) -> Self:
        if not self.leader_retry_seconds < self.leader_renew_deadline_seconds < self.leader_lease_seconds:
            raise ValueError("leader_retry_seconds < leader_renew_deadline_seconds < leader_lease_seconds must hold")
        return self

    @property
    def call_seconds(self) -> float:
        """For one call of the API server: what a leader sends at its deadline has ended when the next one begins."""
        if not self.leader_election:
            return self.request_timeout_seconds
        return min(self.request_timeout_seconds, self.leader_lease_seconds - self.leader_renew_deadline_seconds)

    @property
    def namespaces(self) -> frozenset[str]:
        """Whose objects are looked after; empty: all."""
        return frozenset({*self.watch_namespaces, self.namespace}) if self.watch_namespaces else frozenset()

    def namespaces_of(self, kind: Kind) -> tuple[str, ...]:
        """Where objects of a kind are listed; the empty name stands for everywhere."""
        if kind is Kind.LEASE:
            return (self.namespace,)
        return tuple(sorted(self.namespaces)) if kind.namespaced and self.namespaces else ("",)

    def pools(self, exposure: Exposure) -> tuple[tuple[int, int], ...]:
        """First and last port, inclusive, of each range that instances exposed this way may claim."""
        return self.host_ports if exposure is Exposure.HOST_PORT else self.node_ports
