"""From the cache to an `Observation`: everything known of one backend, without I/O."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from modelbackend_operator.cache import Cache
from modelbackend_operator.kinds import Kind, Raw, by_backend, by_lease, by_namespace
from modelbackend_operator.manifests import lease_name
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.lease import Lease, ModelStop, ModelWait
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.model_lease import stop_is_open
from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.observe.budget import budget_from
from modelbackend_operator.observe.claim import claim_from
from modelbackend_operator.observe.lease import lease_from
from modelbackend_operator.observe.node import node_from, node_trouble
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.observe.service import service_from
from modelbackend_operator.reading import entries, mapping, owner_uid
from modelbackend_operator.settings import NodeRemoved, Settings
from modelbackend_operator.timestamps import parse_time
from modelbackend_operator.told_in_status import remembered, with_status


def observation_of(
    cache: Cache,
    backend_uid: str,
    settings: Settings,
    *,
    ports_outside: Mapping[int, str],
    taken_on: Mapping[int, frozenset[str]] | None = None,
    knows_budgets: bool = False,
    live: bool = False,
) -> Observation:
    """`ports_outside`: ports that something other than a claim holds, and what; `taken_on`: where one is taken.

    Servers are not asked here.
    """
    found = cache.find(Kind.BACKEND, by_backend(backend_uid))
    backend = backend_from(found[0], allow_host_path=settings.allow_host_path) if found else None
    claims = tuple(claim_from(raw) for raw in cache.find(Kind.CLAIM, by_backend(backend_uid)))
    namespace = namespace_of(cache, backend_uid)
    status = backend.status if backend is not None else {}
    pods = tuple(with_status(pod_from(raw), status) for raw in _within(cache, Kind.POD, namespace, backend_uid))
    nodes = _nodes(cache, pods, claims, status)
    services = tuple(service_from(raw) for raw in _within(cache, Kind.SERVICE, namespace, backend_uid))
    budgets = tuple(budget_from(raw) for raw in _within(cache, Kind.BUDGET, namespace, backend_uid))
    return Observation(
        backend_uid=backend_uid,
        backend=backend,
        namespace_terminating=_terminating(cache.get(Kind.NAMESPACE, "", namespace), live),
        claims=claims,
        pods=pods,
        services=services,
        budgets=budgets if knows_budgets else None,
        lease=_lease(cache, backend, backend_uid, settings.namespace),
        nodes={name: node_from(raw) for name, raw in nodes.items()},
        node_troubles={name: words for name, raw in nodes.items() if (words := node_trouble(raw))},
        servers={},
        ports=replace(_ports(cache, backend, backend_uid, settings, ports_outside), taken_on=taken_on or {}),
        taken_names=_taken_names(cache, namespace, backend_uid),
        live=live,
        model_stops=tuple(_stops_of_others(cache, backend)),
        model_waits=tuple(_waits_of_others(cache, backend)),
        other_witnesses=tuple(_witnesses_of_others(cache, namespace, backend_uid)),
        accepts_node_removed=settings.evidence_node_removed is NodeRemoved.ACCEPT,
    )


def namespace_of(cache: Cache, backend_uid: str) -> str:
    """Where the backend is, or was: what it left still says so. Empty when nothing is known of it."""
    for raw in cache.find(Kind.BACKEND, by_backend(backend_uid)):
        return str(raw["metadata"]["namespace"])
    for raw in cache.find(Kind.CLAIM, by_backend(backend_uid)):
        return str(raw["spec"]["backend"]["namespace"])
    for kind in (Kind.POD, Kind.SERVICE):
        for raw in cache.find(kind, by_backend(backend_uid)):
            return str(raw["metadata"]["namespace"])
    return ""


def _within(cache: Cache, kind: Kind, namespace: str, backend_uid: str) -> tuple[Raw, ...]:
    """A uid written into another namespace's object makes nobody its owner."""
    found = cache.find(kind, by_backend(backend_uid))
    return tuple(raw for raw in found if raw["metadata"]["namespace"] == namespace)


def _terminating(namespace: Raw | None, live: bool) -> bool:
    """One that a live read does not find takes nothing new either; one that no watch has told of yet may be new."""
    return live if namespace is None else namespace["metadata"].get("deletionTimestamp") is not None


def _lease(cache: Cache, backend: Backend | None, backend_uid: str, operator_namespace: str) -> Lease | None:
    """The Lease of the backend's model, whoever holds it; with the backend gone, one that was taken for it."""
    if backend is not None:
        raw = cache.get(Kind.LEASE, operator_namespace, lease_name(backend.ref.namespace, backend.model))
        return lease_from(raw) if raw is not None else None
    held = cache.find(Kind.LEASE, by_backend(backend_uid))
    return lease_from(held[0]) if held else None


def _stops_of_others(cache: Cache, backend: Backend | None) -> Iterator[ModelStop]:
    for raw in sharers(cache, backend):
        namespace, name, uid = (raw["metadata"][key] for key in ("namespace", "name", "uid"))
        status = mapping(raw.get("status"))
        pods = (with_status(pod_from(pod), status) for pod in _within(cache, Kind.POD, namespace, uid))
        for pod in filter(stop_is_open, pods):
            yield ModelStop(pod.ref.uid, f"{namespace}/{name}, instance {pod.ordinal}")


def _waits_of_others(cache: Cache, backend: Backend | None) -> Iterator[ModelWait]:
    for raw in sharers(cache, backend):
        namespace, name, uid = (raw["metadata"][key] for key in ("namespace", "name", "uid"))
        for entry in entries(mapping(raw.get("status")).get("instances")):
            since = parse_time(entry.get("waitingSince"))
            if since is not None:
                yield ModelWait(since, uid, f"{namespace}/{name}, instance {entry.get('ordinal')}")


def _witnesses_of_others(cache: Cache, namespace: str, backend_uid: str) -> Iterator[Pod]:
    """Among them those of an earlier backend of the same name."""
    others = (raw for raw in cache.find(Kind.POD, by_namespace(namespace)) if owner_uid(raw) != backend_uid)
    yield from (pod for pod in map(pod_from, others) if pod.handed_over is not None)


def sharers(cache: Cache, backend: Backend | None) -> tuple[Raw, ...]:
    """The other ModelBackends of the same namespace and model."""
    if backend is None:
        return ()
    found = cache.find(Kind.BACKEND, by_lease(lease_name(backend.ref.namespace, backend.model)))
    return tuple(raw for raw in found if raw["metadata"]["uid"] != backend.ref.uid)


def _nodes(cache: Cache, pods: tuple[Pod, ...], claims: tuple[Claim, ...], status: Raw) -> dict[str, Raw]:
    names = {pod.node for pod in pods if pod.node} | {claim.node.name for claim in claims if claim.node is not None}
    names |= {node.name for claim in claims for node in claim.removed_nodes}
    names |= {pod.node.name for pod in remembered(status) if pod.node is not None}
    found = {name: cache.get(Kind.NODE, "", name) for name in sorted(names)}
    return {name: raw for name, raw in found.items() if raw is not None}


def _ports(
    cache: Cache, backend: Backend | None, backend_uid: str, settings: Settings, outside: Mapping[int, str]
) -> Ports:
    pools = settings.pools(backend.exposure if backend is not None else Exposure.NODE_PORT)
    pinned = {backend.pin(role) for role in backend.roles} if backend is not None else set()
    others = [raw for raw in cache.all(Kind.CLAIM) if raw["spec"]["backend"]["uid"] != backend_uid]
    taken_by = dict(outside)
    for raw in others:
        owner = raw["spec"]["backend"]
        withheld = claim_from(raw).phase is ClaimPhase.WITHHELD
        unproven = f" (withheld: pod {_pod_name_of(raw)} is not proven to have ended)" if withheld else ""
        taken_by[raw["spec"]["port"]] = f"{owner['namespace']}/{owner['name']}{unproven}"
    inside = {port for port in taken_by if any(first <= port <= last for first, last in pools)}
    taken_by = {port: who for port, who in taken_by.items() if port in inside or port in pinned}
    phases = Counter(str(claim_from(raw).phase) for raw in others if raw["spec"]["port"] in inside)
    return Ports(pools, settings.reuse_delay_seconds, frozenset(taken_by), taken_by, phases)


def _pod_name_of(claim: Raw) -> str:
    return str(mapping(mapping(claim.get("status")).get("pod")).get("name", ""))


def _taken_names(cache: Cache, namespace: str, backend_uid: str) -> frozenset[str]:
    return frozenset(
        raw["metadata"]["name"]
        for kind in (Kind.POD, Kind.SERVICE)
        for raw in cache.find(kind, by_namespace(namespace))
        if owner_uid(raw) != backend_uid
    )
