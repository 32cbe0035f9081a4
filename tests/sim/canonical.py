"""When are two states of a search the same? When nothing that anybody could do tells them apart.

Left out: resource versions (kept is whether a writer's is still the newest), the time of day (kept are ages, up to
where no rule asks any more), and whatever of a status no rule reads. Uids need no renaming, because `SearchWorld`
gives the lowest that nothing mentions. Every part is interned, so a state's key is a handful of small integers.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.stop import StopRecord
from modelbackend_operator.timestamps import parse_time, rfc3339
from modelbackend_operator.told_in_status import remembered
from tests.sim.state import State
from tests.sim.world import World
from tests.unit.builders import NOW

TICK_SECONDS = 60
"""Time passes in ticks. Within one a port cools down, a drain's deadline passes, and an ended pod has lingered; before
two are over no proof is overdue."""
OLD_SECONDS = 2 * TICK_SECONDS
"""Nobody asks whether something is older than this."""
NOT_READ = frozenset({"ref", "raw", "status"})


class Interner:
    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, value: Hashable) -> int:
        return self._numbers.setdefault(value, len(self._numbers))


# -- what of an object counts -----------------------------------------------------------------------------------------


def protocol_part(status: Mapping[str, Any]) -> dict[str, Any]:
    """What the rules read of a backend's own status: which pods it names and advertises, what it has counted, since
    when it waits, which orders it accepted, and that facts of the model are known."""
    part = {
        "observedGeneration": status.get("observedGeneration"),
        "instances": [_instance_part(entry) for entry in status.get("instances") or ()],
        "vanished": status.get("vanished"),
        "endpoints": [{"podUID": entry["podUID"]} for entry in status.get("endpoints") or ()],
        "model": {"architecture": "llama"} if "architecture" in (status.get("model") or {}) else {},
        "orders": status.get("orders"),
        "lastShutdown": _pod_part(status.get("lastShutdown") or {}),
    }
    return {name: value for name, value in part.items() if value}


def _pod_part(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"pod": {"uid": entry["pod"]["uid"]}} if entry.get("pod") else {}


_REMEMBERED = ("restarts", "podRestarts", "failedStarts", "waitingSince", "node", "port", "evidence")


def _instance_part(entry: Mapping[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = {name: entry[name] for name in _REMEMBERED if entry.get(name)}
    part["ordinal"] = entry["ordinal"]
    part |= _pod_part(entry)
    if (entry.get("stop") or {}).get("yieldedAt"):
        part["stop"] = {"yieldedAt": rfc3339(NOW)}  # nobody asks when
    beside = entry.get("successor") or {}
    if successor := _pod_part(beside):
        part["successor"] = successor | {name: beside[name] for name in ("port", "evidence") if beside.get(name)}
    return part


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _frozen(inner)) for key, inner in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_frozen(inner) for inner in value)
    return value  # type: ignore[no-any-return]


def _getters() -> Callable[[Any], tuple[Hashable, ...]]:
    made: dict[type, Callable[[Any], tuple[Hashable, ...]]] = {}

    def content(thing: Any) -> tuple[Hashable, ...]:
        get = made.get(type(thing))
        if get is None:
            names = [field.name for field in fields(thing) if field.name not in NOT_READ]
            get = made[type(thing)] = attrgetter("ref.uid", "ref.name", *names)
        return get(thing)

    return content


_content = _getters()


def content_of(thing: Any, owner: str | None) -> Hashable:
    """Everything of an object but its version."""
    if isinstance(thing, Claim) and thing.phase in (ClaimPhase.RESERVED, ClaimPhase.BOUND):
        thing = replace(thing, since=NOW)
    content = _content(thing)
    if isinstance(thing, Backend):
        content = (*map(_frozen, content), _frozen(thing.status))
    return (owner, content)


def content_of_action(action: Any) -> Hashable:
    """Its kind and everything in it but versions."""
    parts: list[Hashable] = [type(action).__name__]
    for field in fields(action):
        value = getattr(action, field.name)
        parts.append(content_of(value, None) if hasattr(value, "ref") else _frozen(value))
    return tuple(parts)


# -- time -------------------------------------------------------------------------------------------------------------


def a_tick_later(state: State) -> State:
    """The same state seen a tick later: `now` stays, and everything is older."""
    objects = {uid: _aged_once(thing) for uid, thing in state.objects.items()}
    machines = {name: _aged(machine) for name, machine in state.machines.items()}
    return state._replace(objects=objects, machines=machines, free_since={})  # nobody is let go first any more


_older: dict[int, tuple[Any, Any]] = {}


def _aged_once(thing: Any) -> Any:
    """Remembered, because most ticks find most objects as the last one did."""
    known = _older.get(id(thing))
    if known is None:
        aged = _aged(thing)
        if len(_older) > 200_000:
            _older.clear()
        known = _older[id(thing)] = (thing, thing if aged == thing else aged)
    return known[1]


def an_action_a_tick_later(action: Any) -> Any:
    """A write under way: what it read is older, and what it will write was meant for earlier."""
    changes = {}
    for field in fields(action):
        value = getattr(action, field.name)
        if hasattr(value, "ref") or isinstance(value, StopRecord):
            changes[field.name] = _aged(value)
    return replace(action, **changes)


_CLAMPS = {
    **dict.fromkeys(("created_at", "acquired_at", "since", "lost_since"), TICK_SECONDS),
    **dict.fromkeys(("deleting_since", "deadline", "handed_over", "yielded_at"), 0),
}
"""Of some times nobody asks more than whether a tick is over, or whether they have come at all."""


def _aged(thing: Any) -> Any:
    if isinstance(thing, StopRecord) and thing.deadline == thing.since:
        return thing  # there was nothing to drain, and that stays visible
    changes: dict[str, Any] = {}
    for field in fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, datetime):
            oldest = NOW - timedelta(seconds=_CLAMPS.get(field.name, OLD_SECONDS))
            changes[field.name] = max(value - timedelta(seconds=TICK_SECONDS), oldest)
        elif field.name == "stop" and is_dataclass(value):
            changes[field.name] = _aged(value)
        elif field.name == "status" and any(entry.get("waitingSince") for entry in value.get("instances", ())):
            changes["status"] = {
                **value,
                "instances": [_aged_entry(entry, "waitingSince") for entry in value["instances"]],
            }
        if field.name == "status" and value.get("vanished"):
            vanished = [_aged_entry(entry, "since") for entry in value["vanished"]]
            changes["status"] = {**changes.get("status", value), "vanished": vanished}
    return replace(thing, **changes) if changes else thing


def _aged_entry(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    since = parse_time(entry.get(name))
    if since is None:
        return entry
    return {**entry, name: rfc3339(max(since, NOW) - timedelta(seconds=TICK_SECONDS))}


# -- the world of a search --------------------------------------------------------------------------------------------


class SearchWorld(World):
    """Uids are given out again once nothing mentions them; of a status only what the rules read is kept."""

    mentioned: Callable[[], str] = staticmethod(lambda: "")
    """Text in which uids occur that the state does not mention (writes under way, old caches)."""

    def fresh_uid(self, kind: str) -> str:
        state = self.state
        used = {*state.objects, *state.runs}
        for uid, thing in state.objects.items():
            used.add(state.owners.get(uid, ""))
            used.update(_mentions(thing))
        elsewhere = self.mentioned()
        number = 1
        while f"{kind}-{number}" in used or f"{kind}-{number}'" in elsewhere:
            number += 1
        return f"{kind}-{number}"

    def fresh_node_uid(self, name: str) -> str:
        claims = self.state.all(Claim)
        known = [m.node for m in self.state.machines.values()] + [claim.node for claim in claims]
        removed = [node for claim in claims for node in claim.removed_nodes]
        told = [pod.node for backend in self.state.all(Backend) for pod in remembered(backend.status)]
        used = {node.uid for node in (*known, *removed, *told) if node is not None}
        elsewhere = self.mentioned()
        number = 1
        while f"{name}-uid-{number}" in used or f"{name}-uid-{number}'" in elsewhere:
            number += 1
        return f"{name}-uid-{number}"

    def put(self, thing: Any) -> None:
        if getattr(thing, "status", None):
            thing = replace(thing, status=protocol_part(thing.status))
        elif isinstance(thing, Claim) and thing.past_pods:
            attested = {thing.attestation.pod_uid} if thing.attestation is not None else set()
            thing = replace(thing, past_pods=thing.past_pods & attested)
        if isinstance(thing, Claim) and thing.evidence and not self._is_one_of_two(thing):
            thing = replace(thing, evidence="")
        super().put(thing)

    def _is_one_of_two(self, claim: Claim) -> bool:
        """Only then anybody reads its evidence: for the other port of its pod."""
        return any(other.role is not claim.role for other in self.state.all(Claim))


def _mentions(thing: Any) -> set[str]:
    found = {getattr(thing, name, "") for name in ("pod_uid", "replaces")}
    if isinstance(thing, Backend | Claim) and thing.attestation is not None:
        found.add(thing.attestation.pod_uid)
    holder, stop, status = getattr(thing, "holder", None), getattr(thing, "stop", None), getattr(thing, "status", None)
    if holder is not None:
        found.add(holder.pod_uid)
    if stop is not None:
        found.add(stop.epoch.partition("/")[0])
    for entry in (status or {}).get("instances") or ():
        found.update(part["pod"]["uid"] for part in (entry, entry.get("successor", {})) if "pod" in part)
    found.update(entry["pod"]["uid"] for entry in (status or {}).get("vanished") or ())
    if (status or {}).get("lastShutdown"):
        found.add((status or {})["lastShutdown"]["pod"]["uid"])
    for entry in (status or {}).get("endpoints") or ():
        found.add(entry["podUID"])
    return found
