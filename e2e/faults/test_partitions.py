"""A node whose cable is pulled: nothing is concluded from its silence, and all goes on when it speaks again."""

from collections.abc import Callable

import pytest

from e2e.backends import Backend, claims_of, generate
from e2e.faults.conftest import Watchdog
from e2e.faults.nodes import Machine, awaits_proof, on
from e2e.faults.test_deletes import serving_pods
from e2e.kubectl import Kubectl, Object, until

Make = Callable[..., Backend]
pytestmark = pytest.mark.node_faults
PATIENT: Object = {"drainSeconds": 5, "unconfirmedAfterSeconds": 600}


def test_behind_a_partition_a_deletion_waits_and_what_is_not_deleted_serves_on_when_it_is_healed(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    ended, kept = backend("cut-deleted", **on(machine), shutdown=PATIENT), backend("cut-kept", **on(machine))
    ended.until_ready()
    address, uid, kept_uid = kept.until_ready(), ended.uid, kept.uid
    machine.cut_off()
    ended.delete()
    assert machine.name in until("it awaits proof", lambda: awaits_proof(ended))
    until("the address of the other is withdrawn", lambda: not kept.status.get("endpoints"))
    assert len(serving_pods(uid)) == 1, "its process serves on"
    assert [claim["status"]["phase"] for claim in claims_of(kubectl, uid)] == ["Bound"]
    machine.connect()
    ended.until_gone()
    assert not serving_pods(uid)
    assert [claim["status"]["evidence"] for claim in claims_of(kubectl, uid)] in (["ContainersTerminated"], [])
    assert kept.until_ready() == address
    assert generate(address, "Hello", "--max-tokens", "2") is not None
    assert len(watchdog.processes_of(kept_uid)) == 1, "it was never touched"
