"""Two operators without an election over the same backends, and a deletion in the foreground: nothing is made twice."""

from pathlib import Path
from typing import Any

import pytest

from modelbackend_operator.observe.claim import claim_from
from modelbackend_operator.observe.pod import pod_from
from tests.apiserver.harness import ApiServer, await_condition
from tests.apiserver.test_process import (
    GROUP,
    PATIENCE_SECONDS,
    account,
    claims_of,
    make_backend,
    operator,
    pods,
)

pytestmark = pytest.mark.apiserver
BACKENDS = 4
__all__ = ["account"]


def let_through(server: ApiServer, namespace: str) -> list[Any]:
    return [pod for pod in pods(server, namespace) if not pod["spec"].get("schedulingGates")]


def test_two_operators_over_the_same_backends_make_and_end_each_instance_once(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with (
        operator(account, tmp_path / "one", reuse_delay_seconds="0") as one,
        operator(account, tmp_path / "two", reuse_delay_seconds="0") as two,
    ):
        paths = [make_backend(api_server, namespace, f"b{n}", replicas=2) for n in range(BACKENDS)]
        await_condition(
            "every gate to open", lambda: len(let_through(api_server, namespace)) == 2 * BACKENDS, PATIENCE_SECONDS
        )
        found = [pod_from(raw) for raw in pods(api_server, namespace)]
        claims = [claim_from(raw) for raw in claims_of(api_server, namespace)]
        assert len(found) == 2 * BACKENDS
        assert {claim.pod_uid for claim in claims} == {pod.ref.uid for pod in found}
        assert len({claim.port for claim in claims}) == len(found)

        for path in paths:
            assert api_server.merge(path, {"spec": {"runtime": {"contextLength": 512}}}).status == 200
        await_condition("every pod to be replaced", lambda: _all_replaced(api_server, namespace, found), 60)

        for path in paths:
            assert api_server.request("DELETE", path).status == 200
        await_condition(
            "all to be gone", lambda: all(api_server.get(path).status == 404 for path in paths), PATIENCE_SECONDS
        )
        await_condition("every port to be free", lambda: not claims_of(api_server, namespace), PATIENCE_SECONDS)
        assert pods(api_server, namespace) == []
        leases = api_server.get("/apis/coordination.k8s.io/v1/leases").body["items"]
        assert [lease for lease in leases if namespace in str(lease["metadata"].get("annotations"))] == []
        for running in (one, two):
            assert running.stop() == 0
            assert "failed by a bug" not in running.log.read_text()


def _all_replaced(server: ApiServer, namespace: str, before: list[Any]) -> bool:
    now = let_through(server, namespace)
    return len(now) == len(before) and not {raw["metadata"]["uid"] for raw in now} & {pod.ref.uid for pod in before}


def test_a_foreground_deletion_is_followed_by_no_new_child(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "log", reuse_delay_seconds="0"):
        path = make_backend(api_server, namespace, replicas=2)
        await_condition("the gates to open", lambda: len(let_through(api_server, namespace)) == 2, PATIENCE_SECONDS)
        # Nobody collects here, so `foregroundDeletion` keeps the object, as a dependant that hangs would.
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        assert api_server.request("DELETE", path, options).status == 200
        await_condition("both pods to go", lambda: not pods(api_server, namespace), PATIENCE_SECONDS)
        await_condition("both ports to be free", lambda: not claims_of(api_server, namespace), PATIENCE_SECONDS)
        await_condition(
            "ours to be off",
            lambda: api_server.get(path).body["metadata"]["finalizers"] == ["foregroundDeletion"],
            PATIENCE_SECONDS,
        )
        services = f"/api/v1/namespaces/{namespace}/services"
        for service in api_server.get(services).body["items"]:
            assert api_server.request("DELETE", f"{services}/{service['metadata']['name']}").status == 200
        other = make_backend(api_server, namespace, "other")
        await_condition("work after it", lambda: len(let_through(api_server, namespace)) == 1, PATIENCE_SECONDS)
        assert api_server.get(other).status == 200
        assert len(pods(api_server, namespace)) == 1
        owners = {raw["metadata"]["ownerReferences"][0]["name"] for raw in api_server.get(services).body["items"]}
        assert owners == {"other"}
        assert api_server.get(f"{GROUP}/namespaces/{namespace}/modelbackends").status == 200
