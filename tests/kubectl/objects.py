"""Objects of the tests: as a user writes them, and as only an operator would make them."""

from typing import Any

import yaml

from tests.apiserver.harness import ApiServer
from tests.apiserver.test_process import GROUP
from tests.apiserver.world import node_ports

FINALIZER = "modelbackend.dev/termination"


def withheld_claim(server: ApiServer, namespace: str, owner: str) -> tuple[int, str]:
    """Of a backend that is gone, for a pod that vanished; the port, and the pod's uid."""
    port, uid = next(node_ports), f"6f1c2d30-0000-4000-8000-{next(node_ports):012d}"
    body: dict[str, Any] = {
        "apiVersion": "modelbackend.dev/v1alpha1",
        "kind": "PortClaim",
        "metadata": {"name": f"port-{port}", "finalizers": [FINALIZER]},
        "spec": {
            "port": port,
            "exposure": "NodePort",
            "ordinal": 0,
            "backend": {"namespace": namespace, "name": owner, "uid": f"{owner}-{namespace}"},
        },
    }
    answer = server.post(f"{GROUP}/portclaims", body)
    assert answer.status == 201, answer.message
    status = {
        "phase": "Withheld",
        "pod": {"name": f"{owner}-0", "uid": uid},
        "node": {"name": "node-gone", "uid": "n1"},
        "since": "2026-05-04T12:00:00Z",
        "reason": "PodMissing",
        "message": f"pod {owner}-0 ({uid}) vanished without proof that its process ended",
    }
    answer = server.merge(f"{GROUP}/portclaims/port-{port}/status", {"status": status})
    assert answer.status == 200, answer.message
    return port, uid


def manifest(namespace: str, name: str = "smollm2", **spec: Any) -> str:
    source = {"persistentVolumeClaim": {"claimName": "weights", "path": "model.gguf"}}
    body = {
        "apiVersion": "modelbackend.dev/v1alpha1",
        "kind": "ModelBackend",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"source": source}, **spec},
    }
    return yaml.safe_dump(body)
