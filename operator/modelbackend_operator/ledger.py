"""How a claim is let go: its Service first, and never while another pod of ours may be behind its port."""

from modelbackend_operator.actions import BindClaim, CoolClaim, DeleteService
from modelbackend_operator.api import Evidence
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.instances import (
    PORT_TAKEN_REASONS,
    claim_naming,
    instance_service,
    port_fits,
    staying_pod,
    wanted,
)
from modelbackend_operator.model.backend import Exposure
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.proof import evidence_of_end
from modelbackend_operator.reasons import Reason


def release(observation: Observation, claim: Claim, evidence: Evidence) -> Act | Wait:
    """With proof that its holder has ended: the port's Service goes (if the instance ends), then the claim cools."""
    other = pod_behind(observation, claim)
    if other is not None:
        return Act(BindClaim(claim, other))
    kept = keeps_its_port(observation, claim)
    return (None if kept else free_service(observation, claim)) or Act(_cooling(observation, claim, evidence))


def _cooling(observation: Observation, claim: Claim, evidence: Evidence) -> CoolClaim:
    return CoolClaim(claim, evidence, Reason.PORT_TAKEN if _was_taken(observation, claim) else "")


def _was_taken(observation: Observation, claim: Claim) -> bool:
    """By somebody outside the ledger, as the holder's server found: its instance is not to come back to it."""
    holders = (pod for pod in observation.pods if pod.ref.uid == claim.pod_uid)
    return any(pod.stop is not None and pod.stop.reason is PORT_TAKEN_REASONS[claim.role] for pod in holders)


def pod_behind(observation: Observation, claim: Claim) -> Pod | None:
    """A pod that may listen behind the port although no claim names it: the ledger was edited by hand."""
    unproven = (pod for pod in observation.pods if not pod.gated and evidence_of_end(pod) is None)
    unnamed = (p for p in unproven if claim_naming(observation, p, claim.role) is None and p.ordinal == claim.ordinal)
    return next((pod for pod in unnamed if _is_behind(observation, pod, claim)), None)


def _is_behind(observation: Observation, pod: Pod, claim: Claim) -> bool:
    if claim.exposure is Exposure.HOST_PORT:
        return pod.host_port_for(claim.role) == claim.port
    service = instance_service(observation, claim.ordinal, claim.port)
    return service is not None and service.pod_uid == pod.ref.uid


def keeps_its_port(observation: Observation, claim: Claim) -> bool:
    """The instance is to run again behind this port: its Service stays, and selects nothing meanwhile."""
    backend = observation.backend
    if backend is None or not wanted(observation, claim.ordinal) or not port_fits(backend, claim):
        return False
    if _was_taken(observation, claim):
        return False
    return staying_pod(observation, claim.ordinal) is None  # else it runs already, behind a port of its own


def free_service(observation: Observation, claim: Claim) -> Act | Wait | None:
    """The port's Service goes first and is seen gone, or the next owner of the port could not have its own."""
    if claim.exposure is not Exposure.NODE_PORT:
        return None
    service = instance_service(observation, claim.ordinal, claim.port)
    if service is None:
        return None
    if service.terminating:
        return Wait(Reason.TERMINATING, f"Service {service.ref.name} is being deleted", None, claim.ordinal)
    return Act(DeleteService(service))
