"""A cluster that removes a Node only when its machine is gone, as the operator was told: is believed, and found out."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.backends import Backend, port_of
from e2e.conftest import OPERATOR_NAMESPACE
from e2e.fault_proxy import FaultProxy
from e2e.faults.conftest import Watchdog
from e2e.faults.nodes import EVERYWHERE, Machine, prefer
from e2e.faults.test_deletes import serving_pods
from e2e.faults.test_unproven_ends import SOON, claim_on, until_released
from e2e.kubectl import Kubectl, until
from e2e.operators import Succession
from modelbackend_operator.kinds import Kind
from modelbackend_operator.settings import NodeRemoved, Settings

Make = Callable[..., Backend]
pytestmark = pytest.mark.node_faults


@pytest.fixture
def believer(
    no_other_operator: None, proxy: FaultProxy, tmp_path: Path, operator_logs: Path, request: pytest.FixtureRequest
) -> Iterator[Succession]:
    assert no_other_operator is None
    settings = {
        "NAMESPACE": OPERATOR_NAMESPACE,
        "EVIDENCE_NODE_REMOVED": str(NodeRemoved.ACCEPT),
        "REUSE_DELAY_SECONDS": "3",
    }
    operators = Succession(proxy.url, tmp_path, operator_logs / f"{request.node.name}.log", settings)
    operators.start()
    yield operators
    operators.end()


def told_of_return(watchdog: Watchdog, port: int) -> bool:
    """In any version of the claim."""
    claims = (version.raw for version in watchdog.history.versions if version.kind is Kind.CLAIM)
    told = (claim.get("status", {}).get("history", ()) for claim in claims if claim["spec"]["port"] == port)
    return any(past.get("returned") for history in told for past in history)


def test_a_removed_node_is_proof_where_the_cluster_says_so_but_not_while_its_server_answers(
    kubectl: Kubectl, believer: Succession, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    watchdog.settings = Settings(evidence_node_removed=NodeRemoved.ACCEPT)
    one = backend("removed", model=EVERYWHERE, affinity=prefer(machine), shutdown=SOON, exposure={"type": "HostPort"})
    port, uid = port_of(one.until_ready()), one.uid
    (pod,) = one.pods()
    pod_uid = pod["metadata"]["uid"]
    assert pod["spec"]["nodeName"] == machine.name
    machine.lose_kubelet()
    one.delete()
    kubectl.delete("node", machine.name)
    one.until_gone()
    until("its answer is told", lambda: claim_on(kubectl, port).get("reason") == "StillAnswering")
    assert claim_on(kubectl, port)["phase"] == "Withheld"
    assert serving_pods(uid) == {pod_uid}
    machine.die()
    assert until_released(watchdog, port, pod_uid) == "NodeRemoved"
    machine.come_back()
    until("its return is told", lambda: told_of_return(watchdog, port))
    until("nothing proves the end any more", lambda: claim_on(kubectl, port).get("reason") == "NodeReturned")
    assert claim_on(kubectl, port)["phase"] == "Withheld"
    kubectl.run("annotate", "portclaim", f"port-{port}", f"modelbackend.dev/attest={pod_uid} the machine was looked at")
    until("the port is free", lambda: not claim_on(kubectl, port))
    assert believer.lives == 1
