"""Who holds what a backend waits for, by name, as far as this user may see it."""

from collections import defaultdict
from collections.abc import Iterator

from kubectl_mb.sight import Sight, status_of
from modelbackend_operator.api import Instance, InstancePhase, PortClaimStatus
from modelbackend_operator.kinds import Raw
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.observe.lease import lease_from
from modelbackend_operator.observe.node import node_trouble
from modelbackend_operator.reading import entries, mapping
from modelbackend_operator.reasons import Reason
from modelbackend_operator.timestamps import rfc3339

MOST_HOLDERS = 8

_PROOF = frozenset(
    {Reason.UNCONFIRMED, Reason.POD_MISSING, Reason.PORT_WITHHELD, Reason.STILL_ANSWERING, Reason.ATTESTATION_REFUSED}
)
_SPEC = {Reason.SUSPENDED: "suspend", Reason.NO_INSTANCES: "replicas"}
_NODES = frozenset({Reason.NODE_NOT_READY, Reason.IMAGE_UNAVAILABLE, Reason.VOLUME_UNAVAILABLE, Reason.PREPARING})
_PORTS = frozenset({Reason.PINNED_PORT_TAKEN, Reason.PINNED_PORT_WITHHELD, Reason.PORT_TAKEN})


def holders_of(sight: Sight, reason: str, entry: Instance | None, claim: Raw | None = None) -> tuple[str, ...]:
    """Empty where nobody in particular holds it."""
    found = list(_holders(sight, reason, entry, claim))
    more = [f"and {len(found) - MOST_HOLDERS} more"] if len(found) > MOST_HOLDERS else []
    return (*found[:MOST_HOLDERS], *more)


def _holders(sight: Sight, reason: str, entry: Instance | None, claim: Raw | None) -> Iterator[str]:
    if reason == Reason.WAITING_FOR_MODEL_LOCK:
        yield from _model_lease(sight)
    elif reason in (Reason.DRAINING, Reason.BUSY) and entry is not None:
        count = "an unknown number of" if entry.in_flight is None else str(entry.in_flight)
        yield f"{count} requests in pod {entry.pod.name if entry.pod else '?'}"
    elif reason == Reason.TERMINATING and entry is not None:
        yield from _kubelet(sight, entry)
    elif reason == Reason.UNSCHEDULABLE:
        yield "the scheduler"
    elif reason in _NODES and entry is not None:
        yield from _kubelet(sight, entry)
    elif reason == Reason.PORT_POOL_EXHAUSTED:
        yield from _pool(sight)
    elif reason in _PORTS:
        yield from _port(sight, entry)
    elif reason in _PROOF:
        yield from _unproven(sight, entry, claim)
    elif reason == Reason.RESTART_BUDGET_EXHAUSTED:
        allowed = mapping(mapping(mapping(sight.backend).get("spec")).get("restart")).get("maxRestarts")
        yield f"spec.restart.maxRestarts: {allowed}"
    elif reason in _SPEC:
        yield _who_set(sight.backend, _SPEC[Reason(reason)])


def ending_sharer(sight: Sight) -> str | None:
    """The backend whose shutdown the others of its model wait for; None where this user cannot see which it is."""
    holder = lease_from(sight.lease).holder if sight.lease is not None else None
    for other in (sight.backend, *sight.sharers()):
        uid = mapping(mapping(other).get("metadata")).get("uid")
        if (uid == holder.backend_uid) if holder is not None else any(map(_is_ending, status_of(other).instances)):
            return str(mapping(other)["metadata"]["name"])
    return None


def _is_ending(entry: Instance) -> bool:
    return entry.stop is not None and entry.phase in (InstancePhase.DRAINING, InstancePhase.TERMINATING)


def _model_lease(sight: Sight) -> Iterator[str]:
    """By the Lease where it may be read; else by the status of those that share the model."""
    if sight.lease is not None:
        lease = lease_from(sight.lease)
        purpose = f", to end it: {lease.holder.purpose}" if lease.holder is not None else ""
        since = f", since {rfc3339(lease.acquired_at)}" if lease.acquired_at is not None else ""
        who = lease.description or "an unknown holder"
        yield f"{who}{purpose}{since} (Lease {lease.ref.namespace}/{lease.ref.name})"
        return
    for other in (sight.backend, *sight.sharers()):
        for entry in status_of(other).instances:
            if entry.stop is not None and _is_ending(entry):
                name = mapping(other)["metadata"]["name"]
                until = f", deadline {rfc3339(entry.stop.deadline)}"
                yield f"{sight.namespace}/{name}, instance {entry.ordinal}: {entry.phase} ({entry.stop.reason}){until}"


def _kubelet(sight: Sight, entry: Instance) -> Iterator[str]:
    name = entry.node.name if entry.node is not None else None
    if name is None and entry.pod is not None:
        name = mapping(mapping(sight.pod(entry.pod.uid)).get("spec")).get("nodeName")
    if name:
        yield _node(sight, name)


def _node(sight: Sight, name: str) -> str:
    node = sight.nodes.get(name)
    if node is None:
        return f"the kubelet of node {name}" + ("" if "nodes" in sight.hidden else ", whose Node object is gone")
    trouble = node_trouble(node)
    return f"the kubelet of node {name}" + (f", which is not Ready: {trouble}" if trouble else "")


def _pool(sight: Sight) -> Iterator[str]:
    """Who has the ports, those with the most first."""
    held: dict[str, list[str]] = defaultdict(list)
    for claim in sight.ledger:
        owner, phase = claim["spec"]["backend"], mapping(claim.get("status")).get("phase")
        suffix = "" if phase == ClaimPhase.BOUND else f" {phase}"
        held[f"{owner['namespace']}/{owner['name']}"].append(f"{claim['spec']['port']}{suffix}")
    for who, ports in sorted(held.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"{who}: {', '.join(sorted(ports))}"


def _port(sight: Sight, entry: Instance | None) -> Iterator[str]:
    """The claim and the foreign Services on the port in question."""
    exposure = mapping(mapping(mapping(sight.backend).get("spec")).get("exposure"))
    asked = (exposure.get("nodePort"), mapping(exposure.get("http")).get("nodePort"))
    held = (entry.port, entry.http_port) if entry is not None else (None, None)
    for port in (pin or number for pin, number in zip(asked, held, strict=True)):
        if port is not None:
            yield from _on_port(sight, port)


def _on_port(sight: Sight, port: int) -> Iterator[str]:
    claim = sight.claim_on(port)
    if claim is not None:
        yield _claim(claim)
    for service in sight.services:
        ours = mapping(claim).get("spec", {}).get("backend", {}).get("uid")
        owners = {owner.get("uid") for owner in service["metadata"].get("ownerReferences") or ()}
        numbers = {entry.get("nodePort") for entry in entries(mapping(service.get("spec")).get("ports"))}
        if port in numbers and ours not in owners:
            yield f"Service {service['metadata']['namespace']}/{service['metadata']['name']}"


def _claim(claim: Raw) -> str:
    status, owner = PortClaimStatus.model_validate(mapping(claim.get("status"))), claim["spec"]["backend"]
    pod = f", pod {status.pod.name}" if status.pod is not None else ""
    held = f"{status.phase} for {owner['namespace']}/{owner['name']}, instance {claim['spec']['ordinal']}{pod}"
    return f"PortClaim {claim['metadata']['name']}: {held}"


def _unproven(sight: Sight, entry: Instance | None, claim: Raw | None) -> Iterator[str]:
    """The pod whose end nothing proves, and its node."""
    pod, node = (entry.pod, entry.node) if entry is not None else (None, None)
    if claim is not None:
        status = PortClaimStatus.model_validate(mapping(claim.get("status")))
        pod, node = status.pod, status.node
    if pod is not None:
        there = "" if sight.pod(pod.uid) is not None or "pods" in sight.hidden else ", whose object is gone"
        yield f"pod {pod.name} ({pod.uid}){there}"
    if node is not None:
        yield _node(sight, node.name)


def _who_set(backend: Raw | None, field: str) -> str:
    """The field manager that owns a field of the spec (kubernetes.io/docs/reference/using-api/server-side-apply)."""
    managers = entries(mapping(mapping(backend).get("metadata")).get("managedFields"))
    owners = (m for m in managers if f"f:{field}" in mapping(mapping(m.get("fieldsV1")).get("f:spec")))
    owner = next(owners, None)
    by = f", set by {owner.get('manager')} at {owner.get('time')}" if owner is not None else ""
    return f"spec.{field}{by}"
