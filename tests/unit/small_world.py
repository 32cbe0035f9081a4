"""A FAKE cluster in memory, for whole lifecycles: the API server's rules that the protocol rests on, and no others.

It keeps `model.py`'s own dataclasses: uid, resourceVersion, finalizers, deletion with grace, names that are taken,
node ports that are allocated. Scheduler, kubelet and garbage collector are `moves`, taken one at a time; what runs is
kept apart from what the API server was told. Nothing here is evidence about Kubernetes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from modelbackend_operator import actions as do
from modelbackend_operator.actions import Action, Applied, Conflict, Denied, Exists, Gone, Outcome
from modelbackend_operator.decide import servers_to_ask
from modelbackend_operator.invariants import Process, Snapshot
from modelbackend_operator.model import (
    Backend,
    Claim,
    ClaimPhase,
    Exposure,
    Lease,
    Observation,
    Pod,
    PodPhase,
    Ports,
    Ref,
    ServerReport,
    ServerState,
    Service,
)
from tests.unit.builders import ENDED, NEVER_MADE, NODE, NOW, RUNNING, a_claim, a_gated_pod, a_lease

Move = tuple[str, Callable[[], object]]
Kind = TypeVar("Kind", Backend, Claim, Pod, Service, Lease)
POOL = (30000, 30009)
OTHERS_GRACE_SECONDS = 45


@dataclass
class State:
    """All objects by uid, whose they are, and the servers that run, by pod uid."""

    objects: dict[str, Any] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    servers: dict[str, tuple[ServerState, Process]] = field(default_factory=dict)

    def copy(self) -> "State":
        return State(dict(self.objects), dict(self.owners), dict(self.servers))

    def all(self, kind: type[Kind], owner: str | None = None) -> list[Kind]:
        return [
            found
            for uid, found in self.objects.items()
            if isinstance(found, kind) and owner in (None, self.owners.get(uid))
        ]


class SmallWorld:
    def __init__(self, *backends: Backend) -> None:
        self.state, self.now = State(), NOW
        self.checks_versions = True
        self.models = {backend.ref.uid: f"models/{backend.model}" for backend in backends}
        self._count = 0
        for backend in backends:
            self.put(backend)

    # -- looking ------------------------------------------------------------------------------------------------------

    def observe(self, uid: str, state: State | None = None) -> Observation:
        state = state or self.state
        backend = state.objects.get(uid)
        others = [c for c in state.all(Claim) if state.owners[c.ref.uid] != uid]
        named: list[Pod | Service] = [*state.all(Pod), *state.all(Service)]
        leases = [
            lease
            for lease in state.all(Lease)
            if (lease.ref.name == self.models[uid] if backend else state.owners[lease.ref.uid] == uid)
        ]
        look = Observation(
            backend_uid=uid,
            backend=backend,
            namespace_terminating=False,
            claims=tuple(sorted(state.all(Claim, uid), key=lambda claim: claim.port)),
            pods=tuple(state.all(Pod, uid)),
            services=tuple(state.all(Service, uid)),
            lease=next(iter(leases), None),
            nodes={NODE.name: NODE},
            servers={},
            ports=Ports(*POOL, 15, frozenset(c.port for c in others), {c.port: "models/other" for c in others}),
            taken_names=frozenset(o.ref.name for o in named if state.owners[o.ref.uid] != uid),
        )
        asked = {pod.ref.uid for pod in servers_to_ask(look)} & set(state.servers)
        return replace(look, servers={pod_uid: self._report(uid, state, pod_uid) for pod_uid in asked})

    def _report(self, uid: str, state: State, pod_uid: str) -> ServerReport:
        phase, process = state.servers[pod_uid]
        model = self.models[uid].removeprefix("models/")
        return ServerReport(phase, uid, model, pod_uid, process.in_flight, {"architecture": "llama"})

    def snapshot(self) -> Snapshot:
        looks = tuple(self.observe(uid) for uid in self.models)
        return Snapshot(looks, self.models, tuple(process for _, process in self.state.servers.values()))

    # -- the API server -----------------------------------------------------------------------------------------------

    def apply(self, action: Action) -> Outcome:
        match action:
            case do.CreateClaim() | do.CreatePod() | do.CreateService() | do.AcquireLease():
                return self._create(action)
            case do.DrainServer(pod=pod):
                return self._drain(pod.ref.uid)
            case do.DeleteService(service=seen) | do.ReleaseLease(lease=seen):
                return self._change(seen, lambda _: None)
            case do.DeletePod(pod=pod, grace_seconds=grace_seconds):
                return self._change(pod, lambda current: self._deleted(current, grace_seconds))
            case do.AddFinalizer(backend=seen) | do.RemoveFinalizer(backend=seen) | do.WriteStatus(backend=seen):
                return self._change(seen, lambda current: replace(current, **_backend_patch(action)))
            case do.PointService(service=service, pod_uid=pod_uid):
                return self._change(service, lambda current: replace(current, pod_uid=pod_uid, intact=True))
            case do.RestoreMarks(pod=pod):
                return self._change(pod, lambda current: replace(current, **_marks(current)))
            case do.Ungate(pod=pod) | do.SetServing(pod=pod) | do.WriteStopRecord(pod=pod):
                return self._change(pod, lambda current: replace(current, **_pod_patch(action)))
            case do.RemovePodFinalizer(pod=pod):
                return self._change(pod, lambda current: replace(current, has_finalizer=False))
            case _:
                patch = _claim_patch(action, self.now)
                return self._change(action.claim, lambda current: replace(current, **patch))

    def _create(self, action: do.CreateClaim | do.CreatePod | do.CreateService | do.AcquireLease) -> Outcome:
        owner, made = action.backend, self._made(action)
        if any(found.ref.name == made.ref.name for found in self.state.all(type(made))):
            return Exists()
        if isinstance(made, Service) and made.node_port in {found.node_port for found in self.state.all(Service)} - {
            None
        }:
            return Denied("provided port is already allocated")
        self._count += 1
        uid = f"{type(made).__name__.lower()}-{self._count}"
        self.state.owners[uid] = owner.ref.uid
        self.put(replace(made, ref=replace(made.ref, uid=uid)))
        return Applied()

    def _made(self, action: do.CreateClaim | do.CreatePod | do.CreateService | do.AcquireLease) -> Any:
        owner = action.backend
        match action:
            case do.CreateClaim(ordinal=of, port=int(port)):
                return a_claim(ClaimPhase.RESERVED, port, ordinal=of, exposure=owner.exposure, since=self.now)
            case do.CreatePod(ordinal=ordinal, name=name, port=port):
                host_port = port if owner.exposure is Exposure.HOST_PORT else None
                special: dict[str, Any] = {
                    "ordinal": ordinal,
                    "template_hash": owner.template_hash,
                    "host_port": host_port,
                }
                return a_gated_pod(ref=Ref(name, "", "", "models"), created_at=self.now, **special)
            case do.CreateService(name=name, ordinal=of, node_port=node_port, pod_uid=pod_uid):
                return Service(Ref(name, "", "", "models"), of, node_port, pod_uid)
            case do.AcquireLease(holder=holder):
                description = f"models/{owner.ref.name}, instance {holder.ordinal}"
                return a_lease(ref=Ref(self.models[owner.ref.uid], "", ""), holder=holder, description=description)

    def _change(self, seen: Any, change: Callable[[Any], Any]) -> Outcome:
        """Under the uid and resourceVersion that the writer has seen."""
        current = self.state.objects.get(seen.ref.uid)
        if current is None:
            return Gone()
        if self.checks_versions and current.ref != seen.ref:
            return Conflict()
        changed = change(current)
        if changed is None:
            del self.state.objects[seen.ref.uid]
        else:
            self.put(changed)
        return Applied()

    def put(self, thing: Any) -> None:
        """The object's next version, or its end when nothing holds it any more."""
        self._count += 1
        self.state.objects[thing.ref.uid] = replace(thing, ref=replace(thing.ref, resource_version=str(self._count)))
        if _is_released(thing):
            del self.state.objects[thing.ref.uid]

    def _deleted(self, thing: Any, grace_seconds: int) -> Any:
        """A pod without a node, and one that has ended, get no grace; a second deletion only shortens it."""
        grace = grace_seconds if thing.node and not thing.phase.terminal else 0
        if thing.deleting:
            grace = min(grace, thing.grace_seconds or 0)
        return replace(thing, deleted_at=thing.deleted_at or self.now, grace_seconds=grace)

    def _drain(self, pod_uid: str) -> Outcome:
        if pod_uid in self.state.servers:
            _, process = self.state.servers[pod_uid]
            self.state.servers[pod_uid] = (ServerState.DRAINING, process)
        return Applied()

    # -- people -------------------------------------------------------------------------------------------------------

    def edit(self, thing: Any, **changes: Any) -> None:
        """By hand, without a precondition; into nothing when it is gone."""
        if thing.ref.uid in self.state.objects:
            self.put(replace(self.state.objects[thing.ref.uid], **changes))

    def delete_backend(self, uid: str) -> None:
        self.edit(self.state.objects[uid], deleting_since=self.now, ordinals=())

    def delete_pod(self, pod: Pod, grace_seconds: int = OTHERS_GRACE_SECONDS) -> None:
        self.put(self._deleted(pod, grace_seconds))

    def remove(self, thing: Any) -> None:
        """Past everything that held it."""
        del self.state.objects[thing.ref.uid]

    def request(self, pod: Pod) -> None:
        """One call that runs until a `finish` move."""
        phase, process = self.state.servers[pod.ref.uid]
        self.state.servers[pod.ref.uid] = (phase, replace(process, in_flight=process.in_flight + 1))

    # -- scheduler, kubelet, garbage collector ------------------------------------------------------------------------

    def moves(self) -> Iterator[Move]:
        """What the cluster could do next by itself, each with its name."""
        for pod in self.state.all(Pod):
            yield from self._kubelet_moves(pod)
            if not pod.gated and not pod.node and not pod.deleting:
                yield f"schedule {pod.ref.uid}", partial(self.edit, pod, node=NODE.name, host_ip="10.0.0.1")
            if self.state.owners[pod.ref.uid] not in self.state.objects and not pod.deleting:
                yield f"collect {pod.ref.uid}", partial(self.delete_pod, pod)
        for service in self.state.all(Service):
            if self.state.owners[service.ref.uid] not in self.state.objects:
                yield f"collect {service.ref.uid}", partial(self.remove, service)

    def _kubelet_moves(self, pod: Pod) -> Iterator[Move]:
        uid, (server, process) = pod.ref.uid, self.state.servers.get(pod.ref.uid, (None, None))
        if pod.deleting and pod.node and not pod.phase.terminal:
            yield f"end {uid}", lambda: self._end(pod)
        elif pod.deleting and pod.grace_seconds:
            yield f"remove {uid}", lambda: self.edit(pod, grace_seconds=0)
        elif pod.node and server is None and not pod.deleting and not pod.phase.terminal:
            yield f"run {uid}", lambda: self._run(pod)
        elif server is ServerState.LOADING and process is not None:
            yield f"load {uid}", lambda: self._load(pod, process)
        elif pod.ready != (pod.containers_ready and pod.serving_condition) and not pod.deleting:
            yield f"ready {uid}", lambda: self.edit(pod, ready=not pod.ready)
        if process is not None and process.in_flight and server is ServerState.DRAINING:
            fewer = replace(process, in_flight=process.in_flight - 1)
            yield f"finish {uid}", lambda: self.state.servers.update({uid: (ServerState.DRAINING, fewer)})

    def _run(self, pod: Pod) -> None:
        ports = (c.port for c in self.state.all(Claim) if c.pod_uid == pod.ref.uid and c.phase is ClaimPhase.BOUND)
        process = Process(pod.ref.uid, next(ports, pod.host_port), in_flight=0)
        self.state.servers[pod.ref.uid] = (ServerState.LOADING, process)
        self.edit(pod, phase=PodPhase.RUNNING, containers=(RUNNING,))

    def _load(self, pod: Pod, process: Process) -> None:
        self.state.servers[pod.ref.uid] = (ServerState.SERVING, process)
        self.edit(pod, containers_ready=True)

    def _end(self, pod: Pod) -> None:
        self.state.servers.pop(pod.ref.uid, None)
        ended = (ENDED,) if pod.containers else (NEVER_MADE,)
        self.edit(pod, phase=PodPhase.SUCCEEDED, containers=ended, containers_ready=False, ready=False)


def _is_released(thing: Any) -> bool:
    """Deleted, and neither a finalizer nor a grace period holds it."""
    match thing:
        case Backend(has_finalizer=False):
            return thing.deleting_since is not None
        case Claim(has_finalizer=False):
            return thing.terminating
        case Pod(has_finalizer=False):
            return thing.deleting and not thing.grace_seconds
    return False


def _backend_patch(action: do.AddFinalizer | do.RemoveFinalizer | do.WriteStatus) -> dict[str, Any]:
    if isinstance(action, do.WriteStatus):
        return {"status": action.status}
    return {"has_finalizer": isinstance(action, do.AddFinalizer)}


def _marks(pod: Pod) -> dict[str, Any]:
    return {"labels_intact": True, "has_finalizer": pod.has_finalizer or not pod.deleting}


def _pod_patch(action: do.Ungate | do.SetServing | do.WriteStopRecord) -> dict[str, Any]:
    match action:
        case do.Ungate():
            return {"gated": False, "serving_label": True}
        case do.SetServing(serving=serving):
            return {"serving_condition": serving}
        case do.WriteStopRecord(record=record):
            return {"stop": record, "serving_label": False}


ClaimWrite = (
    do.ReserveClaim
    | do.BindClaim
    | do.RecordNode
    | do.CoolClaim
    | do.WithholdClaim
    | do.DeleteClaim
    | do.RemoveClaimFinalizer
)


def _claim_patch(action: ClaimWrite, now: datetime) -> dict[str, Any]:
    match action:
        case do.ReserveClaim():
            return {"phase": ClaimPhase.RESERVED, "pod_name": "", "pod_uid": "", "node": None, "since": now}
        case do.BindClaim(pod=pod):
            named = {"pod_name": pod.ref.name, "pod_uid": pod.ref.uid, "node": None}
            return {"phase": ClaimPhase.BOUND, "since": now, **named}
        case do.RecordNode(node=node):
            return {"node": node}
        case do.CoolClaim():
            return {"phase": ClaimPhase.COOLING, "since": now}
        case do.WithholdClaim():
            return {"phase": ClaimPhase.WITHHELD, "since": now}
        case do.DeleteClaim():
            return {"terminating": True}
        case do.RemoveClaimFinalizer():
            return {"has_finalizer": False}
