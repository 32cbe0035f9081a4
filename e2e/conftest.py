"""The suite needs a kubeconfig (E2E_KUBECONFIG or KUBECONFIG) and images that the cluster has; nothing else.

It installs the operator from the plain manifests, as a user does, and puts the model files on a volume.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.api import Api, api_behind
from e2e.backends import SMOLLM2, TINY, WEIGHTS, Backend, manifest
from e2e.kubectl import INTERRUPTED, Kubectl, Object, until
from e2e.operator_logs import operator_logs_kept
from e2e.weights import fill_volume, tiny_model
from images.cache import cache_root

ROOT = Path(__file__).parent.parent
NAMESPACE = "models"
OPERATOR_NAMESPACE = "modelbackend-system"
STATUS_PAGE_PORT = 8082
SETTINGS = (
    "MODELBACKEND_OPERATOR_REUSE_DELAY_SECONDS=8",
    "MODELBACKEND_OPERATOR_MAX_BACKOFF_SECONDS=5",
    f"MODELBACKEND_OPERATOR_STATUS_PAGE_PORT={STATUS_PAGE_PORT}",
)
"""They shorten what a test would only wait for, and open the status page."""


class TellAtOnce:
    """A run of half an hour that is broken off has told its failures."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\n{report.longreprtext}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TellAtOnce(config))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service that ends its jobs this way


def pytest_keyboard_interrupt() -> None:
    """Called before the fixtures are torn down: they put everything right, and wait for nothing."""
    INTERRUPTED.set()


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    path = os.environ.get("E2E_KUBECONFIG") or os.environ.get("KUBECONFIG")
    if not path:
        pytest.fail("no cluster: set E2E_KUBECONFIG, or run `make cluster-up` and the export that it prints")
    return Path(path)


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[Api]:
    with api_behind(Kubectl(kubeconfig).command("proxy")) as api:
        yield api


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path, api: Api) -> Kubectl:
    return Kubectl(kubeconfig, api)


@pytest.fixture(scope="session")
def operator_logs(kubeconfig: Path, api: Api) -> Iterator[Path]:
    """The folder in which the log of every operator that runs in this cluster is kept."""
    folder = cache_root() / "logs" / "e2e-operators" / kubeconfig.parent.name
    with operator_logs_kept(api, OPERATOR_NAMESPACE, folder) as folder:
        yield folder


@pytest.fixture(scope="session")
def operator(kubectl: Kubectl, operator_logs: Path) -> str:
    """The operator's namespace, once it runs from the plain manifests."""
    assert operator_logs.is_dir()
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl.run("wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=170s")
    kubectl.run("apply", "-f", str(ROOT / "deploy"))
    deployment = ("deployment/modelbackend-operator", "-n", OPERATOR_NAMESPACE)
    kubectl.run("set", "env", *deployment, *SETTINGS)
    kubectl.run("rollout", "restart", *deployment)  # the image under its tag may be a newer one
    kubectl.run("rollout", "status", *deployment)
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
    until(f"no earlier namespace {name} is ending", lambda: not is_ending(kubectl.get("namespace", name)))
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    fill_volume(kubectl, name, WEIGHTS, files)
    yield name
    try:
        for backend in kubectl.list("modelbackends", name):
            kubectl.delete("modelbackend", backend["metadata"]["name"], name)
        until(f"no backend is left in {name}", lambda: not kubectl.list("modelbackends", name))
    finally:
        kubectl.delete("namespace", name)


def is_ending(thing: Object | None) -> bool:
    return thing is not None and "deletionTimestamp" in thing["metadata"]


@pytest.fixture
def backend(kubectl: Kubectl, namespace: str) -> Iterator[Callable[..., Backend]]:
    """Makes ModelBackends in the tests' namespace; deletes them when the test ends, and does not wait for their end."""
    made: list[Backend] = []

    def make(name: str, **spec: object) -> Backend:
        until(f"no earlier {name} is left", lambda: kubectl.get("modelbackend", name, namespace) is None)
        kubectl.apply(manifest(name, namespace, **spec))  # type: ignore[arg-type]
        made.append(Backend(kubectl, name, namespace))
        return made[-1]

    yield make
    for one in made:
        one.delete()


def smollm2() -> Path:
    """The real weights, verified by checksum, from the cache."""
    done = subprocess.run(
        ["python3", "-m", "images.model"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=600
    )
    return Path(done.stdout.strip().splitlines()[-1])
