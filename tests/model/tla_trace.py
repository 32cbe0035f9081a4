"""A trace of the operator, as the specification writes its states and steps (Replay.tla)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
POD_PORTS = {"Grpc": "port", "Http": "http_port"}
SERVICE_PORTS = {"Grpc": "node_port", "Http": "http_node_port"}
"""Arguments of CreatePod and CreateService, by the role of the port that they give."""
Line = Mapping[str, Any]


class RefusedError(Exception):
    """A trace that does not pass, and why."""


@dataclass
class Trace:
    """All lines of one backend, and the numbers that the specification gives to its pods."""

    key: str
    lines: list[Line] = field(default_factory=list)
    role: str = "Grpc"
    """Of an instance with two ports, by which one the specification, that knows of one, looks at it."""
    meddled: bool = False
    """Somebody whose writes are not in it wrote too: a person by hand, or another operator."""
    _numbers: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    _ports: dict[int, int] = field(default_factory=dict, init=False)

    @property
    def exposure(self) -> str:
        found = (line["seen"]["backend"]["exposure"] for line in self.lines if line["seen"]["backend"])
        return str(next(found, "ClusterIP"))

    @property
    def surges(self) -> bool:
        return any(line["seen"]["backend"]["surges"] for line in self.lines if line["seen"]["backend"])

    def by_port(self) -> Iterator[Trace]:
        """As seen by each port that its instances have from first to last; of one that came or went, by the others."""
        roles = [set(line["seen"]["backend"]["roles"]) for line in self.lines if line["seen"]["backend"]]
        always = set.intersection(*roles) if roles else set[str]()
        yield from (replace(self, role=role) for role in sorted(always | {self.role}))

    @property
    def waits(self) -> bool:
        """Where an end was not waited for all the time, no step is held to the rules of one who waits."""
        return all(line["seen"]["backend"]["waits"] for line in self.lines if line["seen"]["backend"])

    @property
    def paired(self) -> bool:
        return any(len(line["seen"]["backend"]["roles"]) > 1 for line in self.lines if line["seen"]["backend"])

    # -- as TLA+ --------------------------------------------------------------------------------------------------

    def records(self) -> str:
        """A TLA+ sequence of [seen, act, outcome, successor]."""
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
            successor = as_bool(line.get("successor", False))
            written.append(f'[seen |-> {seen},\n  act |-> {act}, outcome |-> "{outcome}", successor |-> {successor}]')
        return "<<" + ",\n ".join(written) + ">>"

    def _number(self, uid: str, ordinal: int | None = None) -> str:
        """Pods are numbered per ordinal, in the order in which they are seen."""
        if uid not in self._numbers:
            of = ordinal or 0
            self._numbers[uid] = (of, 1 + sum(number[0] == of for number in self._numbers.values()))
        return '<<"own", {}, {}>>'.format(*self._numbers[uid])

    def _port(self, port: int) -> str:
        """Numbered as pods are: which number it has is of no meaning, and few are searched faster."""
        return str(self._ports.setdefault(port, len(self._ports) + 1))

    @property
    def ports(self) -> int:
        return len(self._ports)

    @property
    def incarnations(self) -> int:
        return 1 + max((number for _, number in self._numbers.values()), default=0)

    def _seen(self, seen: Line, backend: Line, *, gone: bool) -> str:
        life, fin = ("gone", False) if gone else (backend["life"], backend["finalizer"])
        own = (
            f'Backend("{life}", {as_bool(fin)}, {as_set(map(str, backend["wanted"]))}, '
            f"{self._pods(backend['named'])}, {self._pods(backend['told'])})"
        )
        pods = [f"{self._number(pod['uid'])} :> {self._pod(pod)}" for pod in seen["pods"]]
        claims = [f"{self._port(c['port'])} :> {self._claim(c)}" for c in seen["claims"] if c["role"] == self.role]
        exposed = [(s["ports"][self.role], s["ordinal"]) for s in seen["services"] if self.role in s["ports"]]
        services = [f'{self._port(port)} :> <<"own", {ordinal}>>' for port, ordinal in exposed]
        lease = "None"
        if seen["lease"] is not None:
            lease = self._number(seen["lease"]) if seen["lease"] in self._numbers else '<<"neighbour", 0, 1>>'
        vouched = self._pods(uid for uid in seen["vouched"] if uid in self._numbers)
        parts = [own, as_function(claims), as_function(pods), as_function(services), lease, vouched]
        return f"Seen({', '.join(parts)})"

    def _pods(self, uids: Iterable[str]) -> str:
        return as_set(self._number(uid) for uid in uids)

    def _claim(self, claim: Line) -> str:
        pod = self._number(claim["pod"], claim["ordinal"]) if claim["pod"] else "None"
        return f'Claim("{claim["phase"]}", <<"own", {claim["ordinal"]}>>, {pod}, {as_bool(claim["going"])})'

    def _pod(self, pod: Line) -> str:
        flags = ("gated", "bound", "ready", "outgrown", "due", "deleting", "finalizer", "witness")
        given = [
            self._port(pod["ports"][self.role]) if self.role in pod["ports"] else "None",
            f'"{pod["word"]}"',
            f'"{pod["record"]}"',
            *(as_bool(pod[name]) for name in flags),
        ]
        return f"Pod({', '.join(given)})"

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
        if kind in ("pod", "lease"):
            return self._number(written["pod"])
        return self._port(written["ports"][self.role] if kind == "service" else written["port"])

    def _details(self, line: Line) -> list[str]:
        written = line["written"]
        match line["action"]:
            case "WriteStatus":
                return [self._pods(written["named"]), self._pods(written["told"])]
            case "BindClaim":
                return [self._number(written["pod"])]
            case "SetServing":
                return [as_bool(line["arguments"]["serving"])]
            case "WriteStopRecord":
                return [f'"{written["record"]}"', as_bool(written["due"])]
        return []

    def _created(self, index: int) -> list[str]:
        line = self.lines[index]
        given = line["arguments"]
        instance = f'<<"own", {given.get("ordinal")}>>'
        match line["action"]:
            case "CreateClaim":
                return [instance, self._port(given["port"])]
            case "CreatePod":
                port = given.get(POD_PORTS[self.role])
                made = str(self._made(index, given["ordinal"]))
                return [instance, self._port(port) if port is not None else "None", made]
            case "CreateService":
                return [instance, self._port(given[SERVICE_PORTS[self.role]])]
            case "AcquireLease":
                return [self._number(line["written"]["pod"])]
        raise RefusedError(f"{self.key}: line {line['seq']}: action {line['action']} is unknown")

    def _is_repair(self, line: Line) -> bool:
        """It puts right what others edited, records what no rule reads, or is about the port of another role."""
        pods = {pod["uid"]: pod for pod in line["seen"]["pods"]}
        if self.role != line["arguments"].get("role", line["written"].get("role", self.role)):
            return True
        match line["action"]:
            case "RestoreMarks":
                return bool(pods[line["written"]["pod"]]["finalizer"])
            case "Ungate":
                return not pods[line["written"]["pod"]]["gated"]
            case "CreateService":
                return SERVICE_PORTS[self.role] not in line["arguments"]
            case "DeleteService":
                return line["written"]["ordinal"] is None or self.role not in line["written"]["ports"]
        return line["action"] in LEFT_OUT

    def _made(self, index: int, ordinal: int) -> int:
        """The number of the pod that this create made: the first of its ordinal that nobody has seen before."""
        known = {pod["uid"] for line in self.lines[: index + 1] for pod in line["seen"]["pods"]}
        later = (pod for line in self.lines[index + 1 :] for pod in line["seen"]["pods"])
        made = next((pod["uid"] for pod in later if pod["ordinal"] == ordinal and pod["uid"] not in known), None)
        return self._numbers[made][1] if made else self.incarnations


def as_bool(value: bool) -> str:
    return str(value).upper()


def as_function(pairs: Iterable[str]) -> str:
    return " @@ ".join(pairs) or "<<>>"


def as_set(terms: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(set(terms))) + "}"
