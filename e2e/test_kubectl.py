"""`kubectl mb` on a real cluster: six ways of being stuck, and the orders that end them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.backends import SMOLLM2, STREAM_SECONDS, Backend, stream
from e2e.kubectl import Kubectl, Object, until

Make = Callable[..., Backend]

ROOT = Path(__file__).parent.parent
LONG = ("Once upon a time", "--max-tokens", "3000", "--temperature", "0")
"""A stream that nobody waits for: it is cut."""
SLOW = {"limits": {"cpu": "400m"}}
"""So that it lasts for as long as the test."""
NO_GPU = {"limits": {"nvidia.com/gpu": None}}


def typed(one: Backend, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """`kubectl mb ...` in the backend's namespace."""
    flags = [f"--kubeconfig={one.kubectl.kubeconfig}", f"--namespace={one.namespace}"]
    path = f"{ROOT / 'operator'}:{ROOT / 'backend_image'}"
    return subprocess.run(
        [sys.executable, "-m", "kubectl_mb", *words, *flags],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=STREAM_SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def shown(one: Backend, *words: str, stdin: str = "") -> str:
    done = typed(one, *words, stdin=stdin)
    assert done.returncode == 0, f"kubectl mb {' '.join(words)}: {done.returncode}: {done.stderr}"
    return done.stdout


def until_why(one: Backend, reason: str) -> Object:
    """What `why` says once it names this reason."""

    def cause() -> Object | None:
        causes: list[Any] = json.loads(shown(one, "why", one.name, "-o", "json"))
        return next((found for found in causes if found["reason"] == reason), None)

    one_cause = until(f"kubectl mb why {one.name} names {reason}", cause)
    assert one_cause["waitsFor"]
    assert one_cause["since"]
    assert one_cause["releasedBy"]
    return one_cause


@pytest.fixture
def foreign_port(kubectl: Kubectl, namespace: str) -> Iterator[int]:
    """The node port of a Service `not-ours`, which asked no ledger; the API server has chosen a free one."""
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    metadata = {"name": "not-ours", "namespace": namespace}
    kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    made = kubectl.get("service", "not-ours", namespace)
    assert made is not None
    yield made["spec"]["ports"][0]["nodePort"]
    kubectl.delete("service", "not-ours", namespace)


def test_why_names_what_stands_in_the_way_of_a_start_and_who(backend: Make, foreign_port: int) -> None:
    too_big = backend("why-too-big", resources={"limits": {"nvidia.com/gpu": 99}})
    no_image = backend("why-no-image", runtime={"image": "localhost/no-such-image:1"}, resources=NO_GPU)
    pinned = backend("why-pinned", exposure={"nodePort": foreign_port}, resources=NO_GPU)
    broken = backend("why-broken", file="not-a-gguf.txt", restart={"maxRestarts": 0}, resources=NO_GPU)

    cause = until_why(too_big, "Unschedulable")
    assert "nvidia.com/gpu" in cause["waitsFor"]
    assert cause["heldBy"] == ["the scheduler"]
    assert "the kubelet of node" in until_why(no_image, "ImageUnavailable")["heldBy"][0]
    assert f"Service {pinned.namespace}/not-ours" in until_why(pinned, "PinnedPortTaken")["heldBy"]
    assert until_why(broken, "RestartBudgetExhausted")["heldBy"] == ["spec.restart.maxRestarts: 0"]


def test_a_stop_is_extended_and_forced_and_the_one_that_waits_for_it_names_it(backend: Make) -> None:
    model = {"name": "kubectl-shared"}
    one = backend("why-drains", model=model, file=SMOLLM2, resources=SLOW)
    other = backend("why-next", model=model)
    address = one.until_ready()
    other.until_ready()
    assert f"at {address}" in shown(one, "why", one.name)
    running = stream(address, *LONG)

    shown(one, "drain", one.name)
    assert "1 requests in pod" in until_why(one, "Draining")["heldBy"][0]
    shown(other, "drain", other.name)
    waits = until_why(other, "WaitingForModelLock")
    assert f"{one.namespace}/{one.name}, instance 0" in waits["heldBy"][0]
    assert f"kubectl mb watch {one.name} -n {one.namespace}" in waits["releasedBy"]
    shown(one, "extend", one.name, "60")

    force(one)
    assert ": Forced after" in shown(one, "watch", one.name, "--timeout=170")
    running.communicate(timeout=STREAM_SECONDS)
    assert {"Extended", "ForceOrdered", "Stopping"} <= set(shown(one, "timeline", one.name).split())
    shown(other, "watch", other.name, "--timeout=170")
    assert until_why(other, "Suspended")["heldBy"][0].startswith("spec.suspend, set by kubectl-mb")


def test_a_busy_instance_that_is_not_to_be_ended_says_what_would(backend: Make) -> None:
    one = backend("why-busy", file=SMOLLM2, shutdown={"drainSeconds": 1, "escalate": False}, resources=SLOW)
    running = stream(one.until_ready(), *LONG)
    shown(one, "drain", one.name)
    busy = until_why(one, "Busy")
    assert "1 requests in pod" in busy["heldBy"][0]
    assert f"kubectl mb force {one.name} -n {one.namespace}" in busy["releasedBy"]
    force(one)
    running.communicate(timeout=STREAM_SECONDS)


def force(one: Backend) -> None:
    """With the question answered."""
    told = shown(one, "force", one.name, "--reason", "the test has seen enough", stdin="y\n")
    assert "accepted for pod" in told


def test_a_chat_goes_by_the_node_port_and_by_a_port_forward_and_the_log_is_the_pods(backend: Make) -> None:
    one = backend("chatty")
    one.until_ready()
    asked = ("chat", one.name, "--prompt", "Hello", "--max-tokens", "4", "--temperature", "0")
    answer = shown(one, *asked)
    assert answer.strip()
    forwarded = typed(one, *asked, "--forward")
    assert forwarded.returncode == 0, forwarded.stderr
    assert forwarded.stdout == answer
    assert "through a port-forward to pod" in forwarded.stderr
    assert "listening" in shown(one, "logs", one.name)
    assert f"port {one.status['instances'][0]['port']}" in shown(one, "timeline", one.name)
