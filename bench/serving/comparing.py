"""Ours against llama-server, run in turn on the same weights, so that what else the machine does falls on both."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bench.serving import workloads
from bench.serving.clients import Caller, GrpcCaller, HttpCaller
from bench.serving.rows import Goal, Row
from bench.serving.servers import Server, both, ours, peer

CLIENTS = (1, 2, 4, 8, 16)
STREAM_GOALS = dict(zip(CLIENTS, (0.97, 1.00, 1.05, 1.05, 1.10), strict=True))
Measures = dict[str, float]
Run = Callable[[Server, int], Awaitable[Measures]]


@dataclass(frozen=True, slots=True)
class Work:
    name: str
    run: Run
    goals: dict[str, Goal]


def _asks(run: Callable[[Caller, Server, int], Awaitable[Measures]]) -> Run:
    async def asked(server: Server, turn: int) -> Measures:
        caller: Caller = await GrpcCaller.connect(server) if server.grpc_port else HttpCaller(server)
        return await run(caller, server, turn)

    return asked


def _streams(clients: int) -> Work:
    goals = {
        "tokens/s": Goal(STREAM_GOALS[clients]),
        "CPU ms/token": Goal(1.0, lower=True),
        "first token s": Goal(1.2, lower=True),
    }
    run = _asks(lambda caller, server, turn: workloads.streams(caller, server, clients, turn))
    return Work(f"stream x{clients}", run, goals)


def _wholes(clients: int) -> Work:
    goals = {"tokens/s": Goal(1.0), "CPU ms/token": Goal(1.0, lower=True)}
    run = _asks(lambda caller, server, turn: workloads.wholes(caller, server, clients, turn))
    return Work(f"unary x{clients}", run, goals)


GENERATING = (
    *map(_streams, CLIENTS),
    *map(_wholes, CLIENTS),
    Work(
        "prefix shared x8",
        _asks(lambda caller, server, turn: workloads.shared_prefix(caller, server, 8, turn)),
        {"tokens/s": Goal(1.8), "first token s": Goal(0.35, lower=True)},
    ),
    Work(
        "gap in 4 streams",
        _asks(workloads.long_prompt),
        {"worst gap s": Goal(0.30, lower=True), "long prompt's first token s": Goal(1.5, lower=True)},
    ),
    Work(
        "slot of a caller who left",
        _asks(workloads.left),
        {"steps until its slot is free": Goal(2, lower=True, of_ours_alone=True)},
    ),
)
EMBEDDING = (
    Work(
        "embeddings x8",
        lambda server, turn: workloads.embedded(server, 8, turn),
        {"texts/s": Goal(1.0), "CPU ms/text": Goal(1.0, lower=True)},
    ),
)


async def compare(work: Work, one: Server, other: Server, repeats: int) -> list[Row]:
    found: dict[str, dict[str, list[float]]] = {one.name: {}, other.name: {}}
    for turn in range(repeats):
        # Whoever goes first in one run goes second in the next.
        for server in (one, other) if turn % 2 == 0 else (other, one):
            for measure, value in (await work.run(server, turn)).items():
                found[server.name].setdefault(measure, []).append(value)
    medians = {name: {measure: statistics.median(of) for measure, of in each.items()} for name, each in found.items()}
    return [
        Row(work.name, measure, medians[one.name][measure], medians[other.name][measure], goal)
        for measure, goal in work.goals.items()
    ]


STARTS = "start"


def starts(model: Path, threads: int, repeats: int) -> list[Row]:
    """From nothing to serving, and what each then holds in memory."""
    seconds: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    held: dict[str, list[float]] = {}
    for _ in range(repeats):
        with both(model, threads) as (one, other):
            for server in (one, other):
                held.setdefault(server.name, []).append(server.resident_bytes() / 2**20)
            libraries = one.libraries()
        # Each alone on the machine while it starts.
        for starting in (ours(model, threads), peer(model, threads, libraries)):
            with starting as server:
                seconds.setdefault(server.name, []).append(server.start_seconds)
                cpu.setdefault(server.name, []).append(server.cpu_seconds())
    goals = (
        ("s to serving", seconds, Goal(1.2, lower=True)),
        ("CPU s to serving", cpu, Goal(1.2, lower=True)),
        ("MiB resident", held, Goal(1.5, lower=True)),
    )
    return [
        Row(STARTS, measure, statistics.median(of["ours"]), statistics.median(of["llama-server"]), goal)
        for measure, of, goal in goals
    ]
