"""Half a minute of callers who come, wait, and leave when they like; MODELBACKEND_SOAK_SECONDS makes it longer."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import grpc

from modelbackend.v1 import inference_pb2
from tests.server.harness import running

SOAK_SECONDS = float(os.environ.get("MODELBACKEND_SOAK_SECONDS", "30"))
CALLERS = 12
EXPECTED = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)
# What lasts is held to less than a leak of a third of a MiB a minute would take. A short run is still filling what is
# filled once: resident memory was seen to come to rest after some 16 minutes.
LASTING_SECONDS = 1_500
GROWTH_BYTES_MAX, GROWTH_BYTES_MAX_OF_SHORT = 2 * 2**20, 16 * 2**20
WORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "it", "by", "at", "from")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth_bytes(samples: Sequence[int]) -> float:
    """From the middle of the time to its end; of ten samples, three on each side, so that no single one decides."""
    return statistics.median(samples[7:10]) - statistics.median(samples[4:7])


def may_grow_bytes(seconds: float) -> int:
    return GROWTH_BYTES_MAX if seconds >= LASTING_SECONDS else GROWTH_BYTES_MAX_OF_SHORT


def test_a_creep_of_a_third_of_a_mebibyte_a_minute_fails_half_an_hour_and_what_comes_to_rest_does_not() -> None:
    seconds = 1800
    creeping = [int(130 * 2**20 + 2**20 / 3 / 60 * seconds * tenth / 10) for tenth in range(10)]
    assert growth_bytes(creeping) > may_grow_bytes(seconds)
    # As it was seen, in MiB.
    resting = (123.1, 130.5, 131.9, 133.3, 134.6, 135.0, 136.1, 134.9, 135.3, 135.2)
    assert growth_bytes([int(sample * 2**20) for sample in resting]) < may_grow_bytes(seconds)


def a_request(chance: random.Random) -> inference_pb2.GenerateRequest:
    # Half of them begin alike, so that they share, wait for each other, and leave in the middle of it.
    beginning = "the time of the new " * 30 if chance.random() < 0.5 else ""
    request = inference_pb2.GenerateRequest(
        prompt=beginning + " ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 40))),
        max_tokens=chance.randrange(1, 120),
        sampling=inference_pb2.Sampling(temperature=chance.choice((0.0, 1.0))),
    )
    if chance.random() < 0.2:
        request.grammar = 'root ::= ("the " | "of ")+ "."'
    if chance.random() < 0.2:
        request.stop.extend(["e", "zz"])
    return request


async def test_callers_who_come_and_leave_at_random_leave_nothing_behind(tiny: Path) -> None:
    ends_at = time.monotonic() + SOAK_SECONDS
    # Resident bytes at each tenth of the time.
    samples: list[int] = []
    async with running(tiny, slots=4, max_pending=6, batch_tokens=64, context_length=512) as server:

        async def caller(seed: int) -> int:
            chance = random.Random(seed)
            finished = 0
            while time.monotonic() < ends_at:
                stream = server.stub.GenerateStream(a_request(chance), timeout=chance.choice((0.01, 0.2, 20)))
                leaves_after = chance.choice((None, None, 0, 1, 20))
                try:
                    count = 0
                    async for event in stream:
                        count += 1
                        if event.HasField("finished"):
                            finished += 1
                        elif count == leaves_after:
                            stream.cancel()
                except asyncio.CancelledError:
                    assert leaves_after is not None
                except grpc.aio.AioRpcError as error:
                    if error.code() not in EXPECTED:
                        raise
                    await asyncio.sleep(0.02)
            return finished

        async def watch() -> None:
            for _ in range(10):
                await asyncio.sleep(SOAK_SECONDS / 10)
                samples.append(resident_bytes())

        watching = asyncio.create_task(watch())
        finished = await asyncio.gather(*(caller(seed) for seed in range(CALLERS)))
        await watching
        assert sum(finished) > 0
        status = await server.until(queued=0, active=0)
        counted = status.requests
        assert counted.accepted == counted.finished + counted.cancelled + counted.failed
        assert counted.failed == 0
        work = server.server.admission.engine._work
        assert work is not None
        assert work.generations == []
        print(f"{SOAK_SECONDS:g} s:", str(counted).replace("\n", " "))
        print("resident MiB at each tenth:", *(f"{sample / 2**20:.1f}" for sample in samples))
        assert growth_bytes(samples) < may_grow_bytes(SOAK_SECONDS)
