"""Follows the life of every backend of an e2e run by the logs of its operators, against the specification.

    python3 -m tests.model.lives [FOLDER]     of logs, in one folder a cluster; by default those of the last e2e run

A log may be that of several processes, one after the other. What an operator that was killed has left in the middle is
gone on with by its successor, so the lines of one backend are put together. Where two operators were at it at once,
each is followed by itself, as one beside whom somebody else writes.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from images.cache import cache_root
from images.steps import StepError
from tests.model.check_trace import follow, where
from tests.model.tla_trace import Line, RefusedError, Trace

TRACE_LOGGER = "modelbackend_operator.trace"
BEGINS = "reading the cluster"
"""What a process says first."""
LOGS = cache_root() / "logs" / "e2e-operators"
LATE_SECONDS = 1
"""So long what a killed operator had sent may land beside what its successor does first."""
BY_HAND = {
    "meddled-a": "its stop record is wiped by hand",
    "robbed": "its bound claim is torn out by hand",
    "services": "its Services are made and deleted by hand",
    "stripped": "its withheld claim is torn out by hand",
    "torn-out": "its withheld claim is torn out by hand",
}
"""Backends of e2e tests whose objects are edited in ways that no rule foresees, and how."""


@dataclass(frozen=True, slots=True)
class Process:
    """What one operator told from its start on."""

    name: str
    started_at: str
    lines: list[Line] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Life:
    """Of one backend: a trace for each of its ports, and for each operator where several wrote at once."""

    name: str
    traces: tuple[Trace, ...]
    beside: str = ""
    """What else happens to it than the specification knows, if anything does."""

    @property
    def lines(self) -> list[Line]:
        once = (trace for trace in self.traces if trace.role == self.traces[0].role)
        return sorted((line for trace in once for line in trace.lines), key=_told_at)


# -- from logs to lives -----------------------------------------------------------------------------------------------


def processes_of(log: Path) -> Iterator[Process]:
    """Those whose log this is. Raises RefusedError at a gap, an unknown event, or a line that cannot be read."""
    process = None
    for line in _lines(log):
        if line["event"].startswith(BEGINS):
            if process is not None:
                yield process
            process = Process(log.name, line["timestamp"])
        elif line.get("logger") == TRACE_LOGGER:
            if line["event"] not in ("step", "settled"):
                raise RefusedError(f"{log.name}: event {line['event']} is unknown")
            if process is None:
                raise RefusedError(f"{log.name}: the beginning is missing")
            if line["seq"] != len(process.lines) + 1:
                raise RefusedError(f"{log.name}: line {line['seq']} comes where {len(process.lines) + 1} is due")
            process.lines.append(line)
    if process is not None:
        yield process


def _lines(log: Path) -> Iterator[Line]:
    """Without a last one that was cut off in its midst, when its process or the run ended."""
    for text in log.read_text(errors="replace").splitlines(keepends=True):
        if text.startswith("{") and text.endswith("\n"):
            try:
                yield json.loads(text)
            except ValueError as unreadable:
                raise RefusedError(f"{log.name}: no JSON: {text[:200]}") from unreadable


def lives_of(processes: Iterable[Process]) -> list[Life]:
    """Raises RefusedError where there is none."""
    parts: dict[str, list[list[Line]]] = defaultdict(list)
    for process in processes:
        told: dict[str, list[Line]] = defaultdict(list)
        for line in process.lines:
            told[line["key"]].append(line)
        for key, lines in told.items():
            parts[key].append(lines)
    if not parts:
        raise RefusedError("no operator told anything")
    return [_life(key, sorted(told, key=lambda lines: _told_at(lines[0]))) for key, told in parts.items()]


def _life(key: str, parts: list[list[Line]]) -> Life:
    name = next((str(line["backend"]) for part in parts for line in part if line.get("backend")), key)
    if any(_told_at(later[0]) < _told_at(part[-1]) for part, later in pairwise(parts)):
        traces = (trace for part in parts for trace in Trace(name, part, meddled=True).by_port())
        return Life(name, tuple(traces), "another operator writes too")
    for part in parts[1:]:
        part[:] = [{**line, "successor": _seconds_between(part[0], line) < LATE_SECONDS} for line in part]
    by_hand = BY_HAND.get(name.rpartition("/")[2], "")
    whole = Trace(name, [line for part in parts for line in part], meddled=bool(by_hand))
    return Life(name, tuple(whole.by_port()), by_hand)


def _told_at(line: Line) -> str:
    return str(line["timestamp"])


def _seconds_between(first: Line, later: Line) -> float:
    return (datetime.fromisoformat(_told_at(later)) - datetime.fromisoformat(_told_at(first))).total_seconds()


# -- the check --------------------------------------------------------------------------------------------------------


def unfinished(life: Life, processes: Iterable[Process]) -> bool:
    """Its last line is a step, and no operator began later: one that had found anything left to do had told it."""
    last = life.lines[-1]
    return last["event"] != "settled" and not any(later.started_at > _told_at(last) for later in processes)


def refusals(lives: Iterable[Life]) -> Iterator[str]:
    """What is no behaviour of the specification, and where. Raises StepError."""
    for trace, reached in follow(trace for life in lives for trace in life.traces):
        if reached != len(trace.lines):
            yield where(trace, reached)


def check(folder: Path) -> tuple[str, list[str]]:
    """A line of figures, and all that is wrong. Raises RefusedError, StepError."""
    clusters = sorted({log.parent for log in folder.rglob("*.log")} or {folder})
    operators, lives, wrong = 0, list[Life](), list[str]()
    for cluster in clusters:
        processes = [process for log in sorted(cluster.glob("*.log")) for process in processes_of(log)]
        operators += len(processes)
        lives += (found := lives_of(processes))
        wrong += (f"{life.name}: the trace is unfinished" for life in found if unfinished(life, processes))
    wrong += refusals(lives)
    writes = Counter(line["action"] for life in lives for line in life.lines if line["event"] == "step")
    for reason, count in sorted(Counter(life.beside for life in lives if life.beside).items()):
        print(f"    {count} that others write to, each step followed by itself: {reason}")
    return (
        f"{len(lives)} lives under {operators} operators, {writes.total()} writes of {len(writes)} kinds",
        wrong,
    )


def main() -> None:
    started = time.monotonic()
    try:
        figures, wrong = check(Path(sys.argv[1]) if sys.argv[1:] else LOGS)
    except (RefusedError, StepError) as failure:
        sys.exit(f"e2e-traces: FAILED: {failure}")
    for words in wrong:
        print(words, file=sys.stderr)
    verdict = f"FAILED: {len(wrong)} refused" if wrong else "behaviours of the specification"
    print(f"e2e-traces: {figures}, {time.monotonic() - started:.0f} s: {verdict}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
