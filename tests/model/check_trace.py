"""Replays the operator's traces against the specification, and refuses whatever it does not understand.

    python3 -m tests.model.check_trace LOG...     the JSON logs of operators, as of e2e runs

A trace passes only if every line is known, no number is missing, each backend's last line is `settled`, and TLC follows
all of it: each step by the rule of its action, and between two steps only what the cluster or its users may do.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.steps import StepError
from tests.model.scopes import SPECIFICATION
from tests.model.tlc import HERE, check

REPLAY = (HERE / "Replay.tla").read_text()
OUTCOMES = {
    "Applied": "Applied",
    "Unknown": "Unknown",
    **dict.fromkeys(("Conflict", "Gone", "Exists", "Denied"), "Refused"),
}
TARGETS = {
    **dict.fromkeys(("AddFinalizer", "RemoveFinalizer", "WriteStatus"), "backend"),
    **dict.fromkeys(("BindClaim", "ReserveClaim", "WithholdClaim", "CoolClaim"), "claim"),
    **dict.fromkeys(("DeleteClaim", "RemoveClaimFinalizer"), "claim"),
    **dict.fromkeys(("Ungate", "SetServing", "RestoreMarks", "WriteStopRecord", "DrainServer", "AbortServer"), "pod"),
    **dict.fromkeys(("DeletePod", "HandOver", "RemovePodFinalizer"), "pod"),
    "DeleteService": "service",
    "ReleaseLease": "lease",
}
"""What each write changes; all others create."""
CALLS = ("DrainServer", "AbortServer")
"""To a server, which keeps no version: an answer that is missing says nothing."""
LEFT_OUT = (
    *("PointService", "RecordNode", "RecordReference", "RecordReturn", "ExplainClaim"),
    *("CreateBudget", "DeleteBudget", "RemakeToken"),
)
"""Writes of which the specification knows nothing: no rule of it reads what they write."""
Line = Mapping[str, Any]


class RefusedError(Exception):
    """A trace that does not pass, and why."""


@dataclass
class Trace:
    """All lines of one backend, and the numbers that the specification gives to its pods."""

    key: str
    lines: list[Line] = field(default_factory=list)
    _numbers: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def exposure(self) -> str:
        found = (line["seen"]["backend"]["exposure"] for line in self.lines if line["seen"]["backend"])
        return str(next(found, "ClusterIP"))

    # -- as TLA+ --------------------------------------------------------------------------------------------------

    def records(self) -> str:
        """A TLA+ sequence of [seen, act, outcome]."""
        for line in self.lines:
            for pod in line["seen"]["pods"]:
                self._number(pod["uid"], pod["ordinal"])
        last: Line = {"wanted": [], "named": [], "told": []}
        written = []
        for index, line in enumerate(self.lines):
            backend = line["seen"]["backend"]
            if backend is not None:
                wanted = backend["wanted"] if backend["life"] == "live" else last["wanted"]
                last = {**backend, "wanted": wanted}
            seen = self._seen(line["seen"], last, gone=backend is None)
            act, outcome = ('<<"Repair">>', "Settled") if line["event"] == "settled" else self._act(index)
            written.append(f'[seen |-> {seen},\n  act |-> {act}, outcome |-> "{outcome}"]')
        return "<<" + ",\n ".join(written) + ">>"

    def _number(self, uid: str, ordinal: int | None = None) -> str:
        """Pods are numbered per ordinal, in the order in which they are seen."""
        if uid not in self._numbers:
            of = ordinal or 0
            self._numbers[uid] = (of, 1 + sum(number[0] == of for number in self._numbers.values()))
        return '<<"own", {}, {}>>'.format(*self._numbers[uid])

    @property
    def incarnations(self) -> int:
        return 1 + max((number for _, number in self._numbers.values()), default=0)

    def _seen(self, seen: Line, backend: Line, *, gone: bool) -> str:
        life, fin = ("gone", False) if gone else (backend["life"], backend["finalizer"])
        own = (
            f'Backend("{life}", {_bool(fin)}, {_set(map(str, backend["wanted"]))}, '
            f"{self._pods(backend['named'])}, {self._pods(backend['told'])})"
        )
        pods = " @@ ".join(f"{self._number(pod['uid'])} :> {_pod(pod)}" for pod in seen["pods"])
        claims = " @@ ".join(f"{claim['port']} :> {self._claim(claim)}" for claim in seen["claims"])
        services = " @@ ".join(f'{s["port"]} :> <<"own", {s["ordinal"]}>>' for s in seen["services"])
        lease = "None"
        if seen["lease"] is not None:
            lease = self._number(seen["lease"]) if seen["lease"] in self._numbers else '<<"neighbour", 0, 1>>'
        parts = [own, claims or "<<>>", pods or "<<>>", services or "<<>>", lease]
        return f"Seen({', '.join(parts)})"

    def _pods(self, uids: Iterable[str]) -> str:
        return _set(self._number(uid) for uid in uids)

    def _claim(self, claim: Line) -> str:
        pod = self._number(claim["pod"], claim["ordinal"]) if claim["pod"] else "None"
        flags = f"{_bool(claim['going'])}, {_bool(claim['vouched'])}"
        return f'Claim("{claim["phase"]}", <<"own", {claim["ordinal"]}>>, {pod}, {flags})'

    def _act(self, index: int) -> tuple[str, str]:
        """The step as the specification names it, and what came of it."""
        line = self.lines[index]
        outcome = line.get("landing") or OUTCOMES.get(line["outcome"])
        if outcome is None:
            raise RefusedError(f"{self.key}: line {line['seq']}: outcome {line['outcome']} is unknown")
        if self._is_repair(line):
            return '<<"Repair">>', "Settled"
        action = line["action"]
        if action in CALLS and outcome != "Applied":
            outcome = "Perhaps"
        if action in TARGETS:
            target = TARGETS[action]
            terms = [self._target(target, line["written"]), *self._details(line)]
        else:
            target, terms = "new", self._created(index)
        return f'<<"{action}", "{target}", {", ".join(terms)}>>', outcome

    def _target(self, kind: str, written: Line) -> str:
        if kind == "backend":
            return '"own"'
        return self._number(written["pod"]) if kind in ("pod", "lease") else str(written["port"])

    def _details(self, line: Line) -> list[str]:
        written = line["written"]
        match line["action"]:
            case "WriteStatus":
                return [self._pods(written["named"]), self._pods(written["told"])]
            case "BindClaim":
                return [self._number(written["pod"])]
            case "SetServing":
                return [_bool(line["arguments"]["serving"])]
            case "WriteStopRecord":
                return [f'"{written["record"]}"', _bool(written["due"])]
        return []

    def _created(self, index: int) -> list[str]:
        line = self.lines[index]
        given = line["arguments"]
        instance = f'<<"own", {given.get("ordinal")}>>'
        match line["action"]:
            case "CreateClaim":
                return [instance, str(given["port"])]
            case "CreatePod":
                return [instance, str(given.get("port", "None")), str(self._made(index, given["ordinal"]))]
            case "CreateService":
                return [instance, str(given["node_port"])]
            case "AcquireLease":
                return [self._number(line["written"]["pod"])]
        raise RefusedError(f"{self.key}: line {line['seq']}: action {line['action']} is unknown")

    def _is_repair(self, line: Line) -> bool:
        """It puts right what others edited: labels, the shared Service; or it records what no rule reads."""
        pods = {pod["uid"]: pod for pod in line["seen"]["pods"]}
        match line["action"]:
            case "RestoreMarks":
                return bool(pods[line["written"]["pod"]]["finalizer"])
            case "Ungate":
                return not pods[line["written"]["pod"]]["gated"]
            case "CreateService":
                return "node_port" not in line["arguments"]
            case "DeleteService":
                return line["written"]["ordinal"] is None
        return line["action"] in LEFT_OUT

    def _made(self, index: int, ordinal: int) -> int:
        """The number of the pod that this create made: the first of its ordinal that nobody has seen before."""
        known = {pod["uid"] for line in self.lines[: index + 1] for pod in line["seen"]["pods"]}
        later = (pod for line in self.lines[index + 1 :] for pod in line["seen"]["pods"])
        made = next((pod["uid"] for pod in later if pod["ordinal"] == ordinal and pod["uid"] not in known), None)
        return self._numbers[made][1] if made else self.incarnations


def _pod(pod: Line) -> str:
    flags = ("gated", "bound", "ready", "outgrown", "due", "deleting", "finalizer", "witness")
    given = [
        str(pod["port"] or "None"),
        f'"{pod["word"]}"',
        f'"{pod["record"]}"',
        *(_bool(pod[name]) for name in flags),
    ]
    return f"Pod({', '.join(given)})"


def _bool(value: bool) -> str:
    return str(value).upper()


def _set(terms: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(set(terms))) + "}"


# -- from lines to traces ---------------------------------------------------------------------------------------------


def traces_of(lines: Iterable[Line]) -> list[Trace]:
    """One per backend, of one log. Raises RefusedError at a gap, an unknown event, an empty or an unfinished trace."""
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
    return list(found.values())


def lines_of_log(text: str) -> list[Line]:
    """The trace's lines of an operator's JSON log."""
    parsed = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return [line for line in parsed if line.get("event") in ("step", "settled") and "seen" in line]


# -- replay -----------------------------------------------------------------------------------------------------------


def replay(traces: list[Trace]) -> Counter[str]:
    """Counts of the actions that TLC followed. Raises RefusedError at a trace that is no behaviour."""
    by_exposure: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        by_exposure[trace.exposure].append(trace)
    for group in by_exposure.values():
        for trace, reached in zip(group, followed(group), strict=True):
            if reached != len(trace.lines):
                raise RefusedError(_where(trace, reached))
    return Counter(line["action"] for trace in traces for line in trace.lines if line["event"] == "step")


def _where(trace: Trace, reached: int) -> str:
    line = trace.lines[reached]
    return (
        f"{trace.key}: no behaviour of the specification: line {line['seq']}, {reached + 1} of {len(trace.lines)}: "
        f"{line.get('action', 'settled')} {line.get('written')} -> {line.get('outcome')}\n"
        f"{json.dumps(trace.lines[max(0, reached - 1)], indent=1)}\n{json.dumps(line, indent=1)}"
    )


def followed(traces: list[Trace]) -> list[int]:
    """How many lines of each trace TLC could follow; the traces are of one exposure. Raises StepError."""
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
    given = [line.get("arguments", {}) for trace in traces for line in trace.lines]
    ports = {thing["port"] for look in seen for thing in (*look["claims"], *look["services"])}
    ports |= {arguments["port"] for arguments in given if arguments.get("port")}
    ordinals = {ordinal for look in seen if look["backend"] for ordinal in look["backend"]["wanted"]}
    ordinals |= {thing["ordinal"] for look in seen for thing in (*look["pods"], *look["claims"])} | {0}
    incarnations = range(1, 1 + max(trace.incarnations for trace in traces))
    return "\n".join(
        [
            "CONSTANTS",
            '  Backends = {"own", "neighbour"}',
            f"  Ordinals = {_set(map(str, ordinals))}",
            f"  Incarnations = {_set(map(str, incarnations))}",
            f"  Ports = {_set(map(str, ports))}",
            "  None = None",
            f'  Exposure = "{traces[0].exposure}"',
            "  HandsOver = TRUE",
            "  FaultsMax = 0",
            "  Traces <- TheTraces",
            "  Fault <- Happens",
            "SPECIFICATION Replays",
        ]
    )


def main() -> None:
    if not sys.argv[1:]:
        sys.exit("name the logs to be checked")
    try:
        traces = [trace for name in sys.argv[1:] for trace in traces_of(lines_of_log(Path(name).read_text()))]
        taken = replay(traces)
    except (RefusedError, StepError) as failure:
        sys.exit(str(failure))
    print(f"{len(traces)} traces, {taken.total()} steps of {len(taken)} kinds: behaviours of the specification")


if __name__ == "__main__":
    main()
