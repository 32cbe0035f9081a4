"""Our server and llama-server of the same llama.cpp, side by side. Prints a table; the last line sums the ratios up.

    python3 -m bench.serving [--model FILE] [--repeats 5] [--only stream,unary,...] [--json FILE]

Both have the weights loaded at once and run in turn, so that what else the machine does falls on both. Medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from bench.serving import workloads
from bench.serving.clients import Caller, GrpcCaller, HttpCaller
from bench.serving.servers import Server, both
from images.cache import cache_root

CLIENTS = (1, 2, 4, 8, 16)
SCORING = "8 choices scored"
Measures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """`wanted` is the ratio ours / llama-server to be reached: at least, or at most where `lower` is better."""

    work: str
    measure: str
    ours: float
    peer: float
    wanted: float
    lower: bool

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else float("inf")

    @property
    def reached(self) -> bool:
        return self.ratio <= self.wanted if self.lower else self.ratio >= self.wanted


@dataclass(frozen=True, slots=True)
class Work:
    name: str
    run: Callable[[Caller, Server, int], Awaitable[Measures]]
    # By measure: the ratio to be reached, and whether lower is better.
    wanted: dict[str, tuple[float, bool]]


def works() -> list[Work]:
    stream_ratio = dict(zip(CLIENTS, (0.97, 1.00, 1.05, 1.05, 1.10), strict=True))
    found = [
        Work(
            f"stream, {clients} clients",
            lambda caller, server, run, clients=clients: workloads.streams(caller, server, clients, run),  # type: ignore[misc]
            {"tokens/s": (stream_ratio[clients], False), "CPU ms/token": (1.0, True), "first token s": (1.2, True)},
        )
        for clients in CLIENTS
    ]
    found += [
        Work(
            f"unary, {clients} clients",
            lambda caller, server, run, clients=clients: workloads.wholes(caller, server, clients, run),  # type: ignore[misc]
            {"tokens/s": (1.0, False), "CPU ms/token": (1.0, True)},
        )
        for clients in CLIENTS
    ]
    found.append(
        Work(
            "prefix shared, 8 clients",
            lambda caller, server, run: workloads.shared_prefix(caller, server, 8, run),
            {"tokens/s": (1.8, False), "first token s": (0.35, True)},
        )
    )
    found.append(
        Work(
            "gap in 4 streams while a long prompt arrives",
            lambda caller, server, run: workloads.long_prompt(caller, server, run),
            {"worst gap s": (0.30, True), "long prompt's first token s": (1.5, True)},
        )
    )
    return found


async def compare(work: Work, one: Server, other: Server, repeats: int) -> list[Row]:
    found: dict[str, dict[str, list[float]]] = {one.name: {}, other.name: {}}
    for run in range(repeats):
        # Whoever goes first in one run goes second in the next.
        for server in (one, other) if run % 2 == 0 else (other, one):
            caller: Caller = await GrpcCaller.connect(server) if server.grpc_port else HttpCaller(server)
            for measure, value in (await work.run(caller, server, run)).items():
                found[server.name].setdefault(measure, []).append(value)
    return [
        Row(
            work.name,
            measure,
            statistics.median(found[one.name][measure]),
            statistics.median(found[other.name][measure]),
            wanted,
            lower,
        )
        for measure, (wanted, lower) in work.wanted.items()
    ]


async def score(server: Server, repeats: int) -> Row:
    """Ours against ours: llama-server has no such call."""
    caller = await GrpcCaller.connect(server)
    found = [await workloads.scoring(caller, run) for run in range(repeats)]
    together, alone = (statistics.median(each[name] for each in found) for name in ("together", "one by one"))
    return Row(SCORING, "s, against one by one", together, alone, 1 / 6, True)


def standing(one: Server, other: Server, model: Path) -> list[Row]:
    """What a server costs before anyone has asked it anything."""
    size = model.stat().st_size
    more = (one.resident_bytes() - other.resident_bytes()) / 2**20
    print(f"resident beyond llama-server's: {more:.0f} MiB (at most 150 are wanted); weights {size / 2**20:.0f} MiB")
    return [
        Row("start to serving", "s", one.start_seconds, other.start_seconds, 1.2, True),
        Row("resident memory", "MiB", one.resident_bytes() / 2**20, other.resident_bytes() / 2**20, 99.0, True),
    ]


def show(row: Row) -> None:
    mark = "" if row.reached else f"  wanted {'<=' if row.lower else '>='} {row.wanted}"
    print(f"{row.work:46}{row.measure:30}{row.ours:10.3f}{row.peer:14.3f}{row.ratio:8.2f}{mark}", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=cache_root() / "models" / "smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="parts of the names of works, separated by commas")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = [work for work in works() if any(part in f"{work.name}," for part in arguments.only.split(","))]
    with both(arguments.model, arguments.threads) as (one, other):
        print(f"{arguments.threads} threads each, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
        print(f"{platform.processor() or platform.machine()}, {', '.join(sorted(one.libraries()))}")
        print(f"{'work':46}{'measure':30}{'ours':>10}{'llama-server':>14}{'ratio':>8}")
        rows = standing(one, other, arguments.model)
        for row in rows:
            show(row)
        for work in chosen:
            for row in await compare(work, one, other, arguments.repeats):
                rows.append(row)
                show(row)
        if any(part in SCORING for part in arguments.only.split(",")):
            rows.append(await score(one, arguments.repeats))
            show(rows[-1])
    if arguments.json:
        told = [asdict(row) | {"ratio": row.ratio, "reached": row.reached} for row in rows]
        arguments.json.write_text(json.dumps(told, indent=1) + "\n")
    print("ratios: " + "; ".join(f"{row.work} {row.measure} {row.ratio:.2f}" for row in rows))


if __name__ == "__main__":
    uvloop.run(main())
