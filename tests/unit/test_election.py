"""Who works: candidates and leaders against a fake API server, on a clock that only the test moves."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from modelbackend_operator.election import LEASE_NAME, Alone, Call, Election, Timing
from modelbackend_operator.kubernetes_api import Answer

TIMING = Timing(lease_seconds=15, renew_deadline_seconds=10, retry_seconds=2)
NOT_FOUND = Answer(404, {"reason": "NotFound", "details": {"name": LEASE_NAME}, "message": "not found"})
NO_ANSWER = Answer(0, {"message": "cut off"})


class SkippingSelector(selectors.DefaultSelector):
    """Nothing is waited for: the clock jumps to where the wait would have ended."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now += timeout or 0
        found: list[Any] = super().select(0)
        return found


def on_a_clock_of_its_own(story: Callable[[], Awaitable[None]]) -> None:
    selector = SkippingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        loop.run_until_complete(asyncio.wait_for(story(), timeout=10_000))
    finally:
        loop.close()


class LeaseServer:
    """One Lease, with versions. `cut` are identities whose calls do not arrive; `slow` ones get no answer in time."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.cut: set[str] = set()
        self.slow: set[str] = set()

    def of(self, identity: str) -> Call:
        async def call(verb: str, path: str, *, body: Mapping[str, Any] | None = None) -> Answer:
            if identity in self.slow:
                await asyncio.sleep(3600)
            if identity in self.cut:
                return NO_ANSWER
            assert path.startswith("/apis/coordination.k8s.io/v1/namespaces/system/leases")
            return self._answer(verb, body)

        return call

    def _answer(self, verb: str, body: Mapping[str, Any] | None) -> Answer:
        if verb == "GET":
            return Answer(200, self.lease) if self.lease is not None else NOT_FOUND
        assert body is not None
        if verb == "POST" and self.lease is not None:
            return Answer(409, {"reason": "AlreadyExists", "message": "exists"})
        if verb == "PUT":
            if self.lease is None:
                return NOT_FOUND
            if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return Answer(409, {"reason": "Conflict", "message": "modified"})
        self.version += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return Answer(200, self.lease)

    @property
    def holder(self) -> str:
        return str((self.lease or {})["spec"]["holderIdentity"])

    @property
    def transitions(self) -> int:
        return int((self.lease or {})["spec"]["leaseTransitions"])


def two() -> tuple[LeaseServer, Election, Election]:
    server = LeaseServer()
    first, second = (Election(server.of(name), "system", name, TIMING) for name in ("first", "second"))
    return server, first, second


def now() -> float:
    return asyncio.get_running_loop().time()


def test_of_two_that_begin_together_one_leads_and_stays_the_leader() -> None:
    async def story() -> None:
        server, first, second = two()
        candidates = {asyncio.create_task(one.lead()): one for one in (first, second)}
        done, waiting = await asyncio.wait(candidates, return_when=asyncio.FIRST_COMPLETED)
        (leader,) = (candidates[task] for task in done)
        holding = asyncio.create_task(leader.hold())
        await asyncio.sleep(300)
        assert leader.is_leader
        assert not holding.done()
        assert all(not candidates[task].is_leader for task in waiting)
        assert server.transitions == 0
        for task in (*waiting, holding):
            task.cancel()

    on_a_clock_of_its_own(story)


def test_a_leader_that_is_cut_off_stops_before_another_one_leads() -> None:
    async def story() -> None:
        server, first, second = two()
        await first.lead()
        candidate = asyncio.create_task(second.lead())
        holding = asyncio.create_task(first.hold())
        await asyncio.sleep(20)
        server.cut.add("first")
        await holding
        stopped_at = now()
        assert not first.is_leader
        assert not second.is_leader
        await candidate
        assert second.is_leader
        assert now() - stopped_at >= TIMING.lease_seconds - TIMING.renew_deadline_seconds - TIMING.retry_seconds
        assert (server.holder, server.transitions) == ("second", 1)

    on_a_clock_of_its_own(story)


def test_calls_without_an_answer_do_not_keep_a_leader_beyond_its_deadline() -> None:
    async def story() -> None:
        server, first, _ = two()
        await first.lead()
        server.slow.add("first")
        began = now()
        await first.hold()
        assert now() - began <= TIMING.renew_deadline_seconds + TIMING.call_seconds
        assert not first.is_leader

    on_a_clock_of_its_own(story)


def test_a_leader_that_was_stopped_for_long_is_none_when_it_goes_on_whatever_it_knows() -> None:
    async def story() -> None:
        _, first, second = two()
        await first.lead()
        loop = asyncio.get_running_loop()
        moved = loop.time() + 60
        loop.time = lambda: moved  # type: ignore[method-assign] # as after SIGSTOP and SIGCONT
        assert not first.is_leader
        assert not second.is_leader

    on_a_clock_of_its_own(story)


def test_one_cut_call_costs_nobody_the_lead() -> None:
    async def story() -> None:
        server, first, _ = two()
        await first.lead()
        holding = asyncio.create_task(first.hold())
        await asyncio.sleep(3)
        server.cut.add("first")
        await asyncio.sleep(3)
        server.cut.clear()
        await asyncio.sleep(60)
        assert first.is_leader
        assert not holding.done()
        holding.cancel()

    on_a_clock_of_its_own(story)


def test_one_that_ends_in_order_lets_the_next_lead_at_once() -> None:
    async def story() -> None:
        server, first, second = two()
        await first.lead()
        candidate = asyncio.create_task(second.lead())
        await asyncio.sleep(5)
        await first.release()
        released_at = now()
        assert not first.is_leader
        await candidate
        assert now() - released_at <= TIMING.retry_seconds
        assert (server.holder, server.transitions) == ("second", 1)

    on_a_clock_of_its_own(story)


def test_a_release_takes_nothing_from_another_leader() -> None:
    async def story() -> None:
        server, first, second = two()
        await first.lead()
        server.cut.add("first")
        await first.hold()
        await second.lead()
        server.cut.clear()
        await first.release()
        assert server.holder == "second"
        assert second.is_leader

    on_a_clock_of_its_own(story)


def test_a_lease_that_was_deleted_by_hand_is_made_again_by_whoever_comes_first() -> None:
    async def story() -> None:
        server, first, _ = two()
        await first.lead()
        holding = asyncio.create_task(first.hold())
        server.lease = None
        await asyncio.sleep(10)
        assert first.is_leader
        assert server.holder == "first"
        holding.cancel()

    on_a_clock_of_its_own(story)


@pytest.mark.parametrize("skew_seconds", [-3600, 3600])
def test_the_clocks_of_others_do_not_matter(skew_seconds: int) -> None:
    """The times in the record are for people: however old they say it is, it was seen to change just now."""

    async def story() -> None:
        server, _, second = two()
        renewed = f"2026-05-04T{12 + skew_seconds // 3600:02}:00:00.000000Z"
        spec = {"holderIdentity": "first", "leaseDurationSeconds": 15, "renewTime": renewed, "leaseTransitions": 4}
        server.lease = {"metadata": {"name": LEASE_NAME, "resourceVersion": "1"}, "spec": spec}
        began = now()
        await second.lead()
        assert now() - began >= TIMING.lease_seconds
        assert server.transitions == 5

    on_a_clock_of_its_own(story)


def test_an_operator_that_runs_alone_always_leads() -> None:
    async def story() -> None:
        alone = Alone()
        await alone.lead()
        holding = asyncio.create_task(alone.hold())
        await asyncio.sleep(3600)
        assert alone.is_leader
        assert not holding.done()
        holding.cancel()
        await alone.release()

    on_a_clock_of_its_own(story)
