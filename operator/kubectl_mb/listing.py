"""The rows of `list` and `ports`."""

from collections.abc import Sequence
from datetime import datetime

from kubectl_mb.clock import age
from kubectl_mb.sight import condition, status_of
from modelbackend_operator.api import Condition, PortClaimStatus
from modelbackend_operator.kinds import Raw
from modelbackend_operator.model.backend import PortRole
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.reading import mapping
from modelbackend_operator.timestamps import parse_time

NONE = "-"

BACKENDS = ("namespace", "name", "model", "ready", "instances", "address", "in-flight", "reason", "age")
BACKENDS_WIDE = (*BACKENDS, "ports", "nodes", "message")
PORTS = ("port", "role", "phase", "backend", "instance", "pod", "node", "for", "evidence", "reason")
PORTS_WIDE = (*PORTS, "pod uid", "last holders", "message")


def backend_row(backend: Raw, now: datetime) -> list[str]:
    """In the order of BACKENDS_WIDE."""
    status, spec, metadata = status_of(backend), mapping(backend.get("spec")), backend["metadata"]
    ready = condition(status, Condition.READY)
    wanted = 0 if spec.get("suspend") else spec.get("replicas", 1)
    return [
        metadata["namespace"],
        metadata["name"],
        status.model.name if status.model is not None else NONE,
        str(ready.status) if ready is not None else "Unknown",
        f"{status.ready_replicas or 0}/{wanted}",
        ", ".join(endpoint.address for endpoint in status.endpoints) or NONE,
        str(status.in_flight) if status.in_flight is not None else NONE,
        ready.reason if ready is not None else "NotObserved",
        age(parse_time(metadata["creationTimestamp"]), now),
        ", ".join(str(port) for instance in status.instances for port in (instance.port, instance.http_port) if port)
        or NONE,
        ", ".join(instance.node.name for instance in status.instances if instance.node) or NONE,
        ready.message if ready is not None else NONE,
    ]


def port_row(claim: Raw, now: datetime) -> list[str]:
    """In the order of PORTS_WIDE. `for`: how long it has been in this phase."""
    spec, status = claim["spec"], PortClaimStatus.model_validate(mapping(claim.get("status")))
    owner = spec["backend"]
    past = [f"{entry.pod.name} ({entry.evidence})" for entry in status.history]
    return [
        str(spec["port"]),
        str(spec.get("role", PortRole.GRPC)),
        str(status.phase or ClaimPhase.RESERVED),
        f"{owner['namespace']}/{owner['name']}",
        str(spec["ordinal"]),
        status.pod.name if status.pod is not None else NONE,
        status.node.name if status.node is not None else NONE,
        age(status.since or parse_time(claim["metadata"]["creationTimestamp"]), now),
        str(status.evidence or NONE),
        status.reason or NONE,
        status.pod.uid if status.pod is not None else NONE,
        ", ".join(past) or NONE,
        status.message or NONE,
    ]


def columns(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, without: Sequence[str] = ()
) -> tuple[list[str], list[list[str]]]:
    """The named columns, which are the first of each row, less those that are left out."""
    kept = [index for index, name in enumerate(names) if name not in without]
    return [names[index] for index in kept], [[row[index] for index in kept] for row in rows]
