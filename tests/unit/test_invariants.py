"""Every promise has a world that breaks it, and is silent about one that keeps it."""

from dataclasses import replace

import pytest

from modelbackend_operator.actions import (
    AbortServer,
    Action,
    CoolClaim,
    DeleteClaim,
    DeletePod,
    DrainServer,
    HandOver,
    RemoveFinalizer,
    RemovePodFinalizer,
    Ungate,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.api import Evidence
from modelbackend_operator.invariants import (
    ON_SNAPSHOT,
    ON_STEP,
    Process,
    Snapshot,
    Step,
    breaches,
    breaches_of_step,
)
from modelbackend_operator.model.backend import OrderKind, WhenUnconfirmed
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.stop import Cut
from tests.unit.builders import (
    BACKEND_UID,
    NODE,
    NOW,
    POD_UID,
    PORT,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_draining_pod,
    a_gated_pod,
    a_serving_pod,
    a_stop,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    bound,
    later,
)

NEIGHBOUR = "neighbour-uid"
ALIVE = Process(POD_UID, PORT, 0)
BUSY = replace(ALIVE, in_flight=2)


def a_snapshot(*looks: Observation, processes: tuple[Process, ...] = ()) -> Snapshot:
    return Snapshot(looks, {BACKEND_UID: "models/smollm2", NEIGHBOUR: "models/smollm2"}, processes)


def neighbours(world: Observation) -> Observation:
    return replace(world, backend_uid=NEIGHBOUR)


BROKEN: dict[str, tuple[Snapshot, str]] = {
    "PortExclusive": (
        a_snapshot(
            bound(a_serving_pod()),
            neighbours(a_world(claims=[a_claim(pod_uid="p-2")])),
            processes=(ALIVE, Process("p-2", PORT, 0)),
        ),
        "pods ['p-uid', 'p-2'] run behind port 30007",
    ),
    "PortWithheld": (
        a_snapshot(a_world(claims=[a_claim(ClaimPhase.COOLING, node=NODE)]), processes=(ALIVE,)),
        "pod p-uid runs behind port 30007, which no claim holds for it",
    ),
    "OneShutdownPerModel": (
        a_snapshot(bound(a_draining_pod()), neighbours(a_world(pods=[a_terminating_pod("p-2")]))),
        "pods ['p-uid', 'p-2'] of models/smollm2 are shut down at once",
    ),
    "NoDoublePod": (
        a_snapshot(bound(a_serving_pod(), a_serving_pod("p-2"))),
        "instance 0 has pods ['p-uid', 'p-2']",
    ),
}

KEPT: dict[str, Snapshot] = {
    "a serving instance": a_snapshot(bound(a_serving_pod()), processes=(ALIVE,)),
    "a port withheld behind a process whose pod vanished": a_snapshot(
        a_world(claims=[a_claim(ClaimPhase.WITHHELD)]), processes=(ALIVE,)
    ),
    "a port whose holder was taken for ended with its Node": a_snapshot(
        a_world(claims=[a_claim(ClaimPhase.COOLING, node=NODE, removed_nodes=(NODE,))]), processes=(ALIVE,)
    ),
    "one whose holder's machine is back, before that is written": a_snapshot(
        a_world(claims=[a_claim(ClaimPhase.COOLING, node=NODE, returned=True)]), processes=(ALIVE,)
    ),
    "one shutdown while another is proven": a_snapshot(
        bound(a_draining_pod()), neighbours(a_world(pods=[an_ended_pod("p-2")]))
    ),
    "one shutdown of ours beside one that others ordered": a_snapshot(
        bound(a_draining_pod()),
        neighbours(a_world(pods=[a_terminating_pod("p-2", stop=replace(a_draining_pod().stop, epoch=""))])),  # type: ignore[type-var]
    ),
    "one shutdown beside a busy one that gave way": a_snapshot(
        bound(a_draining_pod()),
        neighbours(a_world(pods=[a_draining_pod("p-2", stop=replace(a_stop(), yielded_at=NOW))])),
    ),
    "a witness beside the instance that goes on without it": a_snapshot(
        replace(bound(a_serving_pod()), pods=(a_serving_pod(), a_terminating_pod("p-2", handed_over=NOW))),
    ),
    "one shutdown beside one that was handed over": a_snapshot(
        bound(a_draining_pod()), neighbours(a_world(pods=[a_terminating_pod("p-2", handed_over=NOW)]))
    ),
    "a pod beside the one that it takes the place of": a_snapshot(
        bound(a_serving_pod(), a_serving_pod("p-2", replaces=POD_UID))
    ),
    "a pod behind its gate beside one that ends": a_snapshot(a_world(pods=[a_gated_pod("p-2"), a_terminating_pod()])),
}


def test_every_promise_of_a_moment_has_a_world_that_breaks_it() -> None:
    assert set(BROKEN) == set(ON_SNAPSHOT)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_named(name: str) -> None:
    snapshot, breach = BROKEN[name]
    assert list(breaches(snapshot)) == [f"{name}: {breach}"]


@pytest.mark.parametrize("case", KEPT)
def test_a_kept_promise_is_silent(case: str) -> None:
    assert list(breaches(KEPT[case])) == []


# -- steps ------------------------------------------------------------------------------------------------------------


def a_step(world: Observation, action: Action, process: Process = ALIVE) -> Step:
    return Step(a_snapshot(world, processes=(process,)), world, action, NOW)


GATED, DRAINING, ENDED = a_gated_pod(), a_draining_pod(), an_ended_pod()
WITNESS = a_terminating_pod(handed_over=NOW)
WITNESSED = a_world(a_backend(), pods=[WITNESS], claims=[a_claim(ClaimPhase.WITHHELD)])
NAMED = replace(bound(GATED), claims=(a_claim(),))
ADVERTISING = bound(a_serving_pod())
WITHDRAWN = bound(DRAINING)
ORDERED = a_backend(orders={OrderKind.FORCE: "all now"})
ORDERING = a_backend(orders={OrderKind.FORCE: "p-2 now"})
CUT_RECORD = replace(a_stop(), cut=Cut("all now", 2))
CUT = a_draining_pod(stop=CUT_RECORD)


def status_of(world: Observation) -> WriteStatus:
    assert world.backend is not None
    return WriteStatus(world.backend, world.backend.status)


WAITS = WhenUnconfirmed.WAIT
WAITING_FOR_NOBODY = a_world(a_deleted_backend(when_unconfirmed=WAITS))
NAMED_AND_WAITED_FOR = bound(GATED, backend=a_backend(when_unconfirmed=WAITS))
OF_A_VANISHED = Process("vanished-uid", None, 0, (BACKEND_UID, 0))

BREAKING: list[tuple[str, Step, str]] = [
    (
        "GateBeforeClaim",
        a_step(replace(NAMED, claims=()), Ungate(GATED)),
        "pod p-uid is let through, and no Grpc claim names it",
    ),
    (
        "GateBeforeClaim",
        a_step(replace(NAMED, backend=a_backend()), Ungate(GATED)),
        "pod p-uid is let through, and no status named it",
    ),
    (
        "NeverAdvertiseDying",
        a_step(replace(WITHDRAWN, backend=ADVERTISING.backend), status_of(ADVERTISING)),
        "the address of pod p-uid is told",
    ),
    (
        "NeverAdvertiseDying",
        a_step(replace(ADVERTISING, pods=(DRAINING,)), DrainServer(DRAINING, later(30))),
        "pod p-uid is ended before it is withdrawn",
    ),
    (
        "NeverAdvertiseDying",
        a_step(WITHDRAWN, DeletePod(a_draining_pod(serving_label=True), 15)),
        "pod p-uid is ended before it is withdrawn",
    ),
    (
        "ForceOnlyAfterDeadline",
        a_step(WITHDRAWN, DeletePod(DRAINING, 15), BUSY),
        "pod p-uid is ended with 2 requests in flight, before its deadline",
    ),
    (
        "ForceOnlyAfterDeadline",
        a_step(WITHDRAWN, AbortServer(replace(DRAINING, stop=None), "why"), BUSY),
        "pod p-uid is ended with 2 requests in flight, before its deadline",
    ),
    (
        "ForceOnlyAfterDeadline",
        a_step(bound(a_terminating_pod()), DeletePod(a_terminating_pod(), 0)),
        "pod p-uid is deleted with grace 0, without proof",
    ),
    (
        "ForceOnlyAfterDeadline",
        a_step(WITHDRAWN, AbortServer(DRAINING, "why"), BUSY),
        "pod p-uid is ended with 2 requests in flight, before its deadline",
    ),
    (
        "ForceOnlyAfterDeadline",
        replace(a_step(WITHDRAWN, AbortServer(DRAINING, "why"), BUSY), now=later(30)),
        "pod p-uid is ended with 2 requests in flight, before its deadline",
    ),
    (
        "ForceOnlyAfterDeadline",
        a_step(WITHDRAWN, WriteStopRecord(DRAINING, replace(a_stop(), cut=Cut("", 2)))),
        "pod p-uid is recorded as cut before its deadline, and nobody ordered it",
    ),
    (
        "ForceOnlyAfterDeadline",
        a_step(bound(DRAINING, backend=ORDERING), WriteStopRecord(DRAINING, replace(a_stop(), cut=Cut("p-2 now", 2)))),
        "pod p-uid is recorded as cut before its deadline, and nobody ordered it",
    ),
    (
        "ForceOnlyAfterDeadline",
        a_step(WITHDRAWN, WriteStopRecord(DRAINING, replace(a_stop(), yielded_at=NOW))),
        "pod p-uid gives way to others before its deadline",
    ),
    (
        "ForceOnlyAfterDeadline",
        a_step(WITHDRAWN, WriteStopRecord(DRAINING, replace(a_stop(), deadline=later(5)))),
        "the deadline of pod p-uid is moved up, and it may serve",
    ),
    (
        "EvidenceNotAbsence",
        a_step(a_world(a_backend(), claims=[a_claim()]), CoolClaim(a_claim(), Evidence.CONTAINERS_TERMINATED)),
        "port 30007 is released, and nothing proves the end of pod p-uid",
    ),
    (
        "EvidenceNotAbsence",
        a_step(a_world(claims=[a_claim(ClaimPhase.WITHHELD)]), DeleteClaim(a_claim(ClaimPhase.WITHHELD))),
        "port 30007 is released, and nothing proves the end of pod p-uid",
    ),
    (
        "EvidenceNotAbsence",
        a_step(bound(a_terminating_pod()), RemovePodFinalizer(a_terminating_pod())),
        "pod p-uid is let go without proof",
    ),
    (
        "EvidenceNotAbsence",
        a_step(bound(a_terminating_pod()), HandOver(a_terminating_pod())),
        "pod p-uid is given up within its grace period",
    ),
    (
        "EvidenceNotAbsence",
        a_step(WITNESSED, RemovePodFinalizer(WITNESS)),
        "pod p-uid is let go without proof",
    ),
    (
        "FinalizerLast",
        a_step(
            a_world(a_deleted_backend(), pods=[WITNESS], claims=[a_claim(ClaimPhase.RESERVED, pod_uid=POD_UID)]),
            RemoveFinalizer(a_deleted_backend()),
        ),
        "the port of witness p-uid is not withheld",
    ),
    (
        "FinalizerLast",
        a_step(a_world(a_deleted_backend(), pods=[ENDED]), RemoveFinalizer(a_deleted_backend())),
        "pod p-uid is left",
    ),
    (
        "FinalizerLast",
        a_step(a_world(a_deleted_backend(), claims=[a_claim()]), RemoveFinalizer(a_deleted_backend())),
        "port 30007 is left bound",
    ),
    (
        "FinalizerLast",
        a_step(WAITING_FOR_NOBODY, RemoveFinalizer(a_deleted_backend()), OF_A_VANISHED),
        "the process of pod vanished-uid is left, and was to be waited for",
    ),
    (
        "NoDoublePod",
        a_step(NAMED_AND_WAITED_FOR, Ungate(GATED), OF_A_VANISHED),
        "pod p-uid is let through, and pod vanished-uid runs",
    ),
]

KEEPING: dict[str, Step] = {
    "the gate opens beside a pod that it takes the place of, whose end is waited for": a_step(
        NAMED_AND_WAITED_FOR, Ungate(replace(GATED, replaces=OF_A_VANISHED.pod_uid)), OF_A_VANISHED
    ),
    "the gate opens where nothing is waited for": a_step(NAMED, Ungate(GATED), OF_A_VANISHED),
    "an overdue pod is handed over": replace(
        a_step(bound(a_terminating_pod()), HandOver(a_terminating_pod())), now=later(75)
    ),
    "a witness is let go for its namespace's end, its port withheld": a_step(
        replace(WITNESSED, namespace_terminating=True), RemovePodFinalizer(WITNESS)
    ),
    "a backend goes and leaves a witness behind a withheld port": a_step(
        replace(WITNESSED, backend=a_deleted_backend()), RemoveFinalizer(a_deleted_backend())
    ),
    "the gate opens for a pod that is named": a_step(NAMED, Ungate(GATED)),
    "labels of a pod past its gate are restored": a_step(a_world(a_backend()), Ungate(a_serving_pod())),
    "a serving instance is advertised": a_step(ADVERTISING, status_of(ADVERTISING)),
    "a withdrawn server drains": a_step(WITHDRAWN, DrainServer(DRAINING, later(30)), BUSY),
    "an idle server is ended": a_step(WITHDRAWN, DeletePod(DRAINING, 15)),
    "a busy server is ended at its deadline": replace(a_step(WITHDRAWN, DeletePod(DRAINING, 15), BUSY), now=later(30)),
    "the deadline's cut is recorded when it has passed": replace(
        a_step(WITHDRAWN, WriteStopRecord(DRAINING, replace(a_stop(), cut=Cut("", 2)))), now=later(30)
    ),
    "a busy instance gives way at its deadline": replace(
        a_step(WITHDRAWN, WriteStopRecord(DRAINING, replace(a_stop(), yielded_at=later(30)))), now=later(30)
    ),
    "the deadline of a server that fails its probes is moved up": a_step(
        WITHDRAWN, WriteStopRecord(replace(DRAINING, containers_ready=False), replace(a_stop(), deadline=later(5)))
    ),
    "a deadline is moved up by order": a_step(
        WITHDRAWN, WriteStopRecord(DRAINING, replace(a_stop(), deadline=later(5), extended="p-uid 1"))
    ),
    "an order is recorded": a_step(
        bound(DRAINING, backend=ORDERED), WriteStopRecord(DRAINING, replace(a_stop(), cut=Cut("all now", 2)))
    ),
    "a record of an order is repeated": a_step(
        a_world(), WriteStopRecord(replace(CUT, serving_label=True), replace(CUT_RECORD, deadline=later(60)))
    ),
    "a busy server is ended by order": a_step(WITHDRAWN, DeletePod(CUT, 15), BUSY),
    "a server that ends is told of the order": a_step(WITHDRAWN, AbortServer(CUT, "all now"), BUSY),
    "a proven object is removed": a_step(bound(ENDED), DeletePod(ENDED, 0)),
    "a proven port cools": a_step(bound(ENDED), CoolClaim(a_claim(), Evidence.CONTAINERS_TERMINATED)),
    "a cooled port is freed": a_step(
        a_world(claims=[a_claim(ClaimPhase.COOLING)]), DeleteClaim(a_claim(ClaimPhase.COOLING))
    ),
    "a backend goes while a port of it is withheld": a_step(
        a_world(a_deleted_backend(), claims=[a_claim(ClaimPhase.WITHHELD)]), RemoveFinalizer(a_deleted_backend())
    ),
}


def test_every_promise_of_a_write_has_a_write_that_breaks_it() -> None:
    assert {name for name, *_ in BREAKING} == set(ON_STEP)


@pytest.mark.parametrize(("name", "step", "breach"), BREAKING, ids=[breach for *_, breach in BREAKING])
def test_a_write_that_breaks_a_promise_is_named(name: str, step: Step, breach: str) -> None:
    assert list(breaches_of_step(step)) == [f"{name}: {breach}"]


@pytest.mark.parametrize("case", KEEPING)
def test_a_write_that_keeps_every_promise_is_silent(case: str) -> None:
    assert list(breaches_of_step(KEEPING[case])) == []
