"""What is remembered of ports that something outside the ledger has, for how long, and what follows for a pod."""

from typing import Any

import pytest

from modelbackend_operator.actions import CreatePod
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act
from modelbackend_operator.foreign_ports import HELD_SECONDS, TAKEN_SECONDS, ForeignPorts
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.placement import avoiding
from tests.unit.builders import NOW, PORT, a_backend, a_claim, a_world


def test_a_port_that_another_service_has_is_remembered_for_a_while() -> None:
    clock = [0.0]
    known = ForeignPorts(lambda: clock[0])
    known.held(30001, "Service a/b")
    clock[0] = HELD_SECONDS - 1
    assert known.holders() == {30001: "Service a/b"}
    clock[0] = HELD_SECONDS
    assert known.holders() == {}


def test_a_port_is_taken_on_the_nodes_where_a_server_found_it_so() -> None:
    clock = [0.0]
    known = ForeignPorts(lambda: clock[0])
    known.taken(30001, "node-1")
    clock[0] = 1
    known.taken(30001, "node-2")
    known.taken(30002, "node-1")
    assert known.nodes() == {30001: frozenset({"node-1", "node-2"}), 30002: frozenset({"node-1"})}
    clock[0] = TAKEN_SECONDS
    assert known.nodes() == {30001: frozenset({"node-2"}), 30002: frozenset({"node-1"})}


def test_a_pod_that_gets_such_a_port_is_kept_off_those_nodes_and_off_no_other() -> None:
    taken_on = {PORT: frozenset({"node-1"}), PORT + 1: frozenset({"node-2"})}
    ports = Ports(((30000, 30085),), 15, frozenset(), taken_on=taken_on)
    world = a_world(a_backend(), claims=[a_claim(ClaimPhase.RESERVED)], ports=ports)
    decision = decide(world, NOW)
    assert isinstance(decision, Act)
    assert isinstance(decision.action, CreatePod)
    assert decision.action.avoided_nodes == {"node-1"}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ELSEWHERE = {"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}
IN_ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
BIG = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["big"]}]}


@pytest.mark.parametrize(
    ("affinity", "terms"),
    [
        (None, [{"matchFields": [ELSEWHERE]}]),
        (
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [IN_ZONE, BIG]}}},
            [{**IN_ZONE, "matchFields": [ELSEWHERE]}, {"matchFields": [*BIG["matchFields"], ELSEWHERE]}],
        ),
    ],
    ids=["of its own", "beside each term of the user's"],
)
def test_an_affinity_is_narrowed(affinity: Any, terms: list[Any]) -> None:
    assert avoiding(affinity, {"node-1"}) == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def test_the_rest_of_an_affinity_stays() -> None:
    given = {"podAntiAffinity": {"x": 1}, "nodeAffinity": {"preferred": [2]}}
    narrowed = avoiding(given, {"node-2", "node-1"})
    assert narrowed["podAntiAffinity"] == {"x": 1}
    assert narrowed["nodeAffinity"]["preferred"] == [2]
    (term,) = narrowed["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [field["values"] for field in term["matchFields"]] == [["node-1"], ["node-2"]]
