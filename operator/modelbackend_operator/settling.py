"""What instances leave behind: claims that no pod stands behind, Services without a claim, and the last finalizer."""

from datetime import datetime, timedelta

from modelbackend_operator.actions import (
    BindClaim,
    CreateBudget,
    DeleteBudget,
    DeleteClaim,
    DeleteService,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    WithholdClaim,
)
from modelbackend_operator.allotment import is_allotted
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.evidence import evidence_of
from modelbackend_operator.instances import (
    claim_naming,
    holders_left,
    pod_lives,
    pods_of,
    waits_for_proof,
)
from modelbackend_operator.ledger import free_service, pod_behind
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.reasons import Reason
from modelbackend_operator.rollout import predecessor
from modelbackend_operator.vanished import vanished
from modelbackend_operator.withheld import note_return, refuse_attestation, settle_withheld
from modelbackend_operator.words import missing_words, returned_words

NODE_REMOVED_SECONDS = 3600
"""How long a machine whose Node was removed is remembered, and its port is offered to no other instance."""


def settle_claim(observation: Observation, claim: Claim, now: datetime) -> Act | Wait | None:
    """The next step for a claim that no living pod needs; None while one may."""
    alarm = note_return(observation, claim)
    if alarm is not None:
        return alarm
    holder = _unproven_holder(observation, claim) or pod_behind(observation, claim)
    if holder is not None and claim.phase in (ClaimPhase.RESERVED, ClaimPhase.COOLING):
        return Act(BindClaim(claim, holder))  # its status was edited by hand: free it is not
    match claim.phase:
        case ClaimPhase.BOUND:
            return _withhold_if_pod_vanished(observation, claim) or refuse_attestation(observation, claim)
        case ClaimPhase.RESERVED:
            return refuse_attestation(observation, claim) or _drop_if_unneeded(observation, claim)
        case ClaimPhase.COOLING:
            return refuse_attestation(observation, claim) or _free_when_cooled(observation, claim, now)
    return settle_withheld(observation, claim, now)


def _unproven_holder(observation: Observation, claim: Claim) -> Pod | None:
    """The pod that the claim names, if it may still listen."""
    named = (pod for pod in observation.pods if pod.ref.uid == claim.pod_uid)
    return next((pod for pod in named if evidence_of(observation, pod) is None), None)


def _withhold_if_pod_vanished(observation: Observation, claim: Claim) -> Act | None:
    """A missing object is no proof: its process may run on, so the port stays closed to everybody."""
    if pod_lives(observation, claim.pod_uid):
        return None
    return Act(WithholdClaim(claim, Reason.POD_MISSING, missing_words(claim)))


def _drop_if_unneeded(observation: Observation, claim: Claim) -> Act | Wait | None:
    """Reserved means that no pod was ever let through for it, so no proof is owed."""
    earlier = predecessor(observation, claim.ordinal)
    pods = [pod for pod in pods_of(observation, claim.ordinal) if pod is not earlier]
    unnamed = not any(claim_naming(observation, pod, claim.role) for pod in pods)
    if unnamed and is_allotted(observation, claim):
        return None
    if any(_may_use(observation, pod, claim) for pod in pods):
        return None
    return _free(observation, claim)


def _may_use(observation: Observation, pod: Pod, claim: Claim) -> bool:
    """An unnamed pod may be bound to the claim yet, or, with a gate that others opened, listen on its host port."""
    if claim_naming(observation, pod, claim.role) is not None:
        return False
    return pod.host_port_for(claim.role) == claim.port if claim.exposure is Exposure.HOST_PORT else pod.gated


def _free_when_cooled(observation: Observation, claim: Claim, now: datetime) -> Act | Wait | None:
    """The pod's object goes first: while it exists, a crash between the two steps would leave it unaccounted for.

    Where the machine is back that was taken for gone, nothing proves the holder's end any more.
    """
    if claim.returned:
        return Act(WithholdClaim(claim, Reason.NODE_RETURNED, returned_words(claim)))
    if holders_left(observation, claim) or is_allotted(observation, claim):
        return None
    seconds = observation.ports.reuse_delay_seconds
    if claim.removed_nodes and not claim.terminating:
        seconds = max(seconds, NODE_REMOVED_SECONDS)
    free_at = claim.since + timedelta(seconds=seconds)
    if now < free_at:
        return Wait(Reason.PORT_COOLING, f"port {claim.port} cools", free_at, claim.ordinal)
    return _free(observation, claim)


def _free(observation: Observation, claim: Claim) -> Act | Wait | None:
    step = free_service(observation, claim)
    if step is not None:
        return step
    if claim.terminating:
        return Act(RemoveClaimFinalizer(claim)) if claim.has_finalizer else None
    return Act(DeleteClaim(claim))


def sweep_services(observation: Observation) -> Act | None:
    """A NodePort Service of ours whose port no claim holds for its instance, perhaps created by a late write."""
    held = {(claim.ordinal, claim.port) for claim in observation.claims if claim.exposure is Exposure.NODE_PORT}
    for service in observation.services:
        if service.ordinal is None or service.terminating:
            continue
        if not service.node_ports or any((service.ordinal, port) not in held for port in service.node_ports):
            return Act(DeleteService(service))
    return None


def keep_budget(observation: Observation, backend: Backend) -> Act | None:
    """Of several instances, a node drain takes one at a time. To one instance a budget of one would promise nothing."""
    if observation.budgets is None or observation.namespace_terminating or len(backend.ordinals) < 2:
        return None
    if not observation.budgets:
        return Act(CreateBudget(backend))
    edited = next((budget for budget in observation.budgets if not budget.intact and not budget.terminating), None)
    return Act(DeleteBudget(edited)) if edited is not None else None


def remove_finalizer(observation: Observation) -> Act | Wait | None:
    """Last of all: nothing of the backend runs but witnesses, and every port that may have a process is withheld."""
    backend = observation.backend
    if backend is None or backend.deleting_since is None or not backend.has_finalizer:
        return None
    if any(pod.handed_over is None for pod in observation.pods):
        return None
    if any(claim.phase in (ClaimPhase.BOUND, ClaimPhase.RESERVED) for claim in observation.claims):
        return None
    withheld = next((claim for claim in observation.claims if claim.phase is ClaimPhase.WITHHELD), None)
    if withheld is not None and waits_for_proof(observation):
        return Wait(Reason.UNCONFIRMED, f"port {withheld.port}: {withheld.message}", None, withheld.ordinal)
    if vanished(observation):
        return None
    lease = observation.lease
    if lease is not None and lease.holder is not None and lease.holder.backend_uid == observation.backend_uid:
        return None
    return Act(RemoveFinalizer(backend))
