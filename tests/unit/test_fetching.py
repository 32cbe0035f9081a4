"""An instance whose model is downloaded first: what is told meanwhile, and what counts as a failure."""

from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.actions import WriteStatus
from modelbackend_operator.decide import decide, servers_to_ask
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Container, ContainerState, PodPhase
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.problems import problem_in
from modelbackend_operator.proof import evidence_of_end
from modelbackend_operator.restarts import restarts_of
from tests.unit.builders import (
    NEVER_MADE,
    NOW,
    POD_UID,
    a_backend,
    a_loading_pod,
    a_report,
    a_world,
    bound,
    later,
)

FETCHING = Container("fetch-model", ContainerState.RUNNING, ever_created=True, init=True)
FETCHED = replace(FETCHING, state=ContainerState.TERMINATED, exit_code=0, reason="Completed")
REFUSED = replace(
    FETCHED,
    state=ContainerState.WAITING,
    exit_code=90,
    reason="CrashLoopBackOff",
    message="https://a/m.gguf answers 401",
    restarts=2,
)
SERVER = replace(NEVER_MADE, reason="PodInitializing")


def fetching(container: Container, message: str | None = None) -> Observation:
    pod = a_loading_pod(phase=PodPhase.PENDING, containers=(container, SERVER))
    servers = {} if message is None else {POD_UID: a_report(ServerState.LOADING, message=message)}
    return bound(pod, servers=servers)


def wait_of(world: Observation) -> Wait:
    """Of the world once the wait is shown in status."""
    told = decide(world, NOW)
    assert isinstance(told, Act)
    assert isinstance(told.action, WriteStatus)
    assert world.backend is not None
    decision = decide(replace(world, backend=replace(world.backend, status=told.action.status)), NOW)
    assert isinstance(decision, Wait), decision
    return decision


def test_a_fetcher_is_asked_how_far_it_is() -> None:
    assert [pod.ref.uid for pod in servers_to_ask(fetching(FETCHING))] == [POD_UID]
    assert servers_to_ask(fetching(FETCHED)) == ()


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (None, "pod smollm2-0 asks the model's source"),
        ("", "pod smollm2-0 asks the model's source"),
        ("fetching m.gguf: 40 % of 10 MB", "fetching m.gguf: 40 % of 10 MB"),
    ],
)
def test_how_far_a_download_is_stands_in_status(message: str | None, told: str) -> None:
    wait = wait_of(fetching(FETCHING, message))
    assert (wait.reason, wait.message, wait.not_after) == ("ModelFetching", told, later(5))


def test_another_pods_word_is_no_word() -> None:
    world = fetching(FETCHING)
    other = a_report(ServerState.LOADING, pod_uid="another", message="fetching something else")
    assert "something else" not in wait_of(replace(world, servers={POD_UID: other})).message


def test_a_refusal_is_told_while_it_is_waited_for_the_next_try_and_until_bytes_come() -> None:
    def told(container: Container, message: str | None = None) -> str | None:
        world = fetching(container, message)
        problem = problem_in(world, world.pods[0])
        return problem.reason if problem is not None else None

    again = replace(REFUSED, state=ContainerState.RUNNING)
    assert told(REFUSED) == told(again) == told(again, "") == "ModelAccessDenied"
    assert told(again, "fetching m.gguf: 0 % of 10 MB") is None


def failures(*containers: Container, **special: Any) -> int:
    pod = a_loading_pod(containers=containers, **special)
    return restarts_of(a_backend(), 0, pod).of_pod


def test_a_fetcher_that_is_done_is_no_failure_and_one_that_failed_is() -> None:
    running = replace(FETCHING, name="server", init=False)
    assert failures(FETCHED, SERVER) == 0
    assert failures(FETCHED, running) == 0
    assert failures(REFUSED, SERVER) == 3
    assert failures(FETCHED, replace(running, restarts=2)) == 2


def test_a_fetcher_that_is_done_is_no_proof_of_the_servers_end() -> None:
    ended = replace(FETCHED, name="server", init=False)
    running = replace(FETCHING, name="server", init=False)
    special: dict[str, Any] = {"deleted_at": NOW, "grace_seconds": 1, "phase": PodPhase.FAILED}
    assert evidence_of_end(a_loading_pod(containers=(FETCHED, running), **special)) is None
    assert evidence_of_end(a_loading_pod(containers=(FETCHED, ended), **special)) is not None


def test_an_init_container_is_known_from_where_the_kubelet_tells_of_it() -> None:
    running = {"state": {"running": {}}, "containerID": "containerd://1"}
    raw = {
        "metadata": {"name": "p-0", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-05-04T12:00:00Z"},
        "status": {
            "initContainerStatuses": [{"name": "fetch-model", **running}],
            "containerStatuses": [{"name": "server", "state": {"waiting": {"reason": "PodInitializing"}}}],
        },
    }
    pod = pod_from(raw)
    assert [container.init for container in pod.containers] == [True, False]
    assert pod.fetching
    assert a_world(pods=[pod]).pods == (pod,)
