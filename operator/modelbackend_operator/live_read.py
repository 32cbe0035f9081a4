"""The second look: everything of one backend, read from the API server just now and put into the cache.

Reads are of the quorum (no resourceVersion is asked for). Objects are looked for by label and also by every name under
which they are known, because a label can be edited away. Any read that fails ends the look with `ClusterUnavailable`:
nothing is concluded from half of it.
"""

from modelbackend_operator.api import LABEL_BACKEND_UID
from modelbackend_operator.cache import Cache
from modelbackend_operator.kinds import Kind, Raw, by_backend, by_lease, nodes_of_claim
from modelbackend_operator.kubernetes_api import KubernetesApi
from modelbackend_operator.manifests import lease_name
from modelbackend_operator.observe.backend import model_of
from modelbackend_operator.snapshot import namespace_of


async def read_live(api: KubernetesApi, cache: Cache, backend_uid: str, operator_namespace: str) -> None:
    """Afterwards the cache is at least as new as this call, for all that an observation of the backend is made of."""
    claims = await api.list(Kind.CLAIM)
    cache.replace(Kind.CLAIM, claims.items, claims.version)
    leases = await api.list(Kind.LEASE, operator_namespace)
    cache.replace(Kind.LEASE, leases.items, leases.version, lambda raw: _in(raw, operator_namespace))
    namespace = namespace_of(cache, backend_uid)
    if not namespace:
        return
    await refresh(api, cache, Kind.NAMESPACE, "", namespace)
    name = _name_of(cache, backend_uid)
    if name:
        await refresh(api, cache, Kind.BACKEND, namespace, name)
    for kind in (Kind.POD, Kind.SERVICE):
        await _read_children(api, cache, kind, namespace, backend_uid)
    for uid in sorted(_sharers(cache, backend_uid)):
        await _read_children(api, cache, Kind.POD, namespace, uid)  # one of them may be being shut down
    for node in sorted(_nodes_of(cache, backend_uid)):
        await refresh(api, cache, Kind.NODE, "", node)


async def refresh(api: KubernetesApi, cache: Cache, kind: Kind, namespace: str, name: str) -> None:
    """One object, or the knowledge that there is none."""
    raw = await api.get(kind, namespace, name)
    if raw is not None:
        cache.put(kind, raw)
    else:
        cache.forget(kind, namespace, name)


async def _read_children(api: KubernetesApi, cache: Cache, kind: Kind, namespace: str, backend_uid: str) -> None:
    listing = await api.list(kind, namespace, selector=f"{LABEL_BACKEND_UID}={backend_uid}")
    listed = {raw["metadata"]["name"] for raw in listing.items}
    for name in sorted(_known_names(cache, kind, namespace, backend_uid) - listed):
        await refresh(api, cache, kind, namespace, name)
    for raw in listing.items:
        cache.put(kind, raw)


def _known_names(cache: Cache, kind: Kind, namespace: str, backend_uid: str) -> set[str]:
    """In the cache, in the ledger, and in the backend's status. An instance's Service has the name of its pod."""
    term = by_backend(backend_uid)
    known = {raw["metadata"]["name"] for raw in cache.find(kind, term) if _in(raw, namespace)}
    known |= {_pod_name(raw.get("status", {})) for raw in cache.find(Kind.CLAIM, term)}
    for backend in cache.find(Kind.BACKEND, term):
        status = backend.get("status", {})
        known |= {_pod_name(entry) for entry in status.get("instances") or ()}
        if kind is Kind.SERVICE:
            known.add(status.get("serviceName", ""))
    return known - {""}


def _name_of(cache: Cache, backend_uid: str) -> str:
    term = by_backend(backend_uid)
    for raw in cache.find(Kind.BACKEND, term):
        return str(raw["metadata"]["name"])
    for raw in cache.find(Kind.CLAIM, term):
        return str(raw["spec"]["backend"]["name"])
    for kind in (Kind.POD, Kind.SERVICE):
        for raw in cache.find(kind, term):
            for owner in raw["metadata"].get("ownerReferences") or ():
                if owner["uid"] == backend_uid:
                    return str(owner["name"])
    return ""


def _sharers(cache: Cache, backend_uid: str) -> set[str]:
    """The other backends of the same namespace and model."""
    own = cache.find(Kind.BACKEND, by_backend(backend_uid))
    leases = {lease_name(raw["metadata"]["namespace"], model_of(raw)) for raw in own}
    found = (raw["metadata"]["uid"] for name in leases for raw in cache.find(Kind.BACKEND, by_lease(name)))
    return set(found) - {backend_uid}


def _nodes_of(cache: Cache, backend_uid: str) -> set[str]:
    term = by_backend(backend_uid)
    scheduled = {raw["spec"].get("nodeName", "") for raw in cache.find(Kind.POD, term)}
    recorded = {name for raw in cache.find(Kind.CLAIM, term) for name in nodes_of_claim(raw)}
    return (scheduled | recorded) - {""}


def _pod_name(entry: Raw) -> str:
    return str((entry.get("pod") or {}).get("name", ""))


def _in(raw: Raw, namespace: str) -> bool:
    return bool(raw["metadata"]["namespace"] == namespace)
