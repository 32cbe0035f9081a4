"""The status page: what this operator knows, as one HTML document without scripts. Pure.

It shows what `kubectl get` shows to an administrator, in one place: the backends, the stops in progress, the ledger of
ports with its reasons, and how the last shutdowns ended.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from html import escape

from modelbackend_operator.api import Condition, Instance, ModelBackendStatus, PortClaimStatus
from modelbackend_operator.kinds import Raw
from modelbackend_operator.model.backend import PortRole
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.reading import mapping
from modelbackend_operator.reasons import Reason

REFRESH_SECONDS = 5
NONE = "–"

_PHASES = (ClaimPhase.WITHHELD, ClaimPhase.RESERVED, ClaimPhase.COOLING, ClaimPhase.BOUND)
"""In this order: what somebody must look at comes first."""

_STYLE = """
:root { color-scheme: light dark; --line: #d5d9e0; --dim: #667085; --good: #1f7a4d; --bad: #b3372a; --wait: #946200 }
@media (prefers-color-scheme: dark) {
  :root { --line: #3a404b; --dim: #98a2b3; --good: #6fce9d; --bad: #f0887c; --wait: #e6b450 }
}
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 96rem; padding: 0 1.5rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th { text-align: left; color: var(--dim); font-weight: 600 }
th, td { padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td { white-space: nowrap } td:last-child { white-space: normal; min-width: 18rem } section { overflow-x: auto }
p { color: var(--dim) } .good { color: var(--good) } .bad { color: var(--bad) } .wait { color: var(--wait) }
"""

Cell = tuple[str, str]
"""Text, and the class that colours it (empty: none)."""


def page(backends: Iterable[Raw], claims: Iterable[Raw], now: datetime) -> str:
    """Of everything that the operator looks after, as of `now`."""
    known = sorted(backends, key=_title)
    ledger = sorted(claims, key=_by_urgency)
    sections = "\n".join(
        [
            _section("Backends", "backends", _BACKENDS, map(_backend, known), "No ModelBackend."),
            _section("Stops in progress", "stops", _STOPS, _stops(known), "Nothing is being stopped."),
            _section("Ports", "ports", _PORTS, (_port(claim, now) for claim in ledger), "No port is claimed."),
            _section("Last shutdowns", "shutdowns", _SHUTDOWNS, _shutdowns(known), "None yet."),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>ModelBackends</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>ModelBackends</h1>\n<p>As this operator knew it at {now:%Y-%m-%d %H:%M:%S} UTC.</p>\n"
        f"{sections}\n</body>\n</html>\n"
    )


def _section(title: str, name: str, header: Sequence[str], rows: Iterable[Sequence[Cell]], nothing: str) -> str:
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    if not body:
        return f'<section id="{name}">\n<h2>{title}</h2>\n<p>{nothing}</p>\n</section>'
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in header)
    return (
        f'<section id="{name}">\n<h2>{title}</h2>\n'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</section>"
    )


def _cell(cell: Cell) -> str:
    text, colour = cell
    return f'<td class="{colour}">{escape(text)}</td>' if colour else f"<td>{escape(text)}</td>"


def _plain(*texts: str) -> list[Cell]:
    return [(text, "") for text in texts]


def _title(raw: Raw) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"


def _status(raw: Raw) -> ModelBackendStatus:
    return ModelBackendStatus.model_validate(mapping(raw.get("status")))


# -- one row each -----------------------------------------------------------------------------------------------------

_BACKENDS = ("Backend", "Model", "State", "Instances", "Address", "What it waits for")


def _backend(raw: Raw) -> list[Cell]:
    status, spec = _status(raw), mapping(raw.get("spec"))
    wanted = 0 if spec.get("suspend") else spec.get("replicas", 1)
    addresses = ", ".join(endpoint.address for endpoint in status.endpoints)
    model = status.model.name if status.model is not None else NONE
    state, waits_for = _state(raw, status)
    return [
        *_plain(_title(raw), model),
        state,
        *_plain(f"{status.ready_replicas or 0} of {wanted}", addresses or NONE, waits_for),
    ]


def _state(raw: Raw, status: ModelBackendStatus) -> tuple[Cell, str]:
    told = {entry.type: entry for entry in status.conditions}
    ready, stalled = told.get(Condition.READY), told.get(Condition.STALLED)
    if raw["metadata"].get("deletionTimestamp"):
        return ("being deleted", "wait"), ready.message if ready is not None else NONE
    if stalled is not None:
        return (f"stalled: {stalled.reason}", "bad"), stalled.message
    if ready is not None and ready.status == "True" and ready.reason == Reason.READY:
        return ("ready", "good"), NONE
    return (ready.reason if ready is not None else "not looked at yet", "wait"), ready.message if ready else NONE


_STOPS = ("Instance", "Stage", "Why", "In flight", "Deadline", "Pod", "Node", "What it waits for")


def _stops(backends: Sequence[Raw]) -> Iterator[list[Cell]]:
    for raw in backends:
        for entry in _status(raw).instances:
            if entry.stop is not None:
                yield _stop(raw, entry)


def _stop(raw: Raw, entry: Instance) -> list[Cell]:
    assert entry.stop is not None
    return [
        (f"{_title(raw)}, {entry.ordinal}", ""),
        (entry.phase, "wait"),
        *_plain(
            entry.stop.reason,
            str(entry.in_flight) if entry.in_flight is not None else NONE,
            f"{entry.stop.deadline:%H:%M:%S} UTC",
            entry.pod.name if entry.pod is not None else NONE,
            entry.node.name if entry.node is not None else NONE,
            entry.message or NONE,
        ),
    ]


_PORTS = ("Port", "Role", "Phase", "Backend", "Pod", "Node", "Since", "Evidence", "Reason")
_COLOURS = {ClaimPhase.WITHHELD: "bad", ClaimPhase.BOUND: "good"}


def _claim(raw: Raw) -> PortClaimStatus:
    return PortClaimStatus.model_validate(mapping(raw.get("status")))


def _by_urgency(raw: Raw) -> tuple[int, int]:
    return _PHASES.index(_claim(raw).phase or ClaimPhase.RESERVED), raw["spec"]["port"]


def _port(raw: Raw, now: datetime) -> list[Cell]:
    status, owner = _claim(raw), raw["spec"]["backend"]
    phase = status.phase or ClaimPhase.RESERVED
    since = status.since
    form = "%H:%M:%S UTC" if since is not None and since.date() == now.date() else "%Y-%m-%d %H:%M UTC"
    why = f"{status.reason}: {status.message}" if status.reason else NONE
    return [
        *_plain(str(raw["spec"]["port"]), str(raw["spec"].get("role", PortRole.GRPC))),
        (phase, _COLOURS.get(phase, "wait")),
        *_plain(
            f"{owner['namespace']}/{owner['name']}, {raw['spec']['ordinal']}",
            status.pod.name if status.pod is not None else NONE,
            status.node.name if status.node is not None else NONE,
            format(since, form) if since is not None else NONE,
            status.evidence or NONE,
            why,
        ),
    ]


_SHUTDOWNS = ("Backend", "Pod", "How it ended", "Seconds", "Requests cut", "When")


def _shutdowns(backends: Sequence[Raw]) -> Iterator[list[Cell]]:
    """The latest first."""
    ended = [(raw, last) for raw in backends if (last := _status(raw).last_shutdown) is not None]
    for raw, last in sorted(ended, key=lambda pair: str(pair[1].finished or ""), reverse=True):
        yield [
            *_plain(_title(raw), last.pod.name if last.pod is not None else NONE),
            (last.outcome, "bad" if last.requests_cut else ""),
            *_plain(
                str(last.seconds),
                str(last.requests_cut) if last.requests_cut is not None else NONE,
                f"{last.finished:%Y-%m-%d %H:%M:%S} UTC" if last.finished is not None else NONE,
            ),
        ]
