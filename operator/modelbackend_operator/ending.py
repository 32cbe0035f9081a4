"""How an ended instance is accounted for: the wait for proof, the release of its port, the removal of its object.

And what happens when proof does not come: the instance is handed over. Its pod stays as a witness, because the kubelet
of a node that returns reports on it the end of what it had left running; its port stays withheld; and the instance, or
the deletion of its backend, goes on without it.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from modelbackend_operator.actions import DeletePod, HandOver, RemovePodFinalizer, WithholdClaim, WriteStopRecord
from modelbackend_operator.api import Evidence
from modelbackend_operator.conditions import publish
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.evidence import evidence_of
from modelbackend_operator.instances import HOLDING, claims_naming, waits_for_proof
from modelbackend_operator.ledger import release
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.reasons import Reason
from modelbackend_operator.vanished import is_told_ended
from modelbackend_operator.words import unconfirmed_words

LINGER_SECONDS = 10
"""How long after its grace period a kubelet that is there has removed the object of an ended pod."""
UNCONFIRMED_AFTER_SECONDS = 60
"""Where no backend says otherwise any more."""


def await_proof(observation: Observation, pod: Pod, now: datetime) -> Act | Wait | None:
    """None for a witness: it waits, and nothing waits for it."""
    evidence = evidence_of(observation, pod)
    if evidence is not None:
        return _release(observation, pod, evidence, now)
    if pod.handed_over is not None:
        return _keep_as_witness(observation, pod)
    due = overdue_at(observation, pod)
    if now < due:
        return Wait(Reason.TERMINATING, _awaited(observation, pod), due, pod.ordinal)
    if waits_for_proof(observation):
        if pod.stop is not None and pod.stop.yielded_at is None:
            return Act(WriteStopRecord(pod, replace(pod.stop, yielded_at=now)))  # neighbours did not choose to wait
        return Wait(Reason.UNCONFIRMED, unconfirmed_words(observation, pod), None, pod.ordinal)
    return Act(HandOver(pod))


def overdue_at(observation: Observation, pod: Pod) -> datetime:
    """When the proof of a deleted pod's end should have come."""
    backend = observation.backend
    after_seconds = backend.unconfirmed_after_seconds if backend is not None else UNCONFIRMED_AFTER_SECONDS
    assert pod.deleted_at is not None
    return pod.deleted_at + timedelta(seconds=(pod.grace_seconds or 0) + after_seconds)


def _awaited(observation: Observation, pod: Pod) -> str:
    where = f"pod {pod.ref.name} on node {pod.node}"
    trouble = observation.node_troubles.get(pod.node)
    silence = f"; the node is not Ready: {trouble}" if trouble else ""
    return f"waiting for the kubelet to report that every container of {where} has ended{silence}"


def _keep_as_witness(observation: Observation, pod: Pod) -> Act | None:
    """Its port is withheld with all that can release it later; its object stays, except where a namespace must end."""
    for claim in claims_naming(observation, pod):
        if claim.phase is not ClaimPhase.BOUND:
            continue
        node = observation.nodes.get(pod.node)
        machine = node.identity if node is not None else NodeId(pod.node, "", "")
        words = unconfirmed_words(observation, pod)
        return Act(WithholdClaim(claim, Reason.UNCONFIRMED, words, machine if claim.node is None else None))
    if observation.namespace_terminating and pod.has_finalizer:
        return Act(RemovePodFinalizer(pod))
    return None


def _release(observation: Observation, pod: Pod, evidence: Evidence, now: datetime) -> Act | Wait:
    """With proof: the ports' Service (if the instance ends), claims (or status), the pod's finalizer, its object."""
    for claim in claims_naming(observation, pod):
        if claim.phase in HOLDING:
            return release(observation, claim, evidence)
    if not is_told_ended(observation, pod):
        return Act(publish(observation, (_removal(pod),), now))
    if pod.has_finalizer:
        return Act(RemovePodFinalizer(pod))
    return _await_removal(pod, now)


def _await_removal(pod: Pod, now: datetime) -> Act | Wait:
    """The kubelet removes the object; when it is lost after its last word, a grace of 0 does (there is proof)."""
    if not pod.grace_seconds or pod.deleted_at is None:
        return _removal(pod)
    overdue_at = pod.deleted_at + timedelta(seconds=pod.grace_seconds + LINGER_SECONDS)
    if now >= overdue_at:
        return Act(DeletePod(pod, grace_seconds=0))
    return replace(_removal(pod), not_after=overdue_at)


def _removal(pod: Pod) -> Wait:
    return Wait(Reason.TERMINATING, f"pod {pod.ref.name} has ended; its object is being removed", None, pod.ordinal)
