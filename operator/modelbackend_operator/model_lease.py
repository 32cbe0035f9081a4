"""Whose turn it is: the Lease that lets one instance of a model at a time be shut down by our decision.

It is taken by creating it and given back by deleting it. What it stands for is the open stop record of a pod, so a
Lease that was deleted by hand ends no shutdown: nobody takes it while such a record is open, but the pod that has it.
A taken Lease is a point of no return, and is given back on facts that no late write undoes.
"""

from datetime import datetime, timedelta

from modelbackend_operator.actions import AcquireLease, Act, ReleaseLease, Wait
from modelbackend_operator.instances import holds_lease
from modelbackend_operator.model import Holder, Observation, Pod, StopReason
from modelbackend_operator.proof import evidence_of_end
from modelbackend_operator.reasons import Reason

LOOK_AGAIN_SECONDS = 10
GIVE_BACK_SECONDS = 30
"""So long may a holder's stop record be refused, and so long is a free Lease left to whoever waits longest."""


def stop_is_open(pod: Pod) -> bool:
    """Between a stop record of our decision and proof, and not known to hold up its neighbours no longer."""
    stop = pod.stop
    return stop is not None and bool(stop.epoch) and stop.yielded_at is None and evidence_of_end(pod) is None


def take(observation: Observation, pod: Pod, reason: StopReason, now: datetime) -> Act | Wait | None:
    """None: this pod's stop may go on."""
    lease, recorded = observation.lease, pod.stop is not None
    others = _others_open(observation, pod)
    if lease is None:
        return _acquire(observation, pod, reason) if recorded or not others else _wait(others, pod, now)
    if holds_lease(observation, pod):
        # Taken while the Lease of a shutdown that goes on was deleted by hand: that one ends first.
        return _wait(others, pod, now) if others and not recorded else None
    if recorded and not (lease.holder is not None and lease.holder.pod_uid in others):
        return None  # its own Lease was deleted by hand; who has taken it since waits for the end of this stop
    who = lease.description or f"an unknown holder of Lease {lease.ref.namespace}/{lease.ref.name}"
    return _wait({"": who}, pod, now)


def release(observation: Observation) -> Act | None:
    """Given back when the pod it was taken for has gone, has ended, or has been recorded as busy or unconfirmed."""
    lease = observation.lease
    if lease is None or lease.holder is None or lease.holder.backend_uid != observation.backend_uid:
        return None
    pod = next((pod for pod in observation.pods if pod.ref.uid == lease.holder.pod_uid), None)
    if pod is None or evidence_of_end(pod) is not None or (pod.stop is not None and pod.stop.yielded_at is not None):
        return Act(ReleaseLease(lease))
    return None


def _others_open(observation: Observation, pod: Pod) -> dict[str, str]:
    """Open stops of the model, but this pod's: who, by pod uid."""
    own = {p.ref.uid: f"pod {p.ref.name}" for p in observation.pods if p is not pod and stop_is_open(p)}
    return own | {stop.pod_uid: stop.description for stop in observation.model_stops}


def _wait(who: dict[str, str], pod: Pod, now: datetime) -> Wait:
    message = f"{next(iter(who.values()))} is being shut down; this instance of the same model is next"
    return Wait(Reason.WAITING_FOR_MODEL_LOCK, message, now + timedelta(seconds=LOOK_AGAIN_SECONDS), pod.ordinal)


def _acquire(observation: Observation, pod: Pod, reason: StopReason) -> Act | None:
    backend = observation.backend
    if backend is None:
        # The object was removed past its finalizer; its model, hence its Lease, is unknown. End what is left.
        return None
    return Act(AcquireLease(backend, Holder(observation.backend_uid, pod.ordinal, pod.ref.uid, reason)))
