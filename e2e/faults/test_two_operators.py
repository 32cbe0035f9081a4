"""Two operators work on the same backends at once: they disturb each other, and break nothing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.api import Api
from e2e.backends import SMOLLM2, STREAM, STREAM_SECONDS, Backend, claims_of, generate, stream
from e2e.conftest import OPERATOR_NAMESPACE
from e2e.fault_proxy import FaultProxy, fault_proxy
from e2e.faults.conftest import Watchdog
from e2e.kubectl import Kubectl, until
from e2e.operators import Succession

Make = Callable[..., Backend]


@pytest.fixture
def second_operator(proxy: FaultProxy, tmp_path: Path, operator_logs: Path) -> Iterator[Succession]:
    settings = {"NAMESPACE": OPERATOR_NAMESPACE, "REUSE_DELAY_SECONDS": "3"}
    second = Succession(proxy.url, tmp_path, operator_logs / "second-operator.log", settings)
    second.start()
    yield second
    second.end()


def test_two_operators_at_once_bring_every_backend_through_its_life(
    kubectl: Kubectl, second_operator: Succession, proxy: FaultProxy, backend: Make, watchdog: Watchdog
) -> None:
    one_model = {"name": "shared-by-two"}
    ones = [backend("two-a"), backend("two-b", model=one_model), backend("two-c", model=one_model)]
    uids = [one.uid for one in ones]
    for one in ones:
        one.until_ready()
    for one in ones:
        kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"runtime": {"contextLength": 512}}})
    second_operator.crash()
    for one in ones:
        until("it serves anew", lambda o=one: o.status.get("model", {}).get("contextLength") == 512)  # type: ignore[misc]
        assert generate(one.until_ready(), "Hello", "--max-tokens", "2") is not None
    for one in ones:
        one.delete()
    for one in ones:
        one.until_gone()
    for uid in uids:
        until("nothing is left in the ledger", lambda u=uid: not claims_of(kubectl, u))  # type: ignore[misc]
        assert watchdog.together(uid) == []
    assert proxy.writes, "the second operator never wrote"
    assert not kubectl.list("leases", OPERATOR_NAMESPACE, "app.kubernetes.io/managed-by=modelbackend-operator")


ELECTION = {"LEADER_ELECTION": "true", "LEADER_LEASE_SECONDS": "12", "LEADER_RENEW_DEADLINE_SECONDS": "9"}
TIMING = {"LEADER_RETRY_SECONDS": "1", "REUSE_DELAY_SECONDS": "3", "NAMESPACE": OPERATOR_NAMESPACE}


def test_a_leader_that_stands_still_is_followed_and_when_it_goes_on_writes_nothing_more(
    no_other_operator: None, api: Api, backend: Make, watchdog: Watchdog, tmp_path: Path, operator_logs: Path
) -> None:
    assert no_other_operator is None
    with fault_proxy(api.port) as one_way, fault_proxy(api.port) as another_way, ExitStack() as ending:
        operators: list[Succession] = []
        for way in (one_way, another_way):
            number = len(operators)
            folder = tmp_path / str(number)
            folder.mkdir()
            log = operator_logs / f"candidate-{number}.log"
            operators.append(Succession(way.url, folder, log, ELECTION | TIMING))
            ending.callback(operators[-1].end)
        leader, follower = operators
        leader.start()
        one = backend("led", file=SMOLLM2)
        address, uid = one.until_ready(), one.uid
        follower.start()
        running = stream(address, *STREAM)
        one.delete()
        until("it drains", lambda: one.condition("Drained"))
        leader.freeze()
        written = len(one_way.writes)
        other = backend("led-by-another")
        other.until_ready()
        assert another_way.writes
        leader.thaw()
        _, errors = running.communicate(timeout=STREAM_SECONDS)
        assert running.returncode == 0, errors
        one.until_gone()
        other.delete()
        other.until_gone()
        late = [write for write in one_way.writes[written:] if "/leases" not in write.path]
        assert len(late) <= 1, late  # one that was under way, whose precondition holds or does not
        assert watchdog.together(uid) == []
