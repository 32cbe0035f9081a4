"""A namespace, or the kinds themselves, are deleted under a backend that serves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.backends import SMOLLM2, TINY, Backend, claims_of, manifest, stream
from e2e.conftest import smollm2, tenant
from e2e.faults.test_deletes import STREAM, serving_pods
from e2e.kubectl import Kubectl, until
from e2e.weights import tiny_model


@pytest.fixture
def doomed(kubectl: Kubectl, operator: str, tmp_path: Path) -> Iterator[str]:
    assert operator
    weights = {TINY: tiny_model(tmp_path / TINY), SMOLLM2: smollm2()}
    tenants = tenant(kubectl, "doomed", weights)
    yield next(tenants)
    next(tenants, None)


def test_a_namespace_that_is_deleted_lets_streams_end_and_is_gone_with_proof(kubectl: Kubectl, doomed: str) -> None:
    kubectl.apply(
        manifest("in-doom", doomed, file=SMOLLM2), manifest("waits-in-doom", doomed, suspend=None, replicas=0)
    )
    one = Backend(kubectl, "in-doom", doomed)
    address, uid = one.until_ready(), one.uid
    running = stream(address, *STREAM)
    kubectl.delete("namespace", doomed)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    until("the namespace is gone", lambda: kubectl.get("namespace", doomed) is None, timeout_seconds=120)
    assert not serving_pods(uid)
    assert [c["status"]["evidence"] for c in claims_of(kubectl, uid)] in (["ContainersTerminated"], [])
    until("nothing is left in the ledger", lambda: not claims_of(kubectl, uid), timeout_seconds=60)
