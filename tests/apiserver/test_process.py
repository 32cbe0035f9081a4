"""The operator as a process against a real API server: no kubelet, so pods are made, and never run."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.cut_wire import wire_to
from tests.apiserver.harness import ApiServer, await_condition
from tests.apiserver.operator_account import NAMESPACE, operator_kubeconfig

pytestmark = pytest.mark.apiserver

PATIENCE_SECONDS = 60
OPERATORS_PORTS = "32000-32767"
"""What operators choose from. Their Services outlive their tests, and the tests' own numbers are all below."""
GROUP = "/apis/modelbackend.dev/v1alpha1"
ROOT = Path(__file__).parents[2]
PYTHONPATH = f"{ROOT / 'operator'}:{ROOT / 'backend_image'}"


@dataclass(frozen=True)
class Operator:
    process: subprocess.Popen[bytes]
    log: Path

    def http(self, path: str) -> tuple[int, str]:
        port = re.search(r"are on port (\d+)", self.log.read_text())
        assert port is not None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=15)


@pytest.fixture(scope="module")
def account(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return operator_kubeconfig(api_server, tmp_path_factory.mktemp("operator"))


@contextmanager
def operator(account: Path, log: Path, *, ready: bool = True, **settings: str) -> Iterator[Operator]:
    """Running, and ready unless it cannot be, until the block ends."""
    environment = {
        **os.environ,
        "PYTHONPATH": PYTHONPATH,
        "MODELBACKEND_OPERATOR_NAMESPACE": NAMESPACE,
        "MODELBACKEND_OPERATOR_HTTP_PORT": "0",
        "MODELBACKEND_OPERATOR_HTTP_HOST": "127.0.0.1",
        "MODELBACKEND_OPERATOR_NODE_PORTS": OPERATORS_PORTS,
        **{f"MODELBACKEND_OPERATOR_{name.upper()}": value for name, value in settings.items()},
    }
    command = [sys.executable, "-m", "modelbackend_operator", "run", "--kubeconfig", str(account)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    running = Operator(process, log)
    try:
        await_condition("the operator to serve HTTP", lambda: "are on port" in log.read_text(), PATIENCE_SECONDS)
        await_condition(
            "the operator to be ready", lambda: not ready or running.http("/readyz")[0] == 200, PATIENCE_SECONDS
        )
        yield running
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def make_backend(server: ApiServer, namespace: str, name: str = "smollm2", **spec: Any) -> str:
    source = {"persistentVolumeClaim": {"claimName": "weights", "path": "model.gguf"}}
    body = {
        "apiVersion": "modelbackend.dev/v1alpha1",
        "kind": "ModelBackend",
        "metadata": {"name": name},
        "spec": {"model": {"source": source}, **spec},
    }
    answer = server.post(f"{GROUP}/namespaces/{namespace}/modelbackends", body)
    assert answer.status == 201, answer.message
    return f"{GROUP}/namespaces/{namespace}/modelbackends/{name}"


def pods(server: ApiServer, namespace: str) -> list[Any]:
    items: list[Any] = server.get(f"/api/v1/namespaces/{namespace}/pods").body["items"]
    return items


def is_let_through(server: ApiServer, namespace: str) -> bool:
    return any(not pod["spec"].get("schedulingGates") for pod in pods(server, namespace))


def claims_of(server: ApiServer, namespace: str) -> list[Any]:
    items = server.get(f"{GROUP}/portclaims").body["items"]
    return [claim for claim in items if claim["spec"]["backend"]["namespace"] == namespace]


def reason_of(server: ApiServer, path: str) -> str:
    status = server.get(path).body.get("status", {})
    return next((c["reason"] for c in status.get("conditions", ()) if c["type"] == "Ready"), "")


def test_a_backend_gets_its_port_and_its_pod_and_is_deleted_with_proof(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "log", reuse_delay_seconds="1"):
        path = make_backend(api_server, namespace)
        await_condition("the gate to open", lambda: is_let_through(api_server, namespace), PATIENCE_SECONDS)
        (claim,), (pod,) = claims_of(api_server, namespace), pods(api_server, namespace)
        assert claim["status"]["phase"] == "Bound"
        assert claim["status"]["pod"]["uid"] == pod["metadata"]["uid"]
        status = api_server.get(path).body["status"]
        assert status["instances"][0]["pod"]["uid"] == pod["metadata"]["uid"]

        assert api_server.request("DELETE", path).status == 200
        await_condition("the backend to go", lambda: api_server.get(path).status == 404, PATIENCE_SECONDS)
        assert pods(api_server, namespace) == []
        assert [claim["status"].get("evidence") for claim in claims_of(api_server, namespace)] in ([], ["NeverStarted"])
        await_condition("the port to be free", lambda: not claims_of(api_server, namespace), PATIENCE_SECONDS)
        events = api_server.get(f"/api/v1/namespaces/{namespace}/events").body["items"]
        assert {"PortClaimed", "PodCreated", "PortReleased"} <= {event["reason"] for event in events}


def test_an_operator_that_is_killed_goes_on_where_it_was(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "first") as first:
        path = make_backend(api_server, namespace)
        await_condition("a claim", lambda: bool(claims_of(api_server, namespace)), PATIENCE_SECONDS)
        first.stop(signal.SIGKILL)
    with operator(account, tmp_path / "second") as second:
        await_condition("the gate to open", lambda: is_let_through(api_server, namespace), PATIENCE_SECONDS)
        second.stop(signal.SIGKILL)
    assert api_server.request("DELETE", path).status == 200
    with operator(account, tmp_path / "third", reuse_delay_seconds="0"):
        await_condition("the backend to go", lambda: api_server.get(path).status == 404, PATIENCE_SECONDS)
        await_condition("the port to be free", lambda: not claims_of(api_server, namespace), PATIENCE_SECONDS)


def test_one_backends_trouble_is_shown_and_holds_up_no_other(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "log"):
        foreign = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31077}]}
        body = {"metadata": {"name": "foreign"}, "spec": foreign}
        assert api_server.post(f"/api/v1/namespaces/{namespace}/services", body).status == 201
        stuck = make_backend(api_server, namespace, "stuck", exposure={"type": "NodePort", "nodePort": 31077})
        fine = make_backend(api_server, namespace, "fine")
        await_condition(
            "the other backend's pod to be let through", lambda: is_let_through(api_server, namespace), PATIENCE_SECONDS
        )
        assert api_server.get(fine).body["status"]["instances"]
        await_condition(
            "the trouble to be shown", lambda: "31077" in str(api_server.get(stuck).body["status"]), PATIENCE_SECONDS
        )


def test_a_flag_that_is_the_operators_own_is_refused_in_the_status_until_it_is_taken_out(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "log"):
        flags = ["--log-level=debug", "--http-port=80"]
        path = make_backend(api_server, namespace, runtime={"extraArgs": flags})
        await_condition("the refusal", lambda: reason_of(api_server, path) == "UnsupportedField", PATIENCE_SECONDS)
        assert "runtime.extraArgs[1]: --http-port is set by the operator" in str(api_server.get(path).body["status"])
        assert pods(api_server, namespace) == []
        assert api_server.merge(path, {"spec": {"runtime": {"extraArgs": flags[:1]}}}).status == 200
        await_condition("a pod", lambda: bool(pods(api_server, namespace)), PATIENCE_SECONDS)
        (pod,) = pods(api_server, namespace)
        given = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert given["MODELBACKEND_LOG_LEVEL"] == "debug"


def test_it_stops_when_told_and_says_how_it_is_while_it_runs(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "log") as running:
        make_backend(api_server, namespace, exposure={"type": "ClusterIP"})
        await_condition("the gate to open", lambda: is_let_through(api_server, namespace), PATIENCE_SECONDS)
        assert running.http("/healthz") == (200, "ok")
        metrics = running.http("/metrics")[1]
        assert re.search(r'modelbackend_operator_steps_total\{action="Ungate",outcome="Applied"\} [1-9]', metrics)
        assert 'modelbackend_operator_api_call_seconds_count{code="201",resource="pods",verb="POST"}' in metrics
        assert running.stop() == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_kubectl_scale_brings_instances_up_and_down(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    def ordinals() -> list[str]:
        found = (pod for pod in pods(api_server, namespace) if not pod["spec"].get("schedulingGates"))
        return sorted(pod["metadata"]["labels"]["modelbackend.dev/ordinal"] for pod in found)

    def scale(replicas: int) -> None:
        scaled = api_server.kubectl("scale", "mb/smollm2", f"--replicas={replicas}", f"--namespace={namespace}")
        assert scaled.returncode == 0, scaled.stderr

    with operator(account, tmp_path / "log", reuse_delay_seconds="0"):
        path = make_backend(api_server, namespace)
        await_condition("one instance", lambda: ordinals() == ["0"], PATIENCE_SECONDS)
        scale(3)
        await_condition("three instances", lambda: ordinals() == ["0", "1", "2"], PATIENCE_SECONDS)
        assert len({claim["spec"]["port"] for claim in claims_of(api_server, namespace)}) == 3
        scale(1)
        await_condition("one pod", lambda: len(pods(api_server, namespace)) == 1, PATIENCE_SECONDS)
        await_condition("one port", lambda: len(claims_of(api_server, namespace)) == 1, PATIENCE_SECONDS)
        assert ordinals() == ["0"]
        await_condition(
            "the scale to be told", lambda: api_server.get(f"{path}/scale").body["status"]["replicas"] == 1, 10
        )


def budgets(server: ApiServer, namespace: str) -> list[Any]:
    items: list[Any] = server.get(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets").body["items"]
    return items


def test_several_instances_have_a_disruption_budget_which_comes_back_however_it_is_lost(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "log"):
        make_backend(api_server, namespace, replicas=2)
        await_condition("a budget", lambda: bool(budgets(api_server, namespace)), PATIENCE_SECONDS)
        (budget,) = budgets(api_server, namespace)
        assert budget["spec"]["maxUnavailable"] == 1
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{budget['metadata']['name']}"

        def is_another(last: str) -> bool:
            return [b["metadata"]["uid"] != last for b in budgets(api_server, namespace)] == [True]

        assert api_server.merge(path, {"spec": {"maxUnavailable": 2}}).status == 200
        await_condition("a right one", lambda: is_another(budget["metadata"]["uid"]), PATIENCE_SECONDS)
        (right,) = budgets(api_server, namespace)
        assert right["spec"]["maxUnavailable"] == 1
        assert api_server.request("DELETE", path).status == 200
        await_condition("a new one", lambda: is_another(right["metadata"]["uid"]), PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("verbs", "words"),
    [(["create"], "poddisruptionbudgets are left alone"), (["get", "list", "watch"], "no PodDisruptionBudget")],
    ids=["none may be read", "none may be made"],
)
def test_an_operator_that_may_not_have_disruption_budgets_does_without(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path, verbs: list[str], words: str
) -> None:
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/modelbackend-operator"
    rules = api_server.get(role).body["rules"]
    fewer = [rule | {"verbs": verbs} if rule["apiGroups"] == ["policy"] else rule for rule in rules]
    assert api_server.merge(role, {"rules": fewer}).status == 200
    try:
        with operator(account, tmp_path / "log") as running:
            path = make_backend(api_server, namespace, replicas=2)
            await_condition(
                "both gates to open",
                lambda: sum(1 for pod in pods(api_server, namespace) if not pod["spec"].get("schedulingGates")) == 2,
                PATIENCE_SECONDS,
            )
            await_condition("words in the log", lambda: words in running.log.read_text(), PATIENCE_SECONDS)
            assert budgets(api_server, namespace) == []
            await_condition("the status", lambda: reason_of(api_server, path) == "Starting", PATIENCE_SECONDS)
            assert running.stop() == 0
    finally:
        assert api_server.merge(role, {"rules": rules}).status == 200


def test_it_waits_for_an_api_server_that_cannot_be_reached_and_can_be_stopped_meanwhile(
    api_server: ApiServer, account: Path, tmp_path: Path
) -> None:
    nobody = tmp_path / "nobody.kubeconfig"
    nobody.write_text(account.read_text().replace(api_server.url, "https://127.0.0.1:1"))
    with operator(nobody, tmp_path / "log", ready=False) as running:
        await_condition("a warning", lambda: "cannot be read" in (tmp_path / "log").read_text(), PATIENCE_SECONDS)
        assert running.http("/healthz") == (200, "ok")
        assert running.http("/readyz") == (503, "the cluster has not been read yet")
        assert running.stop() == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"MODELBACKEND_OPERATOR_NAMESPACE": "no-such-namespace"}, "no-such-namespace"),
        ({"MODELBACKEND_OPERATOR_NODE_PORTS": "30000"}, "write it as FIRST-LAST"),
    ],
    ids=["a namespace that is not there", "a setting that cannot be read"],
)
def test_what_no_waiting_mends_ends_it_at_once_with_what_to_do(
    account: Path, change: dict[str, str], words: str
) -> None:
    command = [sys.executable, "-m", "modelbackend_operator", "run", "--kubeconfig", str(account)]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "MODELBACKEND_OPERATOR_HTTP_PORT": "0", **change}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 64
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_cut_wire_releases_nothing_and_a_mended_one_is_used_again(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with wire_to(api_server.url) as wire:
        wired = tmp_path / "wired.kubeconfig"
        wired.write_text(account.read_text().replace(api_server.url, wire.url))
        with operator(wired, tmp_path / "log", request_timeout_seconds="2", reuse_delay_seconds="0") as running:
            path = make_backend(api_server, namespace)
            await_condition("the gate to open", lambda: is_let_through(api_server, namespace), PATIENCE_SECONDS)
            wire.cut()
            assert api_server.request("DELETE", path).status == 200
            late = make_backend(api_server, namespace, "late")
            await_condition("a broken watch", lambda: "will retry" in (tmp_path / "log").read_text(), PATIENCE_SECONDS)
            assert claims_of(api_server, namespace)[0]["status"]["phase"] == "Bound"
            assert running.process.poll() is None
            wire.mend()
            await_condition("the deletion", lambda: api_server.get(path).status == 404, PATIENCE_SECONDS)
            await_condition("the late one's pod", lambda: bool(pods(api_server, namespace)), PATIENCE_SECONDS)
            assert api_server.get(late).status == 200
            assert running.stop() == 0
