"""Several callers at once, each with one streamed request after the other: what they get, and how soon."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field

from modelbackend.v1 import inference_pb2

from .aio import AsyncClient
from .errors import CallError

GREEDY = inference_pb2.Sampling(temperature=0)


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop: a caller sends its next request when the last one has ended."""

    clients: int
    requests: int
    prompt: str
    max_tokens: int


@dataclass(slots=True)
class Found:
    """Times are in seconds."""

    seconds: float = 0.0
    answered: int = 0
    tokens: int = 0
    first_token_seconds: list[float] = field(default_factory=list)
    # Between two deltas of one stream. What comes late comes together: a delta may be several tokens.
    gap_seconds: list[float] = field(default_factory=list)
    # Failed calls by the server's reason, or by gRPC's code.
    errors: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, object]:
        return {
            "seconds": self.seconds,
            "answered": self.answered,
            "generated_tokens": self.tokens,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
            "first_token_seconds": quantiles(self.first_token_seconds),
            "gap_seconds": quantiles(self.gap_seconds),
            "errors": dict(self.errors),
        }

    def lines(self) -> list[str]:
        lines = [
            f"{self.answered} answered, {self.tokens} tokens generated in {self.seconds:.2f} s: "
            f"{self.tokens / self.seconds if self.seconds else 0:.1f} tokens/s",
            f"time to first token: {_in_words(self.first_token_seconds)}",
            f"between two deltas:  {_in_words(self.gap_seconds)}",
        ]
        return lines + [f"failed with {reason}: {count}" for reason, count in self.errors.most_common()]


def quantiles(values: list[float]) -> dict[str, float]:
    """p50, p95 and the worst; empty of nothing."""
    if not values:
        return {}
    cuts = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    return {"p50": cuts[49], "p95": cuts[94], "max": max(values)}


def _in_words(values: list[float]) -> str:
    found = quantiles(values)
    return ", ".join(f"{name} {value * 1000:.1f} ms" for name, value in found.items()) or "none"


async def run(client: AsyncClient, load: Load) -> Found:
    """Prompts differ from their first token on, so that no request is spared what another has evaluated."""
    found = Found()
    numbers = iter(range(load.requests))

    async def caller() -> None:
        for number in numbers:
            try:
                await _one(client, f"{number}. {load.prompt}", load.max_tokens, found)
            except CallError as error:
                found.errors[error.reason or error.code.name] += 1

    started = time.perf_counter()
    async with client:
        await asyncio.gather(*(caller() for _ in range(load.clients)))
    found.seconds = time.perf_counter() - started
    return found


async def _one(client: AsyncClient, prompt: str, max_tokens: int, found: Found) -> None:
    last = time.perf_counter()
    begun = False
    async for event in client.stream(prompt, max_tokens=max_tokens, sampling=GREEDY):
        now = time.perf_counter()
        if isinstance(event, inference_pb2.Finished):
            found.answered += 1
            found.tokens += event.usage.completion_tokens
            continue
        (found.gap_seconds if begun else found.first_token_seconds).append(now - last)
        begun, last = True, now
