"""Reads from the API server what this user may see. What is refused (403) is noted, and the rest is shown."""

import asyncio
from dataclasses import replace

from kubectl_mb.connecting import Session
from kubectl_mb.sight import Sight, status_of
from kubectl_mb.troubles import Exit, Trouble, trouble_of
from modelbackend_operator.api import MODELBACKEND_KIND, Condition
from modelbackend_operator.conditions import PORT_TROUBLES
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.manifests import lease_name
from modelbackend_operator.observe.backend import model_of
from modelbackend_operator.reading import owner_uid

OPERATOR_NAMESPACE = "modelbackend-system"
PAGE_SIZE = 500
EVERY_NAMESPACE = ""


async def objects(session: Session, kind: Kind, namespace: str, *, selector: str = "") -> tuple[Raw, ...]:
    """All of a kind. Raises Trouble."""
    where = f" in namespace {namespace}" if kind.namespaced and namespace else ""
    return await _pages(session, kind.path(namespace), selector, f"list {kind.plural}{where}")


async def one(session: Session, kind: Kind, namespace: str, name: str) -> Raw | None:
    """None when there is none. Raises Trouble for every other answer."""
    answer = await session.api.call("GET", kind.path(namespace, name))
    if answer.ok:
        return answer.body
    if answer.denies_existence():
        return None
    raise trouble_of(answer, f"read {kind.plural} {namespace}/{name}" if namespace else f"read {kind.plural} {name}")


async def backend_named(session: Session, name: str) -> Raw:
    """Raises Trouble, also where there is none of this name."""
    found = await one(session, Kind.BACKEND, session.namespace, name)
    if found is None:
        hint = f"kubectl mb list -n {session.namespace} shows those there are"
        raise Trouble(Exit.NOT_FOUND, f"there is no ModelBackend {name} in namespace {session.namespace}; {hint}")
    return found


async def sight_of(session: Session, name: str, *, operator_namespace: str = OPERATOR_NAMESPACE) -> Sight:
    """Everything about one ModelBackend; it may be gone. Raises Trouble where the backend itself cannot be read."""
    namespace = session.namespace
    backends = await objects(session, Kind.BACKEND, namespace)
    backend = next((raw for raw in backends if raw["metadata"]["name"] == name), None)
    sight = Sight(
        namespace,
        name,
        backend=backend,
        neighbours=tuple(raw for raw in backends if raw is not backend),
    )
    pods, ledger, nodes, events = await asyncio.gather(
        _permitted(session, Kind.POD.path(namespace), Kind.POD.selector),
        _permitted(session, Kind.CLAIM.path()),
        _permitted(session, Kind.NODE.path()),
        _permitted(session, f"/api/v1/namespaces/{namespace}/events"),
    )
    lease = await _lease(session, backend, operator_namespace) if backend is not None else ()
    services = await _permitted(session, Kind.SERVICE.path()) if _is_about_a_port(backend) else ()
    uid = backend["metadata"]["uid"] if backend is not None else None
    read = {"pods": pods, "portclaims": ledger, "nodes": nodes, "events": events, "leases": lease, "services": services}
    return replace(
        sight,
        pods=tuple(pod for pod in pods or () if _is_of(pod, name, uid)),
        ledger=ledger or (),
        nodes={node["metadata"]["name"]: node for node in nodes or ()},
        events=tuple(event for event in events or () if event["involvedObject"].get("name") == name),
        lease=next(iter(lease or ()), None),
        services=services or (),
        hidden=frozenset(kind for kind, found in read.items() if found is None),
    )


def _is_of(pod: Raw, name: str, uid: str | None) -> bool:
    """Of this backend; with the backend gone, of any that had its name."""
    if uid is not None:
        return owner_uid(pod) == uid
    owners = (owner for owner in pod["metadata"].get("ownerReferences") or () if owner.get("controller"))
    return any(owner["kind"] == MODELBACKEND_KIND and owner["name"] == name for owner in owners)


def _is_about_a_port(backend: Raw | None) -> bool:
    status = status_of(backend)
    told = {entry.reason for entry in status.conditions if entry.type in (Condition.STALLED, Condition.PORT_AVAILABLE)}
    return bool(told & {str(reason) for reason in PORT_TROUBLES})


async def _lease(session: Session, backend: Raw, operator_namespace: str) -> tuple[Raw, ...] | None:
    """That of the model: none, one, or not permitted."""
    name = lease_name(session.namespace, model_of(backend))
    answer = await session.api.call("GET", Kind.LEASE.path(operator_namespace, name))
    if answer.code == 403:
        return None
    return (answer.body,) if answer.ok else ()


async def _permitted(session: Session, path: str, selector: str = "") -> tuple[Raw, ...] | None:
    """None where this user may not list it."""
    try:
        return await _pages(session, path, selector, f"list {path.rsplit('/', 1)[-1]}")
    except Trouble as trouble:
        if trouble.exit_code == Exit.NOT_ALLOWED:
            return None
        raise


async def _pages(session: Session, path: str, selector: str, what: str) -> tuple[Raw, ...]:
    items: list[Raw] = []
    page = ""
    while True:
        query = [("limit", str(PAGE_SIZE)), ("labelSelector", selector), ("continue", page)]
        answer = await session.api.call("GET", path, query=[(key, value) for key, value in query if value])
        if not answer.ok:
            raise trouble_of(answer, what)
        items += answer.body["items"]
        page = answer.body["metadata"].get("continue", "")
        if not page:
            return tuple(items)
