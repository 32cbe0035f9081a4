"""How an instance ends, up to its DELETE: Lease, stop record, withdrawal, drain, DELETE. In this order.

Whoever reads the state at any point can go on from there, because each step leaves its trace on the API server
before the next one depends on it. What comes after the DELETE is in `ending.py`.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from modelbackend_operator.actions import AbortServer, DeletePod, DrainServer, SetServing, WriteStopRecord
from modelbackend_operator.api import ANNOTATION_FORCE
from modelbackend_operator.conditions import publish
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.deferrals import key_of, put_aside
from modelbackend_operator.ending import await_proof
from modelbackend_operator.instances import (
    any_container_running,
    holds_lease,
    node_lost_at,
    own_report,
    server_is_dead,
    status_advertises,
    stop_reason,
)
from modelbackend_operator.last_shutdown import tell_shutdown
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerReport, ServerState
from modelbackend_operator.model.stop import Cut, StopReason, StopRecord
from modelbackend_operator.model_lease import give_way, take
from modelbackend_operator.orders import extension_for, force_for
from modelbackend_operator.proof import evidence_of_end
from modelbackend_operator.reasons import Reason
from modelbackend_operator.rollout import held_back

FINISHING = "requests in flight are finishing"
ABORTING = "the server was told to cut its requests and to exit"
POLL_SECONDS = 1
"""How often a draining server is asked for what still runs."""
BUSY_POLL_SECONDS = 5
"""How often one is that has missed its deadline and is waited for."""
ASK_SILENT_SECONDS = 10
"""How soon a server with a busy limit that did not answer is asked again."""
UNREACHABLE_SECONDS = 15
"""So long is a server that fails its probes and does not answer waited for before its deadline is moved up."""
SHORT_GRACE_WITHOUT_BACKEND_SECONDS = 15


def stop(observation: Observation, pod: Pod, now: datetime) -> Act | Wait | None:
    """The next step of ending this pod, or None while it is to stay."""
    reason = stop_reason(observation, pod) or _node_lost(observation, pod, now)
    if reason is None:
        return _watch_oldest_request(observation, pod, now) or _watch_node(observation, pod)
    if pod.gated:
        return _end_gated(observation, pod, now)
    held = held_back(observation, pod, reason, now)
    if held is not None:
        return held
    return (
        _await_turn(observation, pod, reason, now)
        or _record(observation, pod, reason, now)
        or give_way(observation, pod, now)
        or _withdraw(observation, pod, now)
        or _drain(observation, pod, now)
        or _abort(observation, pod, now)
        or tell_shutdown(observation, pod, now)
        or await_proof(observation, pod, now)
    )


def _watch_oldest_request(observation: Observation, pod: Pod, now: datetime) -> Wait | None:
    """Asked again when its oldest request could be too old at the earliest: one that began just after the answer."""
    backend = observation.backend
    if backend is None or backend.busy_timeout_seconds is None or not pod.serving_condition:
        return None
    server = own_report(observation, pod)
    if server is None:
        seconds: float = min(ASK_SILENT_SECONDS, backend.busy_timeout_seconds)
    else:
        seconds = max(1.0, backend.busy_timeout_seconds - server.oldest_seconds)
    return Wait(Reason.BUSY_LIMIT, "", now + timedelta(seconds=seconds), pod.ordinal)


def _node_lost(observation: Observation, pod: Pod, now: datetime) -> StopReason | None:
    lost_at = node_lost_at(observation, pod)
    return StopReason.NODE_LOST if lost_at is not None and now >= lost_at else None


def _watch_node(observation: Observation, pod: Pod) -> Wait | None:
    lost_at = node_lost_at(observation, pod)
    return Wait(Reason.NODE_LOSS_LIMIT, "", lost_at, pod.ordinal) if lost_at is not None else None


def _end_gated(observation: Observation, pod: Pod, now: datetime) -> Act | Wait | None:
    """No process can exist behind a gate: no Lease, no record, no drain."""
    if not pod.deleting:
        return Act(DeletePod(pod, _grace_seconds(observation)))
    return await_proof(observation, pod, now)


def _await_turn(observation: Observation, pod: Pod, reason: StopReason, now: datetime) -> Act | Wait | None:
    """One shutdown per model at a time. An end that others ordered, or that is proven, is not ours to delay."""
    if pod.deleting or (pod.stop is not None and pod.stop.yielded_at is not None):
        return None
    return None if evidence_of_end(pod) is not None else take(observation, pod, reason, now)


# -- the stop record --------------------------------------------------------------------------------------------------
def _record(observation: Observation, pod: Pod, reason: StopReason, now: datetime) -> Act | None:
    record = pod.stop or _new_record(observation, pod, reason, now)
    if evidence_of_end(pod) is None:
        record = _as_ordered(observation, pod, record)
    return Act(WriteStopRecord(pod, record)) if record != pod.stop or pod.serving_label else None


def _new_record(observation: Observation, pod: Pod, reason: StopReason, now: datetime) -> StopRecord:
    """A server that never served, does not run, or is lost with its node has nothing to drain: it ends at once.

    One that runs but fails its probes just now may still have requests, and gets its time. One that is withdrawn
    without a record had one, which somebody has wiped: its time began when its stop did.
    """
    backend, lease = observation.backend, observation.lease
    held = lease if lease is not None and holds_lease(observation, pod) else None
    served = (pod.serving_condition or pod.withdrawn) and not server_is_dead(pod)
    since = now
    if pod.withdrawn:
        began = (held.acquired_at if held is not None else None) or (backend.deleting_since if backend else None)
        since = min(began or now, now)
    unreachable = reason is StopReason.NODE_LOST and own_report(observation, pod) is None
    drains = served and not pod.deleting and not unreachable
    drain_seconds = backend.drain_seconds if backend is not None and drains else 0
    deadline = since + timedelta(seconds=drain_seconds)
    return StopRecord(since, reason, deadline, epoch=held.epoch if held is not None else "")


def _as_ordered(observation: Observation, pod: Pod, record: StopRecord) -> StopRecord:
    """With the user's orders for this pod in it, each of which acts once."""
    backend = observation.backend
    extension, force = extension_for(backend, pod), force_for(backend, pod)
    if extension is not None and backend is not None and extension[0] != record.extended and not pod.deleting:
        deadline = record.since + timedelta(seconds=backend.drain_seconds + extension[1])
        record = replace(record, deadline=deadline, extended=extension[0])
    if force is not None and not (record.cut is not None and record.cut.order):
        server = own_report(observation, pod)
        told = server.in_flight if server is not None else None
        record = replace(record, cut=Cut(force, record.cut.requests if record.cut is not None else told))
    return record


# -- withdrawal, drain, DELETE ----------------------------------------------------------------------------------------


def _withdraw(observation: Observation, pod: Pod, now: datetime) -> Act | None:
    """No Drain and no DELETE of ours before callers were told: the gate's condition, then the published address."""
    if pod.serving_condition:
        return Act(SetServing(pod, serving=False))
    backend = observation.backend
    if backend is not None and status_advertises(backend, pod):
        return Act(publish(observation, (Wait(Reason.DRAINING, FINISHING, None, pod.ordinal),), now))
    return None


def _drain(observation: Observation, pod: Pod, now: datetime) -> Act | Wait | None:
    """Until idle, the recorded deadline or a decision to cut. A silent server is unknown, not idle; a dead one is."""
    stop = pod.stop
    if pod.deleting or stop is None:
        return None
    delete = Act(DeletePod(pod, _grace_seconds(observation)))
    server = own_report(observation, pod)
    if stop.cut is not None or server_is_dead(pod) or _is_idle(server):
        return delete
    if now >= stop.deadline:
        return _past_deadline(observation, pod, stop, server, now) or delete
    if server is None and _is_unreachable(pod, stop, now):
        return Act(WriteStopRecord(pod, replace(stop, deadline=now)))
    next_poll = min(now + timedelta(seconds=POLL_SECONDS), stop.deadline)
    if server is None:
        message = "the server does not answer; waiting for it until the drain deadline"
        return Wait(Reason.DRAINING, message, next_poll, pod.ordinal)
    if server.state is ServerState.SERVING:
        return Act(DrainServer(pod, stop.deadline))
    return Wait(Reason.DRAINING, FINISHING, next_poll, pod.ordinal)


def _is_unreachable(pod: Pod, stop: StopRecord, now: datetime) -> bool:
    """Its control port is silent and the kubelet's probes fail, too: neither we nor callers reach anything there."""
    is_broken = bool(pod.containers) and not pod.containers_ready
    return is_broken and not stop.extended and now >= stop.since + timedelta(seconds=UNREACHABLE_SECONDS)


def _is_idle(server: ServerReport | None) -> bool:
    return server is not None and server.in_flight == 0 and server.state is not ServerState.SERVING


def _past_deadline(
    observation: Observation, pod: Pod, stop: StopRecord, server: ServerReport | None, now: datetime
) -> Act | Wait | None:
    """None: nothing is cut by ending it. Otherwise the cut is recorded first, or the instance is left to finish."""
    if server is None:
        nothing_to_drain = stop.deadline == stop.since
        return None if nothing_to_drain else Act(WriteStopRecord(pod, replace(stop, cut=Cut("", None))))
    if server.in_flight == 0:
        return None
    if _escalates(observation, stop):
        return Act(WriteStopRecord(pod, replace(stop, cut=Cut("", server.in_flight))))
    if stop.yielded_at is None:
        return Act(WriteStopRecord(pod, replace(stop, yielded_at=now)))
    drain = DrainServer(pod, stop.deadline)
    if server.state is ServerState.SERVING and put_aside(observation, key_of(drain), now) is None:
        return Act(drain)
    message = (
        f"{server.in_flight} requests run past the drain deadline, and shutdown.escalate is false; "
        f'to end them now, annotate the ModelBackend: {ANNOTATION_FORCE}="{pod.ref.uid} <reason>"'
    )
    return Wait(Reason.BUSY, message, now + timedelta(seconds=BUSY_POLL_SECONDS), pod.ordinal)


def _escalates(observation: Observation, stop: StopRecord) -> bool:
    """A request older than the limit that the user has set is the reason of that stop, and is not waited for."""
    backend = observation.backend
    return backend is None or backend.escalate or stop.reason is StopReason.BUSY_TIMEOUT


def _abort(observation: Observation, pod: Pod, now: datetime) -> Act | None:
    """An order to force reaches a process that was told to end through its server: no second DELETE does."""
    if pod.deleted_at is None or pod.stop is None or pod.stop.cut is None or not pod.stop.cut.order:
        return None
    in_its_grace = now < pod.deleted_at + timedelta(seconds=pod.grace_seconds or 0)
    server = own_report(observation, pod)
    if not in_its_grace or server is None or server.state is ServerState.STOPPED or not any_container_running(pod):
        return None
    return Act(AbortServer(pod, pod.stop.cut.order))


def _grace_seconds(observation: Observation) -> int:
    backend = observation.backend
    return backend.termination_grace_seconds if backend is not None else SHORT_GRACE_WITHOUT_BACKEND_SECONDS
