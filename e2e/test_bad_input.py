"""What a user gets wrong: a condition and an Event say what and what to do, and an edit of the spec recovers."""

from collections.abc import Callable

import pytest

from e2e.backends import TINY, WEIGHTS, Backend, free_node_port, port_of
from e2e.kubectl import Kubectl, KubectlError

Make = Callable[..., Backend]


def use_file(kubectl: Kubectl, one: Backend, path: str) -> None:
    source = {"persistentVolumeClaim": {"claimName": WEIGHTS, "path": path}}
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"model": {"source": source}}})


@pytest.mark.parametrize(
    ("file", "reason", "said"),
    [("no-such-file.gguf", "ModelFileMissing", "no-such-file.gguf"), ("not-a-gguf.txt", "ModelUnreadable", "GGUF")],
)
def test_a_file_that_cannot_be_served_is_named_and_another_path_recovers(
    kubectl: Kubectl, backend: Make, file: str, reason: str, said: str
) -> None:
    one = backend(f"bad-{reason.lower()}", file=file)
    assert said in one.until_stalled(reason)
    assert said in one.until_event(reason)
    use_file(kubectl, one, TINY)
    one.until_ready()


def test_a_wrong_checksum_is_refused_with_both_values(kubectl: Kubectl, backend: Make) -> None:
    one = backend("bad-checksum", model={"sha256": "0" * 64})
    message = one.until_stalled("ModelUnreadable")
    assert "0" * 64 in message
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"model": {"sha256": None}}})
    one.until_ready()


def test_a_missing_volume_is_told_in_the_schedulers_words(backend: Make) -> None:
    source = {"persistentVolumeClaim": {"claimName": "no-such-volume", "path": TINY}}
    one = backend("no-volume", model={"source": source})
    assert "no-such-volume" in one.until_stalled("Unschedulable")


def test_two_backends_that_pin_one_port_are_told_apart(kubectl: Kubectl, backend: Make) -> None:
    port = free_node_port(kubectl)
    pin = {"nodePort": port}
    holder = backend("pin-holder", exposure=pin)
    assert port_of(holder.until_ready()) == port
    other = backend("pin-other", exposure=pin)
    message = other.until_stalled("PinnedPortTaken")
    assert "models/pin-holder" in message
    assert str(port) in other.until_event("PinnedPortTaken")
    assert other.condition("PortAvailable")["status"] == "False"
    kubectl.patch("modelbackend", other.name, other.namespace, {"spec": {"exposure": {"nodePort": None}}})
    assert port_of(other.until_ready()) != port
    assert holder.condition("Ready")["status"] == "True"


def test_a_pinned_port_that_a_foreign_service_holds_is_reported(
    kubectl: Kubectl, backend: Make, namespace: str
) -> None:
    node_port = free_node_port(kubectl)
    port = {"port": 80, "nodePort": node_port, "protocol": "TCP"}
    spec = {"type": "NodePort", "selector": {"app": "nobody"}, "ports": [port]}
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "foreign", "namespace": namespace},
        "spec": spec,
    }
    kubectl.apply(foreign)
    try:
        one = backend("pin-foreign", exposure={"nodePort": node_port})
        assert str(node_port) in one.until_stalled("PinnedPortTaken")
        kubectl.delete("service", "foreign", namespace)
        assert port_of(one.until_ready()) == node_port
    finally:
        kubectl.delete("service", "foreign", namespace)


def test_a_field_without_behaviour_yet_is_refused_by_name(kubectl: Kubectl, backend: Make) -> None:
    one = backend("too-early", runtime={"mode": "Embed", "pooling": "None"})
    assert "runtime.pooling" in one.until_stalled("UnsupportedField")
    assert one.pods() == []
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"runtime": {"mode": None, "pooling": None}}})
    one.until_ready()


def test_a_flag_that_is_the_operators_is_refused_and_one_that_is_not_reaches_the_server(
    kubectl: Kubectl, backend: Make
) -> None:
    one = backend("more-flags", runtime={"extraArgs": ["--log-level=debug", "--grpc-port=1"]})
    assert "runtime.extraArgs[1]: --grpc-port is set by the operator" in one.until_stalled("UnsupportedField")
    assert one.pods() == []
    flags = ["--log-level=debug", "--prompt-cache-bytes=1048576"]
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"runtime": {"extraArgs": flags}}})
    one.until_ready()
    (pod,) = one.pods()
    log = kubectl.run("logs", "-n", one.namespace, pod["metadata"]["name"])
    assert '"prompt_cache_bytes": 1048576' in log


def test_an_object_that_the_schema_refuses_is_never_stored(backend: Make) -> None:
    with pytest.raises(KubectlError, match=r"exactly one of persistentVolumeClaim"):
        backend("two-sources", model={"source": {"hostPath": {"path": "/x.gguf"}}})
