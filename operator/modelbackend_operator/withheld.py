"""A port whose last process is not proven to have ended: what is remembered of it, and what is said of it."""

from datetime import datetime, timedelta

from modelbackend_operator.actions import ExplainClaim, RecordReference, RecordReturn
from modelbackend_operator.api import ANNOTATION_ATTEST
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.evidence import (
    evidence_elsewhere,
    reference_boot,
    said_to_have_ended,
    trail_of_claim,
)
from modelbackend_operator.ledger import release
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.reasons import Reason
from modelbackend_operator.words import missing_words, returned_words, unconfirmed_words

ASK_AGAIN_SECONDS = 10
"""How often a port that contradicts its attested end is asked."""
REFERENCE_POLL_SECONDS = 60
"""How often a node is looked at for the status from which its next reboot counts: its heartbeats wake nobody."""


def settle_withheld(observation: Observation, claim: Claim, now: datetime) -> Act | Wait | None:
    """Released by evidence and by nothing else; until then it says what is awaited."""
    trail = trail_of_claim(observation, claim)
    evidence = evidence_elsewhere(observation, trail) if trail.object_is_gone else None
    if evidence is not None:
        return release(observation, claim, evidence)
    step = _explain(claim, *_why(observation, claim))
    if step is not None:
        return step
    contradicted = said_to_have_ended(observation, trail) is not None
    if claim.reference_boot_id or claim.node is None:
        ask_at = now + timedelta(seconds=ASK_AGAIN_SECONDS)
        return Wait(Reason.PORT_WITHHELD, claim.message, ask_at, claim.ordinal) if contradicted else None
    boot_id = reference_boot(observation, claim)
    if boot_id:
        return Act(RecordReference(claim, boot_id))
    look_at = now + timedelta(seconds=ASK_AGAIN_SECONDS if contradicted else REFERENCE_POLL_SECONDS)
    return Wait(Reason.PORT_WITHHELD, claim.message, look_at, claim.ordinal)


def refuse_attestation(observation: Observation, claim: Claim) -> Act | None:
    """Of a claim that is not withheld: nothing is released for a pod that lives or is another, and it says so.

    Not where the reason of a claim is what keeps its instance from it.
    """
    if claim.reason == Reason.PORT_TAKEN or claim.returned:
        return None
    refusal = _refusal(observation, claim)
    if refusal:
        return _explain(claim, Reason.ATTESTATION_REFUSED, refusal)
    return _explain(claim, "", "") if claim.reason == Reason.ATTESTATION_REFUSED else None


def note_return(observation: Observation, claim: Claim) -> Act | None:
    """A machine that was taken for gone is back in the same boot: what ran on it may never have ended."""
    for machine in claim.removed_nodes:
        node = observation.nodes.get(machine.name)
        if node is not None and node.boot_id == machine.boot_id:
            return Act(RecordReturn(claim, machine))
    return None


# -- in words ---------------------------------------------------------------------------------------------------------


def _why(observation: Observation, claim: Claim) -> tuple[str, str]:
    pod = next((pod for pod in observation.pods if pod.ref.uid == claim.pod_uid), None)
    refusal = _refusal(observation, claim)
    if refusal:
        return Reason.ATTESTATION_REFUSED, refusal
    said = said_to_have_ended(observation, trail_of_claim(observation, claim))
    if said is not None and claim.pod_uid in observation.answering:
        return Reason.STILL_ANSWERING, (
            f"the end of pod {claim.pod_name} ({claim.pod_uid}) is said ({said}), "
            f"but a server with its identity answers on port {claim.port}: stop that process, and the port is released"
        )
    if pod is not None:
        return Reason.UNCONFIRMED, unconfirmed_words(observation, pod)
    if claim.returned:
        return Reason.NODE_RETURNED, returned_words(claim)
    return Reason.POD_MISSING, missing_words(claim)


def _refusal(observation: Observation, claim: Claim) -> str:
    """Why the attestation on this claim is none; empty when there is none, or when it is one or was one."""
    word = claim.attestation
    if word is None or word.pod_uid in claim.past_pods:
        return ""
    if word.pod_uid != claim.pod_uid:
        return f"{ANNOTATION_ATTEST} names pod {word.pod_uid}, but the port is held for {_whom(claim)}"
    if not word.reason:
        return f'{ANNOTATION_ATTEST} gives no reason; write "{word.pod_uid} <reason>"'
    if any(pod.ref.uid == word.pod_uid and not pod.deleting for pod in observation.pods):
        return f"{ANNOTATION_ATTEST} names pod {word.pod_uid}, which is not being deleted; delete it first"
    return ""


def _whom(claim: Claim) -> str:
    match claim.phase:
        case ClaimPhase.RESERVED:
            return "a pod that has yet to be let through"
        case ClaimPhase.COOLING:
            return f"nobody any more: pod {claim.pod_uid} has ended"
    return f"pod {claim.pod_uid}"


def _explain(claim: Claim, reason: str, message: str) -> Act | None:
    if (claim.reason, claim.message) == (reason, message):
        return None
    return Act(ExplainClaim(claim, reason, message))
