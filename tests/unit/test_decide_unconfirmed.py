"""When proof does not come: overdue, handed over or waited for, withheld, explained, and settled by late proof."""

from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.actions import (
    Action,
    BindClaim,
    CoolClaim,
    CreateClaim,
    CreatePod,
    DeleteClaim,
    DeletePod,
    DeleteService,
    ExplainClaim,
    HandOver,
    RecordReference,
    RecordReturn,
    ReleaseLease,
    RemoveFinalizer,
    RemovePodFinalizer,
    WithholdClaim,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.api import Evidence
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Done, Wait
from modelbackend_operator.ending import overdue_at
from modelbackend_operator.model.backend import Attestation, WhenUnconfirmed
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.deferral import Deferral, Key
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.settling import settle_claim
from modelbackend_operator.withheld import settle_withheld
from modelbackend_operator.words import missing_words, returned_words, unconfirmed_words
from tests.unit.builders import (
    MACHINE,
    NODE,
    NOW,
    POD_UID,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_gated_pod,
    a_lease,
    a_service,
    a_serving_pod,
    a_shared_service,
    a_stop,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    bound,
    later,
    shown,
)

BOUND, WITHHELD, COOLING = ClaimPhase.BOUND, ClaimPhase.WITHHELD, ClaimPhase.COOLING
WAITS = a_backend(when_unconfirmed=WhenUnconfirmed.WAIT)
DUE_SECONDS = 15 + 60
YIELDED = replace(a_stop(), yielded_at=later(DUE_SECONDS))
WITNESS = a_terminating_pod(handed_over=later(DUE_SECONDS))


def overdue(backend: Any = None, **special: Any) -> Observation:
    return bound(a_terminating_pod(), backend=backend or a_backend(), **special)


def acted(world: Observation, seconds: float = DUE_SECONDS) -> Action:
    decision = decide(world, later(seconds))
    assert isinstance(decision, Act), decision
    return decision.action


def handed_over(pod: Pod = WITNESS, phase: ClaimPhase = WITHHELD, **special: Any) -> Observation:
    """The usual instance whose pod is a witness, its claim as it is written for one, and its end told in status."""
    world = replace(bound(pod), **special)
    if world.backend is not None:
        told = {**world.backend.status, "lastShutdown": {"pod": {"name": pod.ref.name, "uid": pod.ref.uid}}}
        world = replace(world, backend=replace(world.backend, status=told))
    words = unconfirmed_words(world, pod)
    claim = a_claim(phase, node=NODE, since=later(DUE_SECONDS), reason="Unconfirmed", message=words)
    return replace(world, claims=(claim,))


# -- overdue ----------------------------------------------------------------------------------------------------------


def test_an_instance_is_overdue_so_long_after_the_end_of_its_pods_grace_period() -> None:
    world = overdue(a_backend(unconfirmed_after_seconds=5))
    assert acted(world, 20) == HandOver(a_terminating_pod())
    assert not isinstance(acted(world, 19.9), HandOver)


def test_one_that_was_deleted_without_grace_is_overdue_so_long_after_its_deletion() -> None:
    assert overdue_at(overdue(), a_terminating_pod(grace_seconds=0)) == later(60)
    assert overdue_at(overdue(), a_terminating_pod(grace_seconds=None)) == later(60)


def test_without_its_backend_it_is_overdue_after_a_minute() -> None:
    world = replace(overdue(), backend=None)
    assert acted(world) == HandOver(a_terminating_pod())
    assert decide(world, later(DUE_SECONDS - 1)) == Wait(
        "AwaitingProof",
        "waiting for the kubelet to report that every container of pod smollm2-0 on node node-1 has ended",
        later(DUE_SECONDS),
        0,
    )


def test_proof_that_comes_late_but_before_the_hand_over_is_taken() -> None:
    assert acted(replace(overdue(), pods=(an_ended_pod(),)), 10**6) == CoolClaim(
        a_claim(node=NODE), "ContainersTerminated"
    )


# -- handed over ------------------------------------------------------------------------------------------------------


def test_a_witnesses_port_is_withheld_before_anything_else() -> None:
    world = handed_over(phase=BOUND)
    claim = world.claims[0]
    expected = WithholdClaim(claim, "Unconfirmed", unconfirmed_words(world, WITNESS), None)
    assert acted(world) == expected
    assert expected.message == (
        "pod smollm2-0 (p-uid) on node node-1 should have ended and nothing proves it; "
        "proof is its kubelet's report once the node is back, the taint node.kubernetes.io/out-of-service on it, "
        'or the annotation modelbackend.dev/attest="p-uid <reason>" on its port\'s PortClaim'
    )


@pytest.mark.parametrize(
    ("nodes", "node"), [({NODE.name: MACHINE}, NODE), ({}, NodeId(NODE.name, "", ""))], ids=["known", "removed"]
)
def test_a_claim_that_never_learnt_its_machine_learns_it_when_it_is_withheld(nodes: Any, node: NodeId) -> None:
    world = handed_over(phase=BOUND, nodes=nodes)
    action = acted(replace(world, claims=(replace(world.claims[0], node=None),)))
    assert isinstance(action, WithholdClaim)
    assert action.node == node


def test_a_replacement_starts_on_another_port_under_another_name() -> None:
    world = handed_over()
    claimed = acted(world)
    assert isinstance(claimed, CreateClaim)
    assert claimed.port != world.claims[0].port
    reserved = a_claim(ClaimPhase.RESERVED, claimed.port)
    created = acted(replace(world, claims=(*world.claims, reserved)))
    assert isinstance(created, CreatePod)
    assert created.name != WITNESS.ref.name


def test_the_lease_is_given_back_as_the_instance_is_handed_over() -> None:
    world = handed_over(lease=a_lease())
    assert acted(world) == ReleaseLease(a_lease())
    waiting = replace(world, pods=(a_terminating_pod(),), claims=(a_claim(node=NODE),))
    assert not isinstance(acted(waiting, 0), ReleaseLease)


def test_the_lease_is_given_back_by_one_that_waits_for_proof_once_its_record_says_so() -> None:
    world = overdue(WAITS, lease=a_lease())
    recorded = acted(world)
    assert recorded == WriteStopRecord(a_terminating_pod(), YIELDED)
    assert acted(replace(world, pods=(a_terminating_pod(stop=YIELDED),))) == ReleaseLease(a_lease())


def test_a_backend_goes_and_leaves_its_witness_behind_a_withheld_port() -> None:
    world = handed_over(backend=a_deleted_backend())
    assert acted(world) == RemoveFinalizer(world.backend)  # type: ignore[arg-type]
    unwithheld = handed_over(phase=BOUND, backend=a_deleted_backend())
    assert isinstance(acted(unwithheld), WithholdClaim)


def test_in_a_namespace_that_ends_the_witness_goes_once_its_port_is_withheld() -> None:
    world = handed_over(backend=None, namespace_terminating=True)
    assert acted(world) == RemovePodFinalizer(WITNESS)
    assert isinstance(acted(handed_over(phase=BOUND, backend=None, namespace_terminating=True)), WithholdClaim)
    elsewhere = handed_over(backend=None)
    assert not isinstance(decide(elsewhere, later(DUE_SECONDS)), Act)


def test_the_service_of_a_withheld_port_stays() -> None:
    world = handed_over(backend=a_backend(ordinals=()))
    assert isinstance(acted(world), WriteStatus)
    assert decide(shown(world, later(DUE_SECONDS)), later(DUE_SECONDS)) != Done()


def test_a_witness_is_no_instance_in_the_status_and_no_shutdown_is_told_of_it() -> None:
    world = handed_over(backend=a_backend(ordinals=()))
    backend = shown(world).backend
    assert backend is not None
    assert (backend.status["replicas"], backend.status["instances"][0]["phase"]) == (0, "Unconfirmed")
    assert not [c for c in backend.status["conditions"] if c["type"] == "Drained"]


# -- waited for -------------------------------------------------------------------------------------------------------


def test_where_proof_is_waited_for_nothing_is_handed_over_and_a_person_is_told() -> None:
    world = replace(overdue(WAITS), pods=(a_terminating_pod(stop=YIELDED),))
    told = acted(world, 10**6)
    assert isinstance(told, WriteStatus)
    (stalled,) = (c for c in told.status["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "Unconfirmed"
    assert stalled["message"] == unconfirmed_words(world, a_terminating_pod())
    assert told.status["instances"][0]["phase"] == "Unconfirmed"


@pytest.mark.parametrize("deleted", [False, True], ids=["to be replaced", "to be deleted"])
def test_a_vanished_pod_blocks_its_instance_and_its_backends_deletion_where_proof_is_waited_for(deleted: bool) -> None:
    backend = replace(WAITS, deleting_since=NOW, ordinals=()) if deleted else WAITS
    world = a_world(backend, claims=[a_claim(WITHHELD)], services=[a_shared_service(), a_service()])
    told = acted(world)
    assert isinstance(told, WriteStatus)
    assert decide(replace(world, backend=replace(backend, status=told.status)), NOW) == Wait(
        "Unconfirmed", f"port 30007: {missing_words(a_claim(WITHHELD))}", None, 0
    )


def test_nor_does_a_pod_that_a_late_write_made_leave_its_gate_beside_a_withheld_port() -> None:
    late, free = a_gated_pod("late-uid"), a_claim(ClaimPhase.RESERVED, port=30008)
    world = a_world(WAITS, pods=[late], claims=[a_claim(WITHHELD), free], services=[a_shared_service(), a_service()])
    told = acted(world)
    assert isinstance(told, WriteStatus)
    waiting = replace(world, backend=replace(WAITS, status=told.status))
    assert decide(waiting, NOW) == Wait("Unconfirmed", f"port 30007: {missing_words(a_claim(WITHHELD))}", None, 0)
    handed_over = replace(world, backend=a_backend())
    assert acted(handed_over) == BindClaim(free, late)


# -- withheld ---------------------------------------------------------------------------------------------------------


def test_a_withheld_port_remembers_the_boot_from_which_a_reboot_counts() -> None:
    claim = a_claim(WITHHELD, node=NODE)
    fresh = replace(MACHINE, heartbeat_at=later(1))
    world = a_world(None, claims=[claim], nodes={NODE.name: fresh})
    assert decide(world, later(2)) == Act(RecordReference(claim, "boot-1"))
    stale = replace(world, nodes={NODE.name: replace(MACHINE, heartbeat_at=NOW)})
    assert decide(stale, later(2)) == Wait("PortWithheld", claim.message, later(62), 0)


def test_a_pod_that_is_gone_is_proven_by_a_later_reboot() -> None:
    claim = a_claim(WITHHELD, node=NODE, reference_boot_id="boot-1")
    rebooted = replace(MACHINE, boot_id="boot-2")
    assert decide(a_world(None, claims=[claim]), later(10**6)) == Done()
    assert decide(a_world(None, claims=[claim], nodes={NODE.name: rebooted}), NOW) == Act(
        CoolClaim(claim, Evidence.NODE_REBOOTED)
    )


@pytest.mark.parametrize("phase", [BOUND, WITHHELD])
def test_an_attestation_that_names_another_pod_is_refused_in_words_and_releases_nothing(phase: ClaimPhase) -> None:
    claim = a_claim(phase, node=NODE, attestation=Attestation("another", "x"))
    pods = [a_serving_pod()] if phase is BOUND else []
    world = replace(bound(*pods), claims=(claim,))
    words = "modelbackend.dev/attest names pod another, but the port is held for pod p-uid"
    assert acted(world) == ExplainClaim(claim, "AttestationRefused", words)
    told = replace(claim, reason="AttestationRefused", message=words)
    assert not isinstance(acted_or_none(replace(world, claims=(told,))), ExplainClaim)
    corrected = acted(replace(world, claims=(replace(told, attestation=None),)))
    assert isinstance(corrected, ExplainClaim)
    assert corrected.reason == ("" if phase is BOUND else "PodMissing")


def acted_or_none(world: Observation) -> Action | None:
    decision = decide(world, NOW)
    return decision.action if isinstance(decision, Act) else None


REFUSED: dict[str, tuple[Attestation, str]] = {
    "no reason": (
        Attestation(POD_UID, ""),
        'modelbackend.dev/attest gives no reason; write "p-uid <reason>"',
    ),
    "a pod that is not being deleted": (
        Attestation(POD_UID, "x"),
        "modelbackend.dev/attest names pod p-uid, which is not being deleted; delete it first",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_attestation_is_refused_for(case: str) -> None:
    word, words = REFUSED[case]
    claim = a_claim(BOUND, node=NODE, attestation=word)
    assert acted(replace(bound(a_serving_pod()), claims=(claim,))) == ExplainClaim(claim, "AttestationRefused", words)


def test_the_word_that_released_a_former_holder_is_no_trouble_to_the_next() -> None:
    claim = a_claim(BOUND, node=NODE, attestation=Attestation("former", "x"), past_pods=frozenset({"former"}))
    assert acted_or_none(replace(bound(a_serving_pod()), claims=(claim,))) is None


def test_a_port_that_answers_as_the_pod_that_is_said_to_have_ended_is_not_released_and_says_so() -> None:
    claim = a_claim(WITHHELD, node=NODE, attestation=Attestation(POD_UID, "unplugged"))
    world = a_world(None, claims=[claim], answering=frozenset({POD_UID}))
    words = (
        "the end of pod smollm2-0 (p-uid) is said (Attested), "
        "but a server with its identity answers on port 30007: stop that process, and the port is released"
    )
    assert decide(world, NOW) == Act(ExplainClaim(claim, "StillAnswering", words))
    told = replace(claim, reason="StillAnswering", message=words)
    assert settle_withheld(replace(world, claims=(told,)), told, NOW) == Wait("PortWithheld", words, later(10), 0)
    silent = a_world(None, claims=[told])
    assert decide(silent, NOW) == Act(CoolClaim(told, Evidence.ATTESTED))


# -- late proof -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [None, a_backend(), a_deleted_backend()], ids=["gone", "live", "ending"])
def test_a_witness_that_is_reported_ended_settles_the_ledger(backend: Any) -> None:
    ended = an_ended_pod(handed_over=later(DUE_SECONDS))
    world = handed_over(ended, backend=backend, services=())
    claim = world.claims[0]
    assert acted(world) == CoolClaim(claim, Evidence.CONTAINERS_TERMINATED)
    cooled = replace(world, claims=(replace(claim, phase=COOLING),))
    assert acted(told(cooled)) == RemovePodFinalizer(ended)


def told(world: Observation) -> Observation:
    """Once its status tells how the shutdown ended, where there is a backend to tell it."""
    action = acted(world)
    if not isinstance(action, WriteStatus):
        return world
    return replace(world, backend=replace(action.backend, status=action.status))


def test_a_witness_is_attested_and_its_lingering_object_removed() -> None:
    claim = a_claim(WITHHELD, node=NODE, attestation=Attestation(POD_UID, "unplugged"))
    world = replace(handed_over(backend=None, services=()), claims=(claim,))
    assert acted(world) == CoolClaim(claim, Evidence.ATTESTED)
    cooled = replace(world, claims=(replace(claim, phase=COOLING),))
    assert acted(cooled) == RemovePodFinalizer(WITNESS)
    freed = replace(WITNESS, has_finalizer=False)
    assert acted(replace(cooled, pods=(freed,))) == DeletePod(freed, 0)


def test_the_port_of_a_witness_whose_instance_runs_elsewhere_is_freed_and_not_taken_back() -> None:
    ended = an_ended_pod("old", handed_over=later(DUE_SECONDS))
    witnessed = a_claim(COOLING, 30001, pod_uid="old", node=NODE)
    world = bound(a_serving_pod())
    world = replace(world, claims=(*world.claims, witnessed), pods=(*world.pods, replace(ended, has_finalizer=False)))
    gone = replace(world, pods=world.pods[:1], services=(*world.services, a_service(30001, pod_uid="old")))
    assert acted(gone, DUE_SECONDS) == DeleteService(gone.services[-1])
    assert acted(replace(gone, services=world.services), DUE_SECONDS) == DeleteClaim(witnessed)


# -- a machine that comes back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [COOLING, BOUND])
def test_a_machine_that_counted_as_removed_and_is_back_in_the_same_boot_is_an_alarm(phase: ClaimPhase) -> None:
    removed = NodeId("node-7", "gone-uid", "boot-7")
    claim = a_claim(phase, node=NODE, removed_nodes=(removed,))
    pods = [a_serving_pod()] if phase is BOUND else []
    back = {"node-7": replace(MACHINE, name="node-7", uid="new-uid", boot_id="boot-7"), NODE.name: MACHINE}
    world = replace(bound(*pods), claims=(claim,), nodes=back)
    assert acted(world) == RecordReturn(claim, removed)
    reborn = {**back, "node-7": replace(back["node-7"], boot_id="boot-8")}
    assert not isinstance(acted_or_none(replace(world, nodes=reborn)), RecordReturn)


@pytest.mark.parametrize(
    ("phase", "held_for"),
    [
        (ClaimPhase.RESERVED, "a pod that has yet to be let through"),
        (COOLING, "nobody any more: pod p-uid has ended"),
        (BOUND, "pod p-uid"),
        (WITHHELD, "pod p-uid"),
    ],
)
@pytest.mark.parametrize("backend", [a_backend(), None], ids=["its backend is there", "its backend is gone"])
def test_a_word_about_a_pod_that_never_had_the_port_is_answered_in_every_phase(
    backend: Any, phase: ClaimPhase, held_for: str
) -> None:
    pods = [a_serving_pod()] if phase is BOUND else []
    claim = a_claim(phase, attestation=Attestation("wrong-uid", "it is off"), node=None if pods else NODE)
    look = replace(bound(*pods), claims=(claim,), backend=backend)
    answer = settle_claim(look, claim, NOW)
    message = f"modelbackend.dev/attest names pod wrong-uid, but the port is held for {held_for}"
    assert answer == Act(ExplainClaim(claim, "AttestationRefused", message))
    told = replace(claim, reason="AttestationRefused", message=message)
    again = settle_claim(replace(look, claims=(told,)), told, NOW)
    assert not (isinstance(again, Act) and isinstance(again.action, ExplainClaim))
    taken_back = replace(told, attestation=None)
    after = settle_claim(replace(look, claims=(taken_back,)), taken_back, NOW)
    assert isinstance(after, Act)
    assert isinstance(after.action, ExplainClaim)
    assert after.action.reason != "AttestationRefused"


def test_a_port_that_somebody_else_has_keeps_that_reason_whatever_is_attested() -> None:
    claim = a_claim(COOLING, reason="PortInUse", attestation=Attestation("wrong-uid", "it is off"))
    assert not isinstance(settle_claim(a_world(a_backend(), claims=(claim,)), claim, NOW), Act)


RETURNED = a_claim(COOLING, node=NODE, returned=True, past_pods=frozenset({POD_UID}))


def test_the_port_of_a_pod_whose_machine_is_back_is_withheld_again_however_long_it_cooled() -> None:
    world = a_world(claims=(RETURNED,))
    for seconds in (0, 15, 3601):
        action = acted(world, seconds)
        assert isinstance(action, WithholdClaim)
        assert (action.reason, action.node) == ("NodeReturned", None)
        assert action.message == returned_words(RETURNED)
    assert returned_words(RETURNED) == (
        "node node-1 is back in the boot in which pod smollm2-0 (p-uid) ran, which was taken as ended when the Node "
        "was removed and may run; proof is a later reboot of the node, the taint node.kubernetes.io/out-of-service on "
        'it, or the annotation modelbackend.dev/attest="p-uid <reason>" on this PortClaim'
    )


def test_its_own_instance_does_not_take_it_back_even_where_that_is_refused() -> None:
    denied = Deferral("Denied", "no", NOW, NOW, later(100))
    world = replace(bound(), claims=(RETURNED,), deferred={Key("WithholdClaim", RETURNED.ref.uid, 0): denied})
    action = acted(world, 20)
    assert isinstance(action, CreateClaim)
    assert action.port != RETURNED.port


@pytest.mark.parametrize(
    ("special", "freed"),
    [({}, None), ({"attestation": Attestation(POD_UID, "its rack is dark")}, Evidence.ATTESTED)],
    ids=["nothing", "attested"],
)
def test_only_proof_frees_it_then(special: Any, freed: Evidence | None) -> None:
    withheld = replace(RETURNED, phase=WITHHELD, reason="NodeReturned", message=returned_words(RETURNED))
    world = a_world(claims=(replace(withheld, **special),))
    action = acted_or_none(world)
    assert (action.evidence if isinstance(action, CoolClaim) else None) == freed
    assert freed is not None or action is None


def test_a_gated_pod_beside_a_witness_is_let_through_like_any_other() -> None:
    world = handed_over()
    gated = a_gated_pod("next", ref=replace(WITNESS.ref, name="smollm2-0-1", uid="next"))
    reserved = a_claim(ClaimPhase.RESERVED, 30001)
    action = acted(replace(world, pods=(WITNESS, gated), claims=(*world.claims, reserved)))
    assert action == BindClaim(reserved, gated)
