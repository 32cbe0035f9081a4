"""Devices that are few, fall ill, come late or are still in use: who gets them when, and what is said meanwhile.

The devices are fake (`nvidia.com/gpu` of e2e/cluster/tools/cmd/fake-gpu); the scheduler, the kubelet and its device
manager, which decide who gets one, are real.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from e2e.backends import SMOLLM2, STREAM, STREAM_SECONDS, WEIGHTS, Backend, generate, port_of, stream
from e2e.faults.conftest import Watchdog
from e2e.faults.nodes import GPU, Machine, on
from e2e.kubectl import Kubectl, until

Make = Callable[..., Backend]

UNHEALTHY = "fake-gpu.modelbackend.dev/unhealthy"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PLUGIN = ("daemonset/fake-gpu", "-n", "kube-system")
ALL = ("gpu-0", "gpu-1", "gpu-2", "gpu-3")


@dataclass(frozen=True)
class Devices:
    """Of the worker that has the weights, and so all backends of the tests' namespace."""

    kubectl: Kubectl
    node: str

    @property
    def offered(self) -> int:
        return offered(self.kubectl, self.node)

    def fall_ill(self, *names: str) -> None:
        self.kubectl.run("annotate", "node", self.node, "--overwrite", f"{UNHEALTHY}={','.join(names)}")
        until(f"{len(ALL) - len(names)} devices are offered", lambda: self.offered == len(ALL) - len(names))

    def recover(self) -> None:
        self.kubectl.run("annotate", "node", self.node, f"{UNHEALTHY}-")
        until("every device is offered", lambda: self.offered == len(ALL))


@pytest.fixture
def devices(kubectl: Kubectl, namespace: str) -> Iterator[Devices]:
    claim = kubectl.get("persistentvolumeclaim", WEIGHTS, namespace)
    assert claim is not None
    found = Devices(kubectl, claim["metadata"]["annotations"][SELECTED_NODE])
    yield found
    found.recover()


def offered(kubectl: Kubectl, name: str) -> int:
    node = kubectl.get("node", name)
    return int(node["status"]["allocatable"].get(GPU, 0)) if node is not None else 0


def asking(count: int) -> dict[str, object]:
    return {"resources": {"limits": {GPU: count}}}


def test_a_device_is_given_on_only_when_the_last_process_that_had_it_has_ended(
    backend: Make, devices: Devices, watchdog: Watchdog
) -> None:
    assert devices.offered == len(ALL)
    first = backend("gpu-first", file=SMOLLM2, **asking(4))
    address, uid = first.until_ready(), first.uid
    second = backend("gpu-second", **asking(1))
    second_uid = second.uid
    assert f"Insufficient {GPU}" in second.until_stalled("Unschedulable")
    running = stream(address, *STREAM)
    first.delete()
    until("it drains", lambda: first.condition("Drained"))
    assert not second.status.get("endpoints"), "its devices are still in use"
    _, errors = running.communicate(timeout=STREAM_SECONDS)
    assert running.returncode == 0, errors
    first.until_gone()
    second.until_ready()
    ended = max(seen.last_at for seen in watchdog.processes_of(uid))
    begun = min(seen.first_at for seen in watchdog.processes_of(second_uid))
    assert ended <= begun


def test_a_device_that_falls_ill_is_given_to_nobody_and_who_has_it_serves_on(backend: Make, devices: Devices) -> None:
    """A kubelet ends no pod for it: whether it still computes, the server finds out."""
    serving = backend("gpu-serving", **asking(1))
    address = serving.until_ready()
    devices.fall_ill(*ALL)
    waiting = backend("gpu-waiting", **asking(1))
    assert f"Insufficient {GPU}" in waiting.until_stalled("Unschedulable")
    assert generate(address, "Hello", "--max-tokens", "2") is not None
    assert serving.condition("Ready")["status"] == "True"
    devices.recover()
    waiting.until_ready()
    assert serving.until_ready() == address, "nothing of it was touched"


def test_more_devices_than_there_are_is_told_in_the_schedulers_words_and_less_recovers(
    kubectl: Kubectl, backend: Make, devices: Devices
) -> None:
    devices.fall_ill("gpu-0", "gpu-1")
    one = backend("gpu-many", **asking(3))
    assert f"Insufficient {GPU}" in one.until_stalled("Unschedulable")
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": asking(2)})
    one.until_ready()


@pytest.fixture
def plugin_elsewhere(kubectl: Kubectl, machine: Machine) -> Iterator[None]:
    """The machine's device plugin is not started."""
    kubectl.patch("daemonset", "fake-gpu", "kube-system", plugin_on({"kubernetes.io/hostname": machine.other}))
    until("the machine has no devices", lambda: offered(kubectl, machine.name) == 0)
    yield
    kubectl.patch("daemonset", "fake-gpu", "kube-system", plugin_on(None))


def plugin_on(nodes: dict[str, str] | None) -> dict[str, object]:
    return {"spec": {"template": {"spec": {"nodeSelector": nodes}}}}


@pytest.mark.node_faults
def test_a_plugin_that_comes_late_after_a_reboot_costs_a_pod_and_never_its_port(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog, request: pytest.FixtureRequest
) -> None:
    """The kubelet is back before it knows of devices, and refuses the pod that had one (UnexpectedAdmissionError)."""
    one = backend("gpu-late", **on(machine))
    address, uid = one.until_ready(), one.uid
    request.getfixturevalue("plugin_elsewhere")
    assert one.until_ready() == address, "what runs keeps its device"
    machine.die()
    machine.come_back()
    assert GPU in one.until_stalled("Unschedulable")
    kubectl.patch("daemonset", "fake-gpu", "kube-system", plugin_on(None))
    until("the machine has its devices", lambda: offered(kubectl, machine.name) == len(ALL))
    assert port_of(one.until_ready()) == port_of(address)
    assert watchdog.together(uid) == []
