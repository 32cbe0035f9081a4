"""The periodic complete reading of the cluster: what repairs whatever a watch has missed. Its age is liveness."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import TypeVar

from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.queue import Backoff

SECOND_READING_SECONDS = 10
T = TypeVar("T")
log = logging.getLogger(__name__)


class Resync:
    """`read` reads every kind into the cache and answers with every key there is; `enqueue` takes them."""

    def __init__(
        self,
        read: Callable[[], Awaitable[frozenset[str]]],
        enqueue: Callable[[Iterable[str]], None],
        *,
        period_seconds: float,
        backoff: Backoff,
    ) -> None:
        self._read = read
        self._enqueue = enqueue
        self._period_seconds = period_seconds
        self._backoff = backoff
        self._done_at = asyncio.get_running_loop().time()
        self._asked = asyncio.Event()
        self.complete = False
        """Whether the cluster was read completely at least once."""

    @property
    def age_seconds(self) -> float:
        """Since the last complete reading, or since the start when there was none."""
        return asyncio.get_running_loop().time() - self._done_at

    async def once(self) -> None:
        """Raises ClusterUnavailable when one kind cannot be read; then nothing is concluded from the others."""
        keys = await self._read()
        self._done_at = asyncio.get_running_loop().time()
        self.complete = True
        self._enqueue(keys)

    async def first(self) -> None:
        """Until the first reading has succeeded: no decision is made before."""
        await persist(self.once, self._backoff)

    async def run(self) -> None:
        """For ever, after the first.

        The second follows soon: watches begin with LISTs of their own, a little later than the first reading, and what
        was deleted in between is told by none of them.
        """
        await self._pause(SECOND_READING_SECONDS)
        while True:
            await persist(self.once, self._backoff)
            await self._pause(self._period_seconds)

    def soon(self) -> None:
        """Something may have been missed."""
        self._asked.set()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, self._period_seconds)):
                await self._asked.wait()
        self._asked.clear()


async def persist(read: Callable[[], Awaitable[T]], backoff: Backoff) -> T:
    """The answer of `read`, which is repeated as long as the API server cannot be read."""
    random = Random()
    for failures in itertools.count(1):
        try:
            return await read()
        except ClusterUnavailable as error:
            delay_seconds = backoff.seconds(failures, random)
            log.warning("the cluster cannot be read; again in %.1f s: %s", delay_seconds, error)
            await asyncio.sleep(delay_seconds)
    raise AssertionError("unreachable")
