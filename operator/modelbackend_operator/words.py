"""What is said of a pod whose end is not proven: which pod, where, and what would prove it."""

from modelbackend_operator.api import ANNOTATION_ATTEST, OUT_OF_SERVICE
from modelbackend_operator.instances import claim_naming
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.told_in_status import Remembered


def unconfirmed_words(observation: Observation, pod: Pod) -> str:
    """Of a pod whose object is there."""
    claim = claim_naming(observation, pod)
    where = f" on node {pod.node}" if pod.node else ""
    on = "the ModelBackend" if observation.backend is not None else "the pod"
    on = "its port's PortClaim" if claim is not None else on
    return (
        f"pod {pod.ref.name} ({pod.ref.uid}){where} should have ended and nothing proves it; "
        f"proof is its kubelet's report once the node is back, {_otherwise(pod.ref.uid, on)}"
    )


def missing_words(claim: Claim) -> str:
    """Of a pod whose object is gone."""
    where = f" on node {claim.node.name}" if claim.node is not None else ""
    return (
        f"pod {claim.pod_name} ({claim.pod_uid}){where} vanished without proof that its process ended; "
        "it was let go past its finalizer or its record was lost; "
        f"proof is a later reboot of the node, {_otherwise(claim.pod_uid, 'this PortClaim')}"
    )


def returned_words(claim: Claim) -> str:
    """Of a pod whose machine was taken for gone, and is back."""
    where = f"node {claim.node.name}" if claim.node is not None else "its node"
    return (
        f"{where} is back in the boot in which pod {claim.pod_name} ({claim.pod_uid}) ran, which was taken as ended "
        f"when the Node was removed and may run; proof is a later reboot of the node, "
        f"{_otherwise(claim.pod_uid, 'this PortClaim')}"
    )


def vanished_words(pod: Remembered) -> str:
    """Of a pod without a claim, whose object is gone."""
    where = f" on node {pod.node.name}" if pod.node is not None else ""
    return (
        f"pod {pod.pod_name} ({pod.pod_uid}){where} vanished without proof that its process ended, and "
        "shutdown.whenUnconfirmed is Wait; it was let go past its finalizer; "
        f"proof is a later reboot of the node, {_otherwise(pod.pod_uid, 'the ModelBackend')}"
    )


def _otherwise(pod_uid: str, on: str) -> str:
    return f'the taint {OUT_OF_SERVICE} on it, or the annotation {ANNOTATION_ATTEST}="{pod_uid} <reason>" on {on}'
