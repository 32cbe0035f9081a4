"""What instances leave behind: claims without a pod, Services without a claim, and the last finalizer."""

from dataclasses import replace
from datetime import datetime

import pytest

from modelbackend_operator.actions import (
    Action,
    BindClaim,
    CreateBudget,
    CreateClaim,
    DeleteBudget,
    DeleteClaim,
    DeletePod,
    DeleteService,
    RecordReturn,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    ReserveClaim,
    WithholdClaim,
    WriteStatus,
)
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Done, Wait
from modelbackend_operator.model.backend import Attestation, Exposure
from modelbackend_operator.model.budget import Budget
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.settling import keep_budget, remove_finalizer, settle_claim
from tests.unit.builders import (
    MACHINE,
    NODE,
    NOW,
    POD_UID,
    PORT,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_gated_pod,
    a_lease,
    a_service,
    a_serving_pod,
    a_shared_service,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    bound,
    later,
    shown,
)

RESERVED, BOUND, COOLING, WITHHELD = ClaimPhase.RESERVED, ClaimPhase.BOUND, ClaimPhase.COOLING, ClaimPhase.WITHHELD


def acted(world: Observation, now: datetime = NOW) -> Action:
    decision = decide(world, now)
    assert isinstance(decision, Act), decision
    return decision.action


# -- a pod that vanished ----------------------------------------------------------------------------------------------


def test_a_port_whose_pod_vanished_is_withheld_and_says_why() -> None:
    claim = a_claim(node=NODE)
    assert acted(a_world(a_backend(), claims=[claim])) == WithholdClaim(
        claim,
        "PodMissing",
        "pod smollm2-0 (p-uid) on node node-1 vanished without proof that its process ended; "
        "it was let go past its finalizer or its record was lost; proof is a later reboot of the node, "
        "the taint node.kubernetes.io/out-of-service on it, "
        'or the annotation modelbackend.dev/attest="p-uid <reason>" on this PortClaim',
    )


def test_a_pod_that_vanished_before_its_node_was_recorded_withholds_the_port_too() -> None:
    action = acted(a_world(None, claims=[a_claim()]))
    assert isinstance(action, WithholdClaim)
    assert action.message.startswith("pod smollm2-0 (p-uid) vanished without proof")


@pytest.mark.parametrize("seconds", [0, 3600, 10**8])
def test_no_time_and_no_deletion_opens_a_withheld_claim(seconds: int) -> None:
    claim = a_claim(WITHHELD, terminating=True)
    for backend in (None, a_backend(), a_deleted_backend()):
        assert settle_claim(a_world(backend, claims=[claim]), claim, later(seconds)) is None


# -- reserved ---------------------------------------------------------------------------------------------------------

SURPLUS: dict[str, tuple[Observation, Claim]] = {
    "of an instance that nobody wants": (
        a_world(a_backend(ordinals=()), claims=[a_claim(RESERVED)]),
        a_claim(RESERVED),
    ),
    "of a backend that is gone": (a_world(None, claims=[a_claim(RESERVED)]), a_claim(RESERVED)),
    "of another kind of port than the spec asks for": (
        a_world(a_backend(exposure=Exposure.CLUSTER_IP), claims=[a_claim(RESERVED)]),
        a_claim(RESERVED),
    ),
    "the higher of two": (
        a_world(a_backend(), claims=[a_claim(RESERVED, 30001), a_claim(RESERVED, 30002)]),
        a_claim(RESERVED, 30002),
    ),
    "beside the claim that the instance runs behind": (
        bound(a_serving_pod()),
        a_claim(RESERVED, 30001),
    ),
    "beside the claim of an instance that starts": (bound(a_gated_pod()), a_claim(RESERVED, 30001)),
}


@pytest.mark.parametrize("case", SURPLUS)
def test_a_surplus_reserved_claim_is_given_up(case: str) -> None:
    world, claim = SURPLUS[case]
    claims = {found.ref.name: found for found in (*world.claims, claim)}
    assert settle_claim(replace(world, claims=tuple(claims.values())), claim, NOW) == Act(DeleteClaim(claim))


KEPT: dict[str, tuple[Observation, Claim]] = {
    "the one that the next pod takes": (a_world(a_backend(), claims=[a_claim(RESERVED)]), a_claim(RESERVED)),
    "the one that the pod behind the gate takes": (
        a_world(a_backend(), claims=[a_claim(RESERVED)], pods=[a_gated_pod()]),
        a_claim(RESERVED),
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_a_reserved_claim_that_is_kept(case: str) -> None:
    world, claim = KEPT[case]
    assert settle_claim(world, claim, NOW) is None


HOST_PORT = Exposure.HOST_PORT
BEHIND: dict[str, tuple[Observation, Claim]] = {
    f"{phase} of a {exposure}": (
        a_world(
            a_backend(ordinals=(), exposure=exposure),
            pods=[a_serving_pod(host_port=PORT if exposure is HOST_PORT else None)],
            services=[a_service()],
        ),
        a_claim(phase, exposure=exposure, pod_uid=named, attestation=word),
    )
    for exposure in (HOST_PORT, Exposure.NODE_PORT)
    for phase, named, word in (
        (RESERVED, "", None),
        (COOLING, "an ended pod", None),
        (WITHHELD, "an ended pod", Attestation("an ended pod", "it is off")),
    )
}


@pytest.mark.parametrize("case", BEHIND)
def test_a_claim_is_bound_to_the_pod_behind_its_port_that_it_was_made_to_forget(case: str) -> None:
    """Whoever opened the gate or edited the ledger: what may listen on a port holds its claim."""
    world, claim = BEHIND[case]
    step = settle_claim(replace(world, claims=(claim,)), claim, later(3600))
    assert step == Act(BindClaim(claim, world.pods[0]))


# -- cooling ----------------------------------------------------------------------------------------------------------


def test_a_cooling_port_of_an_ended_instance_is_freed_after_the_reuse_delay_and_not_before() -> None:
    claim = a_claim(COOLING)
    world = a_world(None, claims=[claim])
    assert decide(world, later(14)) == Wait("PortCooling", "port 30007 cools", later(15), 0)
    assert decide(world, later(15)) == Act(DeleteClaim(claim))


def test_a_port_whose_machine_was_removed_is_kept_for_an_hour_with_what_is_known_of_the_machine() -> None:
    claim = a_claim(COOLING, removed_nodes=(NODE,))
    world = a_world(None, claims=[claim], nodes={})
    assert decide(world, later(3599)) == Wait("PortCooling", "port 30007 cools", later(3600), 0)
    assert decide(world, later(3600)) == Act(DeleteClaim(claim))
    back = replace(world, nodes={NODE.name: replace(MACHINE, uid="n-2")})
    assert decide(back, later(1800)) == Act(RecordReturn(claim, NODE))


def test_a_claim_that_somebody_deletes_is_not_kept_for_the_sake_of_its_machine() -> None:
    claim = a_claim(COOLING, removed_nodes=(NODE,), terminating=True)
    assert decide(a_world(None, claims=[claim], nodes={}), later(15)) == Act(RemoveClaimFinalizer(claim))


def test_a_cooling_port_is_not_freed_while_the_ended_pods_object_exists() -> None:
    claim = a_claim(COOLING)
    assert settle_claim(a_world(None, claims=[claim], pods=[an_ended_pod()]), claim, later(3600)) is None


@pytest.mark.parametrize("phase", [RESERVED, COOLING])
@pytest.mark.parametrize("pod", [a_serving_pod(), a_terminating_pod()], ids=["serving", "terminating"])
def test_a_claim_that_was_edited_to_look_free_is_bound_again_while_its_pod_may_listen(
    phase: ClaimPhase, pod: Pod
) -> None:
    edited = a_claim(phase, pod_uid=pod.ref.uid)
    world = replace(bound(pod), claims=(edited,))
    assert acted(world) == BindClaim(edited, pod)


def test_a_long_pause_of_the_operator_does_not_cost_an_instance_its_port() -> None:
    claim = a_claim(COOLING)
    assert acted(a_world(a_backend(), claims=[claim]), later(3600)) == ReserveClaim(claim)


@pytest.mark.parametrize(
    "world",
    [
        a_world(a_backend(refused=("spec.x is unsupported.",)), claims=[a_claim(COOLING)]),
        a_world(a_backend(), claims=[a_claim(COOLING)], namespace_terminating=True),
        a_world(a_backend(), claims=[a_claim(COOLING), a_claim(RESERVED, 30001)]),
        bound(a_serving_pod("next"), backend=a_backend()),
    ],
    ids=["spec refused", "namespace ends", "another port reserved", "runs behind another"],
)
def test_a_cooling_port_that_nothing_will_take_back_is_freed(world: Observation) -> None:
    claim = a_claim(COOLING)
    world = replace(world, services=(), claims=(claim, *(c for c in world.claims if c.port != claim.port)))
    assert settle_claim(world, claim, later(15)) == Act(DeleteClaim(claim))


def test_the_service_of_a_freed_port_goes_first_and_is_seen_gone() -> None:
    claim = a_claim(COOLING)
    world = a_world(a_backend(refused=("no.",)), claims=[claim], services=[a_service()])
    assert settle_claim(world, claim, later(15)) == Act(DeleteService(a_service()))
    going = replace(world, services=(a_service(terminating=True),))
    assert settle_claim(going, claim, later(15)) == Wait("AwaitingProof", "Service smollm2-0 is being deleted", None, 0)


def test_a_claim_deleted_by_hand_is_let_go_once_it_may_be_freed() -> None:
    claim = a_claim(COOLING, terminating=True)
    assert decide(a_world(None, claims=[claim]), later(15)) == Act(RemoveClaimFinalizer(claim))


def test_a_claim_that_only_others_hold_back_is_not_deleted_again_and_again() -> None:
    claim = a_claim(COOLING, terminating=True, has_finalizer=False)
    assert decide(a_world(None, claims=[claim]), later(15)) == Done()


# -- Services ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "service",
    [a_service(30001), a_service(ordinal=1), a_service(node_port=None)],
    ids=["of another port", "of another instance", "without a port"],
)
def test_a_service_that_no_claim_stands_behind_is_swept(service: object) -> None:
    world = bound(a_serving_pod())
    stray = replace(world, services=(*world.services, service))  # type: ignore[arg-type]
    assert acted(stray) == DeleteService(service)  # type: ignore[arg-type]


def test_services_that_are_claimed_shared_or_going_are_left_alone() -> None:
    world = a_world(
        a_backend(ordinals=()),
        claims=[a_claim(WITHHELD)],
        services=[a_shared_service(), a_service(), a_service(30001, terminating=True)],
    )
    assert isinstance(acted(world), WriteStatus)


# -- the last finalizer -----------------------------------------------------------------------------------------------

HOLDS_THE_BACKEND: dict[str, Observation] = {
    "a pod": a_world(a_deleted_backend(), pods=[a_terminating_pod()]),
    "a bound claim": a_world(a_deleted_backend(), claims=[a_claim()]),
    "a reserved claim": a_world(a_deleted_backend(), claims=[a_claim(RESERVED)]),
    "the model's Lease": a_world(a_deleted_backend(), lease=a_lease()),
}


@pytest.mark.parametrize("case", HOLDS_THE_BACKEND)
def test_a_backend_is_held_by(case: str) -> None:
    assert not isinstance(acted(HOLDS_THE_BACKEND[case]), RemoveFinalizer)
    assert remove_finalizer(HOLDS_THE_BACKEND[case]) is None, "also where what comes before it is refused"


def test_a_backend_goes_once_its_ports_are_proven_free_or_withheld_with_their_reason() -> None:
    world = a_world(a_deleted_backend(), claims=[a_claim(COOLING), a_claim(WITHHELD, 30001)])
    assert acted(world) == RemoveFinalizer(a_deleted_backend())


def test_a_backend_that_is_not_deleted_keeps_its_finalizer_although_it_has_nothing() -> None:
    assert isinstance(acted(a_world(a_backend(ordinals=()))), WriteStatus)


def test_with_nothing_left_there_is_nothing_to_do() -> None:
    assert decide(a_world(None), NOW) == Done()
    assert decide(a_world(None, claims=[a_claim(WITHHELD)]), NOW) == Done()


LATE = a_gated_pod("late", created_at=later(60), ref=Ref("a-late", "late", "1", "models"))


@pytest.mark.parametrize(
    ("world", "named"),
    [(bound(LATE, a_serving_pod()), POD_UID), (replace(bound(), pods=(a_gated_pod("early"), LATE)), "late")],
    ids=["one that was let through before one behind its gate", "of two behind their gates the one that a claim names"],
)
def test_which_of_two_pods_stands_for_the_instance(world: Observation, named: str) -> None:
    """A late create must not take the place in status of the one that serves, or that is about to."""
    claimed = replace(world, claims=(a_claim(pod_uid=named, node=NODE),))
    written = shown(claimed).backend
    assert written is not None
    assert [entry["pod"]["uid"] for entry in written.status["instances"]] == [named]
    deleted = acted(shown(claimed))
    assert isinstance(deleted, DeletePod)
    assert deleted.pod.ref.uid != named


# -- the disruption budget ---------------------------------------------------------------------------------------------

BUDGET = Budget(Ref("smollm2-12345678", "budget-uid", "1", "models"))
TWO = bound(a_serving_pod(), backend=a_backend(ordinals=(0, 1)))


def of_the_budget(world: Observation) -> Action | None:
    assert world.backend is not None
    step = keep_budget(world, world.backend)
    return step.action if step is not None else None


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (replace(TWO, budgets=()), CreateBudget(a_backend(ordinals=(0, 1), status=TWO.backend.status))),  # type: ignore[union-attr]
        (replace(TWO, budgets=(BUDGET,)), None),
        (replace(TWO, budgets=(replace(BUDGET, intact=False),)), DeleteBudget(replace(BUDGET, intact=False))),
        (replace(TWO, budgets=(replace(BUDGET, intact=False, terminating=True),)), None),
        (replace(TWO, budgets=None), None),
        (replace(TWO, budgets=(), namespace_terminating=True), None),
        (bound(a_serving_pod(), budgets=()), None),
    ],
    ids=[
        "several instances and none is there",
        "it is there",
        "it was edited",
        "the edited one is going",
        "budgets are not for us to make",
        "the namespace takes nothing new",
        "one instance, to which it would promise nothing",
    ],
)
def test_several_instances_have_a_budget_for_node_drains(world: Observation, expected: Action | None) -> None:
    assert of_the_budget(world) == expected


def test_a_budget_comes_after_all_that_brings_instances_up() -> None:
    world = replace(TWO, budgets=())
    assert isinstance(decide(world, NOW), Act)
    assert isinstance(decide(world, NOW).action, CreateClaim)  # type: ignore[union-attr]
