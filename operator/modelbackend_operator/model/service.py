"""A Service of a backend."""

from dataclasses import dataclass

from modelbackend_operator.model.ref import Ref


@dataclass(frozen=True, slots=True)
class Service:
    """A Service of this backend; `ordinal` is None for the ClusterIP one that all instances share."""

    ref: Ref
    ordinal: int | None
    node_port: int | None
    """For gRPC."""
    pod_uid: str
    """The pod it selects; empty for the shared one, or when it selects nothing."""
    terminating: bool = False
    intact: bool = True
    """Labels, selector and port are those that this operator writes; others may edit them."""
    http_node_port: int | None = None

    @property
    def node_ports(self) -> tuple[int, ...]:
        return tuple(port for port in (self.node_port, self.http_node_port) if port is not None)
