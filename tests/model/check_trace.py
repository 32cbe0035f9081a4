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
REPAIRS = ("PointService", "RecordNode")
"""Writes that the specification leaves out: they put right what others edited, or record what no rule of it reads."""
NO_BACKEND = '[life |-> "gone", fin |-> FALSE, wanted |-> {}, named |-> {}, told |-> {}]'
Line = Mapping[str, Any]


class Refused(Exception):
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
            f'[life |-> "{life}", fin |-> {_bool(fin)}, wanted |-> {_set(map(str, backend["wanted"]))}, '
            f"named |-> {self._pods(backend['named'])}, told |-> {self._pods(backend['told'])}]"
        )
        pods = " @@ ".join(f"{self._number(pod['uid'])} :> {_pod(pod)}" for pod in seen["pods"])
        claims = " @@ ".join(f"{claim['port']} :> {self._claim(claim)}" for claim in seen["claims"])
        services = " @@ ".join(f'{s["port"]} :> <<"own", {s["ordinal"]}>>' for s in seen["services"])
        lease = "None"
        if seen["lease"] is not None:
            lease = self._number(seen["lease"]) if seen["lease"] in self._numbers else '<<"neighbour", 0, 1>>'
        return (
            f'[backend |-> "own" :> {own} @@ "neighbour" :> {NO_BACKEND},\n'
            f"   claim |-> {claims + ' @@ ' if claims else ''}NoClaims, pod |-> {pods + ' @@ ' if pods else ''}NoPods,\n"
            f"   service |-> {services + ' @@ ' if services else ''}NoServices, lease |-> {lease}]"
        )

    def _pods(self, uids: Iterable[str]) -> str:
        return _set(self._number(uid) for uid in uids)

    def _claim(self, claim: Line) -> str:
        pod = self._number(claim["pod"], claim["ordinal"]) if claim["pod"] else "None"
        return (
            f'[phase |-> "{claim["phase"]}", of |-> <<"own", {claim["ordinal"]}>>, pod |-> {pod}, '
            f"going |-> {_bool(claim['going'])}, vouched |-> {_bool(claim['vouched'])}]"
        )

    def _act(self, index: int) -> tuple[str, str]:
        line = self.lines[index]
        action, written, given = line["action"], line["written"], line["arguments"]
        outcome = line.get("landing") or OUTCOMES.get(line["outcome"])
        if outcome is None:
            raise Refused(f"{self.key}: line {line['seq']}: outcome {line['outcome']} is unknown")
        instance = f'<<"own", {given.get("ordinal", written.get("ordinal"))}>>'
        match action:
            case "AddFinalizer" | "RemoveFinalizer":
                terms = ["backend", '"own"']
            case "WriteStatus":
                terms = ["backend", '"own"', self._pods(written["named"]), self._pods(written["told"])]
            case "CreateClaim":
                terms = ["new", instance, str(given["port"])]
            case "CreatePod":
                terms = ["new", instance, str(given.get("port", "None")), str(self._made(index, given["ordinal"]))]
            case "CreateService" if "node_port" in given:
                terms = ["new", instance, str(given["node_port"])]
            case "BindClaim":
                terms = ["claim", str(written["port"]), self._number(written["pod"])]
            case "ReserveClaim" | "WithholdClaim" | "CoolClaim" | "DeleteClaim" | "RemoveClaimFinalizer":
                terms = ["claim", str(written["port"])]
            case "DeleteService" if written["ordinal"] is not None:
                terms = ["service", str(written["port"])]
            case "SetServing":
                terms = ["pod", self._number(written["pod"]), _bool(given["serving"])]
            case "WriteStopRecord":
                terms = ["pod", self._number(written["pod"]), f'"{written["record"]}"', _bool(written["due"])]
            case "Ungate" | "RestoreMarks" if not self._is_repair(line):
                terms = ["pod", self._number(written["pod"])]
            case "DrainServer" | "DeletePod" | "AbortServer" | "HandOver" | "RemovePodFinalizer":
                terms = ["pod", self._number(written["pod"])]
            case "AcquireLease":
                terms = ["new", self._number(written["pod"])]
            case "ReleaseLease":
                terms = ["lease", self._number(written["pod"])]
            case _ if action in REPAIRS or action in ("CreateService", "DeleteService", "Ungate", "RestoreMarks"):
                return '<<"Repair">>', outcome
            case _:
                raise Refused(f"{self.key}: line {line['seq']}: action {action} is unknown")
        return f'<<"{action}", "{terms[0]}", {", ".join(terms[1:])}>>', outcome

    def _is_repair(self, line: Line) -> bool:
        """Labels put back on a pod that is through its gate, or that has its finalizer."""
        pod = next(pod for pod in line["seen"]["pods"] if pod["uid"] == line["written"]["pod"])
        return pod["finalizer"] if line["action"] == "RestoreMarks" else not pod["gated"]

    def _made(self, index: int, ordinal: int) -> int:
        """The number of the pod that this create made: the first of its ordinal that nobody has seen before."""
        known = {pod["uid"] for line in self.lines[: index + 1] for pod in line["seen"]["pods"]}
        later = (pod for line in self.lines[index + 1 :] for pod in line["seen"]["pods"])
        made = next((pod["uid"] for pod in later if pod["ordinal"] == ordinal and pod["uid"] not in known), None)
        return self._numbers[made][1] if made else self.incarnations


def _pod(pod: Line) -> str:
    return (
        f"[here |-> TRUE, gated |-> {_bool(pod['gated'])}, bound |-> {_bool(pod['bound'])}, "
        f'port |-> {pod["port"] or "None"}, word |-> "{pod["word"]}", ready |-> {_bool(pod["ready"])}, '
        f'outgrown |-> {_bool(pod["outgrown"])}, record |-> "{pod["record"]}", due |-> {_bool(pod["due"])}, '
        f"deleting |-> {_bool(pod['deleting'])}, fin |-> {_bool(pod['finalizer'])}, "
        f"witness |-> {_bool(pod['witness'])}]"
    )


def _bool(value: bool) -> str:
    return str(value).upper()


def _set(terms: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(set(terms))) + "}"


# -- from lines to traces ---------------------------------------------------------------------------------------------


def traces_of(lines: Iterable[Line]) -> list[Trace]:
    """One per backend, of one log. Raises Refused at a gap, an unknown event, an empty or an unfinished trace."""
    found: dict[str, Trace] = {}
    expected = 1
    for line in lines:
        if line.get("event") not in ("step", "settled"):
            raise Refused(f"event {line.get('event')} is unknown")
        if line["seq"] not in (expected, 1):  # 1: another process goes on
            raise Refused(f"line {line['seq']} comes where {expected} is due")
        expected = line["seq"] + 1
        found.setdefault(line["key"], Trace(line["key"])).lines.append(line)
    if not found:
        raise Refused("the trace is empty")
    for trace in found.values():
        if trace.lines[-1]["event"] != "settled":
            raise Refused(f"{trace.key}: the trace is unfinished; its last line is {trace.lines[-1]['action']}")
    return list(found.values())


def lines_of_log(text: str) -> list[Line]:
    """The trace's lines of an operator's JSON log."""
    parsed = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return [line for line in parsed if line.get("event") in ("step", "settled") and "seen" in line]


# -- replay -----------------------------------------------------------------------------------------------------------


def replay(traces: list[Trace]) -> Counter[str]:
    """Counts of the actions that TLC followed. Raises Refused at the first trace that is no behaviour of the specification."""
    by_exposure: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        by_exposure[trace.exposure].append(trace)
    for exposure, group in by_exposure.items():
        _replay(exposure, group)
    return Counter(line["action"] for trace in traces for line in trace.lines if line["event"] == "step")


def _replay(exposure: str, traces: list[Trace]) -> None:
    records = [trace.records() for trace in traces]
    seen = [line["seen"] for trace in traces for line in trace.lines]
    ports = {thing["port"] for look in seen for thing in (*look["claims"], *look["services"])}
    ports |= {p for t in traces for line in t.lines if (p := line.get("arguments", {}).get("port"))}
    ordinals = {o for look in seen if look["backend"] for o in look["backend"]["wanted"]}
    ordinals |= {thing["ordinal"] for look in seen for thing in (*look["pods"], *look["claims"])} | {0}
    traced = "\n".join(
        [
            "---- MODULE Traced ----",
            "EXTENDS Replay",
            "NoPods == [p \\in Pods |-> NoPod]",
            "NoClaims == [c \\in Ports |-> NoClaim]",
            "NoServices == [c \\in Ports |-> None]",
            "TheTraces == <<" + ",\n".join(records) + ">>",
            "====",
        ]
    )
    configuration = "\n".join(
        [
            "CONSTANTS",
            '  Backends = {"own", "neighbour"}',
            f"  Ordinals = {_set(map(str, ordinals))}",
            f"  Incarnations = {_set(map(str, range(1, 1 + max(trace.incarnations for trace in traces))))}",
            f"  Ports = {_set(map(str, ports))}",
            "  None = None",
            f'  Exposure = "{exposure}"',
            "  HandsOver = TRUE",
            "  FaultsMax = 0",
            "  Traces <- TheTraces",
            "  Fault <- Happens",
            "SPECIFICATION Replays",
        ]
    )
    modules = {"ModelBackend": SPECIFICATION, "Replay": REPLAY, "Traced": traced}
    result = check(modules, "Traced", configuration, "-deadlock")
    reached: dict[int, int] = defaultdict(int)
    for trace, record in re.findall(r'<<"followed", (\d+), (\d+)>>', result.output):
        reached[int(trace)] = max(reached[int(trace)], int(record))
    if not result.completed:
        raise StepError(f"TLC failed with exit code {result.exit_code}:\n{result.output[-4000:]}")
    for number, trace in enumerate(traces, 1):
        if reached[number] != len(trace.lines):
            line = trace.lines[reached[number]]
            raise Refused(
                f"{trace.key}: no behaviour of the specification, at line {line['seq']}, record {reached[number] + 1} of "
                f"{len(trace.lines)}: {line.get('action', 'settled')} {line.get('written')} -> {line.get('outcome')}\n"
                f"{json.dumps(trace.lines[reached[number] - 1], indent=1)}\n{json.dumps(line, indent=1)}"
            )


def main() -> None:
    if not sys.argv[1:]:
        sys.exit("name the logs to be checked")
    try:
        traces = [trace for name in sys.argv[1:] for trace in traces_of(lines_of_log(Path(name).read_text()))]
        followed = replay(traces)
    except (Refused, StepError) as failure:
        sys.exit(str(failure))
    print(
        f"{len(traces)} traces, {followed.total()} steps, {len(followed)} kinds of action: behaviours of the specification"
    )


if __name__ == "__main__":
    main()
