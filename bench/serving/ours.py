"""Ours against ours: what llama-server does not offer, and our two doors."""

from __future__ import annotations

import statistics

from bench.serving import workloads
from bench.serving.clients import Caller, GrpcCaller, HttpCaller
from bench.serving.rows import Goal, Row
from bench.serving.servers import Server

SCORING = "choices x8"
DOORS = {clients: f"OpenAI x{clients}" for clients in (1, 4)}


async def scoring(server: Server, repeats: int) -> Row:
    caller = await GrpcCaller.connect(server)
    found = [await workloads.scoring(caller, run) for run in range(repeats)]
    together, alone = (statistics.median(each[name] for each in found) for name in ("together", "one by one"))
    return Row(SCORING, "s", together, alone, Goal(1 / 6, lower=True), against="one by one")


async def doors(server: Server, clients: int, repeats: int) -> list[Row]:
    found: dict[str, list[dict[str, float]]] = {"http": [], "grpc": []}
    for turn in range(repeats):
        by_door: dict[str, Caller] = {"http": HttpCaller(server), "grpc": await GrpcCaller.connect(server)}
        for name in ("http", "grpc") if turn % 2 == 0 else ("grpc", "http"):
            # Prompts of its own for each door: those that the other one asked are in the server's cache.
            run = 1000 + 2 * turn + (name == "grpc")
            found[name].append(await workloads.streams(by_door[name], server, clients, run))
    goals = {"tokens/s": Goal(0.95), "CPU ms/token": Goal(1.05, lower=True)}
    rows = []
    for measure, goal in goals.items():
        http, grpc = (statistics.median(each[measure] for each in found[name]) for name in ("http", "grpc"))
        rows.append(Row(DOORS[clients], measure, http, grpc, goal, against="gRPC"))
    return rows
