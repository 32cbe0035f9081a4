"""Replays the operator's traces against the specification, and refuses whatever it does not understand.

TLC follows a trace line by line: each step by the rule of its action, and between two steps only what the cluster or
its users may do.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from images.steps import StepError
from tests.model.scopes import SPECIFICATION
from tests.model.tla_trace import Line, RefusedError, Trace, as_bool, as_set
from tests.model.tlc import HERE, check

REPLAY = (HERE / "Replay.tla").read_text()
BATCH = 20
"""Traces that TLC follows at once: its start takes a second, and more things to be numbered make each step slower."""


def traces_of(lines: Iterable[Line]) -> list[Trace]:
    """Of each backend in one log, one for each of its ports.

    Raises RefusedError at a gap, an unknown event, an empty or an unfinished trace.
    """
    found: dict[str, Trace] = {}
    expected = 1
    for line in lines:
        if line.get("event") not in ("step", "settled"):
            raise RefusedError(f"event {line.get('event')} is unknown")
        if line["seq"] not in (expected, 1):  # 1: another process goes on
            raise RefusedError(f"line {line['seq']} comes where {expected} is due")
        expected = line["seq"] + 1
        found.setdefault(line["key"], Trace(line["key"])).lines.append(line)
    if not found:
        raise RefusedError("the trace is empty")
    for trace in found.values():
        if trace.lines[-1]["event"] != "settled":
            raise RefusedError(f"{trace.key}: the trace is unfinished; its last line is {trace.lines[-1]['action']}")
    return [seen_by_one for trace in found.values() for seen_by_one in trace.by_port()]


# -- replay -----------------------------------------------------------------------------------------------------------


def replay(traces: list[Trace]) -> Counter[str]:
    """Counts of the actions that TLC followed. Raises RefusedError at a trace that is no behaviour."""
    for trace, reached in follow(traces):
        if reached != len(trace.lines):
            raise RefusedError(where(trace, reached))
    return Counter(line["action"] for trace in traces for line in trace.lines if line["event"] == "step")


def follow(traces: Iterable[Trace]) -> Iterator[tuple[Trace, int]]:
    """Each trace with the number of its lines that TLC could follow. Raises StepError."""
    alike: dict[tuple[object, ...], list[Trace]] = defaultdict(list)
    for trace in traces:
        alike[trace.exposure, trace.surges, trace.waits, trace.paired, trace.meddled].append(trace)
    for group in alike.values():
        group.sort(key=lambda trace: len(trace.lines))
        for start in range(0, len(group), BATCH):
            some = group[start : start + BATCH]
            yield from zip(some, followed(some), strict=True)


def where(trace: Trace, reached: int) -> str:
    line = trace.lines[reached]
    return (
        f"{trace.key}: no behaviour of the specification: line {line['seq']}, {reached + 1} of {len(trace.lines)}: "
        f"{line.get('action', 'settled')} {line.get('written')} -> {line.get('outcome')}\n"
        f"{json.dumps(trace.lines[max(0, reached - 1)], indent=1)}\n{json.dumps(line, indent=1)}"
    )


def followed(traces: list[Trace]) -> list[int]:
    """How many lines of each trace TLC could follow; the traces are of one kind. Raises StepError."""
    modules = {"ModelBackend": SPECIFICATION, "Replay": REPLAY, "Traced": _module(traces)}
    result = check(modules, "Traced", _configuration(traces), "-deadlock")
    if not result.completed:
        raise StepError(f"TLC failed with exit code {result.exit_code}:\n{result.output[-4000:]}")
    reached: Counter[int] = Counter()
    for trace, record in re.findall(r'<<"followed", (\d+), (\d+)>>', result.output):
        reached[int(trace)] = max(reached[int(trace)], int(record))
    return [reached[number] for number in range(1, 1 + len(traces))]


def _module(traces: list[Trace]) -> str:
    named = [f"Trace{number}" for number in range(1, 1 + len(traces))]
    written = [f"{name} == {trace.records()}" for name, trace in zip(named, traces, strict=True)]
    every = f"TheTraces == <<{', '.join(named)}>>"
    return "\n".join(["---- MODULE Traced ----", "EXTENDS Replay", *written, every, "===="])


def _configuration(traces: list[Trace]) -> str:
    """Constants as large as what the traces speak of. After `_module`, which numbers the pods."""
    seen = [line["seen"] for trace in traces for line in trace.lines]
    ports = range(1, 1 + max(trace.ports for trace in traces))
    ordinals = {ordinal for look in seen if look["backend"] for ordinal in look["backend"]["wanted"]}
    ordinals |= {thing["ordinal"] for look in seen for thing in (*look["pods"], *look["claims"])} | {0}
    incarnations = range(1, 1 + max(trace.incarnations for trace in traces))
    return "\n".join(
        [
            "CONSTANTS",
            '  Backends = {"own", "neighbour"}',
            f"  Ordinals = {as_set(map(str, ordinals))}",
            f"  Incarnations = {as_set(map(str, incarnations))}",
            f"  Ports = {as_set(map(str, ports))}",
            "  None = None",
            f'  Exposure = "{traces[0].exposure}"',
            f"  HandsOver = {as_bool(not traces[0].waits)}",
            f"  Surges = {as_bool(traces[0].surges)}",
            f"  Paired = {as_bool(traces[0].paired)}",
            f"  Meddled = {as_bool(traces[0].meddled)}",
            "  FaultsMax = 0",
            "  Traces <- TheTraces",
            "  Fault <- Happens",
            "SPECIFICATION Replays",
        ]
    )
