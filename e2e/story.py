"""The same, told in words: one line for each change that a person would ask about."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from e2e.history import Version
from e2e.port_watchdog import Sighting
from e2e.verdict import Breach
from modelbackend_operator.kinds import Kind
from modelbackend_operator.observe.claim import claim_from
from modelbackend_operator.observe.lease import lease_from
from modelbackend_operator.observe.node import node_from, node_trouble
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.observe.service import service_from

SILENT = {"ref", "raw", "since", "created_at", "host_ip", "ready", "labels_intact", "template_hash", "gone"}
Line = tuple[float, str]


def story(versions: Sequence[Version], sightings: Sequence[Sighting], breaches: Sequence[Breach], since: float) -> str:
    """From `since` on, in seconds after it."""
    lines = [*_changes(versions), *_lives(sightings), *((b.seen_at, f"BREACH {b.sentence}") for b in breaches)]
    return "\n".join(f"{at - since:7.2f} s  {words}" for at, words in sorted(lines) if at >= since)


def _lives(sightings: Sequence[Sighting]) -> Iterator[Line]:
    for seen in sightings:
        who = f"pod {seen.pod_uid[:8]} of backend {seen.backend_uid[:8]}"
        yield seen.first_at, f"{seen.where}: {who} is there"
        yield seen.last_at, f"{seen.where}: {who} was last seen"


def _changes(versions: Sequence[Version]) -> Iterator[Line]:
    latest: dict[str, dict[str, Any]] = {}
    for version in sorted(versions, key=lambda v: v.number):
        metadata = version.raw["metadata"]
        now = _facts(version.kind, version.raw)
        before = latest.get(metadata["uid"], {})
        latest[metadata["uid"]] = now
        if now is None:
            continue
        name = f"{version.kind.name.lower()} {metadata['name']} ({metadata['uid'][:8]})"
        if version.deleted:
            yield version.seen_at, f"{name} is gone"
        elif not before:
            yield version.seen_at, f"{name} is there"
        changed = [f"{key}={_short(value)}" for key, value in now.items() if before.get(key) != value and value]
        ended = [f"no {key}" for key, value in before.items() if value and not now.get(key)]
        if changed or ended:
            yield version.seen_at, f"{name}: {', '.join(changed + ended)}"


def _facts(kind: Kind, raw: Mapping[str, Any]) -> dict[str, Any]:
    match kind:
        case Kind.POD if raw["metadata"].get("finalizers") or "modelbackend.dev/backend-uid" in str(raw["metadata"]):
            return _fields(pod_from(raw))
        case Kind.CLAIM:
            return _fields(claim_from(raw)) | {"evidence": raw.get("status", {}).get("evidence")}
        case Kind.LEASE:
            return {"of": lease_from(raw).description}
        case Kind.SERVICE if "modelbackend.dev/backend-uid" in raw["metadata"].get("labels", {}):
            return _fields(service_from(raw))
        case Kind.NODE:
            taints = [taint["key"] for taint in raw["spec"].get("taints", ())]
            return {"boot_id": node_from(raw).boot_id, "trouble": node_trouble(raw), "taints": taints}
        case Kind.BACKEND:
            return _backend(raw)
    return {}


def _backend(raw: Mapping[str, Any]) -> dict[str, Any]:
    status = raw.get("status") or {}
    conditions = {
        condition["type"]: f"{condition['status']}/{condition.get('reason')}: {condition.get('message')}"
        for condition in status.get("conditions", ())
    }
    endpoints = [endpoint["address"] for endpoint in status.get("endpoints", ())]
    held_by = raw["metadata"].get("finalizers")
    deleted = raw["metadata"].get("deletionTimestamp")
    return {"finalizers": held_by, "deleted": deleted, "endpoints": endpoints, **conditions}


def _fields(thing: Any) -> dict[str, Any]:
    return {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.name not in SILENT}


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + "; ".join(_short(each) for each in value) + "]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        told = (_short(v) for f in dataclasses.fields(value) if (v := getattr(value, f.name)) not in ("", None, False))
        return " ".join(told)
    return str(value)
