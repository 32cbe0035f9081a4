"""A machine that a test may lose, and its repair: after each test every node is well again."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.backends import TINY, Backend
from e2e.cluster.kind_cluster import is_ready
from e2e.cluster.nodes import KindNodes, UnsupportedNodes, node_control
from e2e.conftest import OPERATOR_NAMESPACE
from e2e.kubectl import Kubectl, Object, until
from e2e.weights import tiny_model

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
GPU = "nvidia.com/gpu"
DEVICES_SECONDS = 30
"""Within which a kubelet tells of devices that were registered: it reports every ten seconds."""
VOLUME = "weights-everywhere"
FOLDER = "/var/lib/weights-everywhere"
EVERYWHERE = {"source": {"persistentVolumeClaim": {"claimName": VOLUME, "path": TINY}}}
"""`spec.model` of a backend that can run on any worker: its weights are on all of them."""


@dataclass(frozen=True)
class Machine:
    """The worker that is lost."""

    kubectl: Kubectl
    control: KindNodes
    name: str
    other: str
    """A worker that is left alone; the operator is there, if it runs in the cluster."""

    @property
    def node(self) -> Object | None:
        return self.kubectl.get("node", self.name)

    def lose_kubelet(self) -> None:
        """Containers run on, and nobody reports of them."""
        self.control.stop(self.name)
        self.until_lost()

    def cut_off(self) -> None:
        """What runs on it runs on, and reaches nobody."""
        self.control.partition(self.name)
        self.until_lost()

    def connect(self) -> None:
        self.control.heal(self.name)
        until(f"{self.name} is ready", self.is_ready)

    def die(self) -> None:
        """Every process on it ends, and nobody reports that."""
        self.control.kill(self.name)

    def come_back(self) -> None:
        self.control.start(self.name)
        until(f"{self.name} is ready", self.is_ready)

    def until_lost(self) -> None:
        until(f"{self.name} is not ready", lambda: not self.is_ready())

    def is_ready(self) -> bool:
        node = self.node
        return node is not None and is_ready(node)

    def repair(self) -> None:
        """All that makes it well again; when it is so is another matter."""
        self.control.start(self.name)
        self.control.heal(self.name)
        if self.control.has_other_boot_id(self.name):
            self.control.kill(self.name)
            self.control.start(self.name)
        node = self.node
        if node is not None:
            if any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints", ())):
                self.kubectl.run("taint", "node", self.name, f"{OUT_OF_SERVICE}-")
            self.kubectl.run("uncordon", self.name)

    def taint_out_of_service(self) -> None:
        """An administrator's word that the machine is off."""
        self.kubectl.run("taint", "node", self.name, f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")


@pytest.fixture(scope="session")
def weights_everywhere(kubectl: Kubectl, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A claim whose volume is the same folder of whatever worker a pod runs on."""
    file = tiny_model(tmp_path_factory.mktemp("everywhere") / TINY)
    for node in _workers(kubectl):
        _control(kubectl).put(node, file, f"{FOLDER}/{TINY}")
    shared = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    claimed_by = {"namespace": namespace, "name": VOLUME}
    kubectl.delete("persistentvolumeclaim", VOLUME, namespace, wait=True)  # both of an earlier run: a volume is
    kubectl.delete("persistentvolume", VOLUME, wait=True)  # bound to the one claim that it was made for
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": VOLUME},
            "spec": {**shared, "hostPath": {"path": FOLDER}, "claimRef": claimed_by},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": claimed_by,
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": VOLUME,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )
    yield VOLUME
    kubectl.delete("persistentvolume", VOLUME)


@pytest.fixture
def machine(kubectl: Kubectl, operator: str, weights_everywhere: str) -> Iterator[Machine]:
    """Ask for it after `backend`, so that the backends end on nodes that are well."""
    assert weights_everywhere
    workers = _workers(kubectl)
    running = kubectl.list("pods", operator, "app.kubernetes.io/name=modelbackend-operator")
    homes = [pod["spec"]["nodeName"] for pod in running] or workers[:1]
    at_home, lost = homes[0], next(node for node in workers if node not in homes)
    machine = Machine(kubectl, _control(kubectl), lost, at_home)
    yield machine
    machine.repair()
    until("the cluster is well", lambda: _is_well(kubectl))
    _until_devices_are_back(kubectl)


def _until_devices_are_back(kubectl: Kubectl) -> None:
    """A kubelet takes a resource for lost when its plugin's connection ends, also where a later instance of the plugin
    has registered since. A Node that was made anew has two for a moment; made again, the later one registers again.
    """
    asked_at = time.monotonic()

    def back() -> bool:
        nonlocal asked_at
        without = [name for name in _workers(kubectl) if not _has_devices(kubectl, name)]
        if without and time.monotonic() - asked_at > DEVICES_SECONDS:
            asked_at = time.monotonic()
            for pod in kubectl.list("pods", "kube-system", "app.kubernetes.io/name=fake-gpu"):
                if pod["spec"]["nodeName"] in without:
                    kubectl.delete("pod", pod["metadata"]["name"], "kube-system")
        return not without

    until("every worker has its devices", back)


def _has_devices(kubectl: Kubectl, name: str) -> bool:
    node = kubectl.get("node", name)
    return node is not None and node["status"]["allocatable"].get(GPU) == "4"


def _is_well(kubectl: Kubectl) -> bool:
    nodes = kubectl.list("nodes")
    workers = [node for node in nodes if node["metadata"]["name"] in _workers(kubectl)]
    if not all(is_ready(node) for node in nodes) or any(node["spec"].get("taints") for node in workers):
        return False  # a taint outlives what it was about by a moment, and sends the next test's pods elsewhere
    workloads = [
        *kubectl.list("daemonsets", "kube-system"),
        *kubectl.list("deployments", "kube-system"),
        *kubectl.list("deployments", OPERATOR_NAMESPACE),
    ]
    for workload in workloads:
        status = workload["status"]
        wanted = status.get("desiredNumberScheduled", workload["spec"].get("replicas"))
        ready = status.get("numberReady", status.get("readyReplicas", 0))
        if ready != wanted or status.get("observedGeneration", 0) < workload["metadata"]["generation"]:
            return False
    return True


def _workers(kubectl: Kubectl) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in kubectl.list("nodes")
        if "node-role.kubernetes.io/control-plane" not in node["metadata"]["labels"]
    ]


def _control(kubectl: Kubectl) -> KindNodes:
    match node_control(_workers(kubectl)):
        case UnsupportedNodes(reason):
            pytest.skip(reason)
        case KindNodes() as control:
            return control


def on(machine: Machine) -> Object:
    """Spec of a backend that runs there and nowhere else."""
    return {"model": EVERYWHERE, "nodeSelector": {"kubernetes.io/hostname": machine.name}}


def prefer(machine: Machine) -> Object:
    """There if it can be, else elsewhere."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [machine.name]}
    preference = {"weight": 100, "preference": {"matchExpressions": [term]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}


def awaits_proof(one: Backend) -> str | None:
    """What the status says is awaited."""
    reconciling = one.condition("Reconciling")
    return str(reconciling["message"]) if reconciling.get("reason") == "AwaitingProof" else None
