"""Whose turn it is: the Lease that lets one instance of a model at a time be shut down by our decision.

It is taken by creating it and given back by deleting it. What it stands for is the open stop record of a pod, so a
Lease that was deleted by hand ends no shutdown: nobody takes it while such a record is open, but the pod that has it.
A taken Lease is a point of no return, and is given back on facts that no late write undoes. Nobody waits for ever: a
shutdown that cannot be recorded gives the Lease back, and one that cannot be finished in its time says so in its
record and holds up nobody from then on.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from modelbackend_operator.actions import AcquireLease, ReleaseLease, WriteStopRecord
from modelbackend_operator.conditions import publish
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.deferrals import key_of, put_aside, refused_since
from modelbackend_operator.instances import holds_lease
from modelbackend_operator.model.deferral import Key
from modelbackend_operator.model.lease import Holder
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.proof import evidence_of_end
from modelbackend_operator.reasons import Reason
from modelbackend_operator.told_in_status import waiting_since

LOOK_AGAIN_SECONDS = 10
REFUSED_SECONDS = 30
"""So long may the API server refuse what a shutdown needs before the others of the model go on."""
PRECEDENCE_SECONDS = 30
"""So long a free Lease is left to whoever has waited longest. It may be one that cannot take it, so no longer."""


def stop_is_open(pod: Pod) -> bool:
    """Between a stop record of our decision and proof or hand-over, and neighbours are not told to go ahead."""
    stop = pod.stop
    if stop is None or not stop.epoch or stop.yielded_at is not None:
        return False
    return pod.handed_over is None and evidence_of_end(pod) is None


# -- taking it --------------------------------------------------------------------------------------------------------


def take(observation: Observation, pod: Pod, reason: StopReason, now: datetime) -> Act | Wait | None:
    """None: this pod's stop may go on."""
    lease, recorded = observation.lease, pod.stop is not None
    others = _others_open(observation, pod)
    if lease is None:
        return _acquire(observation, pod, reason) if recorded else _await_turn(observation, pod, reason, others, now)
    if holds_lease(observation, pod):
        # Taken while the Lease of a shutdown that goes on was deleted by hand: that one ends first.
        return _wait(_being_shut_down(others), pod, now) if others and not recorded else None
    if recorded and not (lease.holder is not None and lease.holder.pod_uid in others):
        return None  # its own Lease was deleted by hand; who has taken it since waits for the end of this stop
    who = lease.description or f"an unknown holder of Lease {lease.ref.namespace}/{lease.ref.name}"
    return _wait(_being_shut_down({"": who}), pod, now)


def _others_open(observation: Observation, pod: Pod) -> dict[str, str]:
    """Open stops of the model, but this pod's: who, by pod uid."""
    own = {p.ref.uid: f"pod {p.ref.name}" for p in observation.pods if p is not pod and stop_is_open(p)}
    return own | {stop.pod_uid: stop.description for stop in observation.model_stops}


def _await_turn(
    observation: Observation, pod: Pod, reason: StopReason, others: dict[str, str], now: datetime
) -> Act | Wait | None:
    """Nobody holds it: it is free, unless a shutdown goes on, or somebody has waited for longer."""
    backend = observation.backend
    if others:
        return _wait(_being_shut_down(others), pod, now)
    refused = put_aside(observation, Key(WriteStopRecord.__name__, pod.ref.uid, pod.ordinal), now)
    if refused is not None:
        return refused  # to hold the Lease would keep others from it, for nothing
    if backend is not None and observation.lease_free_since is not None:
        mine = (waiting_since(backend, pod.ref.uid) or now, backend.ref.uid)
        first = min(observation.model_waits, key=lambda wait: (wait.since, wait.backend_uid), default=None)
        free_at = observation.lease_free_since + timedelta(seconds=PRECEDENCE_SECONDS)
        if first is not None and (first.since, first.backend_uid) < mine and now < free_at:
            return _wait(f"{first.description} has waited longer and is next", pod, now, free_at)
    return _acquire(observation, pod, reason)


def _being_shut_down(who: dict[str, str]) -> str:
    return f"{next(iter(who.values()))} is being shut down; this instance of the same model waits for its turn"


def _wait(message: str, pod: Pod, now: datetime, until: datetime | None = None) -> Wait:
    again = now + timedelta(seconds=LOOK_AGAIN_SECONDS)
    return Wait(Reason.WAITING_FOR_MODEL_LOCK, message, min(again, until or again), pod.ordinal)


def _acquire(observation: Observation, pod: Pod, reason: StopReason) -> Act | None:
    backend = observation.backend
    if backend is None:
        # The object was removed past its finalizer; its model, hence its Lease, is unknown. End what is left.
        return None
    return Act(AcquireLease(backend, Holder(observation.backend_uid, pod.ordinal, pod.ref.uid, reason)))


# -- letting others go on ---------------------------------------------------------------------------------------------


def give_way(observation: Observation, pod: Pod, now: datetime) -> Act | None:
    """Past its deadline, and what its end needs is refused: recorded, and then its model goes on without it.

    On the pod; in the backend's status, where the pod takes no write either (see `told_in_status.py`).
    """
    if pod.stop is None or not stop_is_open(pod) or now < pod.stop.deadline:
        return None
    if not any(_is_refused_for_long(observation, uid, now) for uid in (pod.ref.uid, observation.backend_uid)):
        return None
    yielding = WriteStopRecord(pod, replace(pod.stop, yielded_at=now))
    if put_aside(observation, key_of(yielding), now) is None:
        return Act(yielding)
    if observation.backend is None:
        return None
    pods = tuple(replace(other, stop=yielding.record) if other is pod else other for other in observation.pods)
    return Act(publish(replace(observation, pods=pods), (), now))


def release(observation: Observation, now: datetime) -> Act | None:
    """Given back when the pod it was taken for is gone, has ended, was handed over or gave way, or cannot be recorded.

    The last is no permanent fact. But a refusal is an answer: no write of that record is on its way any more.
    """
    lease = observation.lease
    if lease is None or lease.holder is None or lease.holder.backend_uid != observation.backend_uid:
        return None
    pod = next((pod for pod in observation.pods if pod.ref.uid == lease.holder.pod_uid), None)
    if pod is not None and pod.handed_over is None and evidence_of_end(pod) is None:
        given_way = pod.stop is not None and pod.stop.yielded_at is not None
        unrecorded = pod.stop is None and _is_refused_for_long(observation, pod.ref.uid, now)
        if not given_way and not unrecorded:
            return None
    return Act(ReleaseLease(lease))


def _is_refused_for_long(observation: Observation, uid: str, now: datetime) -> bool:
    since = refused_since(observation, uid, now)
    return since is not None and now >= since + timedelta(seconds=REFUSED_SECONDS)
