"""Whole lifecycles on machines that are lost: what runs on unseen is never forgotten, and late proof settles it."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from modelbackend_operator.model.backend import Attestation, Exposure, WhenUnconfirmed
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.pod import Pod
from tests.sim.looking import REUSE_DELAY_SECONDS
from tests.sim.world import World
from tests.unit.builders import ENDED, NODE
from tests.unit.test_lifecycle_walk import MAIN, a_new_backend, backend, claims, nothing_is_left, pods, serves
from tests.unit.walk import Walk

OTHER_NODE = "node-2"
PORTED = pytest.mark.parametrize("exposure", [Exposure.NODE_PORT, Exposure.HOST_PORT])


def lost(exposure: Exposure = Exposure.NODE_PORT, of: type[Walk] = Walk, **special: Any) -> tuple[Walk, Pod]:
    """An instance serves on the first of two nodes, which is then lost with its process running."""
    walk = of(World(a_new_backend(exposure=exposure, **special), nodes=(NODE.name, OTHER_NODE)))
    walk.settle()
    (pod,) = pods(walk)
    change(walk, pod.node, kubelet=False)
    return walk, pod


def change(walk: Walk, node: str, **changes: Any) -> None:
    walk.world.state = walk.world.state.with_machine(node, **changes)


def reboot(walk: Walk, node: str, boot_id: str) -> None:
    """Every process of the machine dies; its kubelet works, and has yet to tell."""
    runs = walk.world.state.runs
    dead = {uid: replace(run, alive=False, in_flight=0) if run.node == node else run for uid, run in runs.items()}
    walk.world.state = walk.world.state._replace(runs=dead)
    for uid in dead:
        walk.world.forget_ended(uid)
    change(walk, node, boot_id=boot_id, powered=True, kubelet=True)


def claim_of(walk: Walk, pod: Pod) -> Claim:
    return next(claim for claim in claims(walk) if claim.pod_uid == pod.ref.uid)


# -- handed over ------------------------------------------------------------------------------------------------------


@PORTED
def test_an_instance_on_a_lost_node_is_replaced_on_another_port_and_settled_when_the_node_is_back(
    exposure: Exposure,
) -> None:
    walk, pod = lost(exposure)
    walk.settle()
    assert serves(walk), walk.told()
    assert pod.ref.uid in walk.world.state.servers
    withheld = claim_of(walk, pod)
    assert (withheld.phase, withheld.reason, withheld.node) == (ClaimPhase.WITHHELD, "Unconfirmed", claim_node(pod))
    (other,) = (claim for claim in claims(walk) if claim != withheld)
    assert (other.phase, other.port != withheld.port) == (ClaimPhase.BOUND, True)

    change(walk, pod.node, kubelet=True)
    walk.settle()
    assert [claim.ref.uid for claim in claims(walk)] == [other.ref.uid], walk.told()
    assert [found.ref.uid for found in pods(walk)] == [other.pod_uid]
    walk.world.delete_backend(MAIN)
    walk.settle()
    assert nothing_is_left(walk), walk.told()


def claim_node(pod: Pod) -> Any:
    return replace(NODE, name=pod.node, uid=f"{pod.node}-uid", boot_id=NODE.boot_id)


def test_a_backend_on_a_lost_node_is_deleted_and_its_witness_settles_the_ledger_later() -> None:
    walk, pod = lost()
    walk.world.delete_backend(MAIN)
    walk.settle()
    assert MAIN not in walk.world.state.objects, walk.told()
    assert claim_of(walk, pod).phase is ClaimPhase.WITHHELD
    assert [found.handed_over is not None for found in pods(walk)] == [True]
    change(walk, pod.node, kubelet=True)
    walk.settle()
    assert nothing_is_left(walk), walk.told()


def test_where_proof_is_waited_for_a_lost_node_blocks_replacement_and_deletion_until_it_is_back() -> None:
    walk, pod = lost(when_unconfirmed=WhenUnconfirmed.WAIT)
    walk.settle()
    assert [found.ref.uid for found in pods(walk)] == [pod.ref.uid]
    assert backend(walk).status["instances"][0]["phase"] == "Unconfirmed"
    walk.world.delete_backend(MAIN)
    walk.settle()
    assert MAIN in walk.world.state.objects
    change(walk, pod.node, kubelet=True)
    walk.settle()
    assert nothing_is_left(walk), walk.told()


def test_in_a_namespace_that_ends_no_witness_is_kept_and_the_port_stays_withheld() -> None:
    walk, pod = lost()
    walk.world.state = walk.world.state._replace(namespace_terminating=True)
    walk.settle()
    assert MAIN not in walk.world.state.objects, walk.told()
    assert [found.has_finalizer for found in pods(walk)] == [False]
    assert claim_of(walk, pod).phase is ClaimPhase.WITHHELD
    (witness,) = pods(walk)
    walk.world.delete_pod(witness, 0)
    walk.settle()
    assert not pods(walk)
    assert claim_of(walk, pod).phase is ClaimPhase.WITHHELD, walk.told()
    change(walk, pod.node, kubelet=True)
    walk.held = ("end",)
    walk.settle()
    assert claim_of(walk, pod).reference_boot_id == NODE.boot_id
    walk.held = ()
    reboot(walk, pod.node, "boot-2")
    walk.settle()
    assert nothing_is_left(walk), walk.told()


@pytest.mark.parametrize("deleted", [False, True], ids=["backend lives", "backend gone"])
def test_a_machine_that_never_returns_is_attested_and_nothing_of_its_pod_is_left(deleted: bool) -> None:
    walk, pod = lost()
    if deleted:
        walk.world.delete_backend(MAIN)
    walk.settle()
    runs = {uid: run for uid, run in walk.world.state.runs.items() if run.node != pod.node}
    walk.world.state = walk.world.state._replace(runs=runs)
    change(walk, pod.node, powered=False)
    walk.world.edit(claim_of(walk, pod), attestation=Attestation(pod.ref.uid, "scrapped"))
    walk.settle()
    assert all(found.ref.uid != pod.ref.uid for found in pods(walk)), walk.told()
    assert all(claim.pod_uid != pod.ref.uid for claim in claims(walk))
    assert nothing_is_left(walk) if deleted else serves(walk)


# -- what a boot id proves --------------------------------------------------------------------------------------------


def test_a_boot_that_was_known_at_the_start_or_only_told_late_releases_nothing() -> None:
    """The pod runs in boot 2 while its Node still tells boot 1; then it vanishes, and the Node tells boot 2."""
    walk = Walk(World(a_new_backend()), held=(f"{NODE.name} reports",)).settle()
    reboot(walk, NODE.name, "boot-2")
    walk.settle(until=lambda: bool(walk.world.state.servers))
    (pod,) = pods(walk)
    walk.world.remove(pod)
    walk.held = ("end",)
    walk.settle()
    assert claim_of(walk, pod).phase is ClaimPhase.WITHHELD, walk.told()
    assert claim_of(walk, pod).reference_boot_id == "boot-2"
    reboot(walk, NODE.name, "boot-3")
    walk.held = ()
    walk.settle()
    assert all(claim.pod_uid != pod.ref.uid for claim in claims(walk)), walk.told()


def test_an_instance_that_crashes_a_thousand_times_in_place_uses_one_port() -> None:
    walk = Walk(World(a_new_backend())).settle()
    (pod,), (claim,) = pods(walk), claims(walk)
    walk.writes.clear()
    for _ in range(1000):
        run = walk.world.state.runs[pod.ref.uid]
        walk.world.state = walk.world.state.with_run(pod.ref.uid, replace(run, alive=False))
        walk.settle(until=lambda: pod.ref.uid in walk.world.state.servers)
    walk.settle()
    assert claims(walk) == [claim]
    assert set(walk.writes) <= {"WriteStatus"}


def test_an_instance_that_is_replaced_again_and_again_uses_one_port() -> None:
    walk = Walk(World(a_new_backend())).settle()
    (claim,) = claims(walk)
    for n in range(20):
        walk.world.edit(backend(walk), template_hash=f"hash-{n}")
        walk.settle()
    assert [found.port for found in claims(walk)] == [claim.port]
    assert walk.writes["CreateClaim"] == 1


def test_an_instance_whose_port_somebody_else_has_moves_to_another_and_does_not_come_back() -> None:
    walk = Walk(World(a_new_backend(exposure=Exposure.HOST_PORT))).settle()
    (pod,), (claim,) = pods(walk), claims(walk)
    run = walk.world.state.runs[pod.ref.uid]
    walk.world.state = walk.world.state.with_run(pod.ref.uid, replace(run, alive=False))
    walk.world.edit(pod, containers=(replace(ENDED, exit_code=75),), containers_ready=False, ready=False)
    walk.held = ("run",)
    walk.settle(until=lambda: not pods(walk) or pods(walk)[0].ref.uid != pod.ref.uid)
    walk.held = ()
    released_at = walk.world.now
    walk.settle(until=lambda: serves(walk))
    assert {found.port != claim.port for found in claims(walk) if found.phase is ClaimPhase.BOUND} == {True}
    cooling = next(found for found in claims(walk) if found.port == claim.port)
    assert (cooling.phase, cooling.reason) == (ClaimPhase.COOLING, "PortInUse")
    walk.settle()
    assert [found.port for found in claims(walk)] != [claim.port], walk.told()
    assert walk.world.now - released_at >= timedelta(seconds=REUSE_DELAY_SECONDS)


# -- a ledger that others edit ----------------------------------------------------------------------------------------


class TornLedger(Walk):
    """What a hand has broken is broken; checked is that no write of ours breaks more."""

    def _check(self, of_step: Iterable[str]) -> None:
        found = list(of_step)
        assert not found, "\n".join([*self.story, *found])


@pytest.mark.parametrize("phase", [ClaimPhase.BOUND, ClaimPhase.WITHHELD])
@PORTED
def test_a_claim_torn_past_its_finalizer_leaves_nothing_behind(phase: ClaimPhase, exposure: Exposure) -> None:
    walk, pod = lost(exposure, of=TornLedger)
    if phase is ClaimPhase.WITHHELD:
        walk.settle()
    torn = claim_of(walk, pod)
    assert torn.phase is phase
    walk.world.remove(torn)
    walk.settle()
    change(walk, pod.node, kubelet=True)
    walk.settle()
    walk.world.delete_backend(MAIN)
    walk.settle()
    assert nothing_is_left(walk), walk.told()


@pytest.mark.parametrize("phase", list(ClaimPhase))
@PORTED
def test_a_claim_edited_to_name_another_pod_releases_nothing_until_that_one_is_attested(
    phase: ClaimPhase, exposure: Exposure
) -> None:
    """The real pod ends with proof of its own; whoever the claim was made to name has none."""
    walk = TornLedger(World(a_new_backend(exposure=exposure))).settle()
    (claim,) = claims(walk)
    walk.world.edit(claim, phase=phase, pod_name="ghost", pod_uid="ghost-uid")
    walk.settle()
    walk.world.delete_backend(MAIN)
    walk.settle()
    left = claims(walk)
    if left:
        assert [(found.phase, found.pod_uid) for found in left] == [(ClaimPhase.WITHHELD, "ghost-uid")], walk.told()
        walk.world.edit(left[0], attestation=Attestation("ghost-uid", "never was"))
        walk.settle()
    assert nothing_is_left(walk), walk.told()
