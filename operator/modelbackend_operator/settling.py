"""What instances leave behind: claims that no pod stands behind, Services without a claim, and the last finalizer."""

from datetime import datetime, timedelta

from modelbackend_operator.actions import (
    Act,
    DeleteClaim,
    DeleteService,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    Wait,
    WithholdClaim,
)
from modelbackend_operator.instances import pod_lives, pods_of, reserved_claim, wanted
from modelbackend_operator.model import Claim, ClaimPhase, Exposure, Observation
from modelbackend_operator.reasons import Reason


def settle_claim(observation: Observation, claim: Claim, now: datetime) -> Act | Wait | None:
    """The next step for a claim that no living pod needs; None while one may."""
    match claim.phase:
        case ClaimPhase.BOUND:
            return _withhold_if_pod_vanished(observation, claim)
        case ClaimPhase.RESERVED:
            return _drop_if_unneeded(observation, claim)
        case ClaimPhase.COOLING:
            return _free_when_cooled(observation, claim, now)
        case ClaimPhase.WITHHELD:
            return None


def _withhold_if_pod_vanished(observation: Observation, claim: Claim) -> Act | None:
    """A missing object is no proof: its process may run on, so the port stays closed to everybody."""
    if pod_lives(observation, claim.pod_uid):
        return None
    where = f" on node {claim.node.name}" if claim.node is not None else ""
    message = (
        f"pod {claim.pod_name} ({claim.pod_uid}){where} vanished without proof that its process ended; "
        "it was force-deleted past its finalizer or its record was lost"
    )
    return Act(WithholdClaim(claim, Reason.POD_MISSING, message))


def _drop_if_unneeded(observation: Observation, claim: Claim) -> Act | None:
    """Reserved means that no pod was ever let through for it, so no proof is owed."""
    if pods_of(observation, claim.ordinal):
        return None
    if wanted(observation, claim.ordinal) and reserved_claim(observation, claim.ordinal) == claim:
        return None
    return _free(claim)


def _free_when_cooled(observation: Observation, claim: Claim, now: datetime) -> Act | Wait | None:
    """The pod's object goes first: while it exists, a crash between the two steps would leave it unaccounted for."""
    if pod_lives(observation, claim.pod_uid):
        return None
    free_at = claim.since + timedelta(seconds=observation.ports.reuse_delay_seconds)
    if now < free_at:
        return Wait(Reason.PORT_COOLING, f"port {claim.port} cools", free_at, claim.ordinal)
    return _free(claim)


def _free(claim: Claim) -> Act:
    return Act(RemoveClaimFinalizer(claim)) if claim.terminating and claim.has_finalizer else Act(DeleteClaim(claim))


def sweep_services(observation: Observation) -> Act | None:
    """A NodePort Service of ours whose port no claim holds for its instance, perhaps created by a late write."""
    held = {(claim.ordinal, claim.port) for claim in observation.claims if claim.exposure is Exposure.NODE_PORT}
    for service in observation.services:
        if service.ordinal is None or service.terminating:
            continue
        if (service.ordinal, service.node_port) not in held:
            return Act(DeleteService(service))
    return None


def remove_finalizer(observation: Observation) -> Act | None:
    """Last of all: nothing of the backend runs, and no claim of it may have a process behind it unaccounted for."""
    backend = observation.backend
    if backend is None or backend.deleting_since is None or not backend.has_finalizer:
        return None
    if observation.pods or any(c.phase in (ClaimPhase.BOUND, ClaimPhase.RESERVED) for c in observation.claims):
        return None
    lease = observation.lease
    if lease is not None and lease.holder is not None and lease.holder.backend_uid == observation.backend_uid:
        return None
    return Act(RemoveFinalizer(backend))
