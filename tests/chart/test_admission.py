"""The chart's admission policies: what strangers may not do, and what they must not get in the way of."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.harness import Answer, ApiServer, await_condition
from tests.apiserver.test_process import (
    GROUP,
    PATIENCE_SECONDS,
    claims_of,
    is_let_through,
    make_backend,
    operator,
    pods,
)
from tests.chart.conftest import Helm

pytestmark = pytest.mark.apiserver
UNGUARDED = {"metadata": {"finalizers": None}}


@pytest.fixture(scope="module")
def policed(helm: Helm) -> Iterator[ApiServer]:
    """Everybody is a stranger: the tests' administrator, too."""
    helm.upgrade({"admissionPolicies": {"enabled": True}})
    server = helm.server
    body = {"metadata": {"name": "probe", "finalizers": ["modelbackend.dev/termination"]}}
    pod = {**body, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert server.post("/api/v1/namespaces/default/pods", pod).status == 201
    path = "/api/v1/namespaces/default/pods/probe"
    dry_run = f"{path}?dryRun=All"
    await_condition("the policies to be in force", lambda: server.merge(dry_run, UNGUARDED).status == 403, 60)
    yield server
    helm.upgrade()
    await_condition("the policies to end", lambda: server.merge(dry_run, UNGUARDED).status == 200, 60)
    server.merge(path, UNGUARDED)
    server.request("DELETE", path, {"gracePeriodSeconds": 0})


def refused(answer: Answer, words: str) -> None:
    assert answer.status == 403, answer.message
    assert words in answer.message


def test_strangers_cannot_free_what_is_not_proven_free_and_the_operator_can(
    policed: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "log", reuse_delay_seconds="0"):
        path = make_backend(policed, namespace)
        await_condition("the gate to open", lambda: is_let_through(policed, namespace), PATIENCE_SECONDS)
        (pod,), (claim,) = pods(policed, namespace), claims_of(policed, namespace)
        pod_path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
        claim_path = f"{GROUP}/portclaims/{claim['metadata']['name']}"
        for held in (path, pod_path, f"{pod_path}/status", claim_path):
            refused(policed.merge(held, UNGUARDED), "is the operator's: it goes when the end of the process is proven")
        now = policed.request("DELETE", pod_path, {"gracePeriodSeconds": 0})
        refused(now, "is not deleted with grace period 0")
        assert policed.merge(path, {"metadata": {"labels": {"mine": "yes"}}}).status == 200
        assert policed.request("DELETE", path).status == 200
        await_condition("the end", lambda: policed.get(path).status == 404, PATIENCE_SECONDS)
        await_condition("the port to be free", lambda: not claims_of(policed, namespace), PATIENCE_SECONDS)


def test_the_spec_of_a_backend_that_is_being_deleted_is_kept(policed: ApiServer, namespace: str) -> None:
    path = make_backend(policed, namespace)
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    assert policed.merge(path, held).status == 200
    assert policed.request("DELETE", path).status == 200
    refused(policed.merge(path, {"spec": {"replicas": 2}}), "is being deleted, and nothing takes that back")
    assert policed.merge(path, {"metadata": {"annotations": {"modelbackend.dev/force": "all now"}}}).status == 200
    assert policed.merge(path, UNGUARDED).status == 200
    assert policed.get(path).status == 404


def test_pods_of_others_are_nobodys_business_here(policed: ApiServer, namespace: str) -> None:
    body = {
        "metadata": {"name": "p", "finalizers": ["example.com/x"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    assert policed.post(f"/api/v1/namespaces/{namespace}/pods", body).status == 201
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    assert policed.merge(path, UNGUARDED).status == 200
    assert policed.request("DELETE", path, {"gracePeriodSeconds": 0}).status == 200


def test_an_exempt_user_may(helm: Helm, policed: ApiServer) -> None:
    path = "/api/v1/namespaces/default/pods/probe?dryRun=All"
    helm.upgrade({"admissionPolicies": {"enabled": True, "exemptGroups": ["system:masters"]}})
    await_condition("the exemption to be in force", lambda: policed.merge(path, UNGUARDED).status == 200, 60)
    helm.upgrade({"admissionPolicies": {"enabled": True}})
    await_condition("the policies to be in force", lambda: policed.merge(path, UNGUARDED).status == 403, 60)
