"""Devices by dynamic resource allocation: the pod's claims are the scheduler's affair, and its words are told.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
No driver runs here: a pool of devices is published by hand, as a driver would, and nobody prepares what is allocated.
"""

from collections.abc import Callable, Iterator

import pytest

from e2e.backends import Backend
from e2e.kubectl import Kubectl, Object, until

Make = Callable[..., Backend]

API = "resource.k8s.io/v1"
DRIVER = "fake-driver.modelbackend.dev"
CLASS, TEMPLATE, POOL = "fake-gpu.modelbackend.dev", "one-gpu", "fake-pool"
CLAIMING = {
    "resources": {"limits": {"nvidia.com/gpu": None}, "claims": [{"name": "gpu"}]},
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}],
}


@pytest.fixture
def device_class(kubectl: Kubectl, namespace: str) -> Iterator[None]:
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS}}
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    kubectl.apply(
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": {"selectors": [selector]}},
        {
            "apiVersion": API,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": TEMPLATE, "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
    )
    yield
    kubectl.delete("resourceslice", POOL)
    kubectl.delete("resourceclaimtemplate", TEMPLATE, namespace)
    kubectl.delete("deviceclass", CLASS)


def a_pool(devices: int) -> Object:
    """Devices that every node reaches."""
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": POOL},
        "spec": {
            "driver": DRIVER,
            "allNodes": True,
            "pool": {"name": POOL, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
        },
    }


def test_a_claim_for_a_device_is_waited_for_and_a_deletion_ends_from_there(
    kubectl: Kubectl, backend: Make, device_class: None
) -> None:
    assert device_class is None
    one = backend("claims-device", **CLAIMING)
    assert "cannot allocate all claims" in one.until_stalled("Unschedulable")
    kubectl.apply(a_pool(1))
    until("the scheduler found it a node", lambda: one.until_pod()["spec"].get("nodeName"))
    other = backend("claims-another", **CLAIMING)
    assert "cannot allocate all claims" in other.until_stalled("Unschedulable"), "one device, one holder"
    one.delete()
    one.until_gone()
    until("the device is given on", lambda: other.until_pod()["spec"].get("nodeName"))
    other.delete()
    other.until_gone()


def test_a_claim_that_does_not_exist_is_told_of_although_the_scheduler_says_nothing(backend: Make) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "no-such-claim"}]
    one = backend("claims-nothing", resources=CLAIMING["resources"], resourceClaims=claims)
    told = until(
        "it says so", lambda: one.condition("Ready").get("reason") == "Preparing" and one.condition("Ready")["message"]
    )
    assert "a ResourceClaim that it names does not exist" in told
    one.delete()
    one.until_gone()
