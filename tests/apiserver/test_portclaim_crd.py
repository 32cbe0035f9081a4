"""What the API server itself makes of a PortClaim: the name is the claim, and nobody rewrites it."""

import itertools
import json
from typing import Any

import pytest

from modelbackend_operator.api import API_VERSION, PORTCLAIM_KIND, PORTCLAIM_PLURAL, claim_name
from tests.apiserver.harness import TABLE, ApiServer, Json
from tests.crd_files import rule_messages

pytestmark = pytest.mark.apiserver

CLAIMS = f"/apis/{API_VERSION}/{PORTCLAIM_PLURAL}"
NAME = "metadata.name must be port-<spec.port>, because the name is the claim"
FIXED = "a PortClaim is for one port and one instance and cannot be changed; it ends when its holder's end is proven"

_ports = itertools.count(31000)


@pytest.fixture
def port() -> int:
    """Claims are cluster-scoped: every test takes another port, far from those that an operator would take."""
    return next(_ports)


def claim(port: int, name: str = "", **spec: Any) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": PORTCLAIM_KIND,
        "metadata": {"name": name or claim_name(port)},
        "spec": {
            "port": port,
            "exposure": "NodePort",
            "backend": {"namespace": "models", "name": "smollm2", "uid": "u"},
            "ordinal": 0,
            **spec,
        },
    }


def test_to_create_the_claim_is_to_take_the_port(api_server: ApiServer, port: int) -> None:
    assert api_server.post(CLAIMS, claim(port)).status == 201
    second = api_server.post(CLAIMS, claim(port, backend={"namespace": "other", "name": "b", "uid": "v"}))
    assert (second.status, second.body["reason"]) == (409, "AlreadyExists")


def test_a_new_claim_is_reserved_and_for_grpc(api_server: ApiServer, port: int) -> None:
    assert api_server.post(CLAIMS, claim(port)).body["spec"]["role"] == "Grpc"
    assert api_server.get(f"{CLAIMS}/{claim_name(port)}").body["status"] == {"phase": "Reserved"}


@pytest.mark.parametrize("name", ["port-30001", "port-", "port-ab", "port-0{port}", "x-{port}", "port-{port}-a"])
def test_a_claim_under_another_name_is_refused(api_server: ApiServer, name: str) -> None:
    answer = api_server.post(CLAIMS, claim(31999, name.format(port=31999)))
    assert answer.status == 422
    assert f"Invalid value: {NAME}" in answer.message


@pytest.mark.parametrize(
    "change",
    [
        {"port": 31998},
        {"ordinal": 1},
        {"exposure": "HostPort"},
        {"role": "Http"},
        {"backend": {"uid": "another"}},
    ],
    ids=json.dumps,
)
def test_a_claim_cannot_be_given_to_another(api_server: ApiServer, port: int, change: Json) -> None:
    stored = api_server.post(CLAIMS, claim(port)).body
    answer = api_server.merge(f"{CLAIMS}/{claim_name(port)}", {"spec": change})
    assert answer.status == 422
    assert f"spec: Invalid value: {FIXED}" in answer.message
    assert api_server.get(f"{CLAIMS}/{claim_name(port)}").body["spec"] == stored["spec"]


def test_every_rule_of_the_schema_is_asserted_here() -> None:
    assert rule_messages("portclaims") == {NAME, FIXED}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"exposure": "ClusterIP"}, 'supported values: "NodePort", "HostPort"'),
        ({"ordinal": -1}, "spec.ordinal in body should be greater than or equal to 0"),
        ({"backend": {"name": "a"}}, "spec.backend.uid: Required value"),
    ],
    ids=json.dumps,
)
def test_a_claim_that_names_no_holder_is_refused(api_server: ApiServer, port: int, spec: Json, words: str) -> None:
    answer = api_server.post(CLAIMS, claim(port, **spec))
    assert answer.status == 422
    assert words in answer.message


WITHHELD: Json = {
    "phase": "Withheld",
    "pod": {"name": "smollm2-abc-0", "uid": "p"},
    "node": {"name": "worker", "uid": "n", "bootID": "b"},
    "since": "2026-01-02T03:04:05Z",
    "evidence": "NeverStarted",
    "reason": "PodMissing",
    "message": "pod smollm2-abc-0 vanished",
    "history": [
        {
            "pod": {"name": "smollm2-xyz-0", "uid": "o"},
            "node": {"name": "worker", "uid": "n"},
            "since": "2026-01-01T03:04:05Z",
            "until": "2026-01-02T03:00:00Z",
            "evidence": "ContainersTerminated",
        }
    ],
}


def test_a_whole_status_is_stored_as_written(api_server: ApiServer, port: int) -> None:
    api_server.post(CLAIMS, claim(port))
    answer = api_server.merge(f"{CLAIMS}/{claim_name(port)}/status", {"status": WITHHELD})
    assert answer.status == 200, answer.message
    assert api_server.get(f"{CLAIMS}/{claim_name(port)}").body["status"] == WITHHELD


def test_the_ledger_shows_who_holds_each_port_and_why(api_server: ApiServer, port: int) -> None:
    api_server.post(CLAIMS, claim(port))
    api_server.merge(f"{CLAIMS}/{claim_name(port)}/status", {"status": WITHHELD})
    table = api_server.get(f"{CLAIMS}/{claim_name(port)}", accept=TABLE).body
    shown = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    assert shown == ["Name", "Port", "Role", "Phase", "Backend", "Pod", "Node", "Reason", "Age"]
    (row,) = table["rows"]
    expected = [claim_name(port), port, "Grpc", "Withheld", "smollm2", "smollm2-abc-0", "worker", "PodMissing"]
    assert row["cells"][:8] == expected


@pytest.mark.parametrize("alias", ["portclaims", "pcl", "backends"])
def test_kubectl_finds_the_ledger(api_server: ApiServer, port: int, alias: str) -> None:
    api_server.post(CLAIMS, claim(port))
    listing = api_server.kubectl("get", alias)
    assert listing.returncode == 0, listing.stderr
    assert ["NAME", "PORT", "ROLE", "PHASE", "BACKEND", "POD", "NODE", "REASON", "AGE"] in [
        line.split() for line in listing.stdout.splitlines()
    ]
    assert claim_name(port) in listing.stdout
