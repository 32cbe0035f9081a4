"""Pods that vanished and that no PortClaim remembers: their backend's status does, where their end is waited for.

Of a pod behind a port its claim is the memory. For one without (exposure ClusterIP) status is, because it names every
pod before its gate opens, and tells what proved its end before its object is let go. So one that it names, whose object
is gone and of whose end nothing is told, has vanished. It is kept in `status.vanished` until there is proof; meanwhile
no other pod of its instance starts, and its backend does not go. Where nothing is waited for (`whenUnconfirmed:
HandOver`) there is no port to protect, and nothing is remembered.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from modelbackend_operator.api import Evidence, NodeReference, PodReference, VanishedPod
from modelbackend_operator.decision import Wait
from modelbackend_operator.evidence import Trail, boot_after, evidence_elsewhere
from modelbackend_operator.instances import claims_naming, pod_lives, waits_for_proof
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.reasons import Reason
from modelbackend_operator.told_in_status import Remembered, remembered
from modelbackend_operator.words import vanished_words

REFERENCE_POLL_SECONDS = 60


def vanished(observation: Observation) -> tuple[Remembered, ...]:
    """Those whose end nothing proves; empty where no end is waited for."""
    return tuple(pod for pod, evidence in missing(observation) if evidence is None)


def missing(observation: Observation) -> tuple[tuple[Remembered, Evidence | None], ...]:
    """Whose objects are gone, each with what proves the end; empty where no end is waited for."""
    backend = observation.backend
    if backend is None or not waits_for_proof(observation):
        return ()
    named = {claim.pod_uid for claim in observation.claims}
    return tuple(
        (pod, evidence_elsewhere(observation, _trail(observation, pod)))
        for pod in remembered(backend.status)
        if pod.pod_uid not in named and not pod_lives(observation, pod.pod_uid)
    )


def await_vanished(observation: Observation, now: datetime) -> Iterator[Wait]:
    """For proof; and for the node's next status, from which a reboot counts."""
    for pod in vanished(observation):
        looks = pod.node is not None and not pod.reference_boot_id
        look_at = now + timedelta(seconds=REFERENCE_POLL_SECONDS) if looks else None
        yield Wait(Reason.UNCONFIRMED, vanished_words(pod), look_at, pod.ordinal)


def is_told_ended(observation: Observation, pod: Pod) -> bool:
    """Its object may go, and nobody takes that for a vanishing: a claim remembers it, or status tells of its end."""
    backend = observation.backend
    if backend is None or not waits_for_proof(observation) or claims_naming(observation, pod):
        return True
    return all(other.pod_uid != pod.ref.uid for other in remembered(backend.status))


def told_vanished(observation: Observation, now: datetime) -> tuple[VanishedPod, ...]:
    """As status is to tell of them from now on."""
    return tuple(_told(observation, pod, now) for pod in vanished(observation))


def _told(observation: Observation, pod: Remembered, now: datetime) -> VanishedPod:
    boot_id = pod.reference_boot_id
    if not boot_id and pod.since is not None:
        boot_id = boot_after(observation, _trail(observation, pod), pod.since)
    node = pod.node
    return VanishedPod(
        ordinal=pod.ordinal,
        pod=PodReference(name=pod.pod_name, uid=pod.pod_uid),
        node=NodeReference(name=node.name, uid=node.uid, boot_id=node.boot_id or None) if node is not None else None,
        since=pod.since or now,
        reference_boot_id=boot_id or None,
    )


def _trail(observation: Observation, pod: Remembered) -> Trail:
    word = observation.backend.attestation if observation.backend is not None else None
    return Trail(pod.pod_uid, True, pod.node, pod.reference_boot_id, word)
