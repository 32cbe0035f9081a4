"""What counts as proof that no process of a pod runs, and why. The only keys that open a claim.

Absence proves nothing: a missing pod object, an expired lease, a passed deadline, a sent SIGKILL and a refused
connection all leave the process free to run on. Only these words release a port:

NeverStarted          Either the pod was never bound to a node and carries a deletionTimestamp on a live read: from
                      then on the API server refuses the binding (the deletion must come first; an unbound pod that is
                      not being deleted may be bound a moment later). Or the kubelet rejected the pod at admission:
                      phase Failed, its words "Pod was rejected", and no container was ever made. A kubelet that comes
                      back may say so of a pod that ran before, with its containers missing from that status: one
                      that is known to have run is not proven by these words, but by what is reported after them.
ContainersTerminated  The pod is being deleted, its phase is terminal, and every container has ended or was never
                      made. Without deletion `terminated` may be the gap between two restarts of the same container.
NodeRebooted          The pod's object is gone, and its node is in another boot than in a status that it wrote after the
                      pod could not be started any more. A boot id that was recorded earlier proves nothing: the kubelet
                      may first start the pod after that reboot.
OutOfService          The node has the taint by which an administrator tells that its machine is off (KEP-2268).
NodeRemoved           The Node object is gone, in a cluster that removes one only when its machine is gone.
Attested              An administrator says so, naming this very pod.

Pod garbage collection writes phase Failed for pods of lost nodes without any kubelet's word (KEP-3329), so such a pod
counts only if a container's end was reported after that.
"""

from modelbackend_operator.api import Evidence
from modelbackend_operator.model.pod import Container, ContainerState, Pod, PodPhase


def evidence_of_end(pod: Pod) -> Evidence | None:
    """The proof this pod object gives, if any.

    An unbound pod may have been bound since it was read, so nothing is released on an old look: every action that
    releases is `LIVE`, which makes the controller ask this question again of an object read just now.
    """
    if pod.deleting and not pod.node:
        return Evidence.NEVER_STARTED
    if rejected_at_admission(pod):
        return Evidence.NEVER_STARTED
    if pod.deleting and pod.phase.terminal and _all_ended(pod.containers) and _kubelet_wrote(pod):
        return Evidence.CONTAINERS_TERMINATED
    return None


def rejected_at_admission(pod: Pod) -> bool:
    """The kubelet refused to run this pod at all (for example UnexpectedAdmissionError, OutOfnvidia.com/gpu)."""
    return (
        pod.phase is PodPhase.FAILED
        and bool(pod.phase_reason)
        and pod.phase_message.startswith("Pod was rejected")
        and not pod.removed_by_pod_gc
        and not had_run(pod)
        and not any(container.ever_created for container in pod.containers)
    )


def had_run(pod: Pod) -> bool:
    """By our own marks: its server told its identity once, or status told its machine when its container was made."""
    return pod.serving_condition or pod.withdrawn or pod.told_running


def _all_ended(containers: tuple[Container, ...]) -> bool:
    """Also true of no statuses at all; that case is judged by `_kubelet_wrote`."""
    return all(
        container.state is ContainerState.TERMINATED
        or (container.state is ContainerState.WAITING and not container.ever_created)
        for container in containers
    )


def _kubelet_wrote(pod: Pod) -> bool:
    """Whether the terminal phase is a kubelet's; pod garbage collection writes it without one."""
    if pod.removed_by_pod_gc:
        return pod.containers_changed_after_pod_gc
    return bool(pod.containers)
