"""`kubectl delete crd` of both kinds: live objects end with proof, and kinds that come back are served."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.harness import ApiServer, await_condition, running_api_server
from tests.apiserver.operator_account import operator_kubeconfig
from tests.apiserver.test_process import PATIENCE_SECONDS, is_let_through, make_backend, operator, pods
from tests.crd_files import PLURALS, read_crd

pytestmark = pytest.mark.apiserver
CRDS = tuple(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.modelbackend.dev" for plural in PLURALS)


def install(server: ApiServer) -> None:
    for plural in PLURALS:
        server.install(read_crd(plural))


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ApiServer]:
    """Of this test alone: the kind goes, and with it all objects of everybody."""
    folder = tmp_path / "apiserver"
    folder.mkdir()
    with running_api_server(folder) as server:
        install(server)
        assert server.post("/api/v1/namespaces", {"metadata": {"name": "models"}}).status == 201
        yield server


@pytest.mark.usefixtures("api_server")  # which says what to do when the programs are missing
def test_kinds_that_are_deleted_with_live_objects_end_them_and_are_served_anew_when_they_are_back(
    own_server: ApiServer, tmp_path: Path
) -> None:
    account = operator_kubeconfig(own_server, tmp_path)
    with operator(account, tmp_path / "log", reuse_delay_seconds="0") as running:
        make_backend(own_server, "models", "first")
        make_backend(own_server, "models", "second", replicas=2)
        await_condition("a gate to open", lambda: is_let_through(own_server, "models"), PATIENCE_SECONDS)

        for crd in CRDS:
            assert own_server.request("DELETE", crd).status == 200
        await_condition(
            "both kinds to be gone", lambda: all(own_server.get(crd).status == 404 for crd in CRDS), PATIENCE_SECONDS
        )
        await_condition("all pods to be gone", lambda: pods(own_server, "models") == [], PATIENCE_SECONDS)
        assert running.process.poll() is None
        assert running.http("/readyz")[0] == 200

        install(own_server)
        make_backend(own_server, "models", "third")
        await_condition("the new one's gate to open", lambda: is_let_through(own_server, "models"), PATIENCE_SECONDS)
        assert running.stop() == 0


@pytest.mark.usefixtures("api_server")
def test_an_operator_that_starts_before_its_kinds_are_installed_serves_them_once_they_are(
    own_server: ApiServer, tmp_path: Path
) -> None:
    account = operator_kubeconfig(own_server, tmp_path)
    for crd in CRDS:
        assert own_server.request("DELETE", crd).status == 200
    await_condition(
        "both kinds to be gone", lambda: all(own_server.get(crd).status == 404 for crd in CRDS), PATIENCE_SECONDS
    )
    with operator(account, tmp_path / "log") as running:
        assert "modelbackends are not installed" in running.log.read_text()
        install(own_server)
        make_backend(own_server, "models", "first")
        await_condition("its gate to open", lambda: is_let_through(own_server, "models"), PATIENCE_SECONDS)
        assert running.stop() == 0
