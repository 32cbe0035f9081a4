"""Apply, generate, delete with proof: the path everything else is built on, with a real model and a real client."""

import subprocess
from collections.abc import Callable

import pytest

from e2e.backends import (
    SMOLLM2,
    STREAM,
    STREAM_SECONDS,
    Backend,
    claims_of,
    client,
    free_node_port,
    generate,
    port_of,
    stream,
)
from e2e.kubectl import Kubectl, Object, until

IMAGE = "localhost/modelbackend-server:dev"

Make = Callable[..., Backend]


def only_claim(kubectl: Kubectl, uid: str) -> Object:
    (claim,) = claims_of(kubectl, uid)
    return claim


def until_released(kubectl: Kubectl, uid: str) -> None:
    until("the claim has cooled and is gone", lambda: not claims_of(kubectl, uid))


def test_a_real_model_answers_through_a_node_port_of_every_node(kubectl: Kubectl, backend: Make) -> None:
    smollm2 = backend("smollm2", file=SMOLLM2)
    address = smollm2.until_ready()
    assert generate(address, "The capital of France is", "--max-tokens", "16", "--temperature", "0").startswith(
        " Paris."
    )
    addresses = [
        entry["address"]
        for node in kubectl.list("nodes")
        for entry in node["status"]["addresses"]
        if entry["type"] == "InternalIP"
    ]
    for node_address in addresses:
        answer = generate(f"{node_address}:{port_of(address)}", "Hello", "--max-tokens", "2", "--temperature", "0")
        assert answer.strip(), f"nothing came through {node_address}"


@pytest.mark.parametrize("exposure", ["NodePort", "HostPort"])
def test_deleting_a_backend_ends_with_proof_and_frees_its_port(kubectl: Kubectl, backend: Make, exposure: str) -> None:
    one = backend(f"proof-{exposure.lower()}", exposure={"type": exposure})
    address, uid = one.until_ready(), one.uid
    assert generate(address, "Hello", "--max-tokens", "4")
    claim = only_claim(kubectl, uid)
    assert claim["spec"]["port"] == port_of(address)
    assert claim["status"]["phase"] == "Bound"
    assert claim["status"]["pod"]["uid"] == one.pods()[0]["metadata"]["uid"]
    one.delete()
    one.until_gone()
    cooling = only_claim(kubectl, uid)["status"]
    assert (cooling["phase"], cooling["evidence"]) == ("Cooling", "ContainersTerminated")
    until_released(kubectl, uid)


def test_a_cluster_ip_backend_claims_no_port_and_answers_inside_the_cluster(
    kubectl: Kubectl, backend: Make, namespace: str
) -> None:
    one = backend("inside", exposure={"type": "ClusterIP"})
    address = one.until_ready()
    assert claims_of(kubectl, one.uid) == []
    arguments = ["modelbackend-client", "generate", "--address", address, "--prompt", "Hello", "--max-tokens", "4"]
    kubectl.run(
        *("run", "caller", "-n", namespace, f"--image={IMAGE}", "--restart=Never", "--rm", "--attach", "--quiet"),
        *("--image-pull-policy=IfNotPresent", "--command", "--", *arguments),
    )
    one.delete()
    one.until_gone()


def test_a_stream_that_runs_when_its_backend_is_deleted_comes_whole(kubectl: Kubectl, backend: Make) -> None:
    one = backend("mid-stream", file=SMOLLM2)
    address, uid = one.until_ready(), one.uid
    running = stream(address, *STREAM)
    one.delete()
    until("the stop record is written", lambda: one.condition("Drained"))
    with_new = subprocess.run(
        client("generate", "--address", address, "--prompt", "Hello"), capture_output=True, text=True, check=False
    )
    text, errors = running.communicate(timeout=STREAM_SECONDS)
    assert running.returncode == 0, errors
    assert len(text.split()) > 10
    assert with_new.returncode != 0, "a draining instance admitted a new request"
    one.until_gone()
    assert only_claim(kubectl, uid)["status"]["evidence"] == "ContainersTerminated"


def test_a_port_is_withheld_from_others_until_it_has_cooled(kubectl: Kubectl, backend: Make) -> None:
    port = free_node_port(kubectl)
    pool = {"portRange": {"first": port, "last": port}}
    first = backend("first-owner", exposure=pool)
    uid = first.uid
    assert port_of(first.until_ready()) == port
    second = backend("second-owner", exposure=pool)
    assert str(port) in second.until_stalled("PortPoolExhausted")
    first.delete()
    first.until_gone()
    assert only_claim(kubectl, uid)["status"]["phase"] == "Cooling"
    assert port_of(second.until_ready()) == port
    assert not claims_of(kubectl, uid)


def test_an_instance_keeps_its_port_when_its_template_changes(kubectl: Kubectl, backend: Make) -> None:
    one = backend("keeps-port")
    address, pod = one.until_ready(), one.until_pod()
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"runtime": {"contextLength": 256}}})
    until("another pod serves", lambda: [p for p in one.pods() if p["metadata"]["uid"] != pod["metadata"]["uid"]])
    assert port_of(one.until_ready()) == port_of(address)


def test_scaling_to_zero_ends_the_instance_and_scaling_up_brings_it_back(kubectl: Kubectl, backend: Make) -> None:
    one = backend("to-zero")
    one.until_ready()
    kubectl.run("scale", "modelbackend", one.name, "-n", one.namespace, "--replicas=0")
    until("no pod is left", lambda: not one.pods())
    until("Ready says so", lambda: one.condition("Ready").get("reason") == "NoInstances")
    kubectl.run("scale", "modelbackend", one.name, "-n", one.namespace, "--replicas=1")
    one.until_ready()
