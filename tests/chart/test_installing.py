"""helm against a real API server: install, upgrade, rollback, uninstall, and what stays."""

import json
import re
from typing import Any

import pytest

from e2e.helm.chart import CHART, NAMESPACE, RELEASE, objects, render
from tests.apiserver.harness import CRDS, ApiServer
from tests.apiserver.test_process import make_backend
from tests.chart.conftest import Helm
from tests.chart.matrix import VALUES

pytestmark = pytest.mark.apiserver
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/modelbackend-operator"
FOREIGN = ("PodMonitor", "PrometheusRule")
"""Kinds that this API server does not have."""


def crd_uids(server: ApiServer) -> dict[str, str]:
    found = server.get(CRDS).body["items"]
    return {crd["metadata"]["name"]: crd["metadata"]["uid"] for crd in found}


def replicas(server: ApiServer) -> int:
    return int(server.get(DEPLOYMENT).body["spec"]["replicas"])


@pytest.mark.parametrize("values", list(VALUES.values()), ids=list(VALUES))
def test_the_api_server_takes_all_that_is_rendered_and_knows_every_field(helm: Helm, values: dict[str, Any]) -> None:
    for name in ("models", "research", "team-a"):
        helm.server.post("/api/v1/namespaces", {"metadata": {"name": name}})
    found = [one for one in objects(render(values)) if one["kind"] not in FOREIGN]
    bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
    flags = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    done = helm.server.kubectl("apply", *flags, "-f", "-", stdin=bundle)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(server dry run)") == len(found)


def test_upgrades_and_rollbacks_keep_both_kinds_and_their_objects(helm: Helm, namespace: str) -> None:
    server = helm.server
    helm.upgrade()
    path, before = make_backend(server, namespace), crd_uids(server)
    backend = server.get(path).body
    for number in (2, 3):
        helm.upgrade({"replicas": number})
        assert replicas(server) == number
    assert helm.run("rollback", RELEASE).returncode == 0
    assert replicas(server) == 2
    helm.upgrade()
    assert replicas(server) == 1
    assert crd_uids(server) == before
    assert server.get(path).body == backend


def test_an_uninstall_without_its_guard_leaves_both_kinds_and_their_objects_and_a_reinstall_takes_them_over(
    helm: Helm, namespace: str
) -> None:
    server = helm.server
    helm.upgrade()
    path, before = make_backend(server, namespace), crd_uids(server)
    backend = server.get(path).body
    done = helm.run("uninstall", RELEASE, "--no-hooks")
    assert done.returncode == 0, done.stderr
    assert "[CustomResourceDefinition] modelbackends.modelbackend.dev" in done.stdout
    assert server.get(DEPLOYMENT).status == 404
    assert crd_uids(server) == before
    helm.upgrade()
    assert replicas(server) == 1
    assert server.get(path).body == backend
    assert crd_uids(server) == before


@pytest.mark.parametrize("guard", ["Refuse", "Drain", "Off"])
def test_the_notes_tell_what_an_uninstall_will_do(helm: Helm, guard: str) -> None:
    flags = ("--dry-run=client", f"--set=uninstall.guard={guard}")
    done = helm.run("upgrade", RELEASE, str(CHART), *flags)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    told = {"Refuse": "refuses while", "Drain": "deletes all ModelBackends first", "Off": "does not look for"}
    assert told[guard] in notes
    (manifest,) = re.findall(r"<<YAML\n(.*?)YAML", notes, re.DOTALL)
    (example,) = objects("\n".join(line[5:] for line in manifest.splitlines()))
    assert helm.server.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(example)).returncode == 0
