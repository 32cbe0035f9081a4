"""The operator is killed at random, and whatever it was doing goes on."""

from collections.abc import Callable
from random import Random
from time import monotonic

import pytest

from e2e.backends import SMOLLM2, STREAM, STREAM_SECONDS, Backend, claims_of, stream
from e2e.cluster.nodes import KindNodes, node_control
from e2e.kubectl import Kubectl, until

Make = Callable[..., Backend]
OPERATOR = "app.kubernetes.io/name=modelbackend-operator"


def kill_operator(kubectl: Kubectl, namespace: str) -> None:
    """SIGKILL to the process where its node can be reached; a new pod then spares the restart delay."""
    for pod in kubectl.list("pods", namespace, OPERATOR):
        node = pod["spec"].get("nodeName")
        control = node_control([node] if node else [])
        if isinstance(control, KindNodes) and node:
            control.kill_process(node, "modelbackend-operator run")
        kubectl.delete("pod", pod["metadata"]["name"], namespace, "--force", "--grace-period=0")


def until_operator_runs(kubectl: Kubectl, namespace: str) -> None:
    """Not told by the Deployment's status, which says so for a moment more after its pod has gone."""

    def ready() -> bool:
        statuses = (pod["status"].get("containerStatuses", [{}]) for pod in kubectl.list("pods", namespace, OPERATOR))
        return any(status[0].get("ready") for status in statuses)

    until("an operator is ready", ready)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_a_random_moment_of_a_life_the_operator_finishes_it(
    kubectl: Kubectl, operator: str, backend: Make, seed: int
) -> None:
    random = Random(seed)
    one = backend(f"crash-{seed}")
    wait_until(random.uniform(0.0, 4.0))
    kill_operator(kubectl, operator)
    uid = one.uid
    one.until_ready()
    assert len(one.pods()) == 1
    one.delete()
    wait_until(random.uniform(0.0, 2.0))
    kill_operator(kubectl, operator)
    one.until_gone()
    until("nothing is left in the ledger", lambda: not claims_of(kubectl, uid))
    assert not kubectl.list("leases", operator, f"modelbackend.dev/backend-uid={uid}")


def test_killed_during_a_drain_the_deadline_stays_and_the_stream_comes_whole(
    kubectl: Kubectl, operator: str, backend: Make
) -> None:
    one = backend("crash-drain", file=SMOLLM2)
    address = one.until_ready()
    running = stream(address, *STREAM)
    one.delete()
    deadline = until("the deadline is recorded", lambda: stop_deadline(one))
    kill_operator(kubectl, operator)
    until_operator_runs(kubectl, operator)
    assert stop_deadline(one) in (deadline, None)
    _, errors = running.communicate(timeout=STREAM_SECONDS)
    assert running.returncode == 0, errors
    one.until_gone()


def test_a_restart_leaves_a_serving_pod_alone(kubectl: Kubectl, operator: str, backend: Make) -> None:
    one = backend("undisturbed")
    one.until_ready()
    before = one.object
    pods = one.pods()
    kill_operator(kubectl, operator)
    until_operator_runs(kubectl, operator)
    after = one.object
    assert before is not None
    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert [pod["metadata"]["uid"] for pod in one.pods()] == [pod["metadata"]["uid"] for pod in pods]


def stop_deadline(one: Backend) -> str | None:
    instances = one.status.get("instances") or [{}]
    deadline = instances[0].get("stop", {}).get("deadline")
    return str(deadline) if deadline else None


def wait_until(seconds_from_now: float) -> None:
    """The moment of the kill is the test's input, not a wait for something."""
    end = monotonic() + seconds_from_now
    until("the moment has come", lambda: monotonic() >= end, timeout_seconds=seconds_from_now + 5)
