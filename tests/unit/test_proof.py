"""What proves that no process of a pod runs, and what only looks like it."""

from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.api import Evidence
from modelbackend_operator.model.pod import Container, ContainerState, Pod, PodPhase
from modelbackend_operator.proof import evidence_of_end
from tests.unit.builders import (
    ENDED,
    NEVER_MADE,
    NOW,
    RUNNING,
    a_gated_pod,
    a_loading_pod,
    a_rejected_pod,
    a_terminating_pod,
    an_ended_pod,
    an_unscheduled_pod,
)

BETWEEN_RESTARTS = Container("server", ContainerState.WAITING, ever_created=True, reason="CrashLoopBackOff", restarts=1)
FETCHED = Container("fetch", ContainerState.TERMINATED, ever_created=True, exit_code=0)
BY_POD_GC: dict[str, Any] = {"phase": PodPhase.FAILED, "removed_by_pod_gc": True}

PROOFS: dict[str, tuple[Pod, Evidence]] = {
    "deleted behind its gate": (a_gated_pod(deleted_at=NOW), Evidence.NEVER_STARTED),
    "deleted before a node had it": (an_unscheduled_pod(deleted_at=NOW), Evidence.NEVER_STARTED),
    "rejected by the kubelet at admission": (a_rejected_pod(), Evidence.NEVER_STARTED),
    "rejected with containers that were never made": (a_rejected_pod(containers=(NEVER_MADE,)), Evidence.NEVER_STARTED),
    "ended in peace": (an_ended_pod(), Evidence.CONTAINERS_TERMINATED),
    "ended by force": (
        an_ended_pod(phase=PodPhase.FAILED, containers=(replace(ENDED, exit_code=137),)),
        Evidence.CONTAINERS_TERMINATED,
    ),
    "ended with a container that was never made": (
        an_ended_pod(containers=(FETCHED, NEVER_MADE)),
        Evidence.CONTAINERS_TERMINATED,
    ),
    "garbage-collected, and its kubelet told the end afterwards": (
        an_ended_pod(**BY_POD_GC, containers_changed_after_pod_gc=True),
        Evidence.CONTAINERS_TERMINATED,
    ),
}


@pytest.mark.parametrize("case", PROOFS)
def test_proof(case: str) -> None:
    pod, evidence = PROOFS[case]
    assert evidence_of_end(pod) is evidence


NO_PROOF: dict[str, Pod] = {
    "unbound but not deleted: the scheduler may bind it the next moment": an_unscheduled_pod(),
    "behind its gate but not deleted": a_gated_pod(),
    "told to end, container running": a_terminating_pod(),
    "force-deleted, container running": a_terminating_pod(grace_seconds=0),
    "terminated but not deleted: the gap between two restarts": a_loading_pod(containers=(ENDED,)),
    "terminated and of a terminal phase but not deleted": an_ended_pod(deleted_at=None, grace_seconds=None),
    "every container terminated while the phase still says Running": an_ended_pod(phase=PodPhase.RUNNING),
    "every container terminated in an unknown phase": an_ended_pod(phase=PodPhase.UNKNOWN),
    "a terminal phase with a container running": an_ended_pod(phase=PodPhase.FAILED, containers=(RUNNING,)),
    "a terminal phase with one of two containers running": an_ended_pod(containers=(FETCHED, RUNNING)),
    "a terminal phase with a container between two restarts": an_ended_pod(containers=(BETWEEN_RESTARTS,)),
    "a terminal phase without a word of any container": an_ended_pod(containers=()),
    "garbage-collected with its node, nothing heard since": an_ended_pod(**BY_POD_GC),
    "garbage-collected with its node, a container running": an_ended_pod(**BY_POD_GC, containers=(RUNNING,)),
    "rejected in other words than the kubelet's": a_rejected_pod(phase_message="I was rejected"),
    "rejected in words, and running by its phase": a_rejected_pod(phase=PodPhase.RUNNING),
    "rejected in words, and of an unknown phase": a_rejected_pod(phase=PodPhase.UNKNOWN),
    "rejected without the kubelet's reason": a_rejected_pod(phase_reason=""),
    "rejected by a kubelet that came back, after it had served": a_rejected_pod(withdrawn=True),
    "rejected by a kubelet that came back, while it served": a_rejected_pod(serving_condition=True),
    "rejected by a kubelet that came back, after its container was made": a_rejected_pod(told_running=True),
    "rejected, with a container that was made": a_rejected_pod(containers=(ENDED,)),
    "rejected in words, garbage-collected in fact": a_rejected_pod(removed_by_pod_gc=True),
    "evicted: its containers were made": a_rejected_pod(phase_reason="Evicted", containers=(ENDED,)),
}


@pytest.mark.parametrize("case", NO_PROOF)
def test_no_proof(case: str) -> None:
    assert evidence_of_end(NO_PROOF[case]) is None
