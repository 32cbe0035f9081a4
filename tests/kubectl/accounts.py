"""ServiceAccounts with exactly the roles that docs/kubectl.md names as enough."""

from pathlib import Path
from typing import Any

import yaml

from tests.apiserver.harness import ApiServer
from tests.apiserver.operator_account import kubeconfig_with_token
from tests.kubectl.examples import DOCUMENT

RBAC = "rbac.authorization.k8s.io"


def documented() -> dict[str, dict[str, Any]]:
    blocks = DOCUMENT.read_text().split("```yaml\n")[1:]
    roles = (yaml.safe_load(block.split("```")[0]) for block in blocks)
    return {role["metadata"]["name"]: role for role in roles}


def with_role(server: ApiServer, namespace: str, name: str, folder: Path) -> Path:
    """A kubeconfig of an account of this namespace that has this role, and nothing else."""
    role = documented()[name]
    kind = role["kind"]
    group = f"/apis/{RBAC}/v1" + (f"/namespaces/{namespace}" if kind == "Role" else "")
    account = {"kind": "ServiceAccount", "name": "somebody", "namespace": namespace}
    binding = {
        "metadata": {"name": f"{name}-{namespace}"},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": f"{name}-{namespace}"},
        "subjects": [account],
    }
    role = {**role, "metadata": {"name": f"{name}-{namespace}"}}
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    for path, body in (
        (accounts, {"metadata": {"name": "somebody"}}),
        (f"{group}/{kind.lower()}s", role),
        (f"{group}/{kind.lower()}bindings", binding),
    ):
        answer = server.post(path, body)
        assert answer.status == 201, answer.message
    token = server.post(f"{accounts}/somebody/token", {"spec": {}})
    return kubeconfig_with_token(server, folder / f"{name}.kubeconfig", token.body["status"]["token"])
