"""Pods that no PortClaim remembers and that vanished: status does, where their end is waited for."""

import json
from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.actions import Action, CreatePod, RemoveFinalizer, RemovePodFinalizer, Ungate, WriteStatus
from modelbackend_operator.conditions import publish
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.instance_status import instance_of
from modelbackend_operator.model.backend import Attestation, Backend, Exposure, OrderKind, Rollout, WhenUnconfirmed
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.orders import answered
from modelbackend_operator.reasons import Reason
from modelbackend_operator.vanished import await_vanished, is_told_ended, told_vanished, vanished
from tests.unit.builders import (
    MACHINE,
    NODE,
    NOW,
    POD_UID,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_gated_pod,
    a_serving_pod,
    a_shared_service,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    later,
    shown,
)

INSIDE = {"exposure": Exposure.CLUSTER_IP, "when_unconfirmed": WhenUnconfirmed.WAIT}


def inside(*pods: Pod, backend: Backend | None = None, **special: Any) -> Observation:
    """An instance without a claim, its status written when `pods` were as given, and read back as text."""
    world = shown(a_world(backend or a_backend(**INSIDE), pods=pods, services=(a_shared_service(),), **special))
    assert world.backend is not None
    return with_backend(world, status=json.loads(json.dumps(world.backend.status)))


def torn_out(*left: Pod, backend: Backend | None = None, **special: Any) -> Observation:
    """Its usual pod served, and its object is gone."""
    return replace(inside(a_serving_pod(), *left, backend=backend), pods=left, **special)


def told(world: Observation, seconds: float = 0) -> Observation:
    """Once that is in status."""
    assert world.backend is not None
    status = publish(world, (), later(seconds)).status
    return replace(world, backend=replace(world.backend, status=status))


def with_backend(world: Observation, **special: Any) -> Observation:
    assert world.backend is not None
    return replace(world, backend=replace(world.backend, **special))


def acted(world: Observation, seconds: float = 0) -> Action:
    decision = decide(world, later(seconds))
    assert isinstance(decision, Act), decision
    return decision.action


def test_a_pod_whose_object_went_without_proof_is_kept_in_status() -> None:
    action = acted(torn_out())
    assert isinstance(action, WriteStatus)
    assert action.status["vanished"] == [
        {
            "ordinal": 0,
            "pod": {"name": "smollm2-0", "uid": POD_UID},
            "node": {"name": NODE.name, "uid": NODE.uid, "bootID": NODE.boot_id},
            "since": "2026-05-04T12:00:00Z",
        }
    ]
    assert {c["type"]: c["status"] for c in action.status["conditions"]} == {
        "Ready": "False",
        "Stalled": "True",
        "Unconfirmed": "True",
    }
    [stalled] = [c for c in action.status["conditions"] if c["type"] == "Stalled"]
    assert stalled["reason"] == Reason.UNCONFIRMED
    assert stalled["message"] == (
        "pod smollm2-0 (p-uid) on node node-1 vanished without proof that its process ended, and "
        "shutdown.whenUnconfirmed is Wait; it was let go past its finalizer; proof is a later reboot of the node, the "
        "taint node.kubernetes.io/out-of-service on it, or the annotation "
        'modelbackend.dev/attest="p-uid <reason>" on the ModelBackend'
    )


def test_until_there_is_proof_it_stays_there_and_nothing_takes_its_place() -> None:
    world = torn_out()
    for seconds in (0, 60, 7200):
        world = told(with_written(world, seconds), seconds)
        decision = decide(with_written(world, seconds), later(seconds))
        assert isinstance(decision, Wait), decision
        assert decision.reason == Reason.UNCONFIRMED
        assert [pod.pod_uid for pod in vanished(world)] == [POD_UID]


def with_written(world: Observation, seconds: float) -> Observation:
    decision = decide(world, later(seconds))
    if not isinstance(decision, Act):
        return world
    assert isinstance(decision.action, WriteStatus), decision
    return with_backend(world, status=decision.action.status)


@pytest.mark.parametrize("other", ["a-uid", "z-uid"])
def test_what_status_remembers_of_one_pod_holds_up_no_other(other: str) -> None:
    world = with_written(torn_out(), 0)
    assert not is_told_ended(world, an_ended_pod())
    assert is_told_ended(world, an_ended_pod(other))


def test_nobody_need_be_told_of_an_end_that_a_claim_remembers_or_that_nobody_waits_for() -> None:
    world = with_written(torn_out(), 0)
    assert is_told_ended(replace(world, claims=(a_claim(),)), an_ended_pod())
    assert is_told_ended(with_backend(world, when_unconfirmed=WhenUnconfirmed.HAND_OVER), an_ended_pod())


def test_the_boot_in_which_it_vanished_is_recorded_once() -> None:
    """A later status of its node is silent here: by it the boot would be forgotten."""
    world = with_written(torn_out(), 0)
    assert world.backend is not None
    [usual] = world.backend.status["vanished"]
    known = {**usual, "referenceBootID": NODE.boot_id}
    world = with_backend(world, status={**world.backend.status, "vanished": [known]})
    silent = replace(world, nodes={NODE.name: replace(MACHINE, heartbeat_at=None)})
    assert [pod.reference_boot_id for pod in told_vanished(silent, NOW)] == [NODE.boot_id]


@pytest.mark.parametrize(
    ("entry", "polled"),
    [({}, True), ({"referenceBootID": NODE.boot_id}, False), ({"node": None}, False)],
    ids=["which boot it is in is not known", "its boot is known", "it was never on a node"],
)
def test_a_node_is_asked_again_while_its_next_boot_would_prove_nothing(entry: dict[str, Any], polled: bool) -> None:
    world = with_written(torn_out(), 0)
    assert world.backend is not None
    [usual] = world.backend.status["vanished"]
    world = with_backend(world, status={**world.backend.status, "vanished": [{**usual, **entry}]})
    [wait] = await_vanished(world, NOW)
    assert (wait.not_after is not None) is polled


def test_nor_does_a_pod_that_a_late_write_made_leave_its_gate_or_hide_it() -> None:
    late = a_gated_pod("late-uid")
    world = replace(torn_out(), pods=(late,))
    assert not isinstance(acted(world), Ungate)
    remembering = with_written(with_written(world, 0), 0)
    assert isinstance(decide(remembering, NOW), Wait)
    assert [pod.pod_uid for pod in vanished(remembering)] == [POD_UID]


def test_a_deletion_waits_for_its_end() -> None:
    world = with_backend(told(torn_out()), deleting_since=NOW, ordinals=())
    world = with_written(world, 1)
    assert isinstance(decide(world, later(1)), Wait)
    attested = with_backend(world, attestation=Attestation(POD_UID, "switched off"))
    assert isinstance(acted(attested, 2), RemoveFinalizer)


REBOOTED = {NODE.name: replace(MACHINE, boot_id="boot-2", heartbeat_at=later(90))}


@pytest.mark.parametrize(
    ("backend", "world", "freed"),
    [
        ({}, {}, False),
        ({"attestation": Attestation(POD_UID, "switched off")}, {}, True),
        ({"attestation": Attestation(POD_UID, "")}, {}, False),
        ({"attestation": Attestation("other", "switched off")}, {}, False),
        ({}, {"nodes": {NODE.name: replace(MACHINE, out_of_service=True)}}, True),
        ({}, {"nodes": {}}, False),
        ({}, {"nodes": {}, "accepts_node_removed": True}, True),
        ({}, {"nodes": REBOOTED}, False),
        ({"when_unconfirmed": WhenUnconfirmed.HAND_OVER}, {}, True),
    ],
    ids=[
        "nothing",
        "attested",
        "attested without a reason",
        "another's end attested",
        "out of service",
        "its Node is gone",
        "its Node is gone, which is accepted",
        "another boot, but of which life of the node is unknown",
        "handed over instead",
    ],
)
def test_only_proof_lets_another_pod_start(backend: Any, world: Any, freed: bool) -> None:
    look = with_backend(replace(told(torn_out()), **world), **backend)
    assert (vanished(look) == ()) is freed
    decision = decide(look, later(100))
    assert (isinstance(decision, Act) and isinstance(decision.action, CreatePod)) is freed


def test_a_reboot_counts_from_a_status_that_the_node_wrote_after_the_pod_was_told_gone() -> None:
    fresh = {NODE.name: replace(MACHINE, heartbeat_at=later(30))}
    waiting = told(torn_out())
    first = decide(with_written(waiting, 1), later(1))
    assert isinstance(first, Wait)
    assert first.not_after == later(61), "heartbeats wake nobody"
    referred = told(replace(waiting, nodes=fresh), 40)
    assert referred.backend is not None
    assert referred.backend.status["vanished"][0]["referenceBootID"] == NODE.boot_id
    assert [pod.pod_uid for pod in vanished(referred)] == [POD_UID]
    assert vanished(replace(referred, nodes=REBOOTED)) == ()


def test_what_status_told_of_its_machine_stays_when_the_node_goes() -> None:
    world = inside(a_serving_pod())
    assert world.backend is not None
    told_again = instance_of(replace(world, nodes={}), world.backend, 0, (), NOW)
    assert told_again.node is not None
    assert told_again.node.boot_id == NODE.boot_id


# -- and what has not vanished ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod", [an_ended_pod(), a_gated_pod(deleted_at=NOW, grace_seconds=0)], ids=["ended", "never started"]
)
def test_the_proof_of_an_end_is_told_before_the_pods_object_is_let_go(pod: Pod) -> None:
    world = inside(replace(pod, deleted_at=None), backend=a_deleted_backend(**INSIDE))
    ending = replace(world, pods=(pod,))
    write = acted(ending)
    assert isinstance(write, WriteStatus)
    assert "evidence" in write.status["instances"][0]
    after = with_backend(ending, status=write.status)
    assert isinstance(acted(after), RemovePodFinalizer)
    assert vanished(replace(after, pods=())) == ()


def test_of_two_pods_of_an_instance_each_is_told_and_each_is_remembered() -> None:
    old, new = a_serving_pod(), a_serving_pod("new-uid", replaces=POD_UID, template_hash="hash-2")
    surging = a_backend(**INSIDE, rollout=Rollout.SURGE, template_hash="hash-2")
    world = inside(old, new, backend=surging)
    assert [pod.pod_uid for pod in vanished(replace(world, pods=()))] == [POD_UID, "new-uid"]
    both_ended = told(replace(world, pods=(an_ended_pod(), an_ended_pod("new-uid", replaces=POD_UID))))
    assert vanished(replace(both_ended, pods=())) == ()


def test_a_pod_whose_claim_names_it_is_the_claims_to_remember() -> None:
    assert vanished(replace(torn_out(), claims=(a_claim(),))) == ()
    behind_a_port = shown(a_world(a_backend(when_unconfirmed=WhenUnconfirmed.WAIT), claims=(a_claim(),)))
    assert vanished(replace(behind_a_port, claims=())) == ()


def test_one_that_only_an_old_look_missed_is_forgotten_once_it_is_seen() -> None:
    world = replace(told(torn_out()), pods=(a_serving_pod(),))
    assert vanished(world) == ()
    write = acted(world)
    assert isinstance(write, WriteStatus)
    assert write.status["vanished"] == []


def test_one_that_is_there_and_overdue_is_waited_for_as_such() -> None:
    world = inside(a_terminating_pod())
    assert vanished(world) == ()
    assert isinstance(decide(world, later(10)), Act | Wait)


@pytest.mark.parametrize(
    ("when", "refused"), [(WhenUnconfirmed.WAIT, None), (WhenUnconfirmed.HAND_OVER, "no pod with uid")]
)
def test_its_end_is_attested_on_the_backend(when: WhenUnconfirmed, refused: str | None) -> None:
    text = f"{POD_UID} switched off"
    world = with_backend(told(torn_out()), when_unconfirmed=when, orders={OrderKind.ATTEST: text})
    assert world.backend is not None
    [answer] = answered(world, world.backend)
    assert (answer.pods == (POD_UID,)) is (refused is None)
    assert (refused or "") in (answer.refused or "")


def test_without_its_backend_nobody_is_waited_for() -> None:
    world = replace(torn_out(), backend=None)
    assert vanished(world) == ()
