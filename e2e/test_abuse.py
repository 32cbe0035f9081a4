"""What meddling hands and a bad day do to a backend: each is survived, told in words, or put right."""

from collections.abc import Callable, Iterator

import pytest

from e2e.backends import SMOLLM2, STREAM, STREAM_SECONDS, UID_LABEL, Backend, claims_of, generate, port_of, stream
from e2e.kubectl import Kubectl, Object, until

Make = Callable[..., Backend]

QUIET_SECONDS = 15


def test_a_pod_that_lost_its_labels_gets_them_back_and_serves_on(kubectl: Kubectl, backend: Make) -> None:
    one = backend("relabelled")
    address, pod = one.until_ready(), one.until_pod()
    name = pod["metadata"]["name"]
    gone = ("app.kubernetes.io/managed-by-", f"{UID_LABEL}-", "modelbackend.dev/serving-", "modelbackend.dev/pod-uid-")
    kubectl.run("label", "pod", name, "-n", one.namespace, *gone)

    def again() -> bool:
        (found,) = [kubectl.get("pod", name, one.namespace)]
        return found is not None and found["metadata"]["labels"] == pod["metadata"]["labels"]

    until("its labels are as they were", again)
    assert generate(address, "Hello", "--max-tokens", "4")
    one.delete()
    one.until_gone()


EDITS: dict[str, Object] = {
    "another selector": {"spec": {"selector": {"app": "another"}}},
    "another target": {"spec": {"ports": [{"name": "grpc", "port": 50051, "targetPort": 9, "protocol": "TCP"}]}},
    "no labels": {"metadata": {"labels": None}},
    "another type": {"spec": {"type": "ExternalName", "externalName": "example.org"}},
}


def test_services_that_others_edit_or_delete_are_put_right(kubectl: Kubectl, backend: Make) -> None:
    one = backend("services")
    address, uid = one.until_ready(), one.uid

    def services() -> dict[str, object]:
        """What matters of each: where it leads, for whom, and whether it is found."""
        found = [s for s in kubectl.list("services", one.namespace) if s["metadata"]["name"].startswith("services")]
        return {
            s["metadata"]["name"]: (
                s["spec"]["type"],
                s["spec"].get("selector"),
                [(port["targetPort"], port.get("nodePort")) for port in s["spec"].get("ports", ())],
                (s["metadata"].get("labels") or {}).get(UID_LABEL),
            )
            for s in found
        }

    made = services()
    assert len(made) == 2
    for name in made:
        for what, edit in EDITS.items():
            kubectl.patch("service", name, one.namespace, edit)
            until(f"Service {name} is as it was before it got {what}", lambda: services() == made)
        kubectl.delete("service", name, one.namespace)
        until(f"Service {name} is made again", lambda: services() == made)
    assert generate(address, "Hello", "--max-tokens", "4")
    assert [claim["status"]["phase"] for claim in claims_of(kubectl, uid)] == ["Bound"]


def test_a_claim_deleted_by_hand_stays_for_as_long_as_its_instance_runs(kubectl: Kubectl, backend: Make) -> None:
    one = backend("claim-deleted")
    address, uid = one.until_ready(), one.uid
    name = f"port-{port_of(address)}"
    kubectl.delete("portclaim", name)
    assert generate(address, "Hello", "--max-tokens", "4")
    claim = kubectl.get("portclaim", name)
    assert claim is not None
    assert (claim["status"]["phase"], "deletionTimestamp" in claim["metadata"]) == ("Bound", True)
    one.delete()
    one.until_gone()
    until("it is gone once its instance has ended", lambda: not claims_of(kubectl, uid))


def test_the_last_of_several_edits_counts_once_the_running_stream_has_come_whole(
    kubectl: Kubectl, backend: Make
) -> None:
    one = backend("edited-often", file=SMOLLM2)
    address = one.until_ready()
    running = stream(address, *STREAM)
    for length in (256, 512, 1024):
        kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"runtime": {"contextLength": length}}})
    assert until("it drains", lambda: one.condition("Drained"))["status"] == "False"
    _, errors = running.communicate(timeout=STREAM_SECONDS)
    assert running.returncode == 0, errors
    until("it is served anew", lambda: one.status.get("model", {}).get("contextLength") == 1024)
    assert one.until_ready() == address


def test_a_memory_limit_that_is_too_small_reads_as_such_and_a_larger_one_recovers(
    kubectl: Kubectl, backend: Make
) -> None:
    one = backend("small-memory", file=SMOLLM2, resources={"limits": {"memory": "100Mi"}})
    assert "raise resources.limits.memory" in one.until_stalled("OutOfMemory")
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"resources": {"limits": {"memory": "1Gi"}}}})
    one.until_ready()


def test_a_secret_edited_by_hand_is_named_and_removing_it_recovers(kubectl: Kubectl, backend: Make) -> None:
    one = backend("bad-token")
    one.until_ready()
    (secret,) = [s["metadata"]["name"] for s in kubectl.list("secrets", one.namespace, f"{UID_LABEL}={one.uid}")]
    kubectl.patch("secret", secret, one.namespace, {"stringData": {"token": "another"}})
    kubectl.delete("pod", one.until_pod()["metadata"]["name"], one.namespace)
    assert f"Secret {secret} was edited" in one.until_stalled("ControlTokenRefused")
    kubectl.delete("secret", secret, one.namespace)
    kubectl.delete("pod", one.until_pod()["metadata"]["name"], one.namespace)
    one.until_ready()


@pytest.fixture
def quota(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """Refuses every further pod of the tests' namespace."""
    hard = {"hard": {"pods": "0"}}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none", "namespace": namespace},
            "spec": hard,
        }
    )
    until("the quota is counted", lambda: (kubectl.get("resourcequota", "none", namespace) or {}).get("status"))
    yield "none"
    kubectl.delete("resourcequota", "none", namespace)


def test_a_quota_is_told_in_the_api_servers_words_and_its_end_recovers(
    kubectl: Kubectl, backend: Make, quota: str
) -> None:
    one = backend("over-quota")
    assert f"exceeded quota: {quota}" in one.until_stalled("DeniedByAPIServer")
    kubectl.delete("resourcequota", quota, one.namespace)
    one.until_ready()


def test_nothing_is_written_while_nothing_happens(kubectl: Kubectl, backend: Make) -> None:
    one = backend("idle")
    one.until_ready()
    uid = one.uid

    def versions() -> dict[str, str]:
        kinds = ("pods", "services", "secrets")
        children = [thing for kind in kinds for thing in kubectl.list(kind, one.namespace, f"{UID_LABEL}={uid}")]
        things = [one.object, *children, *claims_of(kubectl, uid)]
        return {thing["metadata"]["uid"]: thing["metadata"]["resourceVersion"] for thing in things if thing}

    before = versions()
    watch = (
        "get",
        "modelbackend",
        one.name,
        "-n",
        one.namespace,
        "--watch-only",
        f"--request-timeout={QUIET_SECONDS}s",
    )
    assert kubectl.run(*watch) == ""
    assert versions() == before
    assert len(before) == 6  # the backend, its pod, two Services, the Secret and the claim
