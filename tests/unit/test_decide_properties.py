"""What holds of every decision, whatever is observed: worlds are drawn far wilder than any cluster makes them."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from modelbackend_operator import actions as do
from modelbackend_operator.actions import Action, WriteStatus
from modelbackend_operator.api import Evidence
from modelbackend_operator.decide import decide, servers_to_ask
from modelbackend_operator.decision import Act, Decision, Done, Wait
from modelbackend_operator.evidence import evidence_elsewhere, trail_of_claim
from modelbackend_operator.invariants import Process, Snapshot, Step, breaches_of_step
from modelbackend_operator.model.backend import Attestation, Backend, Exposure, PortRole, Rollout
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.lease import Holder, Lease
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.server import ServerReport, ServerState
from modelbackend_operator.model.service import Service
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.reasons import Reason
from tests.unit.builders import (
    BACKEND_UID,
    ENDED,
    MACHINE,
    NODE,
    NOW,
    a_backend,
    a_claim,
    a_draining_pod,
    a_gated_pod,
    a_lease,
    a_loading_pod,
    a_neighbours_lease,
    a_rejected_pod,
    a_report,
    a_service,
    a_serving_pod,
    a_shared_service,
    a_stop,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    an_unscheduled_pod,
    later,
    shown,
)

unhurried = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
UIDS = ("p-1", "p-2", "p-3")
PORTS = (30000, 30001, 30002)
ORDINALS = st.sampled_from((0, 1))
SECONDS = st.sampled_from((-90, -30, -20, -10, -1, 0))
KINDS_OF_PODS = (
    a_gated_pod,
    an_unscheduled_pod,
    a_loading_pod,
    a_serving_pod,
    a_draining_pod,
    a_terminating_pod,
    an_ended_pod,
    a_rejected_pod,
)


def backends() -> st.SearchStrategy[Backend]:
    return st.builds(
        a_backend,
        has_finalizer=st.sampled_from((True, True, True, False)),
        deleting_since=st.sampled_from((None, None, NOW)),
        ordinals=st.sampled_from(((), (0,), (0, 1), (0, 1))),
        template_hash=st.sampled_from(("hash-1", "hash-1", "hash-2")),
        exposure=st.sampled_from(Exposure),
        pinned_port=st.sampled_from((None, None, PORTS[0])),
        port_range=st.sampled_from((None, None, (30001, 30002), (1, 0))),
        refused=st.sampled_from(((), (), ("spec.x is unsupported.",))),
        rollout=st.sampled_from(Rollout),
        suspended=st.booleans(),
        max_restarts=st.sampled_from((None, None, 0, 1)),
        http=st.booleans(),
        pinned_http_port=st.sampled_from((None, None, PORTS[1])),
    ).map(lambda b: replace(b, ordinals=()) if b.deleting_since else b)


@st.composite
def pods(draw: st.DrawFn, uid: str) -> Pod:
    pod: Pod = draw(st.sampled_from(KINDS_OF_PODS))(uid, created_at=later(draw(SECONDS)), ordinal=draw(ORDINALS))
    since, reason = later(draw(SECONDS)), draw(st.sampled_from(StopReason))
    changes: dict[str, Any] = {
        "ref": Ref(f"smollm2-{uid}", uid, "1", "models"),
        "host_port": draw(st.sampled_from((None, *PORTS))),
        "http_host_port": draw(st.sampled_from((None, *PORTS))),
        "has_finalizer": draw(st.booleans()),
        "labels_intact": draw(st.sampled_from((True, True, False))),
        "deleted_at": draw(st.sampled_from((pod.deleted_at, pod.deleted_at, later(-60)))),
        "replaces": draw(st.sampled_from(("", *UIDS))),
        "serving_label": draw(st.sampled_from((pod.serving_label, pod.serving_label, not pod.serving_label))),
    }
    if not pod.gated:
        changes["stop"] = draw(st.sampled_from((pod.stop, pod.stop, a_stop(reason, since=since))))
        changes["containers"] = draw(st.sampled_from((pod.containers, pod.containers, (ENDED,), ())))
    if pod.deleting:
        changes["handed_over"] = draw(st.sampled_from((None, None, NOW)))
    return replace(pod, **changes)


MACHINES = (
    MACHINE,
    replace(MACHINE, heartbeat_at=later(10**6)),
    replace(MACHINE, boot_id="boot-2"),
    replace(MACHINE, uid="n-uid-2", boot_id="boot-3"),
    replace(MACHINE, out_of_service=True),
)


@st.composite
def claims(draw: st.DrawFn, port: int) -> Claim:
    phase, uid = draw(st.sampled_from(ClaimPhase)), draw(st.sampled_from((*UIDS, "gone")))
    named = phase is not ClaimPhase.RESERVED
    return a_claim(
        phase,
        port,
        ordinal=draw(ORDINALS),
        exposure=draw(st.sampled_from((Exposure.NODE_PORT, Exposure.HOST_PORT))),
        pod_name=f"smollm2-{uid}" if named else "",
        pod_uid=uid if named else "",
        role=draw(st.sampled_from(PortRole)),
        evidence=draw(st.sampled_from(("", Evidence.NODE_REBOOTED, "a later word"))),
        node=draw(st.sampled_from((None, NODE))),
        reference_boot_id=draw(st.sampled_from(("", "boot-1", "boot-2"))),
        attestation=draw(
            st.sampled_from((None, None, Attestation(uid, ""), Attestation(uid, "x"), Attestation("z", "x")))
        ),
        removed_nodes=draw(st.sampled_from(((), (), (NODE,)))),
        since=later(draw(SECONDS)),
        terminating=draw(st.booleans()),
        has_finalizer=draw(st.booleans()),
    )


def services() -> st.SearchStrategy[list[Service]]:
    of_instances = st.builds(
        a_service,
        st.sampled_from(PORTS),
        ordinal=ORDINALS,
        pod_uid=st.sampled_from((*UIDS, "")),
        terminating=st.booleans(),
        intact=st.booleans(),
        http_node_port=st.sampled_from((None, *PORTS)),
    )
    shared = st.lists(st.builds(a_shared_service, intact=st.booleans()), max_size=1)
    return st.tuples(shared, st.lists(of_instances, max_size=2, unique_by=lambda s: s.node_port)).map(
        lambda both: [*both[0], *both[1]]
    )


def leases() -> st.SearchStrategy[Lease | None]:
    ours = st.builds(
        lambda uid, ordinal, purpose: a_lease(holder=Holder(BACKEND_UID, ordinal, uid, purpose)),
        st.sampled_from((*UIDS, "gone")),
        ORDINALS,
        st.sampled_from(StopReason),
    )
    return st.one_of(st.none(), ours, st.sampled_from((a_neighbours_lease(), a_lease(holder=None))))


def reports() -> st.SearchStrategy[dict[str, ServerReport]]:
    report = st.builds(
        a_report,
        st.sampled_from(ServerState),
        st.sampled_from((0, 1)),
        facts=st.sampled_from(({}, {"architecture": "llama"})),
        model=st.sampled_from(("smollm2", "smollm2", "another")),
    )
    return st.dictionaries(st.sampled_from(UIDS), report).map(
        lambda found: {uid: replace(report, pod_uid=uid) for uid, report in found.items()}
    )


@st.composite
def worlds(draw: st.DrawFn) -> Observation:
    some = draw(st.sets(st.sampled_from(UIDS)))
    world = a_world(
        draw(st.one_of(st.none(), backends(), backends(), backends())),
        pods=[draw(pods(uid)) for uid in sorted(some)],
        claims=[draw(claims(port)) for port in sorted(draw(st.sets(st.sampled_from(PORTS))))],
        services=draw(services()),
        servers=draw(reports()),
        lease=draw(leases()),
        nodes=draw(st.sampled_from(({}, *({NODE.name: machine} for machine in MACHINES)))),
        accepts_node_removed=draw(st.booleans()),
        answering=draw(st.sampled_from((frozenset(), frozenset(UIDS[:1])))),
        node_troubles=draw(st.sampled_from(({}, {NODE.name: "Kubelet stopped posting node status."}))),
        refusing=draw(st.sampled_from((frozenset(), frozenset(UIDS[:1])))),
        namespace_terminating=draw(st.sampled_from((False, False, True))),
        ports=Ports(
            ((PORTS[0], PORTS[-1]),), 15, draw(st.sampled_from((frozenset(), frozenset(PORTS[:1]), frozenset(PORTS))))
        ),
    )
    world = replace(
        world, servers={u: r for u, r in world.servers.items() if u in {p.ref.uid for p in servers_to_ask(world)}}
    )
    return shown(world, later(-60)) if world.backend is not None and draw(st.booleans()) else world


def told(world: Observation, status: WriteStatus) -> Observation:
    assert world.backend is not None
    return replace(world, backend=replace(world.backend, status=status.status))


# -- properties -------------------------------------------------------------------------------------------------------


@unhurried
@given(worlds())
def test_there_is_always_a_decision_and_always_the_same(world: Observation) -> None:
    decision = decide(world, NOW)
    event(type(decision.action if isinstance(decision, Act) else decision).__name__)
    assert isinstance(decision, Act | Wait | Done)
    assert decide(world, NOW) == decision


@unhurried
@given(worlds())
def test_every_write_keeps_every_promise_that_the_world_it_was_decided_from_can_show(world: Observation) -> None:
    decision = decide(world, NOW)
    if isinstance(decision, Act):
        processes = tuple(Process(uid, None, report.in_flight) for uid, report in world.servers.items())
        before = Snapshot((world,), {BACKEND_UID: "models/smollm2"}, processes)
        assert list(breaches_of_step(Step(before, world, decision.action, NOW))) == []


@unhurried
@given(worlds())
def test_a_status_that_was_written_is_not_written_again(world: Observation) -> None:
    """Each pod that ends has one piece of news of its own, told one after the other."""
    written: list[object] = []
    for _ in range(len(world.pods) + 2):
        decision = decide(world, NOW)
        if not (isinstance(decision, Act) and isinstance(decision.action, WriteStatus)):
            return
        assert decision.action.status not in written
        written.append(decision.action.status)
        world = told(world, decision.action)
    raise AssertionError(written)


@unhurried
@given(worlds())
def test_a_condition_keeps_the_time_of_its_last_transition(world: Observation) -> None:
    first = decide(world, NOW)
    if not (isinstance(first, Act) and isinstance(first.action, WriteStatus)):
        return
    changed = replace(told(world, first.action), pods=(), claims=(), servers={}, lease=None)
    second = decide(changed, later(60))
    if isinstance(second, Act) and isinstance(second.action, WriteStatus):
        before = {c["type"]: c for c in first.action.status["conditions"]}
        for condition in second.action.status["conditions"]:
            known = before.get(condition["type"])
            same = known is not None and known["status"] == condition["status"]
            assert (condition["lastTransitionTime"] == (known or {}).get("lastTransitionTime")) is same


STARTING = (do.CreateClaim, do.CreatePod, do.CreateService, do.BindClaim, do.ReserveClaim, do.Ungate, do.PointService)


@unhurried
@given(worlds())
def test_nothing_is_started_for_what_is_to_end_or_cannot_be_honoured(world: Observation) -> None:
    decision, backend = decide(world, NOW), world.backend
    if backend is None or backend.deleting_since or backend.refused or world.namespace_terminating:
        assert not isinstance(decision, Act) or not _starts(decision.action)


def _starts(action: Action) -> bool:
    """To bind a claim to the pod that it names already, or to one that is past its gate, is to put the ledger right."""
    repairs = isinstance(action, do.BindClaim) and (action.claim.pod_uid == action.pod.ref.uid or not action.pod.gated)
    return isinstance(action, STARTING) and not repairs


MAKING = {kind for kind in get_args(Action) if kind.__name__.startswith("Create")} | {
    do.PointService,
    do.ReserveClaim,
    do.Ungate,
    do.RemakeToken,
}


def in_deletion(world: Observation, finalizers: bool) -> Observation:
    assert world.backend is not None
    return replace(world, backend=replace(world.backend, deleting_since=NOW, ordinals=(), has_finalizer=finalizers))


@settings(unhurried, max_examples=300)
@given(worlds().filter(lambda world: world.backend is not None), st.booleans())
def test_no_child_is_made_or_opened_once_the_backend_is_being_deleted_whatever_finalizers_are_left(
    world: Observation, finalizer: bool
) -> None:
    """In a foreground deletion the garbage collector takes the children first: what made them again would never end."""
    decision = decide(in_deletion(world, finalizer), NOW)
    assert not isinstance(decision, Act) or type(decision.action) not in MAKING


WOKEN_BY_THE_WORLD = {
    Reason.UNSUPPORTED_FIELD: "an edit of the spec",
    Reason.NAMESPACE_TERMINATING: "the namespace's end, which is the backend's",
    Reason.STARTING: "a Service that is gone",
    Reason.TERMINATING: "the pod's or the Service's next version",
    Reason.ROLLING_OUT: "the next version of a pod that is to serve",
    Reason.SURGE_UNSCHEDULABLE: "the pod's next version, or an edit of the spec",
    Reason.RESTART_BUDGET_EXHAUSTED: "an edit of the spec",
}


@unhurried
@given(worlds())
def test_every_wait_has_something_that_ends_it(world: Observation) -> None:
    decision = decide(world, NOW)
    if isinstance(decision, Wait):
        assert decision.not_after is not None or decision.reason in WOKEN_BY_THE_WORLD, decision
        assert decision.not_after is None or decision.not_after > NOW


RELEASING = {
    do.ReserveClaim,
    do.AcquireLease,
    do.DeletePod,
    do.DeleteService,
    do.CoolClaim,
    do.WithholdClaim,
    do.HandOver,
    do.DeleteClaim,
    do.RemoveClaimFinalizer,
    do.RemovePodFinalizer,
    do.ReleaseLease,
    do.RemoveFinalizer,
}


@pytest.mark.parametrize("kind", get_args(Action), ids=lambda kind: kind.__name__)
def test_what_destroys_releases_or_takes_something_shared_is_decided_from_a_live_read(kind: type[Action]) -> None:
    assert kind.LIVE or kind not in RELEASING


@unhurried
@given(worlds(), st.lists(st.sampled_from((0, 1, 10, 31, 3600)), min_size=1, max_size=4))
def test_time_alone_releases_no_port_that_may_have_a_process_behind_it(world: Observation, seconds: list[int]) -> None:
    now: datetime = NOW
    held = {claim.port for claim in world.claims if claim.phase in (ClaimPhase.BOUND, ClaimPhase.WITHHELD)}
    proven = {
        claim.port
        for claim in world.claims
        if any(pod.ref.uid == claim.pod_uid for pod in world.pods)
        or evidence_elsewhere(world, trail_of_claim(world, claim)) is not None
    }
    for more in seconds:
        now += timedelta(seconds=more)
        decision: Decision = decide(world, now)
        match decision:
            case Act(do.CoolClaim(claim=claim) | do.DeleteClaim(claim=claim) | do.RemoveClaimFinalizer(claim=claim)):
                assert claim.port not in held - proven
