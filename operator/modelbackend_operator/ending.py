"""How an ended instance is accounted for: the wait for proof, the release of its port, the removal of its object."""

from datetime import datetime, timedelta

from modelbackend_operator.actions import Act, CoolClaim, DeletePod, RemovePodFinalizer, Wait
from modelbackend_operator.api import Evidence
from modelbackend_operator.instances import port_fits, staying_pod, wanted
from modelbackend_operator.model import Claim, ClaimPhase, Observation, Pod
from modelbackend_operator.proof import evidence_of_end
from modelbackend_operator.reasons import Reason
from modelbackend_operator.settling import free_service

LINGER_SECONDS = 10
"""How long after its grace period a kubelet that is there has removed the object of an ended pod."""


def await_proof(observation: Observation, pod: Pod, now: datetime) -> Act | Wait:
    evidence = evidence_of_end(pod)
    if evidence is not None:
        return _release(observation, pod, evidence, now)
    where = f"pod {pod.ref.name} on node {pod.node}"
    trouble = observation.node_troubles.get(pod.node)
    silence = f"; the node is not Ready: {trouble}" if trouble else ""
    message = f"waiting for the kubelet to report that every container of {where} has ended{silence}"
    return Wait(Reason.TERMINATING, message, None, pod.ordinal)


def _release(observation: Observation, pod: Pod, evidence: Evidence, now: datetime) -> Act | Wait:
    """With proof: the port's Service (if the instance ends), the claim, the pod's finalizer, at last its object."""
    for claim in observation.claims:
        if claim.pod_uid == pod.ref.uid and claim.phase in (ClaimPhase.BOUND, ClaimPhase.WITHHELD):
            kept = _keeps_its_port(observation, claim)
            return (None if kept else free_service(observation, claim)) or Act(CoolClaim(claim, evidence))
    if pod.has_finalizer:
        return Act(RemovePodFinalizer(pod))
    return _await_removal(pod, now)


def _keeps_its_port(observation: Observation, claim: Claim) -> bool:
    """The instance is to run again behind this port: its Service stays, and selects nothing meanwhile."""
    backend = observation.backend
    if backend is None or not wanted(observation, claim.ordinal) or not port_fits(backend, claim):
        return False
    return staying_pod(observation, claim.ordinal) is None  # else it runs already, behind a port of its own


def _await_removal(pod: Pod, now: datetime) -> Act | Wait:
    """The kubelet removes the object; when it is lost after its last word, a grace of 0 does (there is proof)."""
    message = f"pod {pod.ref.name} has ended; its object is being removed"
    if not pod.grace_seconds or pod.deleted_at is None:
        return Wait(Reason.TERMINATING, message, None, pod.ordinal)
    overdue_at = pod.deleted_at + timedelta(seconds=pod.grace_seconds + LINGER_SECONDS)
    if now >= overdue_at:
        return Act(DeletePod(pod, grace_seconds=0))
    return Wait(Reason.TERMINATING, message, overdue_at, pod.ordinal)
