"""What proves the end of a pod whose own object does not: machine, or a person's word; and what contradicts them."""

from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.api import Evidence
from modelbackend_operator.evidence import (
    Suspect,
    evidence_elsewhere,
    evidence_of,
    ports_to_ask,
    reference_boot,
    trail_of_claim,
)
from modelbackend_operator.model.backend import Attestation
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from tests.unit.builders import (
    MACHINE,
    NODE,
    NOW,
    POD_UID,
    PORT,
    a_backend,
    a_claim,
    a_serving_pod,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    later,
)

REBOOTED = replace(MACHINE, boot_id="boot-2")
OFF = replace(MACHINE, out_of_service=True)
ANOTHER = replace(MACHINE, uid="n-uid-2", boot_id="boot-9")
RETURNED = replace(MACHINE, uid="n-uid-2")
WORD = Attestation(POD_UID, "the rack burnt down")


def a_withheld_claim(**special: Any) -> Claim:
    return a_claim(ClaimPhase.WITHHELD, **{"node": NODE, **special})


def a_lost_world(claim: Claim, *pods: Pod, node: Any = MACHINE, **special: Any) -> Observation:
    return a_world(a_backend(), claims=[claim], pods=pods, nodes={node.name: node} if node else {}, **special)


def proof_of(world: Observation) -> Evidence | None:
    return evidence_elsewhere(world, trail_of_claim(world, world.claims[0]))


KNOWN_BOOT = a_withheld_claim(reference_boot_id="boot-1")
ACCEPTS = {"accepts_node_removed": True}

PROOFS: dict[str, tuple[Observation, Evidence]] = {
    "a later boot than the one that could not start it": (
        a_lost_world(KNOWN_BOOT, node=REBOOTED),
        Evidence.NODE_REBOOTED,
    ),
    "a node that is out of service": (a_lost_world(a_withheld_claim(), node=OFF), Evidence.OUT_OF_SERVICE),
    "a node that was removed, where that counts": (
        a_lost_world(a_withheld_claim(), node=None, **ACCEPTS),
        Evidence.NODE_REMOVED,
    ),
    "another node under its name, where that counts": (
        a_lost_world(a_withheld_claim(), node=ANOTHER, **ACCEPTS),
        Evidence.NODE_REMOVED,
    ),
    "an administrator's word": (a_lost_world(a_withheld_claim(attestation=WORD)), Evidence.ATTESTED),
    "a reboot, although somebody seems to answer": (
        a_lost_world(KNOWN_BOOT, node=REBOOTED, answering=frozenset({POD_UID})),
        Evidence.NODE_REBOOTED,
    ),
}


@pytest.mark.parametrize("case", PROOFS)
def test_proof_without_the_pods_own_word(case: str) -> None:
    world, evidence = PROOFS[case]
    assert proof_of(world) is evidence


NO_PROOF: dict[str, Observation] = {
    "nothing": a_lost_world(a_withheld_claim()),
    "another boot id than at the start: the kubelet may first have started the pod after that reboot": a_lost_world(
        a_withheld_claim(), node=REBOOTED
    ),
    "the boot of the reference": a_lost_world(KNOWN_BOOT),
    "a node that does not tell its boot": a_lost_world(KNOWN_BOOT, node=replace(MACHINE, boot_id="")),
    "another boot of another node": a_lost_world(KNOWN_BOOT, node=replace(REBOOTED, uid="n-uid-2")),
    "another boot while the pod's object is held: its kubelet will say": a_lost_world(
        KNOWN_BOOT, a_terminating_pod(), node=REBOOTED
    ),
    "no node was recorded": a_lost_world(replace(KNOWN_BOOT, node=None), node=REBOOTED, **ACCEPTS),
    "a removed node, where that does not count": a_lost_world(a_withheld_claim(), node=None),
    "another node, where that does not count": a_lost_world(a_withheld_claim(), node=ANOTHER),
    "the same machine in the same boot under a new Node": a_lost_world(a_withheld_claim(), node=RETURNED, **ACCEPTS),
    "the taint on another Node of that name": a_lost_world(a_withheld_claim(), node=replace(OFF, uid="n-uid-2")),
    "a word about another pod": a_lost_world(a_withheld_claim(attestation=Attestation("another", "x"))),
    "a word without a reason": a_lost_world(a_withheld_claim(attestation=Attestation(POD_UID, ""))),
} | {
    f"{name}, but its port answers as that pod": replace(world, answering=frozenset({POD_UID}))
    for name, (world, evidence) in PROOFS.items()
    if evidence is not Evidence.NODE_REBOOTED
}


@pytest.mark.parametrize("case", NO_PROOF)
def test_no_proof_without_the_pods_own_word(case: str) -> None:
    assert proof_of(NO_PROOF[case]) is None


# -- pods whose object is there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [NODE, None], ids=["recorded", "not recorded yet"])
def test_the_end_of_a_pod_that_is_deleted_may_be_told_by_its_node_or_by_a_person(node: Any) -> None:
    claim, pod = a_claim(node=node), a_terminating_pod()
    assert evidence_of(a_lost_world(claim, pod), pod) is None
    assert evidence_of(a_lost_world(claim, pod, node=OFF), pod) is Evidence.OUT_OF_SERVICE
    assert evidence_of(a_lost_world(claim, pod, node=None, **ACCEPTS), pod) is Evidence.NODE_REMOVED
    attested = replace(claim, attestation=WORD)
    assert evidence_of(a_lost_world(attested, pod), pod) is Evidence.ATTESTED


def test_nobody_can_tell_the_end_of_a_pod_that_is_not_deleted() -> None:
    claim, pod = a_claim(node=NODE, attestation=WORD), a_serving_pod()
    for node in (OFF, None, ANOTHER):
        assert evidence_of(a_lost_world(claim, pod, node=node, **ACCEPTS), pod) is None


def test_the_pods_own_word_comes_first() -> None:
    claim, pod = a_claim(node=NODE, attestation=WORD), an_ended_pod()
    assert evidence_of(a_lost_world(claim, pod, node=OFF), pod) is Evidence.CONTAINERS_TERMINATED


def test_of_an_instance_without_a_claim_the_backend_carries_the_word() -> None:
    pod = a_terminating_pod()
    world = a_world(a_backend(attestation=WORD), pods=[pod])
    assert evidence_of(world, pod) is Evidence.ATTESTED
    assert evidence_of(replace(world, backend=a_backend()), pod) is None


# -- the boot from which a reboot counts ------------------------------------------------------------------------------


def fresh(seconds: float, **special: Any) -> Any:
    return replace(MACHINE, heartbeat_at=later(seconds), **special)


REFERENCES: dict[str, tuple[Observation, str]] = {
    "a status of after it was withheld": (a_lost_world(a_withheld_claim(), node=fresh(1)), "boot-1"),
    "a status of before": (a_lost_world(a_withheld_claim(), node=fresh(0)), ""),
    "a node that never told when": (a_lost_world(a_withheld_claim()), ""),
    "a node that does not tell its boot": (a_lost_world(a_withheld_claim(), node=fresh(1, boot_id="")), ""),
    "another node": (a_lost_world(a_withheld_claim(), node=fresh(1, uid="n-uid-2")), ""),
    "no node": (a_lost_world(a_withheld_claim(), node=None), ""),
    "within the grace period of a witness": (
        a_lost_world(a_withheld_claim(), a_terminating_pod(handed_over=NOW), node=fresh(15)),
        "",
    ),
    "after the grace period of a witness": (
        a_lost_world(a_withheld_claim(), a_terminating_pod(handed_over=NOW), node=fresh(16)),
        "boot-1",
    ),
}


@pytest.mark.parametrize("case", REFERENCES)
def test_a_reboot_counts_from_a_status_that_is_newer_than_the_end_that_was_asked_for(case: str) -> None:
    world, boot_id = REFERENCES[case]
    assert reference_boot(world, world.claims[0]) == boot_id


# -- what contradicts -------------------------------------------------------------------------------------------------

OWN = "10.1.0.7:50051"
ON_NODE = f"10.0.0.1:{PORT}"

ASKED: dict[str, tuple[Observation, tuple[Suspect, ...]]] = {
    "attested, its object there": (
        a_lost_world(a_claim(node=NODE, attestation=WORD), a_terminating_pod()),
        (Suspect(POD_UID, (OWN, ON_NODE)),),
    ),
    "attested, its object gone": (
        a_lost_world(a_withheld_claim(attestation=WORD)),
        (Suspect(POD_UID, (ON_NODE,)),),
    ),
    "its node gone": (
        a_lost_world(a_claim(node=NODE), a_terminating_pod(), node=None, **ACCEPTS),
        (Suspect(POD_UID, (OWN, ON_NODE)),),
    ),
    "its node gone, its object too": (a_lost_world(a_withheld_claim(), node=None, **ACCEPTS), (Suspect(POD_UID, ()),)),
    "another node at that name": (
        a_lost_world(a_withheld_claim(), node=replace(ANOTHER, address="fd00::1"), **ACCEPTS),
        (Suspect(POD_UID, (f"[fd00::1]:{PORT}",)),),
    ),
    "nothing said": (a_lost_world(a_withheld_claim()), ()),
    "a proof of its own": (a_lost_world(a_claim(node=NODE, attestation=WORD), an_ended_pod()), ()),
    "released already": (a_lost_world(a_claim(ClaimPhase.COOLING, node=NODE, attestation=WORD)), ()),
}


@pytest.mark.parametrize("case", ASKED)
def test_a_port_is_asked_before_it_is_released_on_somebodys_word(case: str) -> None:
    world, suspects = ASKED[case]
    assert ports_to_ask(world) == suspects


def test_without_a_backend_and_a_claim_the_end_of_a_pod_is_attested_on_the_pod() -> None:
    pod = a_terminating_pod(attestation=WORD)
    assert evidence_of(a_world(None, pods=[pod]), pod) is Evidence.ATTESTED
    another = a_terminating_pod(attestation=Attestation("another", "x"))
    assert evidence_of(a_world(None, pods=[another]), another) is None
    assert evidence_of(a_world(a_backend(), pods=[pod]), pod) is None
