"""The suite needs a kubeconfig (E2E_KUBECONFIG or KUBECONFIG) and images that the cluster has; nothing else.

It installs the operator from the plain manifests, as a user does, and puts the model files on a volume.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.backends import SMOLLM2, TINY, WEIGHTS, Backend, manifest
from e2e.kubectl import Kubectl, until
from e2e.weights import fill_volume, tiny_model

ROOT = Path(__file__).parent.parent
NAMESPACE = "models"
OPERATOR_NAMESPACE = "modelbackend-system"
QUICK = ("MODELBACKEND_OPERATOR_REUSE_DELAY_SECONDS=8", "MODELBACKEND_OPERATOR_MAX_BACKOFF_SECONDS=5")
"""Settings that shorten what a test would only wait for."""


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    path = os.environ.get("E2E_KUBECONFIG") or os.environ.get("KUBECONFIG")
    if not path:
        pytest.fail("no cluster: set E2E_KUBECONFIG, or run `make cluster-up` and the export that it prints")
    return Kubectl(Path(path))


@pytest.fixture(scope="session")
def operator(kubectl: Kubectl) -> str:
    """The operator's namespace, once it runs from the plain manifests."""
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl.run("wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=60s")
    kubectl.run("apply", "-f", str(ROOT / "deploy"))
    deployment = ("deployment/modelbackend-operator", "-n", OPERATOR_NAMESPACE)
    kubectl.run("set", "env", *deployment, *QUICK)
    kubectl.run("rollout", "restart", *deployment)  # the image under its tag may be a newer one
    kubectl.run("rollout", "status", *deployment, "--timeout=120s", timeout_seconds=150)
    return OPERATOR_NAMESPACE


@pytest.fixture(scope="session")
def namespace(kubectl: Kubectl, operator: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A tenant's namespace with a volume of model files, removed when the session ends."""
    assert operator
    folder = tmp_path_factory.mktemp("weights")
    text = folder / "not-a-gguf.txt"
    text.write_text("this is no model\n")
    files = {TINY: tiny_model(folder / TINY), SMOLLM2: smollm2(), text.name: text}
    yield from tenant(kubectl, NAMESPACE, files)


def tenant(kubectl: Kubectl, name: str, files: dict[str, Path]) -> Iterator[str]:
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    fill_volume(kubectl, name, WEIGHTS, files)
    yield name
    for backend in kubectl.list("modelbackends", name):
        kubectl.delete("modelbackend", backend["metadata"]["name"], name)
    until(f"no backend is left in {name}", lambda: not kubectl.list("modelbackends", name), timeout_seconds=180)
    kubectl.delete("namespace", name)


@pytest.fixture
def backend(kubectl: Kubectl, namespace: str) -> Iterator[Callable[..., Backend]]:
    """Makes ModelBackends in the tests' namespace and deletes them when the test ends."""
    made: list[Backend] = []

    def make(name: str, **spec: object) -> Backend:
        kubectl.apply(manifest(name, namespace, **spec))  # type: ignore[arg-type]
        made.append(Backend(kubectl, name, namespace))
        return made[-1]

    yield make
    for one in made:
        one.delete()
    for one in made:
        one.until_gone()


def smollm2() -> Path:
    """The real weights, verified by checksum, from the cache."""
    done = subprocess.run(
        ["python3", "-m", "images.model"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=600
    )
    return Path(done.stdout.strip().splitlines()[-1])
