"""Two operator processes against a real API server: one works, the other stands by and takes over."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.apiserver.harness import ApiServer, await_condition
from tests.apiserver.operator_account import NAMESPACE
from tests.apiserver.test_process import PATIENCE_SECONDS, Operator, account, make_backend, operator, pods

pytestmark = pytest.mark.apiserver
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/modelbackend-operator-leader"
TIMES = {
    "leader_election": "true",
    "leader_lease_seconds": "4",
    "leader_renew_deadline_seconds": "2.5",
    "leader_retry_seconds": "0.3",
}
__all__ = ["account"]


def leads(running: Operator) -> bool:
    return "modelbackend_operator_is_leader 1.0" in running.http("/metrics")[1]


@contextmanager
def two(account: Path, tmp_path: Path) -> Iterator[tuple[Operator, Operator]]:
    """The one that leads first; both are ready."""
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(operator(account, tmp_path / name, ready=True, **TIMES)) for name in ("one", "two")
        )
        await_condition("one of two to lead", lambda: leads(first) != leads(second), PATIENCE_SECONDS)
        yield (first, second) if leads(first) else (second, first)


def let_through(server: ApiServer, namespace: str) -> int:
    return sum(1 for pod in pods(server, namespace) if not pod["spec"].get("schedulingGates"))


def test_a_leader_that_is_paused_is_replaced_and_does_nothing_when_it_goes_on(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with two(account, tmp_path) as (leader, standby):
        make_backend(api_server, namespace, "before")
        await_condition("a gate to open", lambda: let_through(api_server, namespace) == 1, PATIENCE_SECONDS)
        leader.process.send_signal(signal.SIGSTOP)
        make_backend(api_server, namespace, "meanwhile")
        await_condition("the other one to go on", lambda: let_through(api_server, namespace) == 2, PATIENCE_SECONDS)
        assert leads(standby)
        holder = api_server.get(LEASE).body["spec"]["holderIdentity"]

        leader.process.send_signal(signal.SIGCONT)
        assert leader.process.wait(timeout=PATIENCE_SECONDS) == 1
        assert "does not lead any more" in leader.log.read_text()
        assert api_server.get(LEASE).body["spec"]["holderIdentity"] == holder
        assert standby.process.poll() is None
        assert len(pods(api_server, namespace)) == 2


def test_a_leader_that_is_told_to_stop_hands_over_at_once(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with two(account, tmp_path) as (leader, standby):
        assert leader.stop() == 0
        # Sooner than the Lease would have run out.
        await_condition("the other one to lead", lambda: leads(standby), float(TIMES["leader_lease_seconds"]))
        make_backend(api_server, namespace)
        await_condition("a gate to open", lambda: let_through(api_server, namespace) == 1, PATIENCE_SECONDS)
        assert standby.stop() == 0


def test_one_that_stands_by_is_ready_and_stops_when_told(account: Path, tmp_path: Path) -> None:
    with two(account, tmp_path) as (_, standby):
        assert standby.http("/readyz") == (200, "ok")
        assert standby.http("/healthz") == (200, "ok")
        assert standby.stop() == 0
