"""`helm uninstall` asks first: the guard as its Job runs it, with the rights that the chart gives it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.helm.chart import NAMESPACE, objects, render
from tests.apiserver.harness import ApiServer
from tests.apiserver.test_process import GROUP, PYTHONPATH, make_backend, operator
from tests.chart.conftest import Helm, kubeconfig_of

pytestmark = pytest.mark.apiserver


def guard(helm: Helm, folder: Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """The hook's objects but the Job, and its container's command as that account."""
    found = [one for one in objects(render(values)) if one["metadata"]["name"] == "modelbackend-operator-uninstall"]
    (job,) = (one for one in found if one["kind"] == "Job")
    rights = yaml.safe_dump_all([one for one in found if one is not job])
    applied = helm.server.kubectl("apply", "-f", "-", stdin=rights)
    assert applied.returncode == 0, applied.stderr
    (container,) = job["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container.get("env", ())}
    kubeconfig = kubeconfig_of(helm.server, NAMESPACE, "modelbackend-operator-uninstall", folder)
    command = [sys.executable, "-m", "modelbackend_operator", *container["args"], f"--kubeconfig={kubeconfig}"]
    return subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def remove_backends(server: ApiServer) -> None:
    """What other tests left here, and no operator ever had in hand."""
    for raw in server.get(f"{GROUP}/modelbackends").body["items"]:
        path = f"{GROUP}/namespaces/{raw['metadata']['namespace']}/modelbackends/{raw['metadata']['name']}"
        assert server.request("DELETE", path).status == 200


def test_an_uninstall_under_a_live_backend_is_refused_and_says_what_to_do(
    helm: Helm, namespace: str, tmp_path: Path
) -> None:
    remove_backends(helm.server)
    path = make_backend(helm.server, namespace)
    done = guard(helm, tmp_path, {})
    assert done.returncode == 1, done.stderr
    assert f"1 ModelBackend would be left without the operator that ends them: {namespace}/smollm2" in done.stdout
    assert "uninstall.guard=Drain" in done.stdout
    assert "deletionTimestamp" not in helm.server.get(path).body["metadata"]
    helm.server.request("DELETE", path)
    assert guard(helm, tmp_path, {}).returncode == 0


def test_a_draining_uninstall_deletes_every_backend_and_waits_until_its_ports_are_free(
    helm: Helm, account: Path, namespace: str, tmp_path: Path
) -> None:
    remove_backends(helm.server)
    with operator(account, tmp_path / "log", reuse_delay_seconds="2"):
        paths = [make_backend(helm.server, namespace, name) for name in ("one", "two")]
        done = guard(helm, tmp_path, {"uninstall": {"guard": "Drain", "timeoutSeconds": 90}})
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no ModelBackend and no port claim is left" in done.stdout
        assert [helm.server.get(path).status for path in paths] == [404, 404]
        assert helm.server.get(f"{GROUP}/portclaims").body["items"] == []


def test_a_drain_that_does_not_end_in_time_says_what_it_waits_for(helm: Helm, namespace: str, tmp_path: Path) -> None:
    remove_backends(helm.server)
    path = make_backend(helm.server, namespace)
    held = {"metadata": {"finalizers": ["modelbackend.dev/termination"]}}  # and no operator that takes it off
    assert helm.server.merge(path, held).status == 200
    done = guard(helm, tmp_path, {"uninstall": {"guard": "Drain", "timeoutSeconds": 10}})
    assert done.returncode == 1, done.stderr
    assert f"1 ModelBackend had not ended. {namespace}/smollm2: The operator has not looked at" in done.stdout
    assert "deletionTimestamp" in helm.server.get(path).body["metadata"]
    assert helm.server.merge(path, {"metadata": {"finalizers": None}}).status == 200


def test_backends_of_other_namespaces_hold_up_no_uninstall(helm: Helm, namespace: str, tmp_path: Path) -> None:
    remove_backends(helm.server)
    path = make_backend(helm.server, namespace)
    helm.server.post("/api/v1/namespaces", {"metadata": {"name": "models"}})
    done = guard(helm, tmp_path, {"watchNamespaces": ["models"]})
    assert done.returncode == 0, done.stdout
    helm.server.request("DELETE", path)
