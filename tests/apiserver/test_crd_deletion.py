"""`kubectl delete crd` with live objects: they end with proof, and a kind that comes back is served."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.harness import ApiServer, await_condition, running_api_server
from tests.apiserver.operator_account import operator_kubeconfig
from tests.apiserver.test_process import PATIENCE_SECONDS, claims_of, is_let_through, make_backend, operator, pods
from tests.crd_files import PLURALS, read_crd

pytestmark = pytest.mark.apiserver
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/modelbackends.modelbackend.dev"


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ApiServer]:
    """Of this test alone: the kind goes, and with it all objects of everybody."""
    folder = tmp_path / "apiserver"
    folder.mkdir()
    with running_api_server(folder) as server:
        for plural in PLURALS:
            server.install(read_crd(plural))
        assert server.post("/api/v1/namespaces", {"metadata": {"name": "models"}}).status == 201
        yield server


@pytest.mark.usefixtures("api_server")  # which says what to do when the programs are missing
def test_a_kind_that_is_deleted_with_live_objects_ends_them_and_can_come_back(
    own_server: ApiServer, tmp_path: Path
) -> None:
    account = operator_kubeconfig(own_server, tmp_path)
    with operator(account, tmp_path / "log", reuse_delay_seconds="0") as running:
        make_backend(own_server, "models", "first")
        make_backend(own_server, "models", "second", replicas=2)
        await_condition("a gate to open", lambda: is_let_through(own_server, "models"), PATIENCE_SECONDS)

        assert own_server.request("DELETE", CRD).status == 200
        await_condition("the kind to be gone", lambda: own_server.get(CRD).status == 404, PATIENCE_SECONDS)
        await_condition("all claims to be free", lambda: not claims_of(own_server, "models"), PATIENCE_SECONDS)
        assert pods(own_server, "models") == []
        # A watch of a kind that is no more breaks for good: the process ends, and its pod starts it anew, once.
        assert running.process.wait(timeout=PATIENCE_SECONDS) == 1

    with operator(account, tmp_path / "again", ready=False) as waiting:
        await_condition(
            "it to say what it misses",
            lambda: "is the kind installed? (kubectl apply -f crds/)" in waiting.log.read_text(),
            PATIENCE_SECONDS,
        )
        assert waiting.http("/healthz") == (200, "ok")
        assert waiting.http("/readyz")[0] == 503
        own_server.install(read_crd("modelbackends"))
        await_condition("it to be ready", lambda: waiting.http("/readyz")[0] == 200, PATIENCE_SECONDS)
        make_backend(own_server, "models", "third")
        await_condition("the new one's gate to open", lambda: is_let_through(own_server, "models"), PATIENCE_SECONDS)
        assert waiting.stop() == 0
