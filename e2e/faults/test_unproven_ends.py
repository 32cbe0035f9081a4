"""An end that nobody proves in time: what goes on without it, what is kept from everybody, and what settles it late."""

from collections.abc import Callable

import pytest

from e2e.backends import Backend, claims_of, generate, port_of
from e2e.faults.conftest import Watchdog
from e2e.faults.nodes import EVERYWHERE, Machine, on, prefer
from e2e.faults.test_deletes import serving_pods
from e2e.kubectl import Kubectl, Object, until
from modelbackend_operator.kinds import Kind

Make = Callable[..., Backend]
pytestmark = pytest.mark.node_faults
SOON: Object = {"drainSeconds": 20, "terminationGraceSeconds": 1, "unconfirmedAfterSeconds": 3}


def claim_on(kubectl: Kubectl, port: int) -> Object:
    """Its status; empty when there is no such claim."""
    claim = kubectl.get("portclaim", f"port-{port}")
    return claim["status"] if claim else {}


def until_released(watchdog: Watchdog, port: int, pod_uid: str) -> str:
    """By what evidence, as the ledger told while the port cooled or in the history that it keeps."""

    def evidence() -> str | None:
        for version in watchdog.history.versions:
            if version.kind is not Kind.CLAIM or version.raw["spec"]["port"] != port:
                continue
            status = version.raw.get("status", {})
            if status.get("phase") == "Cooling" and status["pod"]["uid"] == pod_uid:
                return str(status["evidence"])
        return None

    return until(f"port {port} is released", evidence)


def test_two_live_instances_of_a_lost_node_and_of_its_replacement_never_share_a_port(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    """Lost, deleted, made again: the worst that a missing object can be taken for."""
    one = backend("handed-over", model=EVERYWHERE, affinity=prefer(machine), shutdown=SOON)
    port, uid = port_of(one.until_ready()), one.uid
    (pod,) = one.pods()
    assert pod["spec"]["nodeName"] == machine.name
    machine.lose_kubelet()
    one.delete()
    one.until_gone()
    assert serving_pods(uid) == {pod["metadata"]["uid"]}, "its process serves on"
    assert claim_on(kubectl, port)["phase"] == "Withheld"
    again = backend("handed-over", model=EVERYWHERE, affinity=prefer(machine), shutdown=SOON)
    address = again.until_ready()
    assert port_of(address) != port
    assert generate(address, "Hello", "--max-tokens", "2") is not None
    assert serving_pods(uid), "both are alive"
    machine.come_back()
    assert until_released(watchdog, port, pod["metadata"]["uid"]) == "ContainersTerminated"
    assert not serving_pods(uid)
    until("the old port is free", lambda: not claims_of(kubectl, uid))


def test_who_wants_to_wait_for_proof_waits_and_says_for_what(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    one = backend("waits", **on(machine), shutdown={**SOON, "whenUnconfirmed": "Wait"})
    port, uid = port_of(one.until_ready()), one.uid
    (pod,) = one.pods()
    machine.lose_kubelet()
    one.delete()
    told = until("it is told unconfirmed", lambda: one.condition("Unconfirmed").get("message"))
    assert machine.name in told
    assert pod["metadata"]["name"] in told
    assert claim_on(kubectl, port)["phase"] == "Bound"
    machine.come_back()
    one.until_gone()
    assert until_released(watchdog, port, pod["metadata"]["uid"]) == "ContainersTerminated"
    assert not serving_pods(uid)


def test_an_instance_on_a_lost_node_is_replaced_after_as_long_as_its_spec_says(
    backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    one = backend("moved", model=EVERYWHERE, affinity=prefer(machine), shutdown={**SOON, "nodeLossSeconds": 2})
    port, uid = port_of(one.until_ready()), one.uid
    (pod,) = one.pods()
    assert pod["spec"]["nodeName"] == machine.name
    machine.lose_kubelet()
    until("it runs elsewhere", lambda: [p for p in one.pods() if p["spec"].get("nodeName") == machine.other])
    assert port_of(one.until_ready()) != port
    assert "NodeLost" in stop_reasons(watchdog, uid)
    machine.come_back()
    assert until_released(watchdog, port, pod["metadata"]["uid"]) == "ContainersTerminated"


def stop_reasons(watchdog: Watchdog, backend_uid: str) -> set[str]:
    """Why instances of it were stopped, as its status told."""
    statuses = (
        version.raw.get("status") or {}
        for version in watchdog.history.versions
        if version.kind is Kind.BACKEND and version.raw["metadata"]["uid"] == backend_uid
    )
    instances = (instance for status in statuses for instance in status.get("instances", ()))
    return {instance["stop"]["reason"] for instance in instances if instance.get("stop")}


def test_a_taint_that_says_that_the_machine_is_off_is_proof(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    one = backend("switched-off", **on(machine))
    port = port_of(one.until_ready())
    (pod,) = one.pods()
    machine.die()
    one.delete()
    machine.until_lost()
    assert claim_on(kubectl, port)["phase"] == "Bound"
    machine.taint_out_of_service()
    one.until_gone()
    assert until_released(watchdog, port, pod["metadata"]["uid"]) == "OutOfService"


def torn_out(kubectl: Kubectl, one: Backend, machine: Machine, watchdog: Watchdog) -> tuple[str, int]:
    """The pod's uid and its port: the object is torn out while no kubelet can say a word of it."""
    port = port_of(one.until_ready())
    (pod,) = one.pods()
    name, pod_uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    machine.lose_kubelet()
    watchdog.by_hand.add(pod_uid)
    kubectl.delete("pod", name, one.namespace, "--force", "--grace-period=0")
    kubectl.patch("pod", name, one.namespace, {"metadata": {"finalizers": None}})
    until("its port is withheld", lambda: claim_on(kubectl, port).get("phase") == "Withheld")
    return pod_uid, port


def test_a_reboot_proves_the_end_of_a_pod_that_was_torn_out_and_a_restart_of_the_kubelet_does_not(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    """A reboot in two parts: every process of the machine ends, then it reports another boot id."""
    one = backend("rebooted", model=EVERYWHERE, affinity=prefer(machine))
    uid = one.uid
    pod_uid, port = torn_out(kubectl, one, machine, watchdog)
    assert port_of(one.until_ready()) != port
    machine.come_back()
    until("the leftover has ended", lambda: pod_uid not in serving_pods(uid))
    until("the ledger has a boot to compare with", lambda: claim_on(kubectl, port).get("node", {}).get("bootID"))
    assert claim_on(kubectl, port)["phase"] == "Withheld", "the same boot proves nothing"
    machine.die()
    machine.come_back()
    assert claim_on(kubectl, port)["phase"] == "Withheld", "a machine that came back with the same boot proves nothing"
    machine.control.change_boot_id(machine.name)
    assert until_released(watchdog, port, pod_uid) == "NodeRebooted"


def test_an_administrators_word_frees_a_withheld_port_only_for_the_pod_that_it_names(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    """And not while the server of that pod answers on the port, whatever anybody says."""
    one = backend("attested", model=EVERYWHERE, affinity=prefer(machine), exposure={"type": "HostPort"})
    uid = one.uid
    pod_uid, port = torn_out(kubectl, one, machine, watchdog)
    annotate = ("annotate", "--overwrite", "portclaim", f"port-{port}")
    kubectl.run(*annotate, "modelbackend.dev/attest=another-pod looked at")
    until("the word about another pod is refused", lambda: "another-pod" in str(claim_on(kubectl, port).get("message")))
    assert claim_on(kubectl, port)["phase"] == "Withheld"
    kubectl.run(*annotate, f"modelbackend.dev/attest={pod_uid} the machine was looked at")
    until("its answer is told", lambda: claim_on(kubectl, port).get("reason") == "StillAnswering")
    assert claim_on(kubectl, port)["phase"] == "Withheld"
    assert pod_uid in serving_pods(uid)
    machine.come_back()
    assert until_released(watchdog, port, pod_uid) == "Attested"
