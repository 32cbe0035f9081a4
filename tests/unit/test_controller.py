"""The controller's loop over an in-memory cluster: what each answer of the API server makes it do."""

from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.actions import Action, AddFinalizer, DeleteClaim, DrainServer, RemoveFinalizer, WriteStatus
from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.controller import STUMBLES_PER_PASS, Controller
from modelbackend_operator.events import Event
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.outcome import Applied, Conflict, Denied, Exists, Gone, Outcome, Unknown
from modelbackend_operator.queue import Retry, Settled
from tests.unit.builders import (
    BACKEND_UID,
    NOW,
    POD_UID,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_draining_pod,
    a_lease,
    a_report,
    a_world,
    later,
    shown,
)

KEY = BACKEND_UID
IMPOSSIBLE = ("spec.model.source.s3 is not supported yet",)
"""A backend that asks for it settles at once: nothing is started for it."""


def idle(**special: Any) -> Observation:
    return a_world(a_backend(refused=IMPOSSIBLE, **special))


def ending(*claims: Claim) -> Observation:
    return a_world(a_deleted_backend(), claims=claims)


class InMemoryCluster:
    """A `Cluster` of one backend: what the cache shows, what a live read shows, and what writes are answered with."""

    def __init__(self, cached: Observation, live: Observation | None = None) -> None:
        self.cached = cached
        self.live = live
        self.answers: dict[type[Action], list[Outcome]] = {}
        self.applied: list[Action] = []
        self.looks: list[str] = []
        self.events: list[Event] = []
        self.unreadable = False

    async def snapshot(self, backend_uid: str, *, live: bool = False) -> Observation:
        assert backend_uid == KEY
        self.looks.append("live" if live else "cached")
        if live and self.unreadable:
            raise ClusterUnavailable("LIST /api/v1/pods: HTTP 500")
        if live and self.live is not None:
            self.cached, self.live = self.live, None
        return replace(self.cached, live=live)

    async def apply(self, action: Action) -> Outcome:
        planned = self.answers.get(type(action), [])
        outcome = planned.pop(0) if planned else Applied()
        if isinstance(outcome, Applied):
            self.applied.append(action)
            self.cached = self._after(action)
        return outcome

    async def post_event(self, event: Event) -> None:
        self.events.append(event)

    def _after(self, action: Action) -> Observation:
        backend = self.cached.backend
        match action:
            case AddFinalizer() if backend is not None:
                return replace(self.cached, backend=replace(backend, has_finalizer=True))
            case WriteStatus(status=status) if backend is not None:
                return replace(self.cached, backend=replace(backend, status=status))
            case RemoveFinalizer():
                return replace(self.cached, backend=None)
            case DeleteClaim():
                return replace(self.cached, claims=())
            case DrainServer():
                return self.cached
        raise AssertionError(f"this cluster was not made for {action}")


class Steps:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def settled(self, _: Observation) -> None: ...

    def step(self, _: Observation, action: Action, outcome: Outcome, _decided_at: object = None) -> None:
        self.seen.append((type(action).__name__, type(outcome).__name__))


def controller(cluster: InMemoryCluster, steps: Steps | None = None) -> Controller:
    return Controller(cluster, watchers=(steps,) if steps else (), now=lambda: NOW)


async def test_a_pass_goes_on_until_nothing_is_left_to_write() -> None:
    cluster, steps = InMemoryCluster(idle(has_finalizer=False)), Steps()
    assert isinstance(await controller(cluster, steps).reconcile(KEY), Settled)
    assert steps.seen == [("AddFinalizer", "Applied"), ("WriteStatus", "Applied")]
    assert cluster.cached.backend is not None
    assert "s3 is not supported yet" in str(cluster.cached.backend.status)


async def test_a_settled_backend_is_not_written_again() -> None:
    cluster = InMemoryCluster(idle())
    await controller(cluster).reconcile(KEY)
    first = list(cluster.applied)
    await controller(cluster).reconcile(KEY)
    assert cluster.applied == first


async def test_a_releasing_act_is_decided_again_from_a_live_read_and_what_that_shows_comes_first() -> None:
    cluster = InMemoryCluster(cached=ending(), live=ending(a_claim(ClaimPhase.RESERVED)))
    assert await controller(cluster).reconcile(KEY) == Settled()
    assert cluster.looks[:2] == ["cached", "live"]
    assert [type(action) for action in cluster.applied] == [DeleteClaim, RemoveFinalizer]


async def test_a_releasing_act_that_the_live_read_confirms_is_done() -> None:
    cluster = InMemoryCluster(ending())
    assert await controller(cluster).reconcile(KEY) == Settled()
    assert cluster.cached.backend is None
    assert "live" in cluster.looks


async def test_nothing_is_released_when_the_live_read_fails() -> None:
    cluster = InMemoryCluster(ending())
    cluster.unreadable = True
    result = await controller(cluster).reconcile(KEY)
    assert result == Retry("LIST /api/v1/pods: HTTP 500")
    assert cluster.applied == []


@pytest.mark.parametrize("outcome", [Conflict(), Gone(), Exists()], ids=lambda outcome: type(outcome).__name__)
async def test_another_object_than_expected_makes_it_look_again_at_once(outcome: Outcome) -> None:
    cluster = InMemoryCluster(idle(has_finalizer=False))
    cluster.answers[AddFinalizer] = [outcome]
    assert isinstance(await controller(cluster).reconcile(KEY), Settled)
    assert [type(action) for action in cluster.applied] == [AddFinalizer, WriteStatus]


async def test_a_write_that_conflicts_again_and_again_backs_off() -> None:
    cluster, steps = InMemoryCluster(idle(has_finalizer=False)), Steps()
    cluster.answers[AddFinalizer] = [Conflict()] * 100
    assert isinstance(await controller(cluster, steps).reconcile(KEY), Retry)
    assert len(steps.seen) == STUMBLES_PER_PASS


async def test_an_unknown_outcome_is_not_taken_for_failure_or_success_but_looked_at_later() -> None:
    cluster, steps = InMemoryCluster(idle(has_finalizer=False)), Steps()
    cluster.answers[AddFinalizer] = [Unknown("no answer")]
    assert await controller(cluster, steps).reconcile(KEY) == Retry("no answer")
    assert steps.seen == [("AddFinalizer", "Unknown")]


async def test_a_refusal_is_shown_in_status_in_the_api_servers_words() -> None:
    cluster = InMemoryCluster(idle(has_finalizer=False))
    cluster.answers[AddFinalizer] = [Denied("webhook says no")]
    assert await controller(cluster).reconcile(KEY) == Settled(again_after_seconds=1)
    assert cluster.cached.backend is not None
    assert "webhook says no" in str(cluster.cached.backend.status["conditions"])


async def test_a_refused_status_is_not_answered_by_another_status() -> None:
    cluster, steps = InMemoryCluster(idle()), Steps()
    cluster.answers[WriteStatus] = [Denied("no")]
    assert await controller(cluster, steps).reconcile(KEY) == Settled(again_after_seconds=1)
    assert steps.seen == [("WriteStatus", "Denied")]


async def test_a_wait_until_a_time_comes_back_then_by_the_clock_given() -> None:
    cooling = a_claim(ClaimPhase.COOLING, since=later(-10))
    cluster = InMemoryCluster(a_world(None, claims=(cooling,)))
    assert await controller(cluster).reconcile(KEY) == Settled(again_after_seconds=5)


async def test_a_server_that_ignores_its_drain_is_asked_again_later_and_not_in_a_loop() -> None:
    busy = {POD_UID: a_report(ServerState.SERVING, in_flight=1)}
    draining = shown(a_world(a_deleted_backend(), pods=(a_draining_pod(),), lease=a_lease(), servers=busy))
    cluster, steps = InMemoryCluster(draining), Steps()
    assert await controller(cluster, steps).reconcile(KEY) == Settled(again_after_seconds=1)
    assert steps.seen == [("DrainServer", "Applied"), ("WriteStatus", "Applied")]


async def test_a_write_that_is_applied_and_changes_nothing_is_not_repeated_in_a_loop() -> None:
    """For example a field of status that another writer owns: applying ours without it does not take it away."""

    class Unmoved(InMemoryCluster):
        def _after(self, _: Action) -> Observation:
            return self.cached

    cluster, steps = Unmoved(idle(has_finalizer=False)), Steps()
    assert await controller(cluster, steps).reconcile(KEY) == Retry("AddFinalizer was applied and changed nothing")
    assert steps.seen == [("AddFinalizer", "Applied")]


async def test_a_drain_call_that_fails_is_polled_and_never_backs_off_past_the_deadline() -> None:
    busy = {POD_UID: a_report(ServerState.SERVING, in_flight=1)}
    draining = shown(a_world(a_deleted_backend(), pods=(a_draining_pod(),), lease=a_lease(), servers=busy))
    cluster = InMemoryCluster(draining)
    cluster.answers[DrainServer] = [Unknown("connection refused")]
    assert await controller(cluster).reconcile(KEY) == Settled(again_after_seconds=1)


@pytest.mark.parametrize("leads", [True, False])
async def test_a_process_that_does_not_lead_any_more_looks_and_does_nothing(leads: bool) -> None:
    cluster = InMemoryCluster(idle())
    result = await Controller(cluster, may_act=lambda: leads, now=lambda: NOW).reconcile(KEY)
    assert bool(cluster.applied) is leads
    assert (result == Retry("another process leads")) is not leads
