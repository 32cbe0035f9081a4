"""Why an instance does not serve, in words for the person who has to do something about it."""

from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.model.pod import Container, ContainerState, Pod, PodPhase
from modelbackend_operator.problems import problem_of
from tests.unit.builders import (
    ENDED,
    NEVER_MADE,
    NOW,
    RUNNING,
    a_gated_pod,
    a_loading_pod,
    a_rejected_pod,
    a_serving_pod,
    an_unscheduled_pod,
)


def waiting(reason: str, message: str = "", **special: Any) -> Pod:
    return a_loading_pod(containers=(replace(NEVER_MADE, reason=reason, message=message, **special),))


def exited(code: int, message: str = "", **special: Any) -> Pod:
    ended = replace(ENDED, exit_code=code, message=message, reason="Error")
    return a_loading_pod(containers=(replace(ended, **special),))


PROBLEMS: dict[str, tuple[Pod, str, str]] = {
    "no node fits": (
        an_unscheduled_pod(unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
        "Unschedulable",
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    ),
    "the image is not there": (
        waiting("ImagePullBackOff", 'Back-off pulling image "x"'),
        "ImageUnavailable",
        'ImagePullBackOff on node node-1: Back-off pulling image "x"',
    ),
    "a Secret is missing": (
        waiting("CreateContainerConfigError", 'secret "token" not found'),
        "VolumeUnavailable",
        'CreateContainerConfigError on node node-1: secret "token" not found',
    ),
    "the node refused it": (
        a_rejected_pod(),
        "RejectedByNode",
        "node node-1 ended pod smollm2-0: Pod was rejected: Allocate failed due to no healthy devices present",
    ),
    "the settings are bad": (
        exited(64, "CONTEXT_LENGTH must be at least 1"),
        "InvalidConfiguration",
        "exit code 64: CONTEXT_LENGTH must be at least 1",
    ),
    "the model is unreadable": (exited(65, "not a GGUF"), "ModelUnreadable", "exit code 65: not a GGUF"),
    "the model is missing": (
        exited(66, "/models/x.gguf is not there\n"),
        "ModelFileMissing",
        "exit code 66: /models/x.gguf is not there",
    ),
    "the port is taken": (exited(75, "50051 is in use"), "PortInUse", "exit code 75: 50051 is in use"),
    "it crashed in silence": (
        exited(139),
        "Crashing",
        "ended by SIGSEGV (exit code 139): it left no message; see kubectl logs --previous",
    ),
    "it was killed and left the end of its log": (
        exited(137, 'info\n{"event": "loading", "n": 1}\n{"event": "serving"}\nGGML_ASSERT(x) failed\n'),
        "Crashing",
        "ended by SIGKILL (exit code 137): loading | serving | GGML_ASSERT(x) failed",
    ),
    "it was killed at its memory limit": (
        exited(137, reason="OOMKilled"),
        "OutOfMemory",
        "killed at its memory limit; raise resources.limits.memory",
    ),
    "it crashed and loads again": (
        a_loading_pod(containers=(replace(RUNNING, exit_code=65, message="not a GGUF", restarts=1),)),
        "ModelUnreadable",
        "exit code 65: not a GGUF",
    ),
    "it waits between two restarts": (
        waiting("CrashLoopBackOff", "not there", ever_created=True, exit_code=66, restarts=3),
        "ModelFileMissing",
        "exit code 66: not there",
    ),
    "an earlier container of the pod failed": (
        a_loading_pod(containers=(replace(ENDED, name="fetch", exit_code=1, message="no route"), NEVER_MADE)),
        "Crashing",
        "exit code 1: no route",
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_problem_is_said_in_the_words_of_whoever_knows_it(case: str) -> None:
    pod, reason, message = PROBLEMS[case]
    problem = problem_of(pod)
    assert problem is not None
    assert (problem.reason, problem.message) == (reason, message)


NO_PROBLEM: dict[str, Pod] = {
    "waits behind its gate": a_gated_pod(),
    "is not looked at by the scheduler yet": an_unscheduled_pod(),
    "is being made": a_loading_pod(containers=(NEVER_MADE,)),
    "pulls its image": waiting("ContainerCreating"),
    "loads": a_loading_pod(),
    "serves": a_serving_pod(),
    "serves after a crash": a_serving_pod(containers=(replace(RUNNING, exit_code=139, restarts=1),)),
    "is told to end": replace(exited(137), deleted_at=NOW),
    "ended well": a_loading_pod(containers=(ENDED,)),
    "runs in a pod of an unknown phase": a_loading_pod(phase=PodPhase.UNKNOWN),
    "has a container without any state": a_loading_pod(
        containers=(Container("server", ContainerState.WAITING, ever_created=False),)
    ),
}


@pytest.mark.parametrize("case", NO_PROBLEM)
def test_no_problem_is_made_of_a_pod_that(case: str) -> None:
    assert problem_of(NO_PROBLEM[case]) is None
