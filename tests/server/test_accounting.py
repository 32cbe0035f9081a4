"""Whatever callers do, afterwards nobody holds anything, and every request was counted exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from modelbackend_client import AsyncClient, CallError
from modelbackend_server.generation import Outcome
from tests.server.harness import GREEDY, LONG, PATIENCE_SECONDS, Running, running

REQUESTS = 1000
AT_A_TIME = 48


async def finished(client: AsyncClient, number: int) -> None:
    await client.generate(f"the time {number}", max_tokens=1 + number % 30, sampling=GREEDY)


async def left(client: AsyncClient, number: int) -> None:
    async with aclosing(client.stream(f"of {number}", max_tokens=LONG, sampling=GREEDY)) as events:
        for _ in range(number % 4):
            await anext(events)


async def late(client: AsyncClient, number: int) -> None:
    async with asyncio.timeout(0.002 * (1 + number % 50)):
        await client.generate(f"new {number}", max_tokens=LONG, sampling=GREEDY)


async def too_long(client: AsyncClient, number: int) -> None:
    await client.generate("x" * 5000, max_tokens=1 + number)


async def scored(client: AsyncClient, number: int) -> None:
    await client.score(f"the new {number}", [" time", " of"])


async def asked(client: AsyncClient, number: int) -> None:
    await client.tokenize(f"the time of {number}")


KINDS: tuple[Callable[[AsyncClient, int], Awaitable[None]], ...] = (
    finished, left, late, too_long, scored, finished, asked,
)  # fmt: skip


async def ends_of(clients: list[AsyncClient]) -> Counter[str]:
    """How the requests ended, as their callers saw it."""
    ends: Counter[str] = Counter()

    async def caller(client: AsyncClient, numbers: range) -> None:
        for number in numbers:
            try:
                await KINDS[number % len(KINDS)](client, number)
                ends["done"] += 1
            except TimeoutError:
                ends["late"] += 1
            except CallError as error:
                ends[error.reason] += 1

    crowd = [caller(clients[first % len(clients)], range(first, REQUESTS, AT_A_TIME)) for first in range(AT_A_TIME)]
    await asyncio.wait_for(asyncio.gather(*crowd), PATIENCE_SECONDS * 4)
    return ends


async def test_after_a_thousand_mixed_requests_of_three_clients_nothing_is_left(tiny: Path) -> None:
    async with running(tiny, slots=3, max_pending=AT_A_TIME - 8) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(server.address)) for _ in range(3)]
        ends = await ends_of(clients)
        assert ends.total() == REQUESTS
        assert ends.keys() <= {"done", "late", "PROMPT_TOO_LONG", "QUEUE_FULL"}
        await nothing_is_left(server)
        # All slots work: as many requests as there are slots run at the same time.
        answers = await asyncio.gather(
            *(server.client.generate("the", max_tokens=30, sampling=GREEDY) for _ in range(3))
        )
        assert len({answer.text for answer in answers}) == 1


async def nothing_is_left(server: Running) -> None:
    status = await server.until(queued=0, active=0)
    requests = status.requests
    assert status.oldest_request_age_seconds == 0
    assert requests.accepted == requests.finished + requests.cancelled
    assert requests.failed == 0
    assert min(requests.finished, requests.cancelled, requests.refused) > 0
    sample = server.server.metrics.registry.get_sample_value
    for gauge in ("requests_queued", "requests_active", "waiting_prompt_tokens", "oldest_request_age_seconds"):
        assert sample(f"modelbackend_{gauge}") == 0
    ended = [sample("modelbackend_requests_total", {"outcome": outcome.value}) or 0 for outcome in Outcome]
    assert sum(ended) == requests.accepted == sample("gen_ai_server_request_duration_seconds_count")
    work = server.server.admission.engine._work
    assert work is not None
    assert (work.generations, work.busy) == ([], False)
