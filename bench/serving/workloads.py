"""What is asked of a server, and what is measured of it. Each prompt is new to the server that gets it."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Callable

from bench.serving.clients import Answer, Caller, GrpcCaller, HttpCaller
from bench.serving.servers import Server

MAX_TOKENS = 64
PROMPT_WORDS = 60
SHARED_WORDS, OWN_WORDS, SHARED_MAX_TOKENS = 300, 20, 32
LONG_WORDS = 550
SCORED_WORDS = 75
EMBEDDED_TEXTS, EMBEDDED_WORDS = 32, 12
LEAVES_AFTER_SECONDS, LOOK_SECONDS = 1.0, 0.005
WORDS = """
river house letter morning garden window market summer paper mountain teacher music kitchen village story doctor
winter bridge forest island table silver engine ocean travel answer picture corner season circle captain station
pencil pocket valley orange planet button castle farmer flower hammer jacket ladder mirror needle people quiet rabbit
school ticket uncle velvet wallet yellow zebra anchor basket candle desert effort fabric
"""
_fresh = itertools.count()


def words(count: int, *seed: object) -> str:
    """Readable nonsense, the same for the same seed."""
    chance, vocabulary = random.Random(repr(seed)), WORDS.split()
    return " ".join(chance.choice(vocabulary) for _ in range(count))


async def streams(caller: Caller, server: Server, clients: int, run: int) -> dict[str, float]:
    return await _closed_loop(caller, server, clients, run, streaming=True)


async def wholes(caller: Caller, server: Server, clients: int, run: int) -> dict[str, float]:
    return await _closed_loop(caller, server, clients, run, streaming=False)


async def _closed_loop(caller: Caller, server: Server, clients: int, run: int, *, streaming: bool) -> dict[str, float]:
    requests = iter(range(max(2, clients * 3 // 2)))

    async def client() -> list[Answer]:
        ask = caller.stream if streaming else caller.whole
        return [await ask(words(PROMPT_WORDS, streaming, clients, run, request), MAX_TOKENS) for request in requests]

    cpu, began = server.cpu_seconds(), time.perf_counter()
    answers = list(itertools.chain(*await asyncio.gather(*(client() for _ in range(clients)))))
    seconds, cpu_seconds = time.perf_counter() - began, server.cpu_seconds() - cpu
    tokens = sum(answer.token_count for answer in answers)
    return {
        "tokens/s": tokens / seconds,
        "CPU ms/token": cpu_seconds / tokens * 1000,
        "first token s": statistics.median(answer.first_seconds for answer in answers),
    }


async def shared_prefix(caller: Caller, server: Server, clients: int, run: int) -> dict[str, float]:
    """All ask at once; their prompts begin with the same new text."""
    beginning = words(SHARED_WORDS, "shared", run, server.name)
    began = time.perf_counter()
    answers = await asyncio.gather(
        *(caller.stream(f"{beginning} {words(OWN_WORDS, run, client)}", SHARED_MAX_TOKENS) for client in range(clients))
    )
    return {
        "tokens/s": sum(answer.token_count for answer in answers) / (time.perf_counter() - began),
        "first token s": statistics.median(answer.first_seconds for answer in answers),
    }


async def long_prompt(caller: Caller, server: Server, run: int) -> dict[str, float]:
    """Four texts stream when a long prompt arrives: their longest pause, and how long that prompt waits."""
    running = [
        asyncio.create_task(caller.stream(words(PROMPT_WORDS, "running", run, client), 200)) for client in range(4)
    ]
    await asyncio.sleep(2.5)
    began = time.perf_counter()
    long = await caller.stream(words(LONG_WORDS, "long", run, server.name, next(_fresh)), 4)
    ended = long.pieces_at[0]
    gaps = []
    for answer in await asyncio.gather(*running):
        near = [at for at in answer.pieces_at if began - 1 <= at <= ended + 1]
        gaps += [later - earlier for earlier, later in itertools.pairwise(near)]
    return {"worst gap s": max(gaps, default=0.0), "long prompt's first token s": long.first_seconds}


async def scoring(caller: GrpcCaller, run: int) -> dict[str, float]:
    """Eight choices after a prompt of about 100 tokens: all in one call, and each in one of its own."""
    choices = [f" {word} it is" for word in WORDS.split()[:8]]
    began = time.perf_counter()
    await caller.score(words(SCORED_WORDS, "together", run), choices)
    together = time.perf_counter() - began
    began = time.perf_counter()
    for index, choice in enumerate(choices):
        # Each after a prompt of its own, or the prefix would be evaluated once here, too.
        await caller.score(words(SCORED_WORDS, "alone", run, index), [choice])
    return {"together": together, "one by one": time.perf_counter() - began}


async def left(caller: Caller, server: Server, run: int) -> dict[str, float]:
    """A caller of a whole answer leaves while another's text streams: pieces of that one until the slot is free."""
    streaming = asyncio.create_task(caller.stream(words(PROMPT_WORDS, "stays", run), 150))
    leaving = asyncio.create_task(caller.whole(words(PROMPT_WORDS, "leaves", run), 800))
    await asyncio.sleep(LEAVES_AFTER_SECONDS)
    await _until(lambda: server.busy_slots() == 2)
    leaving.cancel()
    left_at = time.perf_counter()
    await _until(lambda: server.busy_slots() <= 1)
    free_at = time.perf_counter()
    answer = await streaming
    await asyncio.gather(leaving, return_exceptions=True)
    return {"steps until its slot is free": sum(left_at < at <= free_at for at in answer.pieces_at)}


async def _until(holds: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - another process, which tells nobody
        await asyncio.sleep(LOOK_SECONDS)


async def embedded(server: Server, clients: int, run: int) -> dict[str, float]:
    """Each client asks for the vectors of 32 short texts, over HTTP of both servers."""
    caller = HttpCaller(server)
    cpu, began = server.cpu_seconds(), time.perf_counter()
    await asyncio.gather(
        *(
            caller.embed([words(EMBEDDED_WORDS, run, client, index) for index in range(EMBEDDED_TEXTS)])
            for client in range(clients)
        )
    )
    count = clients * EMBEDDED_TEXTS
    cpu_ms = (server.cpu_seconds() - cpu) * 1000
    return {"texts/s": count / (time.perf_counter() - began), "CPU ms/text": cpu_ms / count}
