"""The operator's own account on the test's API server: with the rights of `deploy/`, and no others."""

from pathlib import Path

import yaml

from tests.apiserver.harness import ApiServer

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "modelbackend-system"
ACCOUNT = "modelbackend-operator"


def operator_kubeconfig(server: ApiServer, folder: Path) -> Path:
    """Apply namespace and rights, and write a kubeconfig for the operator's ServiceAccount."""
    for manifest in ("00-namespace.yaml", "10-rbac.yaml"):
        applied = server.kubectl("apply", "-f", str(DEPLOY / manifest))
        assert applied.returncode == 0, applied.stderr
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    answer = server.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    assert answer.status == 201, answer.message
    return kubeconfig_with_token(server, folder / "operator.kubeconfig", answer.body["status"]["token"])


def kubeconfig_with_token(server: ApiServer, path: Path, token: str) -> Path:
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path.write_text(yaml.safe_dump(config))
    return path
