"""The work queue: which keys are to be reconciled, and when.

A key waits at most once; it runs at most once at a time; asked for while it runs, it runs again afterwards. A key that
fails comes back after a delay that doubles, with jitter, and is its own: no key delays another. All times are of the
event loop's monotonic clock, so a step of the wall clock moves nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import assert_never

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing to do now; look again after so many seconds, or only when something changes."""

    again_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """There is more to do; let other keys have a turn first."""


@dataclass(frozen=True, slots=True)
class Retry:
    """It did not work; try again after the key's back-off."""

    reason: str


Result = Settled | Unfinished | Retry
Reconcile = Callable[[str], Awaitable[Result]]
"""One pass over one key."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before the n-th retry: doubling from `first` up to `most`, less up to a half of it by chance."""

    first_seconds: float
    most_seconds: float

    def seconds(self, failures: int, random: Random) -> float:
        full = min(self.most_seconds, self.first_seconds * 2.0 ** min(failures - 1, 30))
        return full * random.uniform(0.5, 1.0)


class KeyedQueue:
    """Runs a reconcile for every key that was added, with so many workers."""

    def __init__(
        self,
        *,
        workers: int,
        backoff: Backoff,
        random: Random | None = None,
    ) -> None:
        self._workers = workers
        self._backoff = backoff
        self._random = random or Random()
        self._waiting: dict[str, float] = {}  # key to when it was added; the oldest first
        self._running: dict[str, asyncio.Task[None] | None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._added = asyncio.Event()
        self._stopping = False

    # -- what others see ----------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._waiting)

    @property
    def oldest_seconds(self) -> float:
        """How long the key that waits longest has waited for a worker."""
        first = next(iter(self._waiting.values()), None)
        return 0.0 if first is None else asyncio.get_running_loop().time() - first

    def failures(self, key: str) -> int:
        """In a row, up to now."""
        return self._failures.get(key, 0)

    # -- adding -------------------------------------------------------------------------------------------------------

    def add(self, *keys: str) -> None:
        """Run these as soon as a worker is free.

        A key that its own run adds is passed over: a reconcile looks again after everything it does.
        """
        now, current = asyncio.get_running_loop().time(), asyncio.current_task()
        for key in keys:
            if current is not None and self._running.get(key) is current:
                continue
            self._cancel_timer(key)
            self._waiting.setdefault(key, now)
        if keys:
            self._added.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Run this key then, unless something asks for it earlier."""
        if key in self._waiting:
            return
        self._cancel_timer(key)
        self._timers[key] = asyncio.get_running_loop().call_later(max(seconds, 0), self._due, key)

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)

    def _cancel_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(self, reconcile: Reconcile) -> None:
        """Until `stop`; then it returns when the reconciles in flight have ended."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._workers):
                workers.create_task(self._work(reconcile))

    def stop(self) -> None:
        """Start nothing more."""
        self._stopping = True
        for key in tuple(self._timers):
            self._cancel_timer(key)
        self._added.set()

    async def _work(self, reconcile: Reconcile) -> None:
        while not self._stopping:
            key = self._take()
            if key is None:
                self._added.clear()
                await self._added.wait()
            else:
                await self._run_one(reconcile, key)

    def _take(self) -> str | None:
        key = next((key for key in self._waiting if key not in self._running), None)
        if key is not None:
            del self._waiting[key]
            self._running[key] = asyncio.current_task()
        return key

    async def _run_one(self, reconcile: Reconcile, key: str) -> None:
        try:
            result = await reconcile(key)
        except Exception:  # a bug: of this key, and not the end of the others
            log.exception("reconcile failed by a bug", extra={"key": key})
            result = Retry("bug")
        finally:
            del self._running[key]
            self._added.set()  # it may have been asked for meanwhile
        self._schedule(key, result)

    def _schedule(self, key: str, result: Result) -> None:
        if self._stopping:
            return
        match result:
            case Settled(again_after_seconds=seconds):
                self._failures.pop(key, None)
                if seconds is not None:
                    self.add_after(key, seconds)
            case Unfinished():
                self._failures.pop(key, None)
                self.add(key)
            case Retry():
                self._failures[key] = self._failures.get(key, 0) + 1
                self.add_after(key, self._backoff.seconds(self._failures[key], self._random))
            case _:
                assert_never(result)
