"""Deletes of every kind, plain, impatient and by force: what they may not do to a process, a stream and a port.

These are faults that an operator makes which takes a missing object for an ended process.
"""

from collections.abc import Callable

import pytest

from e2e.backends import SMOLLM2, STREAM, STREAM_SECONDS, Backend, claims_of, stream
from e2e.faults.conftest import Watchdog
from e2e.kubectl import Kubectl, until
from e2e.processes import SERVER, running

Make = Callable[..., Backend]


def serving_pods(backend_uid: str) -> set[str]:
    """Of that backend, by the nodes' own process tables."""
    return {program.pod_uid for program in running(SERVER) if program.backend_uid == backend_uid}


@pytest.mark.parametrize("flags", [(), ("--force", "--grace-period=0")], ids=" ".join)
def test_a_deleted_backend_lets_its_stream_end_and_outlives_its_process(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog, flags: tuple[str, ...]
) -> None:
    one = backend("deleted", file=SMOLLM2)
    address, uid = one.until_ready(), one.uid
    running_stream = stream(address, *STREAM)
    one.delete(*flags)
    _, errors = running_stream.communicate(timeout=STREAM_SECONDS)
    assert running_stream.returncode == 0, errors
    one.until_gone()
    assert not serving_pods(uid), "the object is gone and its process serves"
    (claim,) = claims_of(kubectl, uid)
    assert (claim["status"]["phase"], claim["status"]["evidence"]) == ("Cooling", "ContainersTerminated")
    assert watchdog.together(uid) == []


@pytest.mark.parametrize("exposure", ["NodePort", "HostPort"])
def test_a_force_deleted_pod_has_no_successor_beside_it(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog, exposure: str
) -> None:
    one = backend("forced", file=SMOLLM2, exposure={"type": exposure})
    one.until_ready()
    uid = one.uid
    for _ in range(2):  # an impatient person
        (pod,) = one.pods()
        kubectl.delete("pod", pod["metadata"]["name"], one.namespace, "--force", "--grace-period=0")
        until("another pod is there", lambda p=pod: {q["metadata"]["uid"] for q in one.pods()} - {p["metadata"]["uid"]})  # type: ignore[misc]
        one.until_ready()
    assert len({life.pod_uid for life in watchdog.processes_of(uid)}) == 3
    assert watchdog.together(uid) == []
    (claim,) = claims_of(kubectl, uid)
    assert [past["evidence"] for past in claim["status"]["history"]] == ["ContainersTerminated"] * 2


def test_a_pod_whose_finalizer_is_stripped_leaves_its_port_to_nobody_else(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog
) -> None:
    """The kubelet is there and ends the process. Whether its last word is still seen is a race; both ends are right."""
    one = backend("stripped")
    one.until_ready()
    (pod,), uid = one.pods(), one.uid
    watchdog.by_hand.add(pod["metadata"]["uid"])
    kubectl.run(
        *("delete", "pod", pod["metadata"]["name"], "-n", one.namespace, "--force", "--grace-period=0", "--wait=false")
    )
    kubectl.run(
        *("patch", "pod", pod["metadata"]["name"], "-n", one.namespace, "--type=merge"),
        *("-p", '{"metadata":{"finalizers":null}}'),
    )
    until("another pod is there", lambda: {q["metadata"]["uid"] for q in one.pods()} - {pod["metadata"]["uid"]})
    one.until_ready()
    for claim in claims_of(kubectl, uid):
        named = claim["status"].get("pod", {}).get("uid") == pod["metadata"]["uid"]
        assert claim["status"]["phase"] == ("Withheld" if named else "Bound"), claim["status"]
        if named:  # the process has ended, which this test knows and the operator cannot
            assert pod["metadata"]["uid"] not in serving_pods(uid)
            give_up(kubectl, watchdog, claim["metadata"]["name"])


def give_up(kubectl: Kubectl, watchdog: Watchdog, claim: str) -> None:
    """Free a port that nothing will ever prove free, as a person who knows better."""
    watchdog.by_hand.add(claim)
    kubectl.patch("portclaim", claim, "", {"metadata": {"finalizers": None}})
    kubectl.delete("portclaim", claim)
