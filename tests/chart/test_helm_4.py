"""helm 4 beside helm 3: the same objects, and a release that may pass from the one to the other.

helm 4 applies a new release server-side, and refuses fields that another manager set to another value.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.helm.chart import CHART, RELEASE, ROOT, ChartError, objects, render
from e2e.helm.programs import build
from tests.apiserver.harness import CRDS, ApiServer
from tests.apiserver.test_process import make_backend
from tests.chart.conftest import Helm
from tests.chart.matrix import VALUES
from tests.chart.test_installing import DEPLOYMENT, crd_uids, replicas

pytestmark = pytest.mark.apiserver
INSTALL = ("install", RELEASE, str(CHART), "--create-namespace")
UPGRADE = ("upgrade", RELEASE, str(CHART), "--reset-values")


@pytest.fixture
def helm_4(helm: Helm) -> Iterator[Helm]:
    """What it leaves is helm 3's again afterwards, as the other tests expect it."""
    four = Helm(helm.server, "helm4")
    yield four
    four.run("uninstall", RELEASE, "--no-hooks")
    helm.upgrade()


def succeed(helm: Helm, *arguments: str, values: dict[str, Any] | None = None) -> str:
    done = helm.run(*arguments, values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ways_of_writing(server: ApiServer, path: str) -> set[tuple[str, str]]:
    entries = server.get(path).body["metadata"]["managedFields"]
    return {(entry["manager"], entry["operation"]) for entry in entries if "subresource" not in entry}


def older_chart(folder: Path) -> Path:
    """One of a release before, whose kind says something else."""
    chart = folder / "older"
    shutil.copytree(CHART, chart)
    kind = chart / "files/crds/modelbackends.yaml"
    text = kind.read_text()
    assert "shortNames: [mb]" in text
    kind.write_text(text.replace("shortNames: [mb]", "shortNames: [old]"))
    return chart


@pytest.mark.parametrize("values", list(VALUES.values()), ids=list(VALUES))
def test_both_render_the_same_objects(values: dict[str, Any]) -> None:
    assert objects(render(values, program="helm4")) == objects(render(values))


def test_it_refuses_a_bad_value_with_its_place_too() -> None:
    with pytest.raises(ChartError, match="'replica' not allowed"):
        render({"replica": 2}, program="helm4")


@pytest.mark.parametrize("program", ["helm", "helm4"])
def test_neither_finds_fault_with_the_chart(program: str) -> None:
    done = subprocess.run([build() / program, "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_takes_over_a_release_of_helm_3_and_gives_it_back(helm: Helm, helm_4: Helm, namespace: str) -> None:
    server = helm.server
    helm.upgrade()
    path, before = make_backend(server, namespace), crd_uids(server)
    backend = server.get(path).body
    succeed(helm_4, *UPGRADE, values={"replicas": 3})
    assert replicas(server) == 3
    helm.upgrade({"replicas": 2})
    assert replicas(server) == 2
    succeed(helm_4, "rollback", RELEASE)
    assert replicas(server) == 3
    assert crd_uids(server) == before
    assert server.get(path).body == backend


def test_its_own_release_is_installed_upgraded_rolled_back_and_uninstalled(
    helm: Helm, helm_4: Helm, namespace: str, tmp_path: Path
) -> None:
    """Over kinds that an older release, installed by helm 3, left behind, and that say something else."""
    server = helm.server
    path, before = make_backend(server, namespace), crd_uids(server)
    backend = server.get(path).body
    kind = f"{CRDS}/modelbackends.modelbackend.dev"
    names = server.get(kind).body["spec"]["names"]
    succeed(helm, "upgrade", RELEASE, str(older_chart(tmp_path)))
    assert server.get(kind).body["spec"]["names"]["shortNames"] == ["old"]
    succeed(helm, "uninstall", RELEASE, "--no-hooks")

    succeed(helm_4, *INSTALL)
    assert ("helm", "Apply") in ways_of_writing(server, DEPLOYMENT)
    assert server.get(kind).body["spec"]["names"]["shortNames"] == names["shortNames"]
    for number in (2, 3):
        succeed(helm_4, *UPGRADE, values={"replicas": number})
        assert replicas(server) == number
    succeed(helm_4, "rollback", RELEASE)
    assert replicas(server) == 2
    succeed(helm_4, "uninstall", RELEASE, "--no-hooks")
    assert server.get(DEPLOYMENT).status == 404
    assert crd_uids(server) == before
    assert server.get(path).body == backend


def test_it_takes_over_what_was_applied_without_helm(helm: Helm, helm_4: Helm) -> None:
    server = helm.server
    succeed(helm, "uninstall", RELEASE, "--no-hooks")
    for folder in ("crds", "deploy"):
        text = "---\n".join(path.read_text() for path in sorted((ROOT / folder).glob("*.yaml")))
        done = server.kubectl("apply", "-f", "-", stdin=text)
        assert done.returncode == 0, done.stderr
    refused = helm_4.run(*INSTALL, "--take-ownership", values={"replicas": 2})
    assert 'conflicts with "kubectl-client-side-apply"' in refused.stderr
    assert replicas(server) == 1
    succeed(helm_4, "uninstall", RELEASE, "--no-hooks")
    succeed(helm_4, *INSTALL, "--take-ownership", "--force-conflicts", values={"replicas": 2})
    assert replicas(server) == 2
