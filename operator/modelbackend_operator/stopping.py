"""How an instance ends: Lease, stop record, withdrawal, drain, DELETE, proof, release. In this order.

Whoever reads the state at any point can go on from there, because each step leaves its trace on the API server
before the next one depends on it.
"""

from datetime import datetime, timedelta

from modelbackend_operator.actions import (
    AcquireLease,
    Act,
    DeletePod,
    DrainServer,
    ReleaseLease,
    SetServing,
    Wait,
    WriteStopRecord,
)
from modelbackend_operator.conditions import publish
from modelbackend_operator.ending import await_proof
from modelbackend_operator.instances import (
    any_container_running,
    holds_lease,
    own_report,
    pod_lives,
    status_advertises,
    stop_reason,
)
from modelbackend_operator.model import (
    Holder,
    Observation,
    Pod,
    ServerState,
    StopReason,
    StopRecord,
)
from modelbackend_operator.proof import evidence_of_end
from modelbackend_operator.reasons import Reason

FINISHING = "requests in flight are finishing"
POLL_SECONDS = 1
"""How often a draining server is asked for what still runs."""
REPLACE_REJECTED_SECONDS = 10
"""A node that rejects pods is not offered the next one sooner than this after the last."""
SHORT_GRACE_WITHOUT_BACKEND_SECONDS = 15


def stop(observation: Observation, pod: Pod, now: datetime) -> Act | Wait | None:
    """The next step of ending this pod, or None while it is to stay."""
    reason = stop_reason(observation, pod)
    if reason is None:
        return None
    if pod.gated:
        return _end_gated(observation, pod, now)
    return (
        _take_lease(observation, pod, reason, now)
        or _record(observation, pod, reason, now)
        or _withdraw(observation, pod, now)
        or _drain(pod, observation, now)
        or await_proof(observation, pod, now)
    )


def _end_gated(observation: Observation, pod: Pod, now: datetime) -> Act | Wait:
    """No process can exist behind a gate: no Lease, no record, no drain."""
    if not pod.deleting:
        return Act(DeletePod(pod, _grace_seconds(observation)))
    return await_proof(observation, pod, now)


def _take_lease(observation: Observation, pod: Pod, reason: StopReason, now: datetime) -> Act | Wait | None:
    """One shutdown per model at a time. An end that others ordered, or that is proven, is not ours to delay."""
    if pod.deleting or holds_lease(observation, pod):
        return None
    if reason is StopReason.REJECTED:
        replace_at = pod.created_at + timedelta(seconds=REPLACE_REJECTED_SECONDS)
        if now < replace_at:
            return Wait(Reason.REJECTED_BY_NODE, pod.phase_message, replace_at, pod.ordinal)
    if evidence_of_end(pod) is not None:
        return None
    who = _being_shut_down(observation, pod)
    if who:
        message = f"{who} is being shut down; this instance of the same model is next"
        return Wait(Reason.WAITING_FOR_MODEL_LOCK, message, now + timedelta(seconds=10), pod.ordinal)
    backend = observation.backend
    if backend is None:
        # The object was removed past its finalizer; its model, hence its Lease, is unknown. End what is left.
        return None
    return Act(AcquireLease(backend, Holder(observation.backend_uid, pod.ordinal, pod.ref.uid, reason)))


def _being_shut_down(observation: Observation, pod: Pod) -> str:
    """Who else of the model is, by our decision; empty when nobody is. A Lease deleted by hand ends no shutdown."""
    lease = observation.lease
    if lease is not None:
        return lease.description or f"an unknown holder of Lease {lease.ref.namespace}/{lease.ref.name}"
    if _ordered_by_us(pod):
        return ""
    others = (other for other in observation.pods if _ordered_by_us(other))
    return next((f"pod {other.ref.name}" for other in others), "")


def _ordered_by_us(pod: Pod) -> bool:
    return pod.stop is not None and bool(pod.stop.epoch)


def _record(observation: Observation, pod: Pod, reason: StopReason, now: datetime) -> Act | None:
    if pod.stop is not None and not pod.serving_label:
        return None
    record = pod.stop or _new_record(observation, pod, reason, now)
    return Act(WriteStopRecord(pod, record))


def _new_record(observation: Observation, pod: Pod, reason: StopReason, now: datetime) -> StopRecord:
    """A server that never served, or does not run, has nothing to drain: its deadline is at once.

    One that runs but fails its probes just now may still have requests, and gets its time.
    """
    backend, lease = observation.backend, observation.lease
    serves = pod.serving_condition and any_container_running(pod)
    drain_seconds = backend.drain_seconds if backend is not None and serves and not pod.deleting else 0
    epoch = lease.epoch if lease is not None and holds_lease(observation, pod) else ""
    return StopRecord(now, reason, now + timedelta(seconds=drain_seconds), epoch)


def _withdraw(observation: Observation, pod: Pod, now: datetime) -> Act | None:
    """No Drain and no DELETE of ours before callers were told: the gate's condition, then the published address."""
    if pod.serving_condition:
        return Act(SetServing(pod, serving=False))
    backend = observation.backend
    if backend is not None and status_advertises(backend, pod):
        return Act(publish(observation, (Wait(Reason.DRAINING, FINISHING, None, pod.ordinal),), now))
    return None


def _drain(pod: Pod, observation: Observation, now: datetime) -> Act | Wait | None:
    """Until idle or the recorded deadline. An unreachable server is unknown, not idle; a dead one has nothing left."""
    if pod.deleting or pod.stop is None:
        return None
    delete = Act(DeletePod(pod, _grace_seconds(observation)))
    if now >= pod.stop.deadline or not any_container_running(pod):
        return delete
    server = own_report(observation, pod)
    next_poll = min(now + timedelta(seconds=POLL_SECONDS), pod.stop.deadline)
    if server is None:
        message = "the server does not answer; waiting for it until the drain deadline"
        return Wait(Reason.DRAINING, message, next_poll, pod.ordinal)
    if server.state is ServerState.SERVING:
        return Act(DrainServer(pod, pod.stop.deadline))
    if server.in_flight == 0:
        return delete
    return Wait(Reason.DRAINING, FINISHING, next_poll, pod.ordinal)


def release_lease(observation: Observation) -> Act | None:
    """Given back when the pod it was taken for is gone: a fact that no late write undoes."""
    lease = observation.lease
    if lease is None or lease.holder is None or lease.holder.backend_uid != observation.backend_uid:
        return None
    return None if pod_lives(observation, lease.holder.pod_uid) else Act(ReleaseLease(lease))


def _grace_seconds(observation: Observation) -> int:
    backend = observation.backend
    return backend.termination_grace_seconds if backend is not None else SHORT_GRACE_WITHOUT_BACKEND_SECONDS
