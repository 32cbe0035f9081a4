"""A deletion ends from every phase, and says with what evidence."""

from collections.abc import Callable

import pytest

from e2e.backends import SMOLLM2, STREAM, STREAM_SECONDS, Backend, claims_of, stream
from e2e.kubectl import Kubectl, until

Make = Callable[..., Backend]


def evidence(kubectl: Kubectl, uid: str) -> str:
    """Of the release of the backend's only claim, while it cools."""
    (claim,) = claims_of(kubectl, uid)
    assert claim["status"]["phase"] == "Cooling", claim["status"]
    return str(claim["status"]["evidence"])


def test_deleted_while_unschedulable(kubectl: Kubectl, backend: Make) -> None:
    one = backend("too-big", resources={"limits": {"nvidia.com/gpu": 99}})
    uid = one.uid
    assert "nvidia.com/gpu" in one.until_stalled("Unschedulable")
    one.delete()
    one.until_gone()
    assert evidence(kubectl, uid) == "NeverStarted"


def test_deleted_while_its_image_cannot_be_pulled(kubectl: Kubectl, backend: Make) -> None:
    one = backend("no-image", runtime={"image": "localhost/no-such-image:1"})
    uid = one.uid
    assert "no-such-image" in one.until_stalled("ImageUnavailable")
    one.delete()
    one.until_gone()
    assert evidence(kubectl, uid) in ("ContainersTerminated", "NeverStarted")


def test_deleted_while_loading(kubectl: Kubectl, backend: Make) -> None:
    one = backend("still-loading", file=SMOLLM2)
    uid = one.uid
    until("a container runs", lambda: one.pods() and one.pods()[0]["status"]["phase"] == "Running")
    one.delete()
    one.until_gone()
    assert evidence(kubectl, uid) == "ContainersTerminated"


def test_deleted_at_once_after_it_was_applied(kubectl: Kubectl, backend: Make) -> None:
    one = backend("regretted")
    uid = one.uid
    one.delete()
    one.until_gone()
    until("nothing is left in the ledger", lambda: not claims_of(kubectl, uid))


def test_a_force_deleted_pod_is_held_until_the_kubelet_reports_its_end(kubectl: Kubectl, backend: Make) -> None:
    one = backend("forced-pod")
    one.until_ready()
    pod, uid = one.until_pod(), one.uid
    (claim,) = claims_of(kubectl, uid)
    kubectl.delete("pod", pod["metadata"]["name"], one.namespace, "--force", "--grace-period=0")
    until(
        "another pod takes its place", lambda: [p for p in one.pods() if p["metadata"]["uid"] != pod["metadata"]["uid"]]
    )
    one.until_ready()
    (again,) = claims_of(kubectl, uid)
    assert again["spec"]["port"] == claim["spec"]["port"]
    assert [past["evidence"] for past in again["status"]["history"]] == ["ContainersTerminated"]


@pytest.mark.parametrize("cascade", ["foreground", "background"])
def test_a_running_stream_outlives_a_cascading_delete(kubectl: Kubectl, backend: Make, cascade: str) -> None:
    one = backend(f"cascade-{cascade}", file=SMOLLM2)
    address, uid = one.until_ready(), one.uid
    running = stream(address, *STREAM)
    one.delete(f"--cascade={cascade}")
    _, errors = running.communicate(timeout=STREAM_SECONDS)
    assert running.returncode == 0, errors
    one.until_gone()
    assert evidence(kubectl, uid) == "ContainersTerminated"


def test_two_backends_of_one_model_are_shut_down_one_after_the_other(backend: Make) -> None:
    model = {"name": "shared-model"}
    one, other = backend("twin-a", model=model, file=SMOLLM2), backend("twin-b", model=model)
    address = one.until_ready()
    other.until_ready()
    running = stream(address, *STREAM)
    one.delete()
    until("the first holds the model's Lease", lambda: one.condition("Drained"))
    other.delete()
    waits = until(
        "the second waits for it",
        lambda: (
            other.condition("Reconciling").get("reason") == "WaitingForModelLock" and other.condition("Reconciling")
        ),
    )
    assert "twin-a" in waits["message"]
    assert [pod["metadata"].get("deletionTimestamp") for pod in other.pods()] == [None]
    running.communicate(timeout=STREAM_SECONDS)
    one.until_gone()
    other.until_gone()
