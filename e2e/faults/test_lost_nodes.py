"""Machines that are lost, come back, and come back as another one: what proves an end there, and what does not."""

from collections.abc import Callable

import pytest

from e2e.backends import Backend, claims_of, generate, port_of
from e2e.faults.conftest import Watchdog
from e2e.faults.nodes import EVERYWHERE, Machine, awaits_proof, on, prefer
from e2e.faults.test_deletes import give_up, serving_pods
from e2e.kubectl import Kubectl, Object, until

Make = Callable[..., Backend]
pytestmark = pytest.mark.node_faults


def claim_of(kubectl: Kubectl, uid: str) -> Object:
    (claim,) = claims_of(kubectl, uid)
    return claim


def test_a_deletion_waits_for_a_kubelet_that_is_away_also_when_its_node_object_is_deleted(
    kubectl: Kubectl, backend: Make, machine: Machine
) -> None:
    """Pod garbage collection then writes that the pod has failed, while its process serves."""
    one = backend("kubelet-away", **on(machine), shutdown={"unconfirmedAfterSeconds": 600})
    address, uid = one.until_ready(), one.uid
    (pod,) = one.pods()
    machine.lose_kubelet()
    one.delete()
    assert machine.name in until("it awaits proof", lambda: awaits_proof(one))
    assert serving_pods(uid), "its process serves"
    kubectl.delete("node", machine.name)

    def collected() -> bool:
        found = kubectl.get("pod", pod["metadata"]["name"], one.namespace)
        assert found is not None, "the pod object was let go without proof"
        reasons = [condition.get("reason") for condition in found["status"].get("conditions", ())]
        return found["status"]["phase"] == "Failed" and "DeletionByPodGC" in reasons

    until("pod garbage collection has written its word", collected)
    assert serving_pods(uid), "its process serves on"
    assert claim_of(kubectl, uid)["status"]["phase"] == "Bound"
    assert claim_of(kubectl, uid)["spec"]["port"] == port_of(address)
    assert one.object is not None
    machine.come_back()
    one.until_gone()
    assert claim_of(kubectl, uid)["status"]["evidence"] == "ContainersTerminated"
    assert not serving_pods(uid)


def test_a_machine_that_died_and_comes_back_ends_what_was_deleted_and_serves_what_was_not(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    patient: Object = {"shutdown": {"drainSeconds": 5, "unconfirmedAfterSeconds": 600}}
    ended, kept = backend("died-deleted", **on(machine), **patient), backend("died-kept", **on(machine))
    ended.until_ready()
    address, uid, kept_uid = kept.until_ready(), ended.uid, kept.uid
    machine.die()
    ended.delete()
    machine.until_lost()
    assert machine.name in until("it awaits proof", lambda: awaits_proof(ended))
    until("the address of the other is withdrawn", lambda: not kept.status.get("endpoints"))
    assert claim_of(kubectl, uid)["status"]["phase"] == "Bound", "that its processes are dead is known to nobody"
    machine.come_back()
    ended.until_gone()
    # The kubelet may also refuse to take it up again, before its devices are known: then it says that none was started.
    assert claim_of(kubectl, uid)["status"]["evidence"] in ("ContainersTerminated", "NeverStarted")
    assert port_of(kept.until_ready()) == port_of(address)
    assert generate(kept.until_ready(), "Hello", "--max-tokens", "2") is not None
    assert [c["status"]["phase"] for c in claims_of(kubectl, kept_uid)] == ["Bound"]
    assert watchdog.together(kept_uid) == []


def test_the_same_boot_of_a_machine_proves_nothing_of_a_pod_that_was_torn_out(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    one = backend("torn-out", model=EVERYWHERE, affinity=prefer(machine))
    address, uid = one.until_ready(), one.uid
    (pod,) = one.pods()
    name, port = pod["metadata"]["name"], port_of(address)
    assert pod["spec"]["nodeName"] == machine.name
    machine.lose_kubelet()
    watchdog.by_hand.add(pod["metadata"]["uid"])
    kubectl.delete("pod", name, one.namespace, "--force", "--grace-period=0")
    kubectl.patch("pod", name, one.namespace, {"metadata": {"finalizers": None}})
    assert f"port {port} stays withheld" in one.until_event("PortWithheld")
    until("another pod is made", lambda: [p for p in one.pods() if p["metadata"]["name"] == f"{name}-1"])
    assert port_of(one.until_ready()) != port
    assert len(serving_pods(uid)) == 2, "both serve, each behind a port of its own"
    machine.come_back()
    until("the leftover has ended", lambda: len(serving_pods(uid)) == 1)
    phases = {c["spec"]["port"]: c["status"]["phase"] for c in claims_of(kubectl, uid)}
    assert phases[port] == "Withheld", "nobody saw its end"
    give_up(kubectl, watchdog, f"port-{port}")


def test_an_instance_of_a_drained_node_goes_elsewhere_with_its_port(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    one = backend("evicted", model=EVERYWHERE, affinity=prefer(machine))
    address, uid = one.until_ready(), one.uid
    kubectl.run("cordon", machine.name)
    kubectl.run(
        *("drain", machine.name, f"--pod-selector=modelbackend.dev/backend-uid={uid}", "--timeout=170s"),
        *("--delete-emptydir-data", "--ignore-daemonsets"),
    )
    until("it runs elsewhere", lambda: [p for p in one.pods() if p["spec"].get("nodeName") == machine.other])
    assert port_of(one.until_ready()) == port_of(address)
    assert watchdog.together(uid) == []
