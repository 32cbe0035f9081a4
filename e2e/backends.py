"""ModelBackends as a user writes them, and what a test asks of them."""

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.kubectl import PATIENCE_SECONDS, Kubectl, Object, until
from modelbackend_operator.settings import Settings

WEIGHTS = "weights"
"""The PersistentVolumeClaim that holds every model file of the tests."""
TINY = "tiny.gguf"
"""Random weights of a real architecture: deterministic, and loaded in milliseconds."""
SMOLLM2 = "smollm2-135m-instruct-q4_1.gguf"
STREAM = ("Once upon a time", "--max-tokens", "200", "--temperature", "0")
"""Of SMOLLM2: some seconds, also on a fast machine, so that much can happen meanwhile."""
STREAM_SECONDS = 600
"""Also on a machine that has much else to do."""

API_VERSION = "modelbackend.dev/v1alpha1"
UID_LABEL = "modelbackend.dev/backend-uid"


def manifest(name: str, namespace: str, *, file: str = TINY, **spec: Any) -> Object:
    """A ModelBackend that asks for one GPU and little else, merged with `spec`; None removes a field."""
    source = {"persistentVolumeClaim": {"claimName": WEIGHTS, "path": file}}
    base: Object = {
        "model": {"source": source},
        "resources": {"requests": {"cpu": "50m"}, "limits": {"nvidia.com/gpu": 1}},
        "shutdown": {"drainSeconds": 600},  # ended by idleness; a busy machine makes three tokens a second
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": "ModelBackend", "metadata": metadata, "spec": _merged(base, spec)}


def _merged(base: Object, change: Mapping[str, Any]) -> Object:
    merged = dict(base)
    for key, value in change.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return {key: value for key, value in merged.items() if value is not None}


@dataclass(frozen=True)
class Backend:
    """One ModelBackend on the cluster, by name."""

    kubectl: Kubectl
    name: str
    namespace: str

    @property
    def object(self) -> Object | None:
        return self.kubectl.get("modelbackend", self.name, self.namespace)

    @property
    def status(self) -> Object:
        found = self.object
        return found.get("status", {}) if found else {}

    @property
    def uid(self) -> str:
        found = self.object
        assert found is not None, f"ModelBackend {self.namespace}/{self.name} does not exist"
        return str(found["metadata"]["uid"])

    def condition(self, kind: str) -> Object:
        """Empty when the condition is absent."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    def until_ready(self, timeout_seconds: float = PATIENCE_SECONDS) -> str:
        """The published address."""

        def address() -> str | None:
            status = self.status
            ready: Object = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
            endpoints = status.get("endpoints") or [{}]
            return endpoints[0].get("address") if ready.get("status") == "True" else None

        return until(f"{self.name} is Ready; it says {self.status}", address, timeout_seconds=timeout_seconds)

    def until_stalled(self, reason: str) -> str:
        """The message beside that reason."""

        def message() -> str | None:
            stalled = self.condition("Stalled")
            return stalled.get("message") if stalled.get("reason") == reason else None

        return until(f"{self.name} is Stalled/{reason}", message)

    def until_event(self, reason: str) -> str:
        """The message of an Event with this reason."""

        def message() -> str | None:
            about = (e for e in self.kubectl.list("events", self.namespace) if e["involvedObject"]["name"] == self.name)
            return next((event["message"] for event in about if event["reason"] == reason), None)

        return until(f"an Event {reason} about {self.name}", message)

    def pods(self) -> list[Object]:
        return list(self.kubectl.list("pods", self.namespace, f"{UID_LABEL}={self.uid}"))

    def until_pod(self) -> Object:
        return until(f"{self.name} has a pod", lambda: next(iter(self.pods()), None))

    def delete(self, *flags: str) -> None:
        self.kubectl.delete("modelbackend", self.name, self.namespace, *flags)

    def until_gone(self, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        until(f"{self.name} is gone", lambda: self.object is None, timeout_seconds=timeout_seconds)


def free_node_port(kubectl: Kubectl) -> int:
    """Of the operator's pool; the last one that neither a claim nor a Service has."""
    claimed = {claim["spec"]["port"] for claim in kubectl.list("portclaims")}
    services = kubectl.list("services")
    served = {port.get("nodePort") for service in services for port in service["spec"].get("ports", ())}
    pool = {port for first, last in Settings().node_ports for port in range(first, last + 1)}
    return max(pool - claimed - served)


def claims_of(kubectl: Kubectl, uid: str) -> list[Object]:
    """PortClaims of a backend, also after it is gone."""
    return [claim for claim in kubectl.list("portclaims") if claim["spec"]["backend"]["uid"] == uid]


def generate(address: str, prompt: str, *flags: str, timeout_seconds: float = STREAM_SECONDS) -> str:
    """What the command prints, through the address a user would use."""
    done = subprocess.run(
        client("generate", "--address", address, "--prompt", prompt, *flags),
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert done.returncode == 0, f"modelbackend-client failed ({done.returncode}): {done.stderr}"
    return done.stdout


def stream(address: str, prompt: str, *flags: str) -> subprocess.Popen[str]:
    """A generation under way; returns once its first text came."""
    process = subprocess.Popen(
        client("generate", "--address", address, "--prompt", prompt, *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdout is not None
    first = process.stdout.read(1)
    assert first, f"the stream ended before its first text: {process.communicate()[1]}"
    return process


def client(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "modelbackend-client"), *arguments]


def port_of(address: str) -> int:
    found = re.fullmatch(r".*:(\d+)", address)
    assert found, f"{address!r} has no port"
    return int(found[1])
