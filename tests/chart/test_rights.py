"""The operator does with the chart's rights all that it must, and has none that it does not use."""

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.helm.chart import NAMESPACE, objects, render
from tests.apiserver.harness import ApiServer, Call, await_condition
from tests.apiserver.test_process import PATIENCE_SECONDS, claims_of, is_let_through, make_backend, operator, pods
from tests.chart.conftest import Helm

pytestmark = pytest.mark.apiserver
OPERATOR = f"system:serviceaccount:{NAMESPACE}:modelbackend-operator"

Right = tuple[str, str, str]
"""Verb, group, resource."""

NOT_IN_THESE_LIVES: set[Right] = {
    ("patch", "", "pods/status"),  # the readiness gate, once a server has told its identity
    ("get", "", "nodes"),  # where a pod was scheduled
    ("get", "", "services"),  # after a write of one that conflicts
    ("patch", "", "services"),  # one that others edited, or whose instance has another pod
    ("get", "policy", "poddisruptionbudgets"),
    ("delete", "policy", "poddisruptionbudgets"),
    ("delete", "coordination.k8s.io", "leases"),
    ("get", "coordination.k8s.io", "leases"),
    ("create", "coordination.k8s.io", "leases"),
    ("update", "coordination.k8s.io", "leases"),
    ("update", "modelbackend.dev", "modelbackends/finalizers"),  # asked for by an admission plugin, never called
}


def granted(values: dict[str, object]) -> set[Right]:
    found = objects(render(values))
    roles = [one for one in found if one["kind"] in ("Role", "ClusterRole")]
    ours = [one for one in roles if one["metadata"]["name"].startswith("modelbackend-operator")]
    ours = [one for one in ours if not one["metadata"]["name"].endswith("-uninstall")]
    rules = [rule for one in ours for rule in one["rules"]]
    return {(v, g, r) for rule in rules for v in rule["verbs"] for g in rule["apiGroups"] for r in rule["resources"]}


def calls_since(server: ApiServer, before: int) -> list[Call]:
    return [call for call in list(server.calls())[before:] if call.user == OPERATOR]


def live(server: ApiServer, account: Path, namespace: str, folder: Path, *, namespaces: str = "") -> None:
    """Two instances, one more, an edit, a Service taken away, and the end."""

    def waits(what: str, holds: Callable[[], bool]) -> None:
        await_condition(what, holds, PATIENCE_SECONDS)

    with operator(
        account, folder / "log", reuse_delay_seconds="0", leader_election="true", watch_namespaces=namespaces
    ) as running:
        path = make_backend(server, namespace, replicas=2)
        waits("gates to open", lambda: is_let_through(server, namespace) and len(pods(server, namespace)) == 2)
        budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        waits("a disruption budget", lambda: bool(server.get(budgets).body["items"]))
        service = server.get(f"/api/v1/namespaces/{namespace}/services").body["items"][0]["metadata"]["name"]
        assert server.request("DELETE", f"/api/v1/namespaces/{namespace}/services/{service}").status == 200
        assert server.merge(path, {"spec": {"replicas": 1}}).status == 200
        waits("one pod", lambda: len(pods(server, namespace)) == 1)
        waits("one port", lambda: len(claims_of(server, namespace)) == 1)
        assert server.request("DELETE", path).status == 200
        waits("the end", lambda: server.get(path).status == 404 and not claims_of(server, namespace))
        assert running.stop() == 0


def test_lives_need_exactly_the_rights_of_the_chart(helm: Helm, account: Path, namespace: str, tmp_path: Path) -> None:
    helm.upgrade()
    before = len(list(helm.server.calls()))
    live(helm.server, account, namespace, tmp_path)
    calls = calls_since(helm.server, before)
    assert {(c.verb, c.resource, c.namespace) for c in calls if not c.allowed} == set()
    used = {(call.verb, call.group, call.resource) for call in calls}
    assert used - granted({}) == set()
    assert granted({}) - used - NOT_IN_THESE_LIVES == set()


def test_an_operator_for_some_namespaces_needs_rights_in_those_only_and_leaves_the_others_alone(
    helm: Helm, account: Path, namespace: str, tmp_path: Path
) -> None:
    server, other = helm.server, f"{namespace}-other"
    assert server.post("/api/v1/namespaces", {"metadata": {"name": other}}).status == 201
    helm.upgrade()
    with operator(account, tmp_path / "first"):  # which looks after all, and leaves a live claim
        path = make_backend(server, other)
        await_condition("the gate to open", lambda: is_let_through(server, other), PATIENCE_SECONDS)
    untouched = [server.get(path).body, pods(server, other), claims_of(server, other)]
    helm.upgrade({"watchNamespaces": [namespace]})
    before = len(list(server.calls()))
    live(server, account, namespace, tmp_path, namespaces=f"{namespace},{NAMESPACE}")
    calls = calls_since(server, before)
    assert {(c.verb, c.resource, c.namespace) for c in calls if not c.allowed} == set()
    assert [server.get(path).body, pods(server, other), claims_of(server, other)] == untouched
    namespaced = {c.namespace for c in calls if c.resource in ("pods", "services", "modelbackends", "secrets")}
    assert namespaced == {namespace, NAMESPACE}
    helm.upgrade()
    with operator(account, tmp_path / "last", reuse_delay_seconds="0"):
        assert server.request("DELETE", path).status == 200
        await_condition(
            "the end", lambda: server.get(path).status == 404 and not claims_of(server, other), PATIENCE_SECONDS
        )
