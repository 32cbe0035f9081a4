"""Every example of ours is taken by the API server as it stands, and says to Argo CD what the tests say to it."""

import json
from typing import Any

import pytest
import yaml

from e2e.helm.chart import ROOT, objects, render
from tests.apiserver.conftest import api_server
from tests.apiserver.harness import ApiServer

pytestmark = pytest.mark.apiserver
__all__ = ["api_server"]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.yaml"))


def ours(path: Any) -> list[dict[str, Any]]:
    return [one for one in objects(path.read_text()) if one.get("kind") == "ModelBackend"]


@pytest.mark.parametrize("path", [p for p in EXAMPLES if ours(p)], ids=lambda path: path.parent.name)
def test_the_api_server_takes_the_example(api_server: ApiServer, path: Any) -> None:
    for one in ours(path):
        one["metadata"]["namespace"] = "default"
        flags = ("--dry-run=server", "--validate=strict")
        done = api_server.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(one))
        assert done.returncode == 0, done.stderr


def test_the_overlay_of_kustomize_is_taken_too(api_server: ApiServer) -> None:
    built = api_server.kubectl("kustomize", str(ROOT / "examples/kustomize"))
    assert built.returncode == 0, built.stderr
    (one,) = objects(built.stdout)
    assert (one["spec"]["replicas"], one["spec"]["shutdown"]) == (2, {"drainSeconds": 120})
    one["metadata"]["namespace"] = "default"
    done = api_server.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(one))
    assert done.returncode == 0, done.stderr


def test_the_chart_takes_the_values_of_fluxs_release() -> None:
    found = objects((ROOT / "examples/flux/models.yaml").read_text())
    (release,) = (one for one in found if one["kind"] == "HelmRelease")
    (deployment,) = (one for one in objects(render(release["spec"]["values"])) if one["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == release["spec"]["values"]["replicas"]
