"""Rules as they must not be, each in the place of a real one: what `mutants.py` breaks."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from modelbackend_operator import actions as do
from modelbackend_operator import decide as deciding
from modelbackend_operator import instances, proof, settling, starting, stopping, told_in_status
from modelbackend_operator import vanished as vanishing
from modelbackend_operator.api import Evidence
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.model.backend import PortRole
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import ContainerState, Pod
from modelbackend_operator.outcome import Applied, Exists
from modelbackend_operator.reasons import Reason
from modelbackend_operator.timestamps import parse_time
from tests.sim.world import World


def absence_is_proof(observation: Observation, claim: Claim) -> Act | None:
    if instances.pod_lives(observation, claim.pod_uid):
        return None
    return Act(do.CoolClaim(claim, "Absent"))


def unbound_is_never_started(pod: Pod) -> Evidence | None:
    return Evidence.NEVER_STARTED if not pod.node else _evidence(pod)


def terminated_is_the_end(pod: Pod) -> Evidence | None:
    ended = bool(pod.containers) and all(c.state is ContainerState.TERMINATED for c in pod.containers)
    return Evidence.CONTAINERS_TERMINATED if ended else _evidence(pod)


def failed_is_the_end(pod: Pod) -> Evidence | None:
    return Evidence.CONTAINERS_TERMINATED if pod.deleting and pod.phase.terminal else _evidence(pod)


def unscheduled_needs_no_delete(observation: Observation, pod: Pod, now: Any) -> Any:
    return _drain(observation, pod, now) if pod.node else None


_drain = stopping._drain
_evidence = proof.evidence_of_end
_stop_reason = instances.stop_reason
_open_gate = starting._open_gate
_withhold = settling._withhold_if_pod_vanished
_start = starting.start
_apply = World.apply


def bound_whatever_its_port(observation: Observation, backend: Any, pod: Pod, now: Any) -> Any:
    if instances.claim_naming(observation, pod) is None:
        claim = instances.reserved_claim(observation, pod.ordinal, PortRole.GRPC)
        if claim is not None:
            return Act(do.BindClaim(claim, pod))
    return _open_gate(observation, backend, pod, now)


def opened_first(observation: Observation, backend: Any, pod: Pod, now: Any) -> Any:
    return Act(do.Ungate(pod))


def opened_with_one_port(observation: Observation, backend: Any, pod: Pod, now: Any) -> Any:
    return _open_gate(observation, replace(backend, http=False), pod, now)


def withholds_one_port(observation: Observation, claim: Claim) -> Act | None:
    return absence_is_proof(observation, claim) if claim.role is PortRole.HTTP else _withhold(observation, claim)


def keeps_what_it_has(observation: Observation, claim: Claim) -> bool:
    """Also while there is no port for another role."""
    return instances.wanted(observation, claim.ordinal) and instances.port_fits(observation.backend, claim)  # type: ignore[arg-type]


def the_wish_alone(observation: Observation, pod: Pod) -> Any:
    """No point of no return: neither a record nor a Lease outlives the wish behind it."""
    return _stop_reason(replace(observation, lease=None), replace(pod, stop=None))


def given_back_without_wish(observation: Observation, now: Any) -> Act | None:
    lease = observation.lease
    if lease is None or lease.holder is None or lease.holder.backend_uid != observation.backend_uid:
        return None
    pod = next((pod for pod in observation.pods if pod.ref.uid == lease.holder.pod_uid), None)
    return None if pod is not None and the_wish_alone(observation, pod) else Act(do.ReleaseLease(lease))


def given_back_at_once(observation: Observation, now: Any) -> Act | None:
    """As if the Lease had expired: by time, not by a fact."""
    lease = observation.lease
    if lease is None or lease.holder is None or lease.holder.backend_uid != observation.backend_uid:
        return None
    pod = next((pod for pod in observation.pods if pod.ref.uid == lease.holder.pod_uid), None)
    return Act(do.ReleaseLease(lease)) if pod is None or pod.deleting else None


def whatever_remains(observation: Observation) -> Act | None:
    backend = observation.backend
    if backend is None or backend.deleting_since is None or not backend.has_finalizer:
        return None
    return Act(do.RemoveFinalizer(backend))


def finalizer_first(observation: Observation, now: Any) -> Iterator[Any]:
    yield whatever_remains(observation)
    yield from _steps(observation, now)


_steps = deciding._steps


def starts_beside(observation: Observation, backend: Any, ordinal: int, now: Any) -> Any:
    """A successor is not kept waiting by a predecessor that terminates."""
    others = tuple(pod for pod in observation.pods if not pod.deleting)
    taken = observation.taken_names | {pod.ref.name for pod in observation.pods}
    return _start(replace(observation, pods=others, taken_names=taken), backend, ordinal, now)


def fenced_by_the_lease_alone(observation: Observation, backend: Any, ordinal: int, now: Any) -> Any:
    """As if a free Lease told that nothing of this instance ends."""
    if observation.lease is not None:
        return _start(observation, backend, ordinal, now)
    return starts_beside(observation, backend, ordinal, now)


def whatever_else_serves(observation: Observation, backend: Any, pod: Pod) -> None:
    """No instance waits for another: an earlier spec ends at once."""


def nobody(*_: Any, **__: Any) -> None:
    """Is absent."""


def no_successor_is_enough(observation: Observation, backend: Any, pod: Pod) -> Wait:
    return Wait(Reason.ROLLING_OUT, "", None, pod.ordinal)


def replaces_nobody(world: World, action: Any) -> Any:
    return _apply(world, replace(action, replaces="") if isinstance(action, do.CreatePod) else action)


def counts_nothing(observation: Observation, now: Any) -> Iterator[Any]:
    """A failure goes with the pod that shows it."""
    return iter(())


def as_long_as_others_wait(election: Any) -> float:
    """As if a leader had as long as its candidates wait, and a little more."""
    late = election._timing.lease_seconds - election._timing.renew_deadline_seconds
    remaining: float = election._leads_until + late + 1 - asyncio.get_running_loop().time()
    return max(0.0, remaining)


def leads_as_long_as_others_wait(election: Any) -> bool:
    return as_long_as_others_wait(election) > 0


def free_by_its_own_clock(election: Any, spec: Any) -> bool:
    """As if the times written into a Lease could be compared with the own clock."""
    if spec.get("holderIdentity") in (election._identity, "", None):
        return True
    renewed = parse_time(spec.get("renewTime"))
    return renewed is None or (datetime.now(UTC) - renewed).total_seconds() > election._timing.lease_seconds


def deleted_at_once(observation: Observation, pod: Pod, now: Any) -> Any:
    return None if pod.deleting else Act(do.DeletePod(pod, 15))


def always_idle(observation: Observation, pod: Pod) -> Any:
    report = _own_report(observation, pod)
    return None if report is None else replace(report, in_flight=0)


_own_report = instances.own_report


def ends_with_grace_0(observation: Observation) -> int:
    return 0


def waits_for_the_kubelet(pod: Pod, now: Any) -> Wait:
    return Wait(Reason.TERMINATING, "", None, pod.ordinal)


def leaves_gated_pods(observation: Observation, pod: Pod, now: Any) -> Any:
    return None


def made_without_gate(world: World, action: Any) -> Any:
    outcome = _apply(world, action)
    if isinstance(action, do.CreatePod):
        for pod in world.state.all(Pod):
            if pod.gated:
                world.edit(pod, gated=False, serving_label=True)
    return outcome


def made_without_finalizer(world: World, action: Any) -> Any:
    outcome = _apply(world, action)
    if isinstance(action, do.CreatePod):
        for pod in world.state.all(Pod):
            if pod.has_finalizer and pod.gated:
                world.edit(pod, has_finalizer=False)
    return outcome


def takes_claims_over(world: World, action: Any) -> Any:
    """As if a claim were made by an apply and not by a create."""
    outcome = _apply(world, action)
    if isinstance(action, do.CreateClaim) and isinstance(outcome, Exists):
        held = next(claim for claim in world.state.all(Claim) if claim.port == action.port)
        owners = {**world.state.owners, held.ref.uid: action.backend.ref.uid}
        world.state = world.state._replace(owners=owners)
        world.edit(held, phase=ClaimPhase.RESERVED, pod_uid="", pod_name="", ordinal=action.ordinal)
        return Applied()
    return outcome


def forgets_the_terminating(observation: Observation, ordinal: int) -> tuple[Pod, ...]:
    return tuple(pod for pod in _pods_of(observation, ordinal) if not pod.deleting)


_pods_of = instances.pods_of


def where_it_is_wanted(observation: Observation) -> tuple[Any, ...]:
    """Only what is to run again is waited for; not what a deletion ends."""
    return tuple(pod for pod in _vanished(observation) if instances.wanted(observation, pod.ordinal))


_vanished = vanishing.vanished


def every_name(observation: Observation) -> set[str]:
    return {pod.ref.name for pod in observation.pods}


def by_any_status(observation: Observation, claim: Claim) -> str:
    node = observation.nodes.get(claim.node.name) if claim.node is not None else None
    return node.boot_id if node is not None else ""


def frees_the_port(observation: Observation, pod: Pod) -> Act | None:
    claim = instances.claim_naming(observation, pod)
    return Act(do.CoolClaim(claim, "Overdue")) if claim is not None and claim.phase is ClaimPhase.BOUND else None


def never(*_: Any) -> None:
    return None


def recorded_anew(observation: Observation, pod: Pod, reason: Any, now: Any) -> Any:
    """As if a stop began when its operator did."""
    record = stopping._new_record(observation, pod, reason, now)
    if pod.stop is None or record.since > pod.stop.since:
        return Act(do.WriteStopRecord(pod, record))
    return _record(observation, pod, reason, now)


_record = stopping._record


def never_yields_by_word(pod: Pod, status: Any) -> Pod:
    return replace(_with_status(pod, status), stop=pod.stop)


_with_status = told_in_status.with_status


def whoever_is_back(observation: Observation, claim: Claim, now: Any) -> Any:
    return _free_when_cooled(observation, replace(claim, returned=False), now)


_free_when_cooled = settling._free_when_cooled


def no(*_: Any) -> bool:
    return False


def nowhere(*_: Any) -> frozenset[str]:
    return frozenset()


def yes(*_: Any) -> bool:
    return True
