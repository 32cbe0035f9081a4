"""The negative control: a promise broken on purpose, which the watchdog must notice."""

from collections.abc import Callable

import pytest

from e2e.backends import TINY, WEIGHTS, Backend, port_of
from e2e.faults.conftest import Watchdog
from e2e.kubectl import Kubectl, Object, until
from e2e.weights import IMAGE

Make = Callable[..., Backend]


@pytest.fixture
def stranger(kubectl: Kubectl, namespace: str) -> Callable[[Object], None]:
    """A server that nobody claimed a port for, with labels by which a Service finds it."""

    def make(labels: Object) -> None:
        variables = {"MODEL_PATH": f"/models/{TINY}", "MODEL": "strange", "UID": "nobody", "POD_UID": "stranger"}
        container = {
            "name": "server",
            "image": IMAGE,
            "env": [{"name": f"MODELBACKEND_{name}", "value": value} for name, value in variables.items()],
            "ports": [{"name": "grpc", "containerPort": 50051}],
            "volumeMounts": [{"name": "models", "mountPath": "/models"}],
        }
        volume = {"name": "models", "persistentVolumeClaim": {"claimName": WEIGHTS}}
        metadata = {"name": "stranger", "namespace": namespace, "labels": labels}
        spec = {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 1}
        kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        kubectl.run("wait", "--for=condition=Ready", "pod/stranger", "-n", namespace, "--timeout=170s")

    return make


def test_the_watchdog_notices_a_stranger_who_answers_on_a_claimed_port(
    kubectl: Kubectl, backend: Make, stranger: Callable[[Object], None], watchdog: Watchdog
) -> None:
    one = backend("impersonated")
    port = port_of(one.until_ready())
    service = next(s for s in kubectl.list("services", one.namespace) if _node_port(s) == port)
    stranger(service["spec"]["selector"])
    try:
        until("the stranger was met", lambda: any(s.pod_uid == "stranger" and s.port == port for s in watchdog.seen()))
        watchdog.expected.add("PortWithheld")
    finally:
        kubectl.delete("pod", "stranger", one.namespace, "--grace-period=1", wait=True)


def _node_port(service: Object) -> int | None:
    return next((port.get("nodePort") for port in service["spec"]["ports"]), None)
