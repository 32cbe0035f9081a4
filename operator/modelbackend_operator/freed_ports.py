"""How long ports take to be free again: from the moment when a holder's end was asked for.

The claim does not tell that moment once the pod is gone, so it is remembered here in between. A restart in between
costs a sample and nothing else.
"""

from datetime import datetime
from typing import NamedTuple

from modelbackend_operator.actions import Action, BindClaim, CoolClaim, RemoveClaimFinalizer, ReserveClaim
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.observation import Observation

REMEMBERED_MAX = 1024
"""Claims that cool; of more, the oldest were settled by another process."""


class Freed(NamedTuple):
    evidence: str
    """What had proved the end of the holder."""
    seconds: float


class FreedPorts:
    def __init__(self) -> None:
        self._cooling: dict[str, tuple[str, datetime]] = {}
        """By uid of the claim: what proved the end of its holder, and when that end was asked for."""

    def step(self, observation: Observation, action: Action, now: datetime) -> Freed | None:
        """To be called for each write that took effect; the port that it made free for all, if it did."""
        match action:
            case CoolClaim(claim=claim, evidence=evidence):
                self._cooling[claim.ref.uid] = str(evidence), _asked_at(observation, claim)
                if len(self._cooling) > REMEMBERED_MAX:
                    del self._cooling[next(iter(self._cooling))]
            case ReserveClaim(claim=claim) | BindClaim(claim=claim):  # back to its own instance
                self._cooling.pop(claim.ref.uid, None)
            case RemoveClaimFinalizer(claim=claim) if claim.ref.uid in self._cooling:
                evidence, asked_at = self._cooling.pop(claim.ref.uid)
                return Freed(evidence, max(0.0, (now - asked_at).total_seconds()))
        return None


def _asked_at(observation: Observation, claim: Claim) -> datetime:
    """By the stop record or the deletion of the pod, by that of the backend; of a pod that vanished, when it did."""
    pod = next((pod for pod in observation.pods if pod.ref.uid == claim.pod_uid), None)
    backend = observation.backend
    by_backend = backend.deleting_since if backend is not None else None
    by_pod = (pod.stop.since if pod.stop is not None else pod.deleted_at) if pod is not None else None
    return by_pod or by_backend or claim.since
