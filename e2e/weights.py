"""Model files onto a volume of the cluster, by a pod that has the volume mounted."""

import subprocess
from pathlib import Path

from e2e.kubectl import Kubectl, Object
from tests.server.tiny_gguf import write_tiny_gguf

LOADER = "weights-loader"
IMAGE = "localhost/modelbackend-server:dev"
VOLUME_BYTES = "1Gi"


def fill_volume(kubectl: Kubectl, namespace: str, claim: str, files: dict[str, Path]) -> None:
    """Creates the PersistentVolumeClaim and copies `files` (name on the volume -> file here) onto it."""
    kubectl.apply(_claim(namespace, claim), loader_pod(namespace, claim))
    kubectl.run("wait", "--for=condition=Ready", f"pod/{LOADER}", "-n", namespace, "--timeout=170s")
    for name, path in files.items():
        write = f"import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, open('/models/{name}', 'wb'))"
        with path.open("rb") as content:
            command = kubectl.command("exec", "-i", LOADER, "-n", namespace, "--", "python3", "-c", write)
            subprocess.run(command, stdin=content, check=True, capture_output=True, timeout=180)
    kubectl.delete("pod", LOADER, namespace, "--grace-period=1")


def loader_pod(namespace: str, claim: str) -> Object:
    container = {
        "name": "loader",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", "import signal; signal.pause()"],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": claim}}
    metadata = {"name": LOADER, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "volumes": [volume]},
    }


def _claim(namespace: str, name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": VOLUME_BYTES}}},
    }


def tiny_model(path: Path) -> Path:
    """The tests' deterministic model, written to `path`."""
    write_tiny_gguf(path)
    return path
