"""An instance with a second port, for HTTP: both of its ports or none, in every rule that looks for a claim."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.actions import (
    Action,
    BindClaim,
    CoolClaim,
    CreateClaim,
    CreatePod,
    CreateService,
    DeleteClaim,
    DeletePod,
    DeleteService,
    RecordNode,
    ReserveClaim,
    Ungate,
    WithholdClaim,
    WriteStatus,
)
from modelbackend_operator.allotment import Lack, allotment
from modelbackend_operator.api import Evidence
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act
from modelbackend_operator.evidence import evidence_elsewhere, trail_of_claim
from modelbackend_operator.instances import stop_reason
from modelbackend_operator.manifests import pod_name, service_name
from modelbackend_operator.model.backend import Attestation, Backend, Exposure, PortRole
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Container, ContainerState, Pod
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.model.stop import StopReason
from tests.unit.builders import (
    NODE,
    NOW,
    POD_UID,
    PORT,
    a_backend,
    a_claim,
    a_draining_pod,
    a_gated_pod,
    a_loading_pod,
    a_service,
    a_serving_pod,
    a_shared_service,
    a_stop,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    later,
    shown,
)

RESERVED, BOUND, WITHHELD, COOLING = ClaimPhase
HTTP_PORT = 30009
THREE = Ports(((30007, 30009),), 15, frozenset())
BOTH = a_service(http_node_port=HTTP_PORT)


def with_http(**special: Any) -> Backend:
    return a_backend(http=True, **special)


def http_claim(phase: ClaimPhase = BOUND, port: int = HTTP_PORT, **special: Any) -> Claim:
    return a_claim(phase, port, role=PortRole.HTTP, **special)


def behind_two(*pods: Pod, backend: Backend | None = None, **special: Any) -> Observation:
    """The usual instance with two claims and Services, its status written."""
    usual: dict[str, Any] = {
        "claims": (a_claim(node=NODE), http_claim(node=NODE)),
        "services": (a_shared_service(), BOTH),
    }
    return shown(a_world(backend or with_http(), pods=pods, **{**usual, **special}))


def step(world: Observation) -> Action:
    decision = decide(world, NOW)
    assert isinstance(decision, Act), decision
    return decision.action


def pod_called(world: Observation) -> str:
    assert world.backend is not None
    return pod_name(world.backend, 0, ())


STAGES: dict[str, tuple[Observation, Callable[[Observation], Action]]] = {
    "of two missing ports the lower number is claimed first": (
        a_world(with_http(), ports=Ports(((30007, 30008),), 15, frozenset())),
        lambda w: CreateClaim(w.backend, 0, 30007, allotted(w)[30007]),  # type: ignore[arg-type]
    ),
    "with one reserved, the other is claimed": (
        a_world(with_http(), claims=[a_claim(RESERVED)], ports=Ports(((30007, 30008),), 15, frozenset())),
        lambda w: CreateClaim(w.backend, 0, 30008, PortRole.HTTP),  # type: ignore[arg-type]
    ),
    "a port that is new to the spec is claimed before the own one that cools is taken back": (
        a_world(with_http(), claims=[a_claim(COOLING)], ports=Ports(((30007, 30008),), 15, frozenset())),
        lambda w: CreateClaim(w.backend, 0, 30008, PortRole.HTTP),  # type: ignore[arg-type]
    ),
    "both that cool are taken back, one after the other": (
        a_world(with_http(), claims=[a_claim(RESERVED), http_claim(COOLING)]),
        lambda w: ReserveClaim(w.claims[1]),
    ),
    "a pod is made for both": (
        a_world(with_http(), claims=[a_claim(RESERVED), http_claim(RESERVED)]),
        lambda w: CreatePod(w.backend, 0, pod_called(w), PORT, http_port=HTTP_PORT),  # type: ignore[arg-type]
    ),
    "the pod is kept off each node on which one of them is taken": (
        a_world(
            with_http(),
            claims=[a_claim(RESERVED), http_claim(RESERVED)],
            ports=replace(THREE, taken_on={PORT: frozenset({"n1"}), HTTP_PORT: frozenset({"n2"})}),
        ),
        lambda w: CreatePod(w.backend, 0, pod_called(w), PORT, "", frozenset({"n1", "n2"}), HTTP_PORT),  # type: ignore[arg-type]
    ),
    "with one bound, the other is": (
        a_world(with_http(), claims=[a_claim(), http_claim(RESERVED)], pods=[a_gated_pod()]),
        lambda w: BindClaim(w.claims[1], w.pods[0]),
    ),
    "with one bound and the other lost, the pod starts anew": (
        a_world(with_http(), claims=[a_claim()], pods=[a_gated_pod()]),
        lambda w: DeletePod(w.pods[0], 15),
    ),
    "a pod of another host port is not bound": (
        a_world(
            with_http(exposure=Exposure.HOST_PORT),
            claims=[
                a_claim(exposure=Exposure.HOST_PORT),
                http_claim(RESERVED, exposure=Exposure.HOST_PORT),
            ],
            pods=[a_gated_pod(host_port=PORT, http_host_port=20000)],
        ),
        lambda w: DeletePod(w.pods[0], 15),
    ),
    "one Service gets both ports": (
        behind_two(a_gated_pod(), services=(a_shared_service(),)),
        lambda w: CreateService(w.backend, service_name(w.backend, 0, ()), 0, PORT, POD_UID, HTTP_PORT),  # type: ignore[arg-type]
    ),
    "a Service of the time of one port makes way": (
        behind_two(a_gated_pod(), services=(a_shared_service(), a_service())),
        lambda w: DeleteService(w.services[1]),
    ),
    "a Service of the time of two ports makes way": (
        behind_two(a_gated_pod(), backend=a_backend(), claims=(a_claim(), http_claim(COOLING, pod_uid="earlier"))),
        lambda w: DeleteService(w.services[1]),
    ),
    "with both in place the gate opens": (behind_two(a_gated_pod()), lambda w: Ungate(w.pods[0])),
    "both claims learn the machine": (
        behind_two(a_loading_pod(), claims=(a_claim(node=NODE), http_claim())),
        lambda w: RecordNode(w.claims[1], NODE),
    ),
    "both are withheld for a witness": (
        behind_two(
            a_terminating_pod(handed_over=NOW),
            claims=(a_claim(WITHHELD, node=NODE), http_claim(node=NODE)),
            services=(a_shared_service(),),
        ),
        lambda w: WithholdClaim(w.claims[1], "Unconfirmed", step_words(w)),
    ),
    "a vanished pod's second port is withheld too": (
        behind_two(claims=(a_claim(WITHHELD), http_claim())),
        lambda w: WithholdClaim(w.claims[1], "PodMissing", step_words(w)),
    ),
    "with proof, the first cools": (
        behind_two(an_ended_pod(), services=()),
        lambda w: CoolClaim(w.claims[0], Evidence.CONTAINERS_TERMINATED),
    ),
    "then the second": (
        behind_two(an_ended_pod(), claims=(a_claim(COOLING), http_claim()), services=()),
        lambda w: CoolClaim(w.claims[1], Evidence.CONTAINERS_TERMINATED),
    ),
    "a Service with a port that nobody claims goes": (
        behind_two(a_serving_pod(), backend=a_backend(), claims=(a_claim(node=NODE),)),
        lambda w: DeleteService(w.services[1]),
    ),
}


def allotted(world: Observation) -> dict[int, PortRole]:
    assert world.backend is not None
    found = allotment(world, world.backend, 0)
    assert not isinstance(found, Lack)
    return {port: role for role, port in found.items() if isinstance(port, int)}


def step_words(world: Observation) -> str:
    action = step(world)
    assert isinstance(action, WithholdClaim)
    return action.message


@pytest.mark.parametrize("stage", STAGES)
def test_the_next_step_of_an_instance_with_two_ports(stage: str) -> None:
    world, expected = STAGES[stage]
    assert decide(world, NOW) == Act(expected(world))


# -- both or none -----------------------------------------------------------------------------------------------------

ONE_LEFT = Ports(((30007, 30008),), 15, frozenset({30008}))
HALF_PINNED = with_http(pinned_port=30010)


def test_with_one_port_left_nothing_is_claimed() -> None:
    decision = decide(a_world(with_http(), ports=ONE_LEFT), NOW)
    assert isinstance(decision, Act)  # the status says why
    assert isinstance(decision.action, WriteStatus)
    found = allotment(a_world(with_http(), ports=ONE_LEFT), with_http(), 0)
    assert isinstance(found, Lack)
    assert "needs 2 ports" in found.message


GIVEN_BACK: dict[str, tuple[Backend, Ports]] = {
    "the pool is exhausted": (with_http(), Ports(((30009, 30009),), 15, frozenset())),
    "the other port is pinned and taken": (HALF_PINNED, replace(THREE, taken=frozenset({30010}))),
}


@pytest.mark.parametrize("case", GIVEN_BACK)
def test_who_waits_for_one_port_gives_a_reserved_one_back(case: str) -> None:
    backend, ports = GIVEN_BACK[case]
    world = a_world(backend, claims=[http_claim(RESERVED)], ports=ports)
    assert step(world) == DeleteClaim(world.claims[0])


@pytest.mark.parametrize("case", GIVEN_BACK)
def test_who_waits_for_one_port_frees_another_once_it_has_cooled(case: str) -> None:
    backend, ports = GIVEN_BACK[case]
    world = a_world(backend, claims=[http_claim(COOLING)], ports=ports)
    decision = decide(world, later(16))
    assert decision == Act(DeleteClaim(world.claims[0]))


def test_neither_role_is_given_the_port_that_the_other_is_pinned_to() -> None:
    ports = Ports(((30007, 30008),), 15, frozenset())
    for backend in (with_http(pinned_http_port=30007), with_http(pinned_http_port=30008)):
        found = allotment(a_world(backend, ports=ports), backend, 0)
        assert not isinstance(found, Lack)
        assert sorted(port for port in found.values() if isinstance(port, int)) == [30007, 30008]


def test_the_pin_of_a_role_that_the_backend_has_not_keeps_no_port_from_the_others() -> None:
    backend = a_backend(pinned_http_port=30007)
    assert allotment(a_world(backend, ports=Ports(((30007, 30007),), 15, frozenset())), backend, 0) == {
        PortRole.GRPC: 30007
    }


def test_a_cooling_claim_stays_while_the_other_port_of_its_pod_is_withheld() -> None:
    """Its evidence is what opens the other."""
    proven = a_claim(COOLING, evidence=Evidence.NODE_REBOOTED, pod_uid="gone")
    world = a_world(with_http(), claims=[proven, http_claim(WITHHELD, pod_uid="gone")])
    assert decide(world, later(3600)) == Act(CoolClaim(world.claims[1], Evidence.NODE_REBOOTED))
    untold = replace(world, claims=(replace(proven, evidence="a word of a later version"), world.claims[1]))
    assert decide(untold, later(3600)) != Act(DeleteClaim(untold.claims[0]))


@pytest.mark.parametrize("said_on", [0, 1])
def test_what_is_said_of_a_pod_on_one_claim_holds_for_the_other(said_on: int) -> None:
    claims = [a_claim(WITHHELD), http_claim(WITHHELD)]
    claims[said_on] = replace(claims[said_on], attestation=Attestation(POD_UID, "its machine is scrap"))
    world = a_world(with_http(), claims=claims)
    words = [evidence_elsewhere(world, trail_of_claim(world, claim)) for claim in claims]
    assert words == [Evidence.ATTESTED, Evidence.ATTESTED]


# -- what ends it -----------------------------------------------------------------------------------------------------


def with_exit_code(code: int) -> Pod:
    ended = Container("server", ContainerState.WAITING, ever_created=True, exit_code=code)
    return a_loading_pod(containers=(ended,))


ENDS: dict[str, tuple[Observation, StopReason | None]] = {
    "one of its claims is gone": (
        behind_two(a_serving_pod(), claims=(a_claim(node=NODE),)),
        StopReason.CLAIM_LOST,
    ),
    "the second port is pinned elsewhere": (
        behind_two(a_serving_pod(), backend=with_http(pinned_http_port=30001)),
        StopReason.SPEC_CHANGED,
    ),
    "the second port is pinned where it is": (
        behind_two(a_serving_pod(), backend=with_http(pinned_http_port=HTTP_PORT)),
        None,
    ),
    "its HTTP port is taken": (behind_two(with_exit_code(76)), StopReason.HTTP_PORT_TAKEN),
    "its gRPC port is taken": (behind_two(with_exit_code(75)), StopReason.PORT_TAKEN),
    "its pinned HTTP port is taken": (
        behind_two(with_exit_code(76), backend=with_http(pinned_http_port=HTTP_PORT)),
        None,
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_what_ends_an_instance_with_two_ports(case: str) -> None:
    world, reason = ENDS[case]
    assert stop_reason(world, world.pods[0]) == reason


def test_of_two_ports_only_the_one_that_was_taken_is_not_taken_back() -> None:
    pod = an_ended_pod(stop=a_stop(StopReason.HTTP_PORT_TAKEN))
    first = behind_two(pod, services=())
    assert step(first) == CoolClaim(first.claims[0], Evidence.CONTAINERS_TERMINATED)
    second = behind_two(pod, services=(), claims=(a_claim(COOLING), http_claim()))
    assert step(second) == CoolClaim(second.claims[1], Evidence.CONTAINERS_TERMINATED, "PortInUse")


# -- what is told -----------------------------------------------------------------------------------------------------


def test_the_status_tells_both_addresses_by_role() -> None:
    status = behind_two(a_serving_pod()).backend.status  # type: ignore[union-attr]
    told = [(entry["role"], entry["address"]) for entry in status["endpoints"]]
    assert told == [("Grpc", f"10.0.0.1:{PORT}"), ("Http", f"10.0.0.1:{HTTP_PORT}")]
    (instance,) = status["instances"]
    assert (instance["port"], instance["httpPort"]) == (PORT, HTTP_PORT)


def test_an_instance_that_drains_is_told_by_neither() -> None:
    status = behind_two(a_draining_pod()).backend.status  # type: ignore[union-attr]
    assert "endpoints" not in status or status["endpoints"] == []
