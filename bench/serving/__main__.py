"""Our server and llama-server of the same llama.cpp, side by side. Prints a table; the last line sums the ratios up.

    python3 -m bench.serving [--repeats 5] [--only stream,embeddings,...] [--json FILE] [--plot FILE.svg] [--list]

Both have the weights loaded at once and run in turn. Figures are medians of the runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import uvloop

from bench.serving import comparing, ours, overhead, plot
from bench.serving.rows import HEAD, Row, line, summary
from bench.serving.servers import Server, both
from images.cache import cache_root
from images.embedding_model import embedding_model_file

ALL = [
    comparing.STARTS,
    *(work.name for work in comparing.GENERATING),
    ours.SCORING,
    *ours.DOORS.values(),
    *(work.name for work in comparing.EMBEDDING),
    overhead.NAME,
]


async def measured(chosen: AbstractSet[str], model: Path, threads: int, repeats: int) -> AsyncIterator[Row]:
    """Rows as they are found."""
    if comparing.STARTS in chosen:
        for row in comparing.starts(model, threads, repeats):
            yield row
    if not chosen.isdisjoint((*(work.name for work in comparing.GENERATING), ours.SCORING, *ours.DOORS.values())):
        with both(model, threads) as servers:
            async for row in _compared(chosen, comparing.GENERATING, servers, repeats):
                yield row
            async for row in _ours(chosen, servers[0], repeats):
                yield row
    if not chosen.isdisjoint(work.name for work in comparing.EMBEDDING):
        with both(embedding_model_file(), threads, embed=True) as servers:
            async for row in _compared(chosen, comparing.EMBEDDING, servers, repeats):
                yield row
    if overhead.NAME in chosen:
        for row in overhead.rows(repeats):
            yield row


async def _compared(
    chosen: AbstractSet[str], works: Sequence[comparing.Work], servers: tuple[Server, Server], repeats: int
) -> AsyncIterator[Row]:
    print(f"both: {', '.join(sorted(servers[0].libraries()))}", flush=True)
    for work in works:
        if work.name in chosen:
            for row in await comparing.compare(work, *servers, repeats):
                yield row


async def _ours(chosen: AbstractSet[str], server: Server, repeats: int) -> AsyncIterator[Row]:
    for clients, name in ours.DOORS.items():
        if name in chosen:
            for row in await ours.doors(server, clients, repeats):
                yield row
    if ours.SCORING in chosen:
        yield await ours.scoring(server, repeats)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=cache_root() / "models" / "smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="parts of the names of works, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the names of works, and run none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="an SVG file")
    arguments = parser.parse_args()
    chosen = {name for name in ALL if any(part in f"{name}," for part in arguments.only.split(","))}
    if arguments.list:
        print("\n".join(ALL))
        return
    machine = f"{_cpu()}, {os.cpu_count()} CPUs, {arguments.threads} threads each, {arguments.repeats} runs"
    print(f"{machine}, load average {os.getloadavg()[0]:.1f} before")
    print(HEAD)
    running = asyncio.current_task()
    assert running is not None
    # Ended from outside, it takes its servers with it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    rows = []
    async for row in measured(chosen, arguments.model, arguments.threads, arguments.repeats):
        rows.append(row)
        print(line(row), flush=True)
        if arguments.json:
            told = {"machine": machine, "load_average": os.getloadavg()[0], "rows": [each.as_json() for each in rows]}
            arguments.json.write_text(json.dumps(told, indent=1) + "\n")
        if arguments.plot:
            plot.write(arguments.plot, rows, f"ours / other, log scale; black: what is wanted. {machine}")
    print(summary(rows))


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((name.partition(": ")[2] for name in lines if name.startswith("model name")), platform.machine())


if __name__ == "__main__":
    uvloop.run(main())
