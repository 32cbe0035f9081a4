"""A stricter schema must not trap the objects that an older one let in (ratcheting, KEP-4008)."""

from collections.abc import Iterator

import pytest

from modelbackend_operator import kubernetes_api
from modelbackend_operator.api import FINALIZER, VERSION
from modelbackend_operator.kubernetes_api import outcome_of
from modelbackend_operator.outcome import Denied
from tests.apiserver.harness import CRDS, ApiServer, Json, await_condition
from tests.crd_files import read_crd

pytestmark = pytest.mark.apiserver

GROUP = "older.modelbackend.dev"
MAXIMUM = 64


@pytest.fixture
def older_object(api_server: ApiServer, namespace: str) -> Iterator[str]:
    """The path of an object with 100 replicas, stored while the schema still allowed that."""
    crd = _in_group(GROUP, maximum=1000)
    api_server.install(crd)
    definition = f"{CRDS}/{crd['metadata']['name']}"
    collection = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/modelbackends"
    answer = api_server.post(
        collection,
        {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "ModelBackend",
            "metadata": {"name": "old", "finalizers": [FINALIZER]},
            "spec": {"model": {"source": {"hostPath": {"path": "/m.gguf"}}}, "replicas": 100},
        },
    )
    assert answer.status == 201, answer.message
    tightened = api_server.merge(definition, {"spec": _in_group(GROUP, MAXIMUM)["spec"]})
    assert tightened.status == 200, tightened.message
    probe = {**answer.body, "metadata": {"name": "probe"}}
    await_condition(
        "the stricter schema to be in force",
        lambda: api_server.post(f"{collection}?dryRun=All", probe).status == 422,
        seconds=30,
    )
    yield f"{collection}/old"
    api_server.merge(f"{collection}/old", {"metadata": {"finalizers": None}})
    api_server.request("DELETE", definition)
    await_condition("the older definition to go", lambda: api_server.get(definition).status == 404, seconds=30)


def _in_group(group: str, maximum: int) -> Json:
    crd = read_crd("modelbackends")
    crd["metadata"]["name"] = f"modelbackends.{group}"
    crd["spec"]["group"] = group
    crd["spec"]["names"].update(shortNames=["older"], categories=[])
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["replicas"]["maximum"] = maximum
    return crd


def test_an_older_object_can_be_edited_reported_on_and_let_go(api_server: ApiServer, older_object: str) -> None:
    edited = api_server.merge(older_object, {"spec": {"shutdown": {"drainSeconds": 5}}})
    assert edited.status == 200, edited.message
    reported = api_server.merge(f"{older_object}/status", {"status": {"observedGeneration": 2}})
    assert reported.status == 200, reported.message

    assert api_server.request("DELETE", older_object).status == 200
    assert "deletionTimestamp" in api_server.get(older_object).body["metadata"]
    released = api_server.merge(older_object, {"metadata": {"finalizers": None}})
    assert released.status == 200, released.message
    assert api_server.get(older_object).status == 404


def test_the_stricter_rule_holds_for_what_is_changed(api_server: ApiServer, older_object: str) -> None:
    answer = api_server.merge(older_object, {"spec": {"replicas": 101}})
    assert answer.status == 422
    assert f"spec.replicas in body should be less than or equal to {MAXIMUM}" in answer.message


def test_a_status_of_a_newer_operator_is_refused_whole_and_says_what_is_to_be_applied(
    api_server: ApiServer, older_object: str
) -> None:
    status = {"replicas": 1, "tellsMore": []}
    body = {**_head(api_server.get(older_object).body), "status": status}
    answer = api_server.request(
        "PATCH",
        f"{older_object}/status?fieldManager=newer&force=true",
        body,
        content_type="application/apply-patch+yaml",
    )
    outcome = outcome_of(kubernetes_api.Answer(answer.status, answer.body))
    assert isinstance(outcome, Denied)
    assert ".status.tellsMore" in outcome.message
    assert "kubectl apply --server-side -f crds/" in outcome.message
    assert "replicas" not in api_server.get(older_object).body["status"], "nor a part of it"


def _head(body: Json) -> Json:
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {"name": body["metadata"]["name"]}}
