"""Which kinds of objects the operator reads, where the API server serves them, and whom a change of one concerns.

An object and a backend belong together by a *term* that both carry: the backend's uid, the name of the model's Lease,
a node's name, a namespace's name. The cache indexes by terms, and the queue learns from them which keys to run.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from modelbackend_operator.api import (
    GROUP,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    VERSION,
)
from modelbackend_operator.manifests import lease_name
from modelbackend_operator.observe.backend import model_of
from modelbackend_operator.observe.lease import lease_from
from modelbackend_operator.reading import owner_uid

Raw = Mapping[str, Any]
"""An object as the API server sent it."""

_OURS = f"{LABEL_MANAGED_BY}={MANAGED_BY}"


class Kind(Enum):
    """`api` is the path of the group and version; `selector` narrows a LIST or WATCH to what is ours."""

    BACKEND = (f"/apis/{GROUP}/{VERSION}", "modelbackends", True, "")
    CLAIM = (f"/apis/{GROUP}/{VERSION}", "portclaims", False, "")
    POD = ("/api/v1", "pods", True, _OURS)
    SERVICE = ("/api/v1", "services", True, _OURS)
    BUDGET = ("/apis/policy/v1", "poddisruptionbudgets", True, _OURS)
    LEASE = ("/apis/coordination.k8s.io/v1", "leases", True, _OURS)
    NODE = ("/api/v1", "nodes", False, "")
    NAMESPACE = ("/api/v1", "namespaces", False, "")

    def __init__(self, api: str, plural: str, namespaced: bool, selector: str) -> None:
        self.api = api
        self.plural = plural
        self.namespaced = namespaced
        self.selector = selector

    @property
    def custom(self) -> bool:
        """Of our own group: it may be missing, and then there are none of it."""
        return self.api == f"/apis/{GROUP}/{VERSION}"

    @property
    def optional(self) -> bool:
        """Where the API server refuses to list it, the operator does without."""
        return self is Kind.BUDGET

    def path(self, namespace: str = "", name: str = "") -> str:
        """Of the collection (of all namespaces when none is given), or of one object."""
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.api}{scope}/{self.plural}" + (f"/{name}" if name else "")


class Term(NamedTuple):
    """What an object is found by."""

    sort: str
    value: str


def by_backend(uid: str) -> Term:
    return Term("backend", uid)


def by_lease(name: str) -> Term:
    return Term("lease", name)


def by_node(name: str) -> Term:
    return Term("node", name)


def by_namespace(name: str) -> Term:
    return Term("namespace", name)


SHARED = frozenset({Kind.LEASE, Kind.NODE, Kind.NAMESPACE})
"""A change of one of these concerns every backend with which it shares a term."""


def nodes_of_claim(raw: Raw) -> set[str]:
    """Names of the machine of its holder, and of those that were taken for gone and may come back."""
    status = raw.get("status", {})
    told = [status.get("node"), *(entry.get("node") for entry in status.get("history") or ())]
    return {node["name"] for node in told if node and node.get("name")}


def terms_of(kind: Kind, raw: Raw) -> frozenset[Term]:
    return frozenset(_terms(kind, raw))


def _terms(kind: Kind, raw: Raw) -> Iterator[Term]:
    metadata = raw["metadata"]
    match kind:
        case Kind.BACKEND:
            yield by_backend(metadata["uid"])
            yield by_namespace(metadata["namespace"])
            yield by_lease(lease_name(metadata["namespace"], model_of(raw)))
        case Kind.CLAIM:
            yield by_backend(raw["spec"]["backend"]["uid"])
            yield from map(by_node, nodes_of_claim(raw))
        case Kind.POD | Kind.SERVICE | Kind.BUDGET:
            yield by_namespace(metadata["namespace"])
            owner = owner_uid(raw)
            if owner:
                yield by_backend(owner)
            node = raw.get("spec", {}).get("nodeName")
            if node:
                yield by_node(node)
        case Kind.LEASE:
            yield by_lease(metadata["name"])
            holder = lease_from(raw).holder
            if holder is not None:
                yield by_backend(holder.backend_uid)
        case Kind.NODE:
            yield by_node(metadata["name"])
        case Kind.NAMESPACE:
            yield by_namespace(metadata["name"])
