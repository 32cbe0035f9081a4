"""How an instance begins: for each stage on the way from nothing to serving, the one write that comes next."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.actions import (
    Action,
    AddFinalizer,
    BindClaim,
    CreateClaim,
    CreatePod,
    CreateService,
    DeletePod,
    PointService,
    RecordNode,
    RemakeToken,
    ReserveClaim,
    RestoreMarks,
    SetServing,
    Ungate,
    WriteStatus,
)
from modelbackend_operator.allotment import probe_order
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Decision, Done, Wait
from modelbackend_operator.manifests import control_secret_name, pod_name, service_name
from modelbackend_operator.model.backend import Exposure
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.node import Node, NodeId
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod, PodPhase
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.model.server import ServerState
from tests.unit.builders import (
    BACKEND_UID,
    NEVER_MADE,
    NODE,
    NOW,
    POD_UID,
    PORT,
    a_backend,
    a_claim,
    a_gated_pod,
    a_loading_pod,
    a_report,
    a_service,
    a_serving_pod,
    a_shared_service,
    a_terminating_pod,
    a_world,
    an_unscheduled_pod,
    bound,
    later,
    shown,
)

POD_NAME = pod_name(a_backend(), 0, ())
SERVICE_NAME = service_name(a_backend(), 0, ())
RESERVED, BOUND, COOLING, WITHHELD = ClaimPhase.RESERVED, ClaimPhase.BOUND, ClaimPhase.COOLING, ClaimPhase.WITHHELD


def action_of(decision: Decision) -> Action:
    assert isinstance(decision, Act), decision
    return decision.action


def wait_of(observation: Observation) -> Wait:
    """Of the world once the wait is shown in status."""
    told = action_of(decide(observation, NOW))
    assert isinstance(told, WriteStatus)
    assert observation.backend is not None
    decision = decide(replace(observation, backend=replace(observation.backend, status=told.status)), NOW)
    assert isinstance(decision, Wait), decision
    return decision


def gated(**special: object) -> Observation:
    """The usual instance just before its gate: bound, named by the status, behind its Services."""
    return replace(bound(a_gated_pod()), claims=(a_claim(),), **special)  # type: ignore[arg-type]


STAGES: dict[str, tuple[Observation, Callable[[Observation], Action]]] = {
    "first of all the finalizer": (
        a_world(a_backend(has_finalizer=False)),
        lambda w: AddFinalizer(w.backend),  # type: ignore[arg-type]
    ),
    "without a pod that may take it, the reserved port gets one": (
        a_world(a_backend(), claims=[a_claim(RESERVED)]),
        lambda _: CreatePod(a_backend(), 0, POD_NAME, PORT),
    ),
    "the port this instance had before is taken back": (
        a_world(a_backend(), claims=[a_claim(COOLING)]),
        lambda w: ReserveClaim(w.claims[0]),
    ),
    "a new pod is bound to the reserved port": (
        a_world(a_backend(), claims=[a_claim(RESERVED)], pods=[a_gated_pod()]),
        lambda w: BindClaim(w.claims[0], w.pods[0]),
    ),
    "behind the gate, a missing port's Service is made": (
        gated(services=(a_shared_service(),)),
        lambda w: CreateService(w.backend, SERVICE_NAME, 0, PORT, POD_UID),  # type: ignore[arg-type]
    ),
    "the port's Service of the last pod is pointed at the new one": (
        gated(services=(a_shared_service(), a_service(pod_uid="last"))),
        lambda w: PointService(w.backend, w.services[1], POD_UID),  # type: ignore[arg-type]
    ),
    "with everything in place the gate opens": (gated(), lambda w: Ungate(w.pods[0])),
    "once scheduled, the ledger learns the machine": (
        replace(bound(a_loading_pod()), claims=(a_claim(),)),
        lambda w: RecordNode(w.claims[0], NODE),
    ),
    "a machine that was registered anew is recorded anew": (
        replace(bound(a_loading_pod()), claims=(a_claim(node=replace(NODE, uid="earlier")),)),
        lambda w: RecordNode(w.claims[0], NODE),
    ),
    "a server that tells the right identity is let into service": (
        bound(a_loading_pod(containers_ready=True), servers={POD_UID: a_report()}),
        lambda w: SetServing(w.pods[0], serving=True),
    ),
    "labels edited away are put back, or no Service would find the pod": (
        bound(a_serving_pod(serving_label=False)),
        lambda w: Ungate(w.pods[0]),
    ),
    "a second gated pod of the instance is deleted": (
        bound(a_serving_pod(), a_gated_pod("late", created_at=later(60))),
        lambda w: DeletePod(w.pods[1], 15),
    ),
}


@pytest.mark.parametrize("stage", STAGES)
def test_the_next_step_of_a_start(stage: str) -> None:
    world, expected = STAGES[stage]
    assert decide(world, NOW) == Act(expected(world))


def test_an_instance_without_a_claim_claims_the_first_port_of_its_own_order() -> None:
    world = a_world(a_backend())
    order = list(probe_order(world, a_backend(), 0))
    assert action_of(decide(world, NOW)) == CreateClaim(a_backend(), 0, order[0])
    elsewhere = Ports(((30000, 30085),), 15, frozenset(), taken_on={order[0]: frozenset({"node-1"})})
    assert action_of(decide(replace(world, ports=elsewhere), NOW)) == CreateClaim(a_backend(), 0, order[1])
    taken = replace(world, ports=Ports(((30000, 30085),), 15, frozenset(order[:2])))
    assert action_of(decide(taken, NOW)) == CreateClaim(a_backend(), 0, order[2])


def test_the_order_of_ports_is_the_instances_own_and_holds_every_port_of_pool_and_range_once() -> None:
    world = a_world(a_backend())
    ranged = a_backend(port_range=(30080, 31000))
    assert sorted(probe_order(world, a_backend(), 0)) == list(range(30000, 30086))
    assert sorted(probe_order(world, ranged, 0)) == list(range(30080, 30086))
    assert list(probe_order(world, a_backend(), 0)) == list(probe_order(world, a_backend(), 0))
    assert list(probe_order(world, a_backend(), 0)) != list(probe_order(world, a_backend(), 1))
    two = replace(world, ports=Ports(((30000, 30002), (31000, 31001)), 15, frozenset()))
    assert sorted(probe_order(two, a_backend(), 0)) == [30000, 30001, 30002, 31000, 31001]
    assert sorted(probe_order(two, a_backend(port_range=(30002, 31000)), 0)) == [30002, 31000]


def test_the_status_names_the_pod_before_its_gate_opens() -> None:
    world = a_world(a_backend(), claims=[a_claim()], pods=[a_gated_pod()], services=[a_shared_service()])
    written = action_of(decide(world, NOW))
    assert isinstance(written, WriteStatus)
    assert [entry["pod"]["uid"] for entry in written.status["instances"]] == [POD_UID]


def test_a_healthy_instance_needs_nothing() -> None:
    assert decide(bound(a_serving_pod()), NOW) == Done()


# -- what is not let through ------------------------------------------------------------------------------------------

NOT_LET_THROUGH: dict[str, Observation] = {
    "a gated pod that no claim names and none is left for": a_world(a_backend(), pods=[a_gated_pod()]),
    "a gated pod whose only claim is being deleted": a_world(
        a_backend(), claims=[a_claim(RESERVED, terminating=True)], pods=[a_gated_pod()]
    ),
    "a gated pod made for another host port than the one reserved": a_world(
        a_backend(exposure=Exposure.HOST_PORT),
        claims=[a_claim(RESERVED, 20001, exposure=Exposure.HOST_PORT)],
        pods=[a_gated_pod(host_port=20002)],
    ),
    "a gated pod of an outdated template": gated(pods=(a_gated_pod(template_hash="old"),)),
    "a gated pod whose port no longer fits the spec": replace(
        gated(),
        backend=replace(gated().backend, pinned_port=30001),  # type: ignore[type-var]
    ),
    "a gated pod of an instance that is not wanted": gated(pods=(a_gated_pod(ordinal=3),)),
}


@pytest.mark.parametrize("world", NOT_LET_THROUGH.values(), ids=NOT_LET_THROUGH)
def test_deleted_instead_of_let_through(world: Observation) -> None:
    assert action_of(decide(world, NOW)) == DeletePod(world.pods[0], 15)


def test_a_host_port_is_bound_only_by_the_pod_that_was_made_for_it() -> None:
    claim = a_claim(RESERVED, 20001, exposure=Exposure.HOST_PORT)
    world = a_world(a_backend(exposure=Exposure.HOST_PORT), claims=[claim], pods=[a_gated_pod(host_port=20001)])
    assert action_of(decide(world, NOW)) == BindClaim(claim, world.pods[0])


def test_a_cluster_ip_instance_claims_no_port_and_gets_no_service_of_its_own() -> None:
    backend = a_backend(exposure=Exposure.CLUSTER_IP)
    first = action_of(decide(a_world(backend), NOW))
    assert isinstance(first, CreatePod)
    assert first.port is None
    made = a_world(backend, pods=[a_gated_pod()])
    assert action_of(decide(made, NOW)) == CreateService(backend, "smollm2")
    named = shown(replace(made, services=(a_shared_service(),)))
    assert action_of(decide(named, NOW)) == Ungate(named.pods[0])


# -- ports ------------------------------------------------------------------------------------------------------------


def test_the_own_cooling_port_is_not_taken_back_while_the_last_pods_object_exists() -> None:
    world = a_world(a_backend(), claims=[a_claim(COOLING)], pods=[a_gated_pod(deleted_at=NOW, has_finalizer=False)])
    decision = decide(world, NOW)
    assert not (isinstance(decision, Act) and isinstance(decision.action, ReserveClaim | CreatePod | CreateClaim))


@pytest.mark.parametrize(
    "claim",
    [
        a_claim(COOLING, exposure=Exposure.HOST_PORT),
        a_claim(COOLING, terminating=True),
        a_claim(COOLING, ordinal=1),
        a_claim(WITHHELD),
    ],
    ids=["another kind of port", "one being deleted", "another instance's", "one whose holder is unproven"],
)
def test_a_claim_that_is_not_taken_back(claim: Claim) -> None:
    action = action_of(decide(a_world(a_backend(), claims=[claim]), NOW))
    assert isinstance(action, CreateClaim)
    assert action.port != claim.port


def test_the_name_of_a_vanished_pod_is_not_used_again_while_its_port_is_withheld() -> None:
    first = action_of(decide(a_world(a_backend(), claims=[a_claim(RESERVED)]), NOW))
    assert isinstance(first, CreatePod)
    withheld = a_claim(WITHHELD, 30001, pod_name=first.name)
    second = action_of(decide(a_world(a_backend(), claims=[a_claim(RESERVED), withheld]), NOW))
    assert isinstance(second, CreatePod)
    assert second.name == f"{first.name}-1"


def test_a_foreign_pods_name_is_passed_over() -> None:
    world = a_world(a_backend(), claims=[a_claim(RESERVED)])
    first = action_of(decide(world, NOW))
    assert isinstance(first, CreatePod)
    second = action_of(decide(replace(world, taken_names=frozenset({first.name})), NOW))
    assert isinstance(second, CreatePod)
    assert second.name == f"{first.name}-1"


def test_an_exhausted_pool_says_who_holds_it_and_what_to_do() -> None:
    phases = {"Withheld": 1, "Cooling": 1}
    ports = Ports(((30000, 30002),), 15, frozenset({30000, 30001, 30002}), {}, phases)
    world = a_world(a_backend(), ports=ports)
    wait = wait_of(world)
    assert wait.reason == "PortPoolExhausted"
    assert wait.message == (
        "no free NodePort port in 30000-30002: 1 Cooling by other backends, 1 Withheld by other backends, "
        "1 held outside this operator; "
        "delete a backend, wait for a cooling claim, or have the pool widened (kubectl get portclaims)"
    )
    assert wait.not_after == later(10)


def test_an_exhausted_range_of_the_spec_is_named_as_such() -> None:
    world = a_world(
        a_backend(port_range=(30001, 30001)),
        claims=[a_claim(WITHHELD, 30001)],
        ports=Ports(((30000, 30002),), 15, frozenset()),
    )
    assert wait_of(world).message.startswith(
        "no free NodePort port in 30001-30001 (exposure.portRange, within 30000-30002): 1 Withheld by this backend; "
    )


def test_a_pinned_port_of_another_backend_names_the_holder_and_the_ways_out() -> None:
    ports = Ports(((30000, 30085),), 15, frozenset({PORT}), {PORT: "models/other"})
    wait = wait_of(a_world(a_backend(pinned_port=PORT), ports=ports))
    assert wait.reason == "PinnedPortTaken"
    assert wait.message == (
        "port 30007 of exposure.nodePort is held by models/other; "
        "pin another port, remove the pin, or delete the holder (kubectl get portclaim port-30007)"
    )


def test_a_pinned_port_of_a_vanished_pod_names_the_evidence_that_would_release_it() -> None:
    wait = wait_of(a_world(a_backend(pinned_port=PORT), claims=[a_claim(WITHHELD)]))
    assert wait.reason == "PinnedPortWithheld"
    assert wait.message == (
        "port 30007 is Withheld by this backend until pod smollm2-0 is proven to have ended; "
        "remove exposure.nodePort to start on another"
    )


def test_a_free_pinned_port_is_claimed() -> None:
    backend = a_backend(pinned_port=30042)
    assert action_of(decide(a_world(backend), NOW)) == CreateClaim(backend, 0, 30042)


# -- identity ---------------------------------------------------------------------------------------------------------


def test_a_silent_server_is_not_published_and_asked_again() -> None:
    wait = wait_of(bound(a_loading_pod(containers_ready=True)))
    assert (wait.reason, wait.not_after) == ("ServerSilent", later(1))
    assert wait.message == "the control port of pod smollm2-0 does not answer"


@pytest.mark.parametrize("field", ["backend_uid", "model", "pod_uid"])
def test_a_server_of_another_identity_is_not_published(field: str) -> None:
    special: dict[str, Any] = {field: "another"}
    report = a_report(**special)
    wait = wait_of(bound(a_loading_pod(containers_ready=True), servers={POD_UID: report}))
    assert wait.reason == "WrongIdentity"
    assert wait.message == (
        f"pod smollm2-0 (p-uid) answers as model {report.model} of backend {report.backend_uid} in pod "
        f"{report.pod_uid}, not as model smollm2 of backend b-uid; it is not published"
    )


def test_a_server_that_still_loads_is_asked_again() -> None:
    report = a_report(ServerState.LOADING)
    wait = wait_of(bound(a_loading_pod(containers_ready=True), servers={POD_UID: report}))
    assert (wait.reason, wait.message, wait.not_after) == ("ModelLoading", "the server is LOADING", later(1))


# -- a container that is not made -------------------------------------------------------------------------------------


def preparing(**special: Any) -> Observation:
    return bound(a_loading_pod(phase=PodPhase.PENDING, containers=(NEVER_MADE,), **special))


def test_a_start_is_nothing_to_wonder_about_for_half_a_minute() -> None:
    assert decide(preparing(), NOW) == Wait("Starting", "", later(30), 0)


def test_then_the_secret_of_its_control_token_is_made_again_in_case_somebody_deleted_it() -> None:
    world = preparing(created_at=later(-30))
    assert action_of(decide(world, NOW)) == RemakeToken(world.backend, world.pods[0])  # type: ignore[arg-type]


def test_and_the_status_says_where_to_look_until_it_is_made_once_more() -> None:
    wait = wait_of(preparing(created_at=later(-600), token_made_at=later(-100)))
    assert wait.reason == "Preparing"
    assert wait.message == (
        "node node-1 has not made the container of pod smollm2-0 yet: its image is large, or a volume or a Secret is "
        "missing (kubectl describe pod smollm2-0)"
    )
    assert wait.not_after == later(500)
    again = preparing(created_at=later(-900), token_made_at=later(-600))
    assert isinstance(action_of(decide(again, NOW)), RemakeToken)


def test_a_pod_that_the_scheduler_does_not_try_is_told_of_once_that_lasts() -> None:
    """One that names a ResourceClaim which is not there: no condition says so."""
    world = bound(an_unscheduled_pod(created_at=NOW))
    assert decide(world, NOW) == Wait("Starting", "", later(30), 0)
    wait = wait_of(bound(an_unscheduled_pod(created_at=later(-30))))
    assert (wait.reason, wait.not_after) == ("Preparing", None)
    assert wait.message.startswith("the scheduler has not tried pod smollm2-0 yet: a ResourceClaim that it names")
    assert decide(bound(an_unscheduled_pod(unschedulable="0/1 nodes have a GPU")), NOW) == Done()


# -- the Services of an instance that runs ---------------------------------------------------------------------------


def test_a_server_that_refuses_our_token_is_not_published_and_the_secret_is_named() -> None:
    wait = wait_of(bound(a_loading_pod(containers_ready=True), refusing=frozenset({POD_UID})))
    assert wait.reason == "ControlTokenRefused"
    assert control_secret_name(a_backend()) in wait.message


def test_a_service_that_was_deleted_under_a_running_instance_is_made_again() -> None:
    without_port = replace(bound(a_serving_pod()), services=(a_shared_service(),))
    made = action_of(decide(without_port, NOW))
    assert isinstance(made, CreateService)
    assert (made.ordinal, made.node_port, made.pod_uid) == (0, PORT, POD_UID)
    without_shared = replace(bound(a_serving_pod()), services=(a_service(),))
    assert action_of(decide(without_shared, NOW)) == CreateService(without_shared.backend, "smollm2")  # type: ignore[arg-type]


def test_a_service_edited_to_select_nothing_is_pointed_at_its_pod_again() -> None:
    world = replace(bound(a_serving_pod()), services=(a_shared_service(), a_service(pod_uid="")))
    assert action_of(decide(world, NOW)) == PointService(world.backend, world.services[1], POD_UID)  # type: ignore[arg-type]


@pytest.mark.parametrize("edited", [0, 1])
def test_a_service_edited_in_any_other_way_is_written_as_it_was_made(edited: int) -> None:
    services = [a_shared_service(), a_service()]
    services[edited] = replace(services[edited], intact=False)
    world = replace(bound(a_serving_pod()), services=tuple(services))
    points_at = ["", POD_UID][edited]
    assert action_of(decide(world, NOW)) == PointService(world.backend, services[edited], points_at)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pod",
    [a_serving_pod(labels_intact=False), a_terminating_pod(labels_intact=False), a_serving_pod(has_finalizer=False)],
    ids=["labels of one that serves", "labels of one that ends", "the finalizer"],
)
def test_a_pod_is_marked_as_ours_again(pod: Pod) -> None:
    assert action_of(decide(bound(pod), NOW)) == RestoreMarks(pod, BACKEND_UID)


def held_by_a_foreign_service(world: Observation) -> Observation:
    ports = Ports(((30000, 30085),), 15, frozenset({PORT}), {PORT: "a Service outside this operator"})
    return replace(world, services=(a_shared_service(),), ports=ports)


def test_an_instance_whose_claimed_port_a_foreign_service_holds_starts_on_another() -> None:
    world = held_by_a_foreign_service(gated())
    assert action_of(decide(world, NOW)) == DeletePod(world.pods[0], 15)
    released = replace(world, pods=(), services=(), claims=(a_claim(COOLING),))
    claimed = action_of(decide(released, NOW))
    assert isinstance(claimed, CreateClaim)
    assert claimed.port != PORT


def test_a_pinned_port_that_a_foreign_service_holds_is_waited_for() -> None:
    pinned = replace(gated(), backend=replace(gated().backend, pinned_port=PORT))  # type: ignore[type-var]
    wait = wait_of(held_by_a_foreign_service(pinned))
    assert (wait.reason, wait.not_after) == ("PinnedPortTaken", later(10))
    assert wait.message == (
        "node port 30007 is allocated to a Service outside this operator; "
        "delete that Service, or change exposure to start on another"
    )


def test_a_running_instance_whose_port_a_foreign_service_took_is_not_ended_for_it() -> None:
    wait = wait_of(held_by_a_foreign_service(bound(a_serving_pod())))
    assert wait.reason == "PortInUse"


def test_the_service_of_an_earlier_start_that_is_being_deleted_is_seen_gone_before_the_gate_opens() -> None:
    world = bound(a_gated_pod())
    ending = replace(world, services=(*world.services[:1], a_service(terminating=True)))
    wait = wait_of(ending)
    assert (wait.reason, wait.message) == ("Starting", "Service smollm2-0 of an earlier start is being deleted")


# -- when nothing may be started --------------------------------------------------------------------------------------


def test_a_spec_that_asks_for_something_unsupported_starts_nothing_and_says_what() -> None:
    wait = wait_of(a_world(a_backend(refused=("spec.rollout: Surge comes later.", "spec.suspend is odd."))))
    assert (wait.reason, wait.not_after) == ("UnsupportedField", None)
    assert wait.message == "spec.rollout: Surge comes later.; spec.suspend is odd."


def test_nothing_is_started_in_a_namespace_that_is_being_deleted() -> None:
    wait = wait_of(a_world(a_backend(), namespace_terminating=True))
    assert (wait.reason, wait.message) == ("NamespaceTerminating", "namespace models is being deleted")


def test_nothing_is_started_for_a_backend_that_is_deleted_without_our_finalizer() -> None:
    deleted = a_backend(deleting_since=NOW, has_finalizer=False, ordinals=())
    decision = decide(shown(a_world(deleted)), NOW)
    assert decision == Done()


def test_a_node_that_is_not_known_yet_stops_nobody() -> None:
    world = replace(bound(a_serving_pod()), nodes={}, claims=(a_claim(),))
    assert not isinstance(action_or_none(decide(world, NOW)), RecordNode)


def test_a_reboot_under_a_living_instance_is_recorded_so_that_the_ledger_knows_the_machine_that_last_ran_it() -> None:
    world = replace(bound(a_serving_pod()), nodes={NODE.name: Node(NODE.name, NODE.uid, "boot-2")})
    rebooted = NodeId(NODE.name, NODE.uid, "boot-2")
    assert action_or_none(decide(world, NOW)) == RecordNode(world.claims[0], rebooted)


def action_or_none(decision: Decision) -> Action | None:
    return decision.action if isinstance(decision, Act) else None


def test_an_unscheduled_pod_is_left_to_the_scheduler() -> None:
    assert action_or_none(decide(bound(an_unscheduled_pod()), NOW)) is None
