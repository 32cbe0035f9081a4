"""What must hold whatever fails: each promise by its name, as a pure function that yields a sentence per breach.

A `Snapshot` is every backend's observation at one moment together with what really runs; a `Step` is one write, the
moment before it and the look that it was decided from. Tests call these after every step of a world. Promises that
no moment shows (NeverRunTwice, Isolation, and that everything ends) are tested where they can be seen.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from modelbackend_operator.actions import (
    AbortServer,
    Action,
    CoolClaim,
    DeleteClaim,
    DeletePod,
    DrainServer,
    HandOver,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    RemovePodFinalizer,
    Ungate,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.evidence import evidence_elsewhere, evidence_of, trail_of_claim
from modelbackend_operator.instances import (
    HOLDING,
    claim_naming,
    claims_naming,
    is_serving,
    status_advertises,
    status_names,
    waits_for_proof,
)
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.stop import Cut, StopReason
from modelbackend_operator.proof import evidence_of_end


@dataclass(frozen=True, slots=True)
class Process:
    """A server that runs, whatever the API server knows of it."""

    pod_uid: str
    port: int | None
    """The claimed one that it is exposed behind."""
    in_flight: int
    instance: tuple[str, int] = ("", 0)
    """Uid of its backend, and its ordinal, where they are known."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    observations: tuple[Observation, ...]
    """One per backend uid, of those that are gone too."""
    models: Mapping[str, str]
    """Backend uid to `namespace/model`."""
    processes: tuple[Process, ...]

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(claim for observation in self.observations for claim in observation.claims)


@dataclass(frozen=True, slots=True)
class Step:
    """A write that was applied."""

    before: Snapshot
    decided_from: Observation
    """Perhaps older than `before`."""
    action: Action
    now: datetime


Breaches = Iterator[str]


# -- at every moment --------------------------------------------------------------------------------------------------


def port_exclusive(snapshot: Snapshot) -> Breaches:
    """No two live processes listen behind one claimed port."""
    behind: dict[int, list[str]] = defaultdict(list)
    for process in snapshot.processes:
        if process.port is not None:
            behind[process.port].append(process.pod_uid)
    yield from (f"pods {pods} run behind port {port}" for port, pods in behind.items() if len(pods) > 1)


def port_withheld(snapshot: Snapshot) -> Breaches:
    """A port whose last holder lives stays claimed, by a claim that names that holder.

    One that an administrator's setting took for ended with its Node is kept from others, and withheld once it is back.
    """
    held = {(claim.port, claim.pod_uid) for claim in snapshot.claims if claim.phase in HOLDING or _is_trusted(claim)}
    for process in snapshot.processes:
        if process.port is not None and (process.port, process.pod_uid) not in held:
            yield f"pod {process.pod_uid} runs behind port {process.port}, which no claim holds for it"


def _is_trusted(claim: Claim) -> bool:
    return claim.phase is ClaimPhase.COOLING and (claim.returned or claim.node in claim.removed_nodes)


def one_shutdown_per_model(snapshot: Snapshot) -> Breaches:
    """At most one instance of a model is, by our decision, between its stop record and proof or hand-over.

    One whose record says that it gave way is counted no more: it is busy past its deadline, or unconfirmed.
    """
    stopping: dict[str, list[str]] = defaultdict(list)
    for observation in snapshot.observations:
        for pod in observation.pods:
            stop = pod.stop
            if stop is None or stop.yielded_at is not None or not _may_run_as_instance(pod):
                continue
            ours = stop.reason is not StopReason.FOREIGN and observation.backend is not None
            if stop.epoch or ours:
                stopping[snapshot.models[observation.backend_uid]].append(pod.ref.uid)
    yield from (f"pods {pods} of {model} are shut down at once" for model, pods in stopping.items() if len(pods) > 1)


def no_double_pod(snapshot: Snapshot) -> Breaches:
    """At most one unproven pod of an instance is behind no gate, besides the one that takes its place (Surge).

    Those that were handed over stand for no instance any more.
    """
    for observation in snapshot.observations:
        let_through = [pod for pod in observation.pods if not pod.gated and _may_run_as_instance(pod)]
        uids = {pod.ref.uid for pod in let_through}
        through: dict[int, list[str]] = defaultdict(list)
        for pod in let_through:
            if pod.replaces not in uids:
                through[pod.ordinal].append(pod.ref.uid)
        yield from (f"instance {ordinal} has pods {pods}" for ordinal, pods in through.items() if len(pods) > 1)


def _may_run_as_instance(pod: Pod) -> bool:
    return pod.handed_over is None and evidence_of_end(pod) is None


# -- at every write ---------------------------------------------------------------------------------------------------


def gate_before_claim(step: Step) -> Breaches:
    """A pod leaves its gate only after the backend's status named it, and while a claim of each role does."""
    if not (isinstance(step.action, Ungate) and step.action.pod.gated):
        return
    pod, backend = step.action.pod, step.decided_from.backend
    if backend is None or not status_names(backend, pod):
        yield f"pod {pod.ref.uid} is let through, and no status named it"
        return
    for role in backend.roles:
        claim = claim_naming(_now_of(step), pod, role)
        if claim is None or claim.phase not in HOLDING:
            yield f"pod {pod.ref.uid} is let through, and no {role} claim names it"


def no_double_process(step: Step) -> Breaches:
    """Where an end is waited for (whenUnconfirmed: Wait), a pod leaves its gate after that of the last one's process.

    Also of one whose object is gone. Besides: the one that it takes the place of (Surge).
    """
    if isinstance(step.action, Ungate) and step.action.pod.gated:
        pod = step.action.pod
        others = (p for p in _waited_for(step) if p.instance[1] == pod.ordinal)
        left = [p.pod_uid for p in others if p.pod_uid not in (pod.ref.uid, pod.replaces)]
        yield from (f"pod {pod.ref.uid} is let through, and pod {uid} runs" for uid in left)


def _waited_for(step: Step) -> Iterator[Process]:
    """What runs of a backend that waits for the end of all that ran."""
    if waits_for_proof(step.decided_from):
        yield from (p for p in step.before.processes if p.instance[0] == step.decided_from.backend_uid)


def never_advertise_dying(step: Step) -> Breaches:
    """No endpoint of an ending instance is written; nothing is drained or deleted before it was withdrawn."""
    match step.action:
        case WriteStatus(status=status):
            serving = {pod.ref.uid for pod in step.decided_from.pods if is_serving(pod)}
            told = {endpoint["podUID"] for endpoint in status.get("endpoints") or ()}
            yield from (f"the address of pod {uid} is told" for uid in sorted(told - serving))
        case DrainServer(pod=pod) | DeletePod(pod=pod) if not pod.gated and not pod.deleting:
            backend = _now_of(step).backend
            told_still = backend is not None and status_advertises(backend, pod)
            if pod.serving_label or pod.serving_condition or told_still:
                yield f"pod {pod.ref.uid} is ended before it is withdrawn"


def force_only_after_deadline(step: Step) -> Breaches:
    """No request is cut before the recorded deadline but by a recorded order, and no grace is 0 before proof.

    A record gives way to the others of its model only past its deadline, or when its pod was told to end. And no
    deadline comes sooner than it was recorded while anybody may be served.
    """
    match step.action:
        case DeletePod(pod=pod, grace_seconds=0) if evidence_of(_now_of(step), pod) is None:
            yield f"pod {pod.ref.uid} is deleted with grace 0, without proof"
        case DeletePod(pod=pod) | AbortServer(pod=pod):
            in_flight = sum(process.in_flight for process in step.before.processes if process.pod_uid == pod.ref.uid)
            if in_flight and not _may_cut(step, pod):
                yield f"pod {pod.ref.uid} is ended with {in_flight} requests in flight, before its deadline"
        case WriteStopRecord(pod=pod, record=record) if step.now < record.deadline and record != pod.stop:
            if record.cut is not None and not _is_ordered(step.decided_from.backend, pod, record.cut):
                yield f"pod {pod.ref.uid} is recorded as cut before its deadline, and nobody ordered it"
            if record.yielded_at is not None and not pod.deleting:
                yield f"pod {pod.ref.uid} gives way to others before its deadline"
    yield from _moved_up(step)


def _moved_up(step: Step) -> Breaches:
    """A deadline comes sooner only by an order, or where the kubelet's probes say that nobody is served any more."""
    match step.action:
        case WriteStopRecord(pod=pod, record=record) if pod.stop is not None and record.deadline < pod.stop.deadline:
            fails_its_probes = bool(pod.containers) and not pod.containers_ready
            if record.extended == pod.stop.extended and not fails_its_probes:
                yield f"the deadline of pod {pod.ref.uid} is moved up, and it may serve"


def _may_cut(step: Step, pod: Pod) -> bool:
    """An Abort is for orders alone."""
    if pod.stop is None:
        return False
    ordered = pod.stop.cut is not None and bool(pod.stop.cut.order)
    return ordered or (isinstance(step.action, DeletePod) and step.now >= pod.stop.deadline)


def _is_ordered(backend: Backend | None, pod: Pod, cut: Cut) -> bool:
    """By the user, for this very pod or for all; one that was recorded before needs nobody's word any more."""
    if pod.stop is not None and pod.stop.cut == cut:
        return True
    target = cut.order.split(maxsplit=1)[:1]
    return backend is not None and cut.order in backend.orders.values() and target in (["all"], [pod.ref.uid])


def evidence_not_absence(step: Step) -> Breaches:
    """Only proof opens a claim or lets a pod's object go; a witness may go, its port withheld, for its namespace's end.

    And no pod is given up before its grace period is over. Proof once seen stays true, so it may be that of the look:
    meanwhile somebody may have removed the object.
    """
    looks = (step.decided_from, _now_of(step))
    match step.action:
        case CoolClaim(claim=claim) | DeleteClaim(claim=claim) | RemoveClaimFinalizer(claim=claim):
            if claim.phase in HOLDING and not any(_is_proven(look, claim) for look in looks):
                yield f"port {claim.port} is released, and nothing proves the end of pod {claim.pod_uid}"
        case RemovePodFinalizer(pod=pod):
            world = _now_of(step)
            may_go = pod.handed_over is not None and world.namespace_terminating and _is_accounted_for(world, pod)
            if not may_go and all(evidence_of(look, pod) is None for look in looks):
                yield f"pod {pod.ref.uid} is let go without proof"
        case HandOver(pod=pod):
            if pod.deleted_at is None or step.now < pod.deleted_at + timedelta(seconds=pod.grace_seconds or 0):
                yield f"pod {pod.ref.uid} is given up within its grace period"


def finalizer_last(step: Step) -> Breaches:
    """When a backend goes, nothing of it runs and nothing is bound, but witnesses and ports withheld with a reason.

    A pod behind its gate does not run: one that a late write made is swept after its backend.
    """
    if not isinstance(step.action, RemoveFinalizer):
        return
    world = _now_of(step)
    yield from (f"pod {pod.ref.uid} is left" for pod in world.pods if pod.handed_over is None and not pod.gated)
    unaccounted = (pod for pod in world.pods if pod.handed_over is not None and not _is_accounted_for(world, pod))
    yield from (f"the port of witness {pod.ref.uid} is not withheld" for pod in unaccounted)
    yield from (f"port {c.port} is left bound" for c in world.claims if c.phase is ClaimPhase.BOUND)
    yield from (f"the process of pod {p.pod_uid} is left, and was to be waited for" for p in _waited_for(step))


def _now_of(step: Step) -> Observation:
    """The truth about the backend that the write is for."""
    uid = step.decided_from.backend_uid
    return next(observation for observation in step.before.observations if observation.backend_uid == uid)


def _is_proven(world: Observation, claim: Claim) -> bool:
    pod: Pod | None = next((pod for pod in world.pods if pod.ref.uid == claim.pod_uid), None)
    if pod is not None:
        return evidence_of(world, pod) is not None
    return evidence_elsewhere(world, trail_of_claim(world, claim)) is not None


def _is_accounted_for(world: Observation, witness: Pod) -> bool:
    """Each of its ports is withheld, or proven free; or it has none."""
    settled = (ClaimPhase.WITHHELD, ClaimPhase.COOLING)
    return all(claim.phase in settled for claim in claims_naming(world, witness))


ON_SNAPSHOT: Mapping[str, Callable[[Snapshot], Breaches]] = {
    "PortExclusive": port_exclusive,
    "PortWithheld": port_withheld,
    "OneShutdownPerModel": one_shutdown_per_model,
    "NoDoublePod": no_double_pod,
}
ON_STEP: Mapping[str, Callable[[Step], Breaches]] = {
    "GateBeforeClaim": gate_before_claim,
    "NoDoublePod": no_double_process,
    "NeverAdvertiseDying": never_advertise_dying,
    "ForceOnlyAfterDeadline": force_only_after_deadline,
    "EvidenceNotAbsence": evidence_not_absence,
    "FinalizerLast": finalizer_last,
}


def breaches(snapshot: Snapshot) -> Breaches:
    for name, check in ON_SNAPSHOT.items():
        yield from (f"{name}: {breach}" for breach in check(snapshot))


def breaches_of_step(step: Step) -> Breaches:
    for name, check in ON_STEP.items():
        yield from (f"{name}: {breach}" for breach in check(step))
