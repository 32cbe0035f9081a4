"""A real API server in which helm installed the chart; no pod of it ever runs."""

import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.helm.chart import CHART, NAMESPACE, RELEASE
from e2e.helm.programs import build
from tests.apiserver.harness import ApiServer, await_condition, running_api_server
from tests.crd_files import PLURALS

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Helm:
    server: ApiServer
    program: str = "helm"

    def run(self, *arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """The caller looks at its return code."""
        given = ["--values", "-"] if values is not None else []
        command = [str(build() / self.program), f"--kubeconfig={self.server.kubeconfig}", f"--namespace={NAMESPACE}"]
        text = yaml.safe_dump(values) if values is not None else ""
        return subprocess.run(
            [*command, *arguments, *given], input=text, capture_output=True, text=True, timeout=120, check=False
        )

    def upgrade(self, values: dict[str, Any] | None = None) -> str:
        """Install it, or give it these values and the defaults for the others. What helm prints."""
        flags = ("--install", "--create-namespace", "--reset-values")
        done = self.run("upgrade", RELEASE, str(CHART), *flags, values=values or {})
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("apiserver")) as server:
        yield server


@pytest.fixture(scope="session")
def helm(api_server: ApiServer) -> Helm:
    helm = Helm(api_server)
    helm.upgrade()
    for plural in PLURALS:
        path = f"/apis/modelbackend.dev/v1alpha1/{plural}"
        await_condition(f"{plural} to be served", lambda path=path: api_server.get(path).status == 200, 30)  # type: ignore[misc]
    return helm


@pytest.fixture
def account(helm: Helm, tmp_path: Path) -> Path:
    """A kubeconfig of the ServiceAccount that the chart made."""
    return kubeconfig_of(helm.server, NAMESPACE, "modelbackend-operator", tmp_path)


def kubeconfig_of(server: ApiServer, namespace: str, account: str, folder: Path) -> Path:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = server.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    assert answer.status == 201, answer.message
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer.body["status"]["token"]}
    target = folder / f"{account}.kubeconfig"
    target.write_text(yaml.safe_dump(config))
    return target


@pytest.fixture
def namespace(api_server: ApiServer) -> str:
    name = f"test-{next(_numbers)}"
    assert api_server.post("/api/v1/namespaces", {"metadata": {"name": name}}).status == 201
    return name
