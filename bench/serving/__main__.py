"""Our server and llama-server of the same llama.cpp, side by side. Prints a table; the last line sums the ratios up.

    python3 -m bench.serving [--quick | --repeats 5] [--only 'stream x1' embeddings*] [--json FILE [--resume]] [--list]

Both have the weights loaded at once and run in turn. Figures are medians of the runs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import time
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from pathlib import Path

import uvloop

from bench.serving import comparing, ours, overhead, plot
from bench.serving.record import Record
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
QUICK_REPEATS = 3


async def measured(chosen: AbstractSet[str], model: Path, threads: int, repeats: int) -> AsyncIterator[list[Row]]:
    """The rows of each work, as soon as it is done."""
    if comparing.STARTS in chosen:
        yield comparing.starts(model, threads, repeats)
    if not chosen.isdisjoint((*(work.name for work in comparing.GENERATING), ours.SCORING, *ours.DOORS.values())):
        with both(model, threads) as servers:
            async for rows in _compared(chosen, comparing.GENERATING, servers, repeats):
                yield rows
            async for rows in _ours(chosen, servers[0], repeats):
                yield rows
    if not chosen.isdisjoint(work.name for work in comparing.EMBEDDING):
        with both(embedding_model_file(), threads, embed=True) as servers:
            async for rows in _compared(chosen, comparing.EMBEDDING, servers, repeats):
                yield rows
    if overhead.NAME in chosen:
        yield overhead.rows(repeats)


async def _compared(
    chosen: AbstractSet[str], works: Sequence[comparing.Work], servers: tuple[Server, Server], repeats: int
) -> AsyncIterator[list[Row]]:
    print(f"both: {', '.join(sorted(servers[0].libraries()))}", flush=True)
    for work in works:
        if work.name in chosen:
            yield await comparing.compare(work, *servers, repeats)


async def _ours(chosen: AbstractSet[str], server: Server, repeats: int) -> AsyncIterator[list[Row]]:
    for clients, name in ours.DOORS.items():
        if name in chosen:
            yield await ours.doors(server, clients, repeats)
    if ours.SCORING in chosen:
        yield [await ours.scoring(server, repeats)]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=cache_root() / "models" / "smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help=f"every work {QUICK_REPEATS} times, in about 15 minutes")
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="NAME", help="names of works; * stands for any part"
    )
    parser.add_argument("--list", action="store_true", help="print the names of works, and run none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="written anew after each work")
    parser.add_argument("--resume", action="store_true", help="leave out the works that are in the --json file")
    parser.add_argument("--plot", type=Path, help="an SVG file")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(ALL))
        return
    chosen = {name for name in ALL if any(fnmatchcase(name, pattern) for pattern in arguments.only)}
    if not chosen:
        parser.error(f"no work is called {' or '.join(arguments.only)}; --list prints the names")
    repeats = QUICK_REPEATS if arguments.quick else arguments.repeats
    machine = f"{_cpu()}, {os.cpu_count()} CPUs, {arguments.threads} threads each, {repeats} runs"
    record = Record.resumed(arguments.json, machine) if arguments.resume else Record(arguments.json, machine)
    print(f"{machine}, load average {os.getloadavg()[0]:.1f} before")
    print(HEAD)
    print("".join(f"{line(row)}  (earlier)\n" for row in record.rows), end="", flush=True)
    running = asyncio.current_task()
    assert running is not None
    # Ended from outside, it takes its servers with it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    began = time.monotonic()
    async for rows in measured(chosen - record.works, arguments.model, arguments.threads, repeats):
        record.add(rows, os.getloadavg()[0])
        print("\n".join(map(line, rows)), flush=True)
        if arguments.plot:
            plot.write(arguments.plot, record.rows, f"ours / other, log scale; black: what is wanted. {machine}")
    print(f"{time.monotonic() - began:.0f} s, load average {os.getloadavg()[0]:.1f} after")
    print(summary(record.rows))


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((name.partition(": ")[2] for name in lines if name.startswith("model name")), platform.machine())


if __name__ == "__main__":
    uvloop.run(main())
