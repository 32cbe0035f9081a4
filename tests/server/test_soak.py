"""Half a minute of callers who come, wait, and leave when they like; MODELBACKEND_SOAK_SECONDS makes it longer."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import grpc

from modelbackend.v1 import inference_pb2
from tests.server.harness import running

SOAK_SECONDS = float(os.environ.get("MODELBACKEND_SOAK_SECONDS", "30"))
CALLERS = 12
EXPECTED = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)
# What lasts is held to it that nothing is kept. A short run is still filling what is filled once.
LASTING_SECONDS = 1_200
SHORT_GROWTH_BYTES_MAX = 40 * 2**20
GROWTH_BYTES_MAX = 2 * 2**20
# grpc.aio does not free the operations of calls that are cancelled or expire, on either side (grpc/grpc#43360): with a
# server that does nothing else, 40 bytes of each such call in the server and 100 in the caller.
GRPC_BYTES_PER_CALL = 200
PYTHON_BLOCKS_MAX = 10_000
WORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "it", "by", "at", "from")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Sample(NamedTuple):
    resident_bytes: float
    # What Python's own allocator has given out: gRPC's and llama.cpp's are not among them.
    python_blocks: float
    calls: float


def kept(samples: Sequence[Sample], seconds: float) -> str:
    """What was kept from the middle of the time to its end, in words; "" if nothing was.

    Of ten samples, three on each side, so that no single one decides.
    """
    middle, end = (Sample(*map(statistics.median, zip(*part, strict=True))) for part in (samples[4:7], samples[7:10]))
    grown = end.resident_bytes - middle.resident_bytes
    if seconds < LASTING_SECONDS:
        return f"{grown:.0f} bytes" if grown > SHORT_GROWTH_BYTES_MAX else ""
    calls = end.calls - middle.calls
    if (blocks := end.python_blocks - middle.python_blocks) > PYTHON_BLOCKS_MAX:
        return f"{blocks:.0f} blocks of Python's memory over {calls:.0f} calls"
    return f"{grown:.0f} bytes over {calls:.0f} calls" if grown > GROWTH_BYTES_MAX + GRPC_BYTES_PER_CALL * calls else ""


def test_a_soak_sees_what_is_kept_of_each_call() -> None:
    def soak(bytes_per_call: float, blocks_per_call: float) -> list[Sample]:
        calls = [tenth * 8_000 for tenth in range(1, 11)]
        return [Sample(130e6 + bytes_per_call * each, 520e3 + blocks_per_call * each, each) for each in calls]

    assert kept(soak(0, 0), 1800) == kept(soak(140, 0), 1800) == ""
    assert kept(soak(500, 0), 1800) == "12000000 bytes over 24000 calls"
    assert kept(soak(100, 1), 1800) == "24000 blocks of Python's memory over 24000 calls"
    assert kept(soak(500, 0), 30) == ""
    assert kept(soak(2_000, 0), 30) == "48000000 bytes"


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
    # At each tenth of the time.
    samples: list[Sample] = []
    calls = 0
    async with running(tiny, slots=4, max_pending=6, batch_tokens=64, context_length=512) as server:

        async def caller(seed: int) -> int:
            nonlocal calls
            chance = random.Random(seed)
            finished = 0
            while time.monotonic() < ends_at:
                calls += 1
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
                samples.append(Sample(resident_bytes(), sys.getallocatedblocks(), calls))

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
        print("resident MiB at each tenth:", *(f"{sample.resident_bytes / 2**20:.1f}" for sample in samples))
        print("Python's blocks:", *(sample.python_blocks for sample in samples), "calls:", calls)
        assert kept(samples, SOAK_SECONDS) == ""
