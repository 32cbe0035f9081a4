"""A namespace, or the kinds themselves, are deleted under a backend that serves."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.backends import SMOLLM2, STREAM_SECONDS, TINY, Backend, claims_of, manifest, stream
from e2e.conftest import ROOT, smollm2, tenant
from e2e.faults.test_deletes import serving_pods
from e2e.kubectl import PATIENCE_SECONDS, Kubectl, until
from e2e.weights import tiny_model

KINDS = ("modelbackends.modelbackend.dev", "portclaims.modelbackend.dev")


@pytest.fixture
def doomed(kubectl: Kubectl, operator: str, tmp_path: Path) -> Iterator[str]:
    assert operator
    weights = {TINY: tiny_model(tmp_path / TINY), SMOLLM2: smollm2()}
    tenants = tenant(kubectl, "doomed", weights)
    yield next(tenants)
    next(tenants, None)


def test_a_namespace_that_is_deleted_lets_streams_end_and_is_gone_with_proof(kubectl: Kubectl, doomed: str) -> None:
    patient = {"drainSeconds": 60}  # the namespace is looked at again after half a pod's grace period
    kubectl.apply(
        manifest("in-doom", doomed, file=SMOLLM2, shutdown=patient), manifest("waits-in-doom", doomed, replicas=0)
    )
    one = Backend(kubectl, "in-doom", doomed)
    address, uid = one.until_ready(), one.uid
    running = stream(address, "Once upon a time", "--max-tokens", "60", "--temperature", "0")
    kubectl.delete("namespace", doomed)
    _, errors = running.communicate(timeout=STREAM_SECONDS)
    assert running.returncode == 0, errors
    until("the namespace is gone", lambda: kubectl.get("namespace", doomed) is None)
    assert not serving_pods(uid)
    assert [c["status"]["evidence"] for c in claims_of(kubectl, uid)] in (["ContainersTerminated"], [])
    until("nothing is left in the ledger", lambda: not claims_of(kubectl, uid))


def test_kinds_that_are_deleted_take_their_objects_along_with_proof_and_are_served_when_they_are_back(
    kubectl: Kubectl, backend: Callable[..., Backend]
) -> None:
    one = backend("without-kind")
    one.until_ready()
    uid = one.uid
    deletion = subprocess.Popen(kubectl.command("delete", "crd", *KINDS), stdout=subprocess.PIPE, text=True)
    words, _ = deletion.communicate(timeout=PATIENCE_SECONDS)
    assert deletion.returncode == 0, words
    assert not serving_pods(uid), "the kind is gone and a process of it serves"
    kubectl.run("apply", "--server-side", "-f", str(ROOT / "crds"))
    kubectl.run("wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=170s")
    backend("without-kind").until_ready()
