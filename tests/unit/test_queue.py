"""The keyed queue: one run per key at a time, no key delays another, and time is the event loop's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from modelbackend_operator.queue import Backoff, KeyedQueue, Result, Retry, Settled, Unfinished

SHORT = Backoff(first_seconds=0.01, most_seconds=0.02)
PATIENCE_SECONDS = 5


class Runs:
    """Notes every run; a key in `held` runs until it is let go."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running: list[str] = []
        self.held: dict[str, asyncio.Event] = {}
        self.results: dict[str, list[Result | Exception]] = {}
        self.most_at_once: dict[str, int] = {}
        self._changed = asyncio.Event()

    async def __call__(self, key: str) -> Result:
        self.started.append(key)
        self.running.append(key)
        self.most_at_once[key] = max(self.most_at_once.get(key, 0), self.running.count(key))
        self._changed.set()
        try:
            if key in self.held:
                await self.held[key].wait()
            planned = self.results.get(key, [])
            result = planned.pop(0) if planned else Settled()
            if isinstance(result, Exception):
                raise result
            return result
        finally:
            self.running.remove(key)
            self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def working(
    reconcile: Callable[[str], Awaitable[Result]], workers: int = 2, backoff: Backoff = SHORT
) -> AsyncIterator[KeyedQueue]:
    queue = KeyedQueue(workers=workers, backoff=backoff, random=Random(1))
    task = asyncio.create_task(queue.run(reconcile))
    try:
        yield queue
    finally:
        queue.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await task


async def test_a_key_added_twice_before_a_worker_is_free_runs_once() -> None:
    runs = Runs()
    runs.held["busy"] = asyncio.Event()
    async with working(runs, workers=1) as queue:
        queue.add("busy")
        await runs.until(lambda: runs.running == ["busy"])
        queue.add("a", "a", "b")
        queue.add("a")
        assert queue.depth == 2
        runs.held["busy"].set()
        await runs.until(lambda: "b" in runs.started and not runs.running)
        assert runs.started == ["busy", "a", "b"]


async def test_a_key_asked_for_while_it_runs_runs_again_and_never_beside_itself() -> None:
    runs = Runs()
    runs.held["a"] = asyncio.Event()
    async with working(runs, workers=3) as queue:
        queue.add("a")
        await runs.until(lambda: runs.running == ["a"])
        queue.add("a")
        queue.add("b")
        await runs.until(lambda: "b" in runs.started)
        runs.held["a"].set()
        await runs.until(lambda: runs.started.count("a") == 2 and not runs.running)
        assert runs.most_at_once == {"a": 1, "b": 1}


async def test_a_key_that_its_own_run_adds_is_not_run_again_but_one_that_another_adds_is() -> None:
    started: list[str] = []
    finished = asyncio.Event()

    async def reconcile(key: str) -> Result:
        started.append(key)
        if started.count(key) == 1:
            queue.add("a", "b")
        else:
            finished.set()
        return Settled()

    async with working(reconcile, workers=1) as queue:
        queue.add("a")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await finished.wait()
    assert started == ["a", "b", "a"]


async def test_a_stuck_key_delays_no_other_key() -> None:
    runs = Runs()
    runs.held["stuck"] = asyncio.Event()
    async with working(runs, workers=2) as queue:
        queue.add("stuck")
        await runs.until(lambda: runs.running == ["stuck"])
        queue.add(*(f"other-{i}" for i in range(20)))
        await runs.until(lambda: len(set(runs.started)) == 21)
        assert runs.running == ["stuck"]
        runs.held["stuck"].set()


async def test_a_bug_in_one_key_is_retried_and_stops_no_other_key(caplog: pytest.LogCaptureFixture) -> None:
    runs = Runs()
    runs.results["broken"] = [ZeroDivisionError("on purpose"), ZeroDivisionError("on purpose"), Settled()]
    async with working(runs, workers=1) as queue:
        queue.add("broken", "fine")
        await runs.until(lambda: runs.started.count("broken") == 3 and "fine" in runs.started)
        await runs.until(lambda: not runs.running)
        assert queue.failures("broken") == 0
    assert [r.key for r in caplog.records if r.message == "reconcile failed by a bug"] == ["broken", "broken"]  # type: ignore[attr-defined]


async def test_a_key_with_more_to_do_lets_the_others_have_a_turn_first() -> None:
    runs = Runs()
    runs.results["long"] = [Unfinished(), Unfinished(), Settled()]
    async with working(runs, workers=1) as queue:
        queue.add("long", "short")
        await runs.until(lambda: runs.started.count("long") == 3 and not runs.running)
    assert runs.started == ["long", "short", "long", "long"]


async def test_a_wait_comes_back_in_time_and_an_event_comes_earlier() -> None:
    runs = Runs()
    runs.results["soon"] = [Settled(again_after_seconds=0.01), Settled()]
    runs.results["late"] = [Settled(again_after_seconds=3600), Settled()]
    async with working(runs) as queue:
        queue.add("soon", "late")
        await runs.until(lambda: runs.started.count("soon") == 2 and not runs.running)
        assert runs.started.count("late") == 1
        queue.add("late")
        await runs.until(lambda: runs.started.count("late") == 2)


async def test_a_failing_key_is_tried_again_and_its_failures_are_forgotten_when_it_succeeds() -> None:
    runs = Runs()
    runs.results["a"] = [Retry("no"), Retry("no"), Settled()]
    async with working(runs) as queue:
        queue.add("a")
        await runs.until(lambda: runs.started.count("a") == 2)
        assert queue.failures("a") >= 1
        await runs.until(lambda: runs.started.count("a") == 3 and not runs.running)
        assert queue.failures("a") == 0


async def test_a_stopped_queue_finishes_what_runs_and_starts_nothing_more() -> None:
    runs = Runs()
    runs.held["a"] = asyncio.Event()
    async with working(runs, workers=1) as queue:
        queue.add("a", "b")
        await runs.until(lambda: runs.running == ["a"])
        queue.stop()
        runs.held["a"].set()
        await runs.until(lambda: not runs.running)
    assert runs.started == ["a"]


def test_the_back_off_doubles_up_to_its_most_and_jitter_takes_at_most_half() -> None:
    backoff, random = Backoff(first_seconds=1, most_seconds=60), Random(7)
    for failures, full in ((1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (10_000, 60)):
        seconds = [backoff.seconds(failures, random) for _ in range(200)]
        assert full / 2 <= min(seconds) <= max(seconds) <= full
        assert max(seconds) - min(seconds) > full / 4
