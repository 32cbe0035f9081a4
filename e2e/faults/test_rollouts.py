"""Changes under traffic: a caller who follows the backend by its name sees no call fail, and promises hold."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from e2e.backends import SMOLLM2, STREAM, STREAM_SECONDS, UID_LABEL, Backend, claims_of, port_of, stream
from e2e.faults.conftest import Watchdog
from e2e.faults.nodes import EVERYWHERE, Machine, prefer
from e2e.history import Version
from e2e.kubectl import Kubectl, until
from e2e.traffic import traffic
from modelbackend_operator.kinds import Kind

Make = Callable[..., Backend]


@pytest.fixture(autouse=True)
def kubeconfig_of_users(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubectl.kubeconfig))


def change(kubectl: Kubectl, one: Backend) -> None:
    """Any edit that needs new pods; returns once the rollout is through."""
    old = {pod["metadata"]["uid"] for pod in one.pods()}
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"runtime": {"contextLength": 512}}})
    until("no pod of the old spec is left", lambda: not old & {pod["metadata"]["uid"] for pod in one.pods()})
    one.until_ready()


def addresses(watchdog: Watchdog, uid: str, since: int) -> Iterator[Sequence[str]]:
    """What the status told callers, version by version."""
    versions: Sequence[Version] = watchdog.history.versions[since:]
    for version in versions:
        if version.kind is Kind.BACKEND and version.raw["metadata"]["uid"] == uid:
            yield [endpoint["address"] for endpoint in version.raw["status"].get("endpoints", ())]


def most_at_once(watchdog: Watchdog, uid: str) -> int:
    """How many processes of it ever ran at the same time."""
    lives = watchdog.processes_of(uid)
    return max(sum(other.first_at <= life.first_at <= other.last_at for other in lives) for life in lives)


def test_recreate_replaces_one_instance_at_a_time_behind_its_port_while_the_other_answers(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog
) -> None:
    one = backend("recreated", replicas=2)
    one.until_ready()
    uid, ports = one.uid, {claim["spec"]["port"] for claim in claims_of(kubectl, one.uid)}
    began = len(watchdog.history.versions)
    with traffic(one) as calls:
        change(kubectl, one)
    assert not calls.failures
    assert all(addresses(watchdog, uid, began)), "at some moment nobody was there to ask"
    assert {claim["spec"]["port"] for claim in claims_of(kubectl, uid)} == ports
    assert most_at_once(watchdog, uid) == 2


def test_surge_lets_the_new_pod_serve_before_the_old_one_goes_and_its_stream_comes_whole(
    kubectl: Kubectl, backend: Make, watchdog: Watchdog
) -> None:
    one = backend("surged", rollout="Surge", file=SMOLLM2)
    address, uid = one.until_ready(), one.uid
    began = len(watchdog.history.versions)
    running = stream(address, *STREAM)
    with traffic(one) as calls:
        change(kubectl, one)
    assert not calls.failures
    _, errors = running.communicate(timeout=STREAM_SECONDS)
    assert running.returncode == 0, errors
    assert all(addresses(watchdog, uid, began)), "at some moment nobody was there to ask"
    assert port_of(one.until_ready()) != port_of(address), "each of the two had a port of its own"
    assert most_at_once(watchdog, uid) == 2


@pytest.mark.node_faults
def test_a_drained_node_gives_up_one_replica_at_a_time(
    kubectl: Kubectl, backend: Make, machine: Machine, watchdog: Watchdog
) -> None:
    one = backend("drained", replicas=2, model=EVERYWHERE, affinity=prefer(machine))
    one.until_ready()
    uid = one.uid
    assert {pod["spec"]["nodeName"] for pod in one.pods()} == {machine.name}
    began = len(watchdog.history.versions)
    with traffic(one) as calls:
        kubectl.run("cordon", machine.name)
        kubectl.run(
            *("drain", machine.name, f"--pod-selector={UID_LABEL}={uid}", "--timeout=170s"),
            *("--delete-emptydir-data", "--ignore-daemonsets"),
        )
        until("both run elsewhere", lambda: [p["spec"].get("nodeName") for p in one.pods()] == [machine.other] * 2)
        one.until_ready()
    assert not calls.failures
    assert all(addresses(watchdog, uid, began)), "at some moment nobody was there to ask"
