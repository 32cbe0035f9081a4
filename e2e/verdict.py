"""What was seen of the cluster, laid out in the order in which it happened and held against the promises.

The promises are those of `invariants.py`, as in every other test. A watch shows versions, not writes: what was written
is told from two versions that follow each other, and may have been decided from any look of the last seconds.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from e2e.history import Version, number_at
from e2e.port_watchdog import Sighting
from modelbackend_operator.actions import (
    Action,
    CoolClaim,
    DeletePod,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    RemovePodFinalizer,
    Ungate,
    WriteStatus,
)
from modelbackend_operator.cache import Cache
from modelbackend_operator.instances import HOLDING
from modelbackend_operator.invariants import Process, Snapshot, Step, breaches, breaches_of_step
from modelbackend_operator.kinds import Kind
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.observe.backend import backend_from, model_of
from modelbackend_operator.observe.claim import claim_from
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.reading import owner_uid
from modelbackend_operator.settings import Settings
from modelbackend_operator.snapshot import observation_of

LOOK_SECONDS = 3.0
"""A decision may rest on a look this old: its write then conflicts, or concerns an object that has not changed."""
UNCLAIMED_SECONDS = 5.0
"""By then the claim of a process that runs has long been told."""

Holdings = Mapping[tuple[int, str], int]
"""(port, pod uid) to the number at which a claim first held that port for that pod."""


@dataclass(frozen=True, slots=True)
class Breach:
    seen_at: float
    sentence: str


@dataclass
class _World:
    """The cluster at one number, and the looks at it of the last seconds."""

    settings: Settings
    cache: Cache = field(default_factory=Cache)
    models: dict[str, str] = field(default_factory=dict)
    looks: dict[str, Observation] = field(default_factory=dict)
    past: dict[str, deque[tuple[float, Observation]]] = field(default_factory=lambda: defaultdict(deque))

    def take(self, version: Version) -> None:
        kind, raw = version.kind, version.raw
        if kind is Kind.BACKEND:
            self.models[raw["metadata"]["uid"]] = f"{raw['metadata']['namespace']}/{model_of(raw)}"
        for key in self.cache.remove(kind, raw) if version.deleted else self.cache.put(kind, raw):
            self.models.setdefault(key, key)
            look = observation_of(self.cache, key, self.settings, ports_outside={}, live=True)
            if key in self.looks:
                self.past[key].append((version.seen_at, self.looks[key]))
            self.looks[key] = look

    def snapshot(self, processes: tuple[Process, ...]) -> Snapshot:
        return Snapshot(tuple(self.looks.values()), self.models, processes)

    def looks_before(self, key: str, moment: float) -> list[Observation]:
        past = self.past[key]
        while len(past) > 1 and past[1][0] < moment - LOOK_SECONDS:
            past.popleft()
        return [self.looks[key], *(look for _, look in past)]


def judge(
    versions: Sequence[Version],
    sightings: Sequence[Sighting],
    by_hand: Collection[str] = (),
    settings: Settings | None = None,
) -> Iterator[Breach]:
    """Every breach, once. `by_hand`: uids or names of objects that the test itself writes as a person would.
    `settings`: of the operator, where they are not the default."""
    told: set[str] = set()
    for breach in _judge(versions, sightings, by_hand, settings or Settings()):
        if breach.sentence not in told:
            told.add(breach.sentence)
            yield breach


def _judge(
    versions: Sequence[Version], sightings: Sequence[Sighting], by_hand: Collection[str], settings: Settings
) -> Iterator[Breach]:
    holdings = _holdings(versions)
    yield from _unclaimed(versions, sightings, holdings)
    lives = _lives(versions, sightings, holdings)
    world = _World(settings)
    latest: dict[str, Mapping[str, Any]] = {}
    for version in sorted(versions, key=lambda v: v.number):
        uid = version.raw["metadata"]["uid"]
        before, latest[uid] = latest.get(uid), version.raw
        if before is not None and not {uid, version.raw["metadata"]["name"]} & set(by_hand):
            yield from _breaches_of_write(world, version, before)
        world.take(version)
        alive = {process for process, first, last in lives if first <= version.number <= last}
        for sentence in breaches(world.snapshot(tuple(sorted(alive, key=lambda p: (p.port or 0, p.pod_uid))))):
            yield Breach(version.seen_at, sentence)


# -- servers against the ledger ----------------------------------------------------------------------------------------


def _holdings(versions: Sequence[Version]) -> Holdings:
    held: dict[tuple[int, str], int] = {}
    for version in versions:
        if version.kind is Kind.CLAIM:
            claim = claim_from(version.raw)
            if claim.phase in HOLDING and claim.pod_uid:
                held[claim.port, claim.pod_uid] = min(version.number, held.get((claim.port, claim.pod_uid), 2**63))
    return held


def _lives(
    versions: Sequence[Version], sightings: Sequence[Sighting], holdings: Holdings
) -> list[tuple[Process, int, int]]:
    """Each server behind each of its ports, with the numbers between which it surely lived.

    It counts from when the claim was told: the watch of claims may lag behind what is seen on the nodes.
    """
    lives = []
    for seen in sightings:
        first, last = number_at(versions, seen.first_at), number_at(versions, seen.last_at)
        for (port, pod_uid), held_at in holdings.items():
            if pod_uid == seen.pod_uid and seen.port in (None, port):
                lives.append((Process(pod_uid, port, in_flight=0), max(first, held_at), last))
    return lives


def _unclaimed(versions: Sequence[Version], sightings: Sequence[Sighting], holdings: Holdings) -> Iterator[Breach]:
    """Servers that no claim ever named."""
    port_free = {
        version.raw["metadata"]["uid"]
        for version in versions
        if version.kind is Kind.BACKEND and not backend_from(version.raw, allow_host_path=True).exposure.claims_port
    }
    named = {pod_uid for _, pod_uid in holdings}
    for seen in sightings:
        who = f"pod {seen.pod_uid or '(without a name)'} of backend {seen.backend_uid or '(none)'}"
        is_old = seen.last_at - seen.first_at > UNCLAIMED_SECONDS
        if seen.port is not None:
            if (seen.port, seen.pod_uid) not in holdings:
                yield Breach(seen.first_at, f"PortWithheld: {seen.where}: {who} answers, which no claim ever named")
        elif is_old and seen.backend_uid and seen.backend_uid not in port_free and seen.pod_uid not in named:
            yield Breach(seen.first_at, f"GateBeforeClaim: {seen.where}: {who} runs, which no claim ever named")


# -- writes -----------------------------------------------------------------------------------------------------------


def _breaches_of_write(world: _World, version: Version, before: Mapping[str, Any]) -> Iterator[Breach]:
    """A write is in breach if it is from whatever look of the last seconds it may have been decided."""
    key = version.raw["metadata"]["uid"] if version.kind is Kind.BACKEND else _key(version)
    if key not in world.looks:
        return
    for action in _writes(version, before):
        if isinstance(action, DeletePod) and _is_garbage_collection(world.looks[key], version, action):
            continue
        now, truth = datetime.now(UTC), world.snapshot(())
        looks = world.looks_before(key, version.seen_at)
        sentences = [set(breaches_of_step(Step(truth, look, action, now))) for look in looks]
        yield from (Breach(version.seen_at, sentence) for sentence in sorted(set.intersection(*sentences)))


def _key(version: Version) -> str:
    return str(version.raw["spec"]["backend"]["uid"]) if version.kind is Kind.CLAIM else owner_uid(version.raw)


def _is_garbage_collection(look: Observation, version: Version, action: DeletePod) -> bool:
    """Of a pod whose owner is gone (somebody stripped its finalizer), with the grace that the pod itself asks for."""
    return look.backend is None and action.grace_seconds == version.raw["spec"].get("terminationGracePeriodSeconds")


def _asked_grace_seconds(pod: Pod, after: Pod) -> int:
    """Of a pod that is on no node, or in a terminal phase, the API server itself makes the grace 0 (its strategy for
    graceful deletion of pods); what was asked for is not to be seen."""
    made_zero = not pod.node or pod.phase.terminal
    return after.grace_seconds or (1 if made_zero else 0)


def _writes(version: Version, raw_before: Mapping[str, Any]) -> Iterator[Action]:
    """What the promises speak of, told from an object's two versions."""
    match version.kind:
        case Kind.POD:
            pod, after = pod_from(raw_before), pod_from(version.raw)
            if pod.gated and not after.gated:
                yield Ungate(pod)
            if pod.has_finalizer and (version.deleted or not after.has_finalizer):
                yield RemovePodFinalizer(pod)
            if pod.stop is not None and pod.stop.epoch and after.deleting and not pod.deleting:
                yield DeletePod(pod, _asked_grace_seconds(pod, after))
        case Kind.CLAIM:
            claim, claim_after = claim_from(raw_before), claim_from(version.raw)
            if version.deleted:
                yield RemoveClaimFinalizer(claim)
            elif claim.phase in HOLDING and claim_after.phase not in HOLDING:
                yield CoolClaim(claim, str(version.raw["status"].get("evidence", "")))
        case Kind.BACKEND:
            backend = backend_from(raw_before, allow_host_path=True)
            if backend.has_finalizer and (
                version.deleted or not backend_from(version.raw, allow_host_path=True).has_finalizer
            ):
                yield RemoveFinalizer(backend)
            yield from _status_write(version.raw, backend.status)


def _status_write(raw: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[WriteStatus]:
    """Only addresses that this write tells anew: the rest of a status is repeated from one write to the next."""
    known = {endpoint["podUID"] for endpoint in before.get("endpoints") or ()}
    told = [e for e in (raw.get("status") or {}).get("endpoints") or () if e["podUID"] not in known]
    if told:
        yield WriteStatus(backend_from(raw, allow_host_path=True), {"endpoints": told})
