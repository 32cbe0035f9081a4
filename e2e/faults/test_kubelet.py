"""The real kubelet does what the fake one of the simulator does: the same table, on real processes."""

from collections.abc import Iterator

import pytest

from e2e.faults.nodes import Machine
from e2e.kubectl import Kubectl, Object, until
from e2e.processes import lives_in_pod
from e2e.weights import IMAGE
from modelbackend_operator.model.pod import ContainerState
from modelbackend_operator.observe.pod import pod_from
from tests.sim.kubelet_rows import ROWS, Done, Row

pytestmark = pytest.mark.node_faults
NODE_ACTS = (Done.KUBELET_STOPS, Done.NODE_REMOVED, Done.KUBELET_RETURNS)
GRACE_SECONDS = {Done.DELETE: 15, Done.DELETE_LONGER: 20, Done.DELETE_SHORTER: 3, Done.FORCE: 0}
HELD = "modelbackend.dev/test"
ENDS_WHEN_TOLD = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"


@pytest.fixture
def pods(kubectl: Kubectl, machine: Machine, namespace: str) -> Iterator[dict[str, Object]]:
    """One for each row of the table, by its case, running on the machine that is lost."""
    names = {row.case: f"row-{number}" for number, row in enumerate(ROWS)}
    kubectl.apply(*(held_pod(name, namespace, machine.name) for name in names.values()))
    for name in names.values():
        kubectl.run("wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, "--timeout=170s")
    yield {case: kubectl.get("pod", name, namespace) or {} for case, name in names.items()}
    for name in names.values():
        if kubectl.get("pod", name, namespace) is not None:
            kubectl.patch("pod", name, namespace, {"metadata": {"finalizers": None}})
            kubectl.delete("pod", name, namespace, "--force", "--grace-period=0")


def held_pod(name: str, namespace: str, node: str) -> Object:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", ENDS_WHEN_TOLD],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "finalizers": [HELD]},
        "spec": {"nodeName": node, "restartPolicy": "Always", "containers": [container]},
    }


def test_the_kubelet_does_to_a_running_pod_what_the_table_of_the_fake_one_says(
    kubectl: Kubectl, machine: Machine, pods: dict[str, Object]
) -> None:
    left = {row: list(row.done) for row in ROWS}
    for stage in (None, *NODE_ACTS):
        if stage is not None:
            act_on_node(kubectl, machine, stage)
        for row, acts in left.items():
            if acts[:1] == [stage]:
                acts.pop(0)
            while acts and acts[0] not in NODE_ACTS:
                act_on_pod(kubectl, pods[row.case], acts.pop(0))
        for row in [row for row, acts in left.items() if not acts]:
            until(f"one that was {row.case} is as the table says", lambda r=row: is_as(kubectl, r, pods[r.case]))  # type: ignore[misc]
            del left[row]
    assert not left


def act_on_node(kubectl: Kubectl, machine: Machine, act: Done) -> None:
    match act:
        case Done.KUBELET_STOPS:
            machine.control.stop(machine.name)
        case Done.NODE_REMOVED:
            kubectl.delete("node", machine.name)
        case Done.KUBELET_RETURNS:
            machine.come_back()


def act_on_pod(kubectl: Kubectl, pod: Object, act: Done) -> None:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    if act is Done.STRIP:
        kubectl.patch("pod", name, namespace, {"metadata": {"finalizers": None}})
        return
    seconds = GRACE_SECONDS[act]
    kubectl.delete("pod", name, namespace, f"--grace-period={seconds}", *([] if seconds else ["--force"]))


def is_as(kubectl: Kubectl, row: Row, made: Object) -> bool:
    raw = kubectl.get("pod", made["metadata"]["name"], made["metadata"]["namespace"])
    if (lives_in_pod(made["metadata"]["uid"]), raw is not None) != (row.lives, row.exists):
        return False
    if raw is None:
        return True
    pod = pod_from(raw)
    ended = all(container.state is ContainerState.TERMINATED for container in pod.containers)
    told = (ended, pod.grace_seconds, pod.removed_by_pod_gc)
    return row.phase in (None, pod.phase) and told == (row.ended, row.grace_seconds, row.by_pod_gc)
