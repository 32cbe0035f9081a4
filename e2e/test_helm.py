"""The chart on a real cluster: taken over from plain manifests, upgraded and rolled back under traffic, uninstalled.

The operator that the rest of the suite uses is put back at the end.
"""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from e2e.backends import WEIGHTS, Backend, claims_of, generate
from e2e.conftest import ROOT, SETTINGS
from e2e.helm.chart import CHART, NAMESPACE, RELEASE
from e2e.helm.programs import build
from e2e.kubectl import Kubectl, Object, until
from e2e.weights import LOADER, loader_pod
from modelbackend_operator.api import CONTROL_PORT, GRPC_PORT, HTTP_PORT

Make = Callable[..., Backend]
DEPLOYMENT = ("deployment/modelbackend-operator", "-n", NAMESPACE)
VALUES: dict[str, Any] = {"settings": {"reuseDelaySeconds": 5, "maxBackoffSeconds": 5}}


class Helm:
    def __init__(self, kubectl: Kubectl, program: str = "helm") -> None:
        self._kubeconfig = kubectl.kubeconfig
        self._program = program

    def run(self, *arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """The caller looks at its return code."""
        options = (f"--kubeconfig={self._kubeconfig}", f"--namespace={NAMESPACE}")
        command = [str(build() / self._program), *options, *arguments]
        given = ["--values", "-"] if values is not None else []
        text = yaml.safe_dump(values) if values is not None else ""
        return subprocess.run([*command, *given], input=text, capture_output=True, text=True, timeout=300, check=False)

    def upgrade(self, **values: Any) -> None:
        """Installs it where it is not; waits until the operator is ready."""
        flags = ("--install", "--take-ownership", "--reset-values", "--wait", "--timeout=150s")
        done = self.run("upgrade", RELEASE, str(CHART), *flags, values={**VALUES, **values})
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def helm(kubectl: Kubectl, operator: str) -> Iterator[Helm]:
    """The release, taken over from the plain manifests; these come back afterwards."""
    assert operator == NAMESPACE
    helm = Helm(kubectl)
    helm.upgrade()
    yield helm
    helm.run("uninstall", RELEASE, "--no-hooks", "--wait")
    kubectl.run("apply", "-f", str(ROOT / "deploy"))
    kubectl.run("set", "env", *DEPLOYMENT, *SETTINGS)
    kubectl.run("rollout", "status", *DEPLOYMENT)


def life_of(pod: Object) -> tuple[str, int, str]:
    """What changes when its process is another one."""
    (container,) = pod["status"]["containerStatuses"]
    return pod["metadata"]["uid"], container["restartCount"], container["containerID"]


@contextmanager
def traffic(address: str) -> Iterator[list[str | Exception]]:
    """One request after the other while the block runs: what each was answered, or why it failed."""
    answers: list[str | Exception] = []
    enough = threading.Event()

    def ask() -> None:
        while not enough.is_set():
            try:
                answers.append(generate(address, "Hello", "--max-tokens", "8"))
            except (AssertionError, subprocess.SubprocessError) as failure:
                answers.append(failure)

    caller = threading.Thread(target=ask)
    caller.start()
    try:
        yield answers
    finally:
        enough.set()
        caller.join()


def without_bookkeeping(raw: Object) -> Object:
    """Spec and metadata as a person wrote them and the operator left them."""
    metadata = {k: v for k, v in raw["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    return {"metadata": metadata, "spec": raw["spec"]}


def crd_uids(kubectl: Kubectl) -> dict[str, str]:
    return {crd["metadata"]["name"]: crd["metadata"]["uid"] for crd in kubectl.list("customresourcedefinitions")}


def test_upgrades_and_a_rollback_restart_no_model_pod_and_cut_no_stream(
    helm: Helm, kubectl: Kubectl, backend: Make
) -> None:
    one = backend("through-upgrades")
    address = one.until_ready()
    (pod,) = one.pods()
    before, found, kinds = life_of(pod), one.object, crd_uids(kubectl)
    assert found is not None
    with traffic(address) as answers:
        helm.upgrade(replicas=2)
        helm.upgrade(replicas=2, podAnnotations={"example.com/n": "2"}, serverImage={"repository": "r", "tag": "9"})
        done = helm.run("rollback", RELEASE, "--wait", "--timeout=150s")
        assert done.returncode == 0, done.stderr
    assert len(answers) > 3
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    (pod,) = one.pods()
    assert life_of(pod) == before
    now = one.object
    assert now is not None
    assert crd_uids(kubectl) == kinds
    assert without_bookkeeping(now) == without_bookkeeping(found)


def test_helm_test_passes(helm: Helm) -> None:
    helm.upgrade()
    done = helm.run("test", RELEASE, "--logs", "--timeout=120s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the operator is ready, and may read what it must" in done.stdout


def test_an_uninstall_is_refused_under_live_backends_and_a_draining_one_ends_them_first(
    helm: Helm, kubectl: Kubectl, backend: Make, namespace: str
) -> None:
    one = backend("in-the-way")
    one.until_ready()
    uid, kinds = one.uid, crd_uids(kubectl)
    refused = helm.run("uninstall", RELEASE, "--timeout=120s")
    assert refused.returncode != 0
    words = kubectl.run("logs", "job/modelbackend-operator-uninstall", "-n", NAMESPACE)
    assert f"{namespace}/in-the-way" in words
    assert one.condition("Ready")["status"] == "True"

    recovered = helm.run("rollback", RELEASE, "--wait", "--timeout=120s")
    assert recovered.returncode == 0, recovered.stderr
    helm.upgrade(uninstall={"guard": "Drain", "timeoutSeconds": 100})
    done = helm.run("uninstall", RELEASE, "--timeout=150s", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert one.object is None
    assert claims_of(kubectl, uid) == []
    assert kubectl.get("deployment", "modelbackend-operator", NAMESPACE) is None
    assert crd_uids(kubectl) == kinds

    helm.upgrade()  # over the kinds that were kept
    again = backend("again")
    again.until_ready()
    assert crd_uids(kubectl) == kinds


def test_helm_4_installs_upgrades_and_uninstalls_beside_a_backend_that_serves_on(
    helm: Helm, kubectl: Kubectl, backend: Make
) -> None:
    """Its --wait goes by kstatus, and it applies server-side."""
    four, wait = Helm(kubectl, "helm4"), ("--wait", "--timeout=150s")
    one = backend("beside-helm-4")
    address = one.until_ready()
    before, kinds = life_of(one.pods()[0]), crd_uids(kubectl)

    def succeed(*arguments: str, values: dict[str, Any] | None = None) -> str:
        done = four.run(*arguments, values=values)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert helm.run("uninstall", RELEASE, "--no-hooks", "--wait").returncode == 0
    with traffic(address) as answers:
        succeed("install", RELEASE, str(CHART), *wait, values=VALUES)
        succeed("upgrade", RELEASE, str(CHART), "--reset-values", *wait, values={**VALUES, "replicas": 2})
        succeed("rollback", RELEASE, *wait)
        tested = succeed("test", RELEASE, "--logs", "--timeout=120s")
    assert "the operator is ready, and may read what it must" in tested
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert four.run("uninstall", RELEASE, *wait).returncode != 0  # its guard refuses
    assert life_of(one.pods()[0]) == before
    one.delete()
    one.until_gone()
    succeed("uninstall", RELEASE, "--no-hooks", *wait)
    assert crd_uids(kubectl) == kinds
    helm.upgrade()


def test_the_control_port_is_the_operators_alone_where_the_chart_is_told_so(
    helm: Helm, kubectl: Kubectl, backend: Make, namespace: str
) -> None:
    helm.upgrade(networkPolicy={"backends": [{"namespace": namespace}]})
    one = backend("behind-a-policy")
    one.until_ready()
    (pod,) = one.pods()
    kubectl.apply(loader_pod(namespace, WEIGHTS))
    kubectl.run("wait", "--for=condition=Ready", f"pod/{LOADER}", "-n", namespace, "--timeout=120s")

    def reaches(port: int) -> bool:
        connect = f"import socket; socket.create_connection(('{pod['status']['podIP']}', {port}), 3)"
        command = kubectl.command("exec", LOADER, "-n", namespace, "--", "python3", "-c", connect)
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0

    until("the policy to be in force", lambda: not reaches(CONTROL_PORT))
    assert reaches(GRPC_PORT)
    assert reaches(HTTP_PORT)
    kubectl.delete("pod", LOADER, namespace, "--grace-period=1")
    one.delete()
    one.until_gone()  # long before its drain deadline: the control port told the operator that it is idle
