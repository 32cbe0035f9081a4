"""The operator's own secret, from which every backend's control token is derived: made once, kept in its namespace."""

import base64
import secrets

from modelbackend_operator.api import LABEL_MANAGED_BY, MANAGED_BY
from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.kubernetes_api import KubernetesApi, outcome_of
from modelbackend_operator.outcome import Applied, Denied, Exists, Gone

NAME = "modelbackend-operator-control-key"
ENTRY = "key"
KEY_BYTES = 32


class NoControlKeyError(Exception):
    """The operator cannot have its key, and no waiting helps; says what to do."""


async def control_key(api: KubernetesApi, namespace: str) -> bytes:
    """Read by name, created when missing. Raises ClusterUnavailable, or NoControlKeyError when it is refused."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    answer = await api.call("GET", f"{path}/{NAME}")
    if answer.denies_existence():
        created = await api.call("POST", path, body=_secret())
        match outcome_of(created):
            case Applied() | Exists():
                answer = await api.call("GET", f"{path}/{NAME}")
            case Gone():
                raise NoControlKeyError(f"namespace {namespace} does not exist; apply the manifests in deploy/")
            case Denied(message):
                raise NoControlKeyError(f"Secret {namespace}/{NAME} cannot be created: {message}")
    if answer.code in (401, 403):
        raise NoControlKeyError(f"Secret {namespace}/{NAME} cannot be read: {answer.message}; see deploy/10-rbac.yaml")
    if not answer.ok:
        raise ClusterUnavailable(f"Secret {namespace}/{NAME}: {answer.message}")
    try:
        return base64.b64decode(answer.body["data"][ENTRY], validate=True)
    except (KeyError, ValueError) as error:
        raise NoControlKeyError(
            f"Secret {namespace}/{NAME} has no valid entry {ENTRY!r}; delete it, then restart the operator and backends"
        ) from error


def _secret() -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
        "type": "Opaque",
        "immutable": True,
        "data": {ENTRY: base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()},
    }
