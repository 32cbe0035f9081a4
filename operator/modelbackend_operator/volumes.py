"""A volume that a witness still holds: what a new pod then waits for, in words that name it."""

from datetime import datetime, timedelta

from modelbackend_operator.decision import Wait
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.proof import evidence_of_end
from modelbackend_operator.reasons import Reason

STUCK_SECONDS = 30
"""A pod whose volumes can be had is being made for less than this."""
_BEING_MADE = frozenset({"", "ContainerCreating", "PodInitializing"})
"""The kubelet's reasons of a container that waits for nothing else than its sandbox and volumes."""


def await_volume(observation: Observation, pod: Pod, now: datetime) -> Wait | None:
    """A ReadWriteOnce volume is attached to one node at a time, and a witness on another may be the one that has it."""
    if pod.deleting or pod.gated or not (pod.unschedulable or (pod.node and _is_being_made(pod))):
        return None
    witness = _holder_elsewhere(observation, pod)
    if witness is None:
        return None
    names = ", ".join(sorted(witness.volume_claims & pod.volume_claims))
    message = (
        f"PersistentVolumeClaim {names} is still mounted on node {witness.node} by pod {witness.ref.name}, whose end "
        "is not proven: if it is ReadWriteOnce, this instance starts once that node is back, or is out of service"
    )
    stuck_at = pod.created_at + timedelta(seconds=STUCK_SECONDS)
    if pod.unschedulable or now >= stuck_at:
        return Wait(Reason.VOLUME_HELD_BY_WITNESS, message, None, pod.ordinal)
    return Wait(Reason.STARTING, f"pod {pod.ref.name} is being made", stuck_at, pod.ordinal)


def _is_being_made(pod: Pod) -> bool:
    return all(not container.ever_created and container.reason in _BEING_MADE for container in pod.containers)


def _holder_elsewhere(observation: Observation, pod: Pod) -> Pod | None:
    own = (other for other in observation.pods if other.handed_over is not None)
    witnesses = (other for other in (*own, *observation.other_witnesses) if other.node != pod.node)
    unproven = (witness for witness in witnesses if evidence_of_end(witness) is None)
    return next((witness for witness in unproven if witness.volume_claims & pod.volume_claims), None)
