"""The objects of a ModelBackend: their names, their labels, and their bodies (that of the pod is in `pod_template.py`).

Names. `<prefix>-<hash>-<ordinal>`: the prefix is the backend's name made a DNS-1035 label (RFC 1035: it begins with a
letter and has no dots, which Services demand), the hash is of the backend's uid. So a backend that is deleted and
made again under its name never meets what the first one left, and `a` with instance 0 never meets `a-0`.
"""

import hashlib
import json
import re
from collections.abc import Container
from datetime import datetime
from itertools import count
from typing import Any

from modelbackend_operator.api import (
    ANNOTATION_HOLDER,
    API_VERSION,
    FINALIZER,
    GRPC_PORT,
    HTTP_PORT,
    LABEL_BACKEND_UID,
    LABEL_MANAGED_BY,
    LABEL_ORDINAL,
    LABEL_POD_UID,
    LABEL_SERVING,
    MANAGED_BY,
    MODELBACKEND_KIND,
    PORTCLAIM_KIND,
    BackendReference,
    PortClaimSpec,
    claim_name,
)
from modelbackend_operator.model.backend import Backend, Exposure, PortRole
from modelbackend_operator.model.lease import Holder
from modelbackend_operator.timestamps import micro_time

CONTROL_TOKEN_KEY = "token"

_LABEL_LENGTH = 63
_HASH_DIGITS = 8
_PREFIX_LENGTH = _LABEL_LENGTH - len("-12345678-1023-99999")
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_INSTANCE_NAME = re.compile(rf".+-[0-9a-f]{{{_HASH_DIGITS}}}-(?P<ordinal>[0-9]{{1,4}})(-[0-9]{{1,5}})?")

Raw = dict[str, Any]


# -- names -----------------------------------------------------------------------------------------------------------


def pod_name(backend: Backend, ordinal: int, taken: Container[str]) -> str:
    """The first of `<stem>-<ordinal>`, `<stem>-<ordinal>-1`, ... that nobody has."""
    return _first_free(f"{_stem(backend)}-{ordinal}", taken)


def service_name(backend: Backend, ordinal: int, taken: Container[str]) -> str:
    """Of the NodePort Service of one instance; chosen like a pod's."""
    return _first_free(f"{_stem(backend)}-{ordinal}", taken)


def shared_service_name(backend: Backend, taken: Container[str]) -> str:
    """The backend's own name where a Service may have it: callers then write `<backend>.<namespace>.svc`."""
    name = backend.ref.name
    if _DNS_1035.fullmatch(name) and name not in taken:
        return name
    return _first_free(_stem(backend), taken)


def budget_name(backend: Backend) -> str:
    """Of the PodDisruptionBudget."""
    return _stem(backend)


def control_secret_name(backend: Backend) -> str:
    return f"{_stem(backend)}-control"


def lease_name(namespace: str, model: str) -> str:
    """One per model of a namespace; hashed, because a model's name may be any text."""
    return f"modelbackend-{_digest(f'{namespace}/{model}')[:16]}"


def ordinal_in_name(name: str) -> int | None:
    """Which instance a pod or Service was made for. Unlike a label, a name cannot be edited."""
    match = _INSTANCE_NAME.fullmatch(name)
    return int(match["ordinal"]) if match else None


def _stem(backend: Backend) -> str:
    label = re.sub(r"[^a-z0-9]+", "-", backend.ref.name.lower()).strip("-")
    prefix = label if label[:1].isalpha() else f"mb-{label}"
    return f"{prefix[:_PREFIX_LENGTH]}-{_digest(backend.ref.uid)[:_HASH_DIGITS]}"


def _first_free(name: str, taken: Container[str]) -> str:
    if name not in taken:
        return name
    return next(other for attempt in count(1) if (other := f"{name}-{attempt}") not in taken)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# -- metadata that all children share ---------------------------------------------------------------------------------


def owned_metadata(backend: Backend, name: str, labels: dict[str, str]) -> Raw:
    """No blockOwnerDeletion: a pod that is kept as a witness must not hold up a foreground deletion of its backend."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": MODELBACKEND_KIND,
        "name": backend.ref.name,
        "uid": backend.ref.uid,
        "controller": True,
    }
    return {"name": name, "namespace": backend.ref.namespace, "labels": labels, "ownerReferences": [owner]}


def ownership_labels(backend_uid: str) -> dict[str, str]:
    """By these a watch and a live read find an object."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_BACKEND_UID: backend_uid}


def backend_labels(backend: Backend) -> dict[str, str]:
    return ownership_labels(backend.ref.uid)


def instance_labels(backend: Backend, ordinal: int) -> dict[str, str]:
    return {**backend_labels(backend), LABEL_ORDINAL: str(ordinal)}


# -- Services --------------------------------------------------------------------------------------------------------


def instance_selector(pod_uid: str) -> dict[str, str]:
    """Both labels come with the opened gate; `serving` goes with the stop record, long before the pod does."""
    return {LABEL_POD_UID: pod_uid, LABEL_SERVING: "true"}


def shared_selector(backend_uid: str) -> dict[str, str]:
    return {LABEL_BACKEND_UID: backend_uid, LABEL_SERVING: "true"}


def instance_service(
    backend: Backend, name: str, ordinal: int, node_port: int, pod_uid: str, http_node_port: int | None = None
) -> Raw:
    """externalTrafficPolicy Cluster: the port answers at every node's address, wherever the pod runs."""
    http = [{**_HTTP_SERVICE_PORT, "nodePort": http_node_port}] if http_node_port is not None else []
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned_metadata(backend, name, instance_labels(backend, ordinal)),
        "spec": {
            "type": "NodePort",
            "externalTrafficPolicy": "Cluster",
            "selector": instance_selector(pod_uid),
            "ports": [{**_GRPC_SERVICE_PORT, "nodePort": node_port}, *http],
        },
    }


def shared_service(backend: Backend, name: str) -> Raw:
    """For callers inside the cluster: any instance of the backend that serves, over gRPC and over OpenAI's HTTP API."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned_metadata(backend, name, backend_labels(backend)),
        "spec": {
            "type": "ClusterIP",
            "selector": shared_selector(backend.ref.uid),
            "ports": [_GRPC_SERVICE_PORT, _HTTP_SERVICE_PORT],
        },
    }


def budget_spec(backend_uid: str) -> Raw:
    """A pod that serves nobody may always be taken: it must not hold up the drain of its node."""
    return {
        "maxUnavailable": 1,
        "selector": {"matchLabels": {LABEL_BACKEND_UID: backend_uid}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def budget(backend: Backend) -> Raw:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owned_metadata(backend, budget_name(backend), backend_labels(backend)),
        "spec": budget_spec(backend.ref.uid),
    }


_GRPC_SERVICE_PORT: Raw = {"name": "grpc", "port": GRPC_PORT, "targetPort": "grpc", "protocol": "TCP"}
_HTTP_SERVICE_PORT: Raw = {"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}

INSTANCE_PORTS = {GRPC_PORT: "grpc"}
"""Of an instance's Service: its ports and where they lead; with `exposure.http` they are those of the shared one."""
SHARED_PORTS = {GRPC_PORT: "grpc", HTTP_PORT: "http"}
"""Of the shared Service."""


# -- the ledger, the lock, the token ---------------------------------------------------------------------------------


def claim(backend: Backend, ordinal: int, port: int, role: PortRole = PortRole.GRPC) -> Raw:
    """Without an owner: the claim outlives its backend for as long as a process may listen on the port."""
    if backend.exposure is Exposure.CLUSTER_IP:
        raise ValueError(f"{backend.ref.namespace}/{backend.ref.name} is exposed as ClusterIP and claims no port")
    ref = backend.ref
    spec = PortClaimSpec(
        port=port,
        exposure=backend.exposure,
        role=role,
        backend=BackendReference(namespace=ref.namespace, name=ref.name, uid=ref.uid),
        ordinal=ordinal,
    )
    return {
        "apiVersion": API_VERSION,
        "kind": PORTCLAIM_KIND,
        "metadata": {
            "name": claim_name(port),
            "labels": instance_labels(backend, ordinal),
            "finalizers": [FINALIZER],
        },
        "spec": spec.to_json(),
    }


def lease(backend: Backend, holder: Holder, operator_namespace: str, now: datetime) -> Raw:
    """Without a duration: time alone never hands a shutdown over. Its uid is new each time, hence the epoch too."""
    description = f"{backend.ref.namespace}/{backend.ref.name}, instance {holder.ordinal}"
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": lease_name(backend.ref.namespace, backend.model),
            "namespace": operator_namespace,
            "labels": backend_labels(backend),
            "annotations": {ANNOTATION_HOLDER: _holder_json(holder, description)},
        },
        "spec": {
            "holderIdentity": f"{holder.backend_uid}/{holder.ordinal}/{holder.pod_uid}",
            "acquireTime": micro_time(now),
            "renewTime": micro_time(now),
            "leaseTransitions": 0,
        },
    }


def _holder_json(holder: Holder, description: str) -> str:
    record = {
        "backendUID": holder.backend_uid,
        "ordinal": holder.ordinal,
        "podUID": holder.pod_uid,
        "purpose": holder.purpose,
        "description": description,
    }
    return json.dumps(record, sort_keys=True)


def control_secret(backend: Backend, token: str) -> Raw:
    """What the backend's servers ask of whoever calls their control port."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": owned_metadata(backend, control_secret_name(backend), backend_labels(backend)),
        "type": "Opaque",
        "stringData": {CONTROL_TOKEN_KEY: token},
    }
