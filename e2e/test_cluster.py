"""The test cluster itself: what the other suites take for granted about nodes, network, volumes and devices.

It speaks of clusters of e2e/cluster; on any other cluster these tests skip, and the cluster's owner answers for it.
"""

import socket
import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from e2e.cluster.busybox_image import BUSYBOX, busybox_archive
from e2e.cluster.kind_cluster import is_ready
from e2e.cluster.load import load
from e2e.cluster.nodes import KindNodes, UnsupportedNodes, node_control
from e2e.kubectl import Kubectl, KubectlError, Object, until

GPU = "nvidia.com/gpu"
UNHEALTHY = "fake-gpu.modelbackend.dev/unhealthy"
HOST_PORT = 25999
"""In no pool of an operator's, and in no range of the kernel's or of the API server's."""
MAKE_HTTPD = ["sh", "-c", "mkdir -p /tmp/www && echo hello > /tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www"]
SLEEP = ["sleep", "3600"]


@pytest.fixture(scope="module")
def workers(kubectl: Kubectl) -> list[str]:
    nodes = kubectl.list("nodes")
    names = [node["metadata"]["name"] for node in nodes if not node["spec"].get("taints")]
    assert len(names) >= 2, "these tests need two workers"
    return names


@pytest.fixture(scope="module", autouse=True)
def nodes(workers: list[str]) -> KindNodes:
    match node_control(workers):
        case UnsupportedNodes(reason):
            pytest.skip(reason)
        case KindNodes() as control:
            load(control.docker, workers, busybox_archive())
            return control


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    name = f"cluster-{uuid.uuid4().hex[:6]}"
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    kubectl.delete("namespace", name)


@pytest.fixture
def pod(kubectl: Kubectl, namespace: str) -> Iterator[Callable[..., str]]:
    """Makes a pod on a node, waits until it runs, and deletes it when the test ends."""
    made: list[str] = []

    def make(node: str, command: list[str], **spec: object) -> str:
        name = f"pod-{uuid.uuid4().hex[:6]}"
        made.append(name)
        kubectl.apply(pod_object(name, namespace, node, command, **spec))
        kubectl.run("wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, "--timeout=170s")
        return name

    yield make
    for name in made:
        kubectl.delete("pod", name, namespace, "--grace-period=1")


def pod_object(name: str, namespace: str, node: str, command: list[str], **spec: object) -> Object:
    container: Object = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": command}
    for field in ("ports", "resources", "securityContext", "volumeMounts"):
        if field in spec:
            container[field] = spec.pop(field)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "containers": [container],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            **spec,
        },
    }


def address_of(kubectl: Kubectl, node: str) -> str:
    found = kubectl.get("node", node)
    assert found is not None
    return next(str(item["address"]) for item in found["status"]["addresses"] if item["type"] == "InternalIP")


def answers(address: str, port: int) -> bool:
    """Whether an HTTP server there says hello to this host."""
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return b"hello" in connection.makefile("rb").read()
    except OSError:
        return False


def reaches(kubectl: Kubectl, namespace: str, caller: str, address: str) -> bool:
    """Whether a pod gets the page of another pod's server."""
    request = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} 8080"
    try:
        return "hello" in kubectl.run("exec", caller, "-n", namespace, "--", "sh", "-c", request)
    except KubectlError:
        return False


def pod_address(kubectl: Kubectl, namespace: str, name: str) -> str:
    found = kubectl.get("pod", name, namespace)
    assert found is not None
    return str(found["status"]["podIP"])


def node_is_ready(kubectl: Kubectl, node: str) -> bool:
    found = kubectl.get("node", node)
    return found is not None and is_ready(found)


def test_a_node_port_answers_at_every_nodes_address(
    kubectl: Kubectl, namespace: str, workers: list[str], pod: Callable[..., str]
) -> None:
    server = pod(workers[0], MAKE_HTTPD)
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "node-port", "namespace": namespace},
            "spec": {"type": "NodePort", "selector": {"app": server}, "ports": [{"port": 8080}]},
        }
    )
    service = kubectl.get("service", "node-port", namespace)
    assert service is not None
    node_port = service["spec"]["ports"][0]["nodePort"]
    for node in kubectl.list("nodes"):
        address = address_of(kubectl, node["metadata"]["name"])
        until(f"{address}:{node_port} answers", partial(answers, address, node_port))
    kubectl.delete("service", "node-port", namespace)
    until("the node port is closed", lambda: not answers(address_of(kubectl, workers[0]), node_port))


def test_a_host_port_answers_at_its_own_node_only(
    kubectl: Kubectl, workers: list[str], pod: Callable[..., str]
) -> None:
    pod(workers[0], MAKE_HTTPD, ports=[{"containerPort": 8080, "hostPort": HOST_PORT}])
    until("the host port answers", lambda: answers(address_of(kubectl, workers[0]), HOST_PORT))
    assert not answers(address_of(kubectl, workers[1]), HOST_PORT)


def test_a_service_is_found_by_its_name(
    kubectl: Kubectl, namespace: str, workers: list[str], pod: Callable[..., str]
) -> None:
    caller = pod(workers[0], SLEEP)
    name = "kubernetes.default.svc.cluster.local"
    assert "10.96.0.1" in kubectl.run("exec", caller, "-n", namespace, "--", "nslookup", name)


def test_a_volume_of_the_default_class_is_writable_for_a_user_who_is_not_root(
    kubectl: Kubectl, namespace: str, workers: list[str], pod: Callable[..., str]
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "scratch", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    kubectl.apply(claim)
    volume = {"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch"}}
    writer = pod(
        workers[1],
        SLEEP,
        volumes=[volume],
        volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
        securityContext={"runAsUser": 10001, "runAsNonRoot": True},
    )
    kubectl.run("exec", writer, "-n", namespace, "--", "touch", "/scratch/written")
    bound = kubectl.get("persistentvolumeclaim", "scratch", namespace)
    assert bound is not None
    kubectl.delete("pod", writer, namespace, "--grace-period=1", wait=True)
    kubectl.delete("pvc", "scratch", namespace)
    until(
        "the volume is removed with its claim",
        lambda: kubectl.get("persistentvolume", bound["spec"]["volumeName"]) is None,
    )


def test_a_network_policy_lets_only_the_named_pod_through_from_another_node(
    kubectl: Kubectl, namespace: str, workers: list[str], pod: Callable[..., str]
) -> None:
    server = pod(workers[0], MAKE_HTTPD)
    allowed, refused = pod(workers[1], SLEEP), pod(workers[1], SLEEP)
    address = pod_address(kubectl, namespace, server)
    for caller in (allowed, refused):
        reached = partial(reaches, kubectl, namespace, caller, address)
        until("without a policy everyone gets through", reached)
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "one-caller", "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": {"app": server}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": allowed}}}]}],
        },
    }
    kubectl.apply(policy)
    until("the other caller is refused", lambda: not reaches(kubectl, namespace, refused, address))
    until("the named caller gets through", lambda: reaches(kubectl, namespace, allowed, address))
    kubectl.delete("networkpolicy", "one-caller", namespace)


def test_pod_security_admission_refuses_a_privileged_pod(kubectl: Kubectl, namespace: str, workers: list[str]) -> None:
    kubectl.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=baseline")
    privileged = pod_object("privileged", namespace, workers[0], SLEEP, securityContext={"privileged": True})
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        kubectl.apply(privileged)
    kubectl.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce-")


def gpus(kubectl: Kubectl, node: str) -> int:
    found = kubectl.get("node", node)
    assert found is not None
    return int(found["status"]["allocatable"].get(GPU, 0))


def test_a_container_gets_the_number_of_gpus_it_asks_for(
    kubectl: Kubectl, namespace: str, workers: list[str], pod: Callable[..., str]
) -> None:
    user = pod(workers[0], SLEEP, resources={"limits": {GPU: 2}})
    devices = kubectl.run("exec", user, "-n", namespace, "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
    assert len(set(devices.strip().split(","))) == 2


def test_an_unhealthy_gpu_is_not_offered_until_it_is_well_again(kubectl: Kubectl, workers: list[str]) -> None:
    assert gpus(kubectl, workers[0]) == 4
    kubectl.run("annotate", "node", workers[0], f"{UNHEALTHY}=gpu-1")
    until("three devices are left", lambda: gpus(kubectl, workers[0]) == 3)
    kubectl.run("annotate", "node", workers[0], f"{UNHEALTHY}-")
    until("all devices are back", lambda: gpus(kubectl, workers[0]) == 4)


def test_gpus_survive_a_restart_of_their_plugin(kubectl: Kubectl, workers: list[str]) -> None:
    plugin = "app.kubernetes.io/name=fake-gpu"
    kubectl.run("delete", "pod", "-n", "kube-system", "-l", plugin, f"--field-selector=spec.nodeName={workers[0]}")
    until("the devices are offered again", lambda: gpus(kubectl, workers[0]) == 4)


@pytest.mark.node_faults
def test_a_node_whose_kubelet_stops_is_not_ready_until_it_starts(
    kubectl: Kubectl, nodes: KindNodes, workers: list[str], pod: Callable[..., str]
) -> None:
    pod(workers[1], MAKE_HTTPD, ports=[{"containerPort": 8080, "hostPort": HOST_PORT}])
    try:
        nodes.stop(workers[1])
        until("the node is not ready", lambda: not node_is_ready(kubectl, workers[1]))
        assert answers(address_of(kubectl, workers[1]), HOST_PORT), "its containers run on"
    finally:
        nodes.start(workers[1])
    until("the node is ready", lambda: node_is_ready(kubectl, workers[1]))
    until("the devices are back", lambda: gpus(kubectl, workers[1]) == 4)


@pytest.mark.node_faults
def test_a_partitioned_node_answers_nobody_until_it_is_healed(
    kubectl: Kubectl, nodes: KindNodes, workers: list[str], pod: Callable[..., str]
) -> None:
    pod(workers[1], MAKE_HTTPD, ports=[{"containerPort": 8080, "hostPort": HOST_PORT}])
    address = address_of(kubectl, workers[1])
    until("the host port answers", lambda: answers(address, HOST_PORT))
    try:
        nodes.partition(workers[1])
        assert not answers(address, HOST_PORT)
        until("the node is not ready", lambda: not node_is_ready(kubectl, workers[1]))
    finally:
        nodes.heal(workers[1])
    until("the node is ready", lambda: node_is_ready(kubectl, workers[1]))
    until("the host port answers", lambda: answers(address, HOST_PORT))


@pytest.mark.node_faults
def test_a_killed_node_comes_back_with_its_pods_restarted(
    kubectl: Kubectl, nodes: KindNodes, workers: list[str], namespace: str, pod: Callable[..., str]
) -> None:
    name = pod(workers[1], SLEEP)

    def restarts() -> int:
        found = kubectl.get("pod", name, namespace)
        assert found is not None
        statuses = found["status"]["containerStatuses"]
        return int(statuses[0]["restartCount"]) if statuses[0]["ready"] else 0

    try:
        nodes.kill(workers[1])
        until("the node is not ready", lambda: not node_is_ready(kubectl, workers[1]))
    finally:
        nodes.start(workers[1])
    until("the node is ready", lambda: node_is_ready(kubectl, workers[1]))
    until("its pod was restarted", lambda: restarts() == 1)
    until("the devices are back", lambda: gpus(kubectl, workers[1]) == 4)


@pytest.mark.node_faults
def test_a_paused_node_is_not_ready_until_it_goes_on(kubectl: Kubectl, nodes: KindNodes, workers: list[str]) -> None:
    try:
        nodes.pause(workers[1])
        until("the node is not ready", lambda: not node_is_ready(kubectl, workers[1]))
    finally:
        nodes.unpause(workers[1])
    until("the node is ready", lambda: node_is_ready(kubectl, workers[1]))
