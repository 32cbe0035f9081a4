"""The operator dies at each of its writes, and a life of a backend is lived to its end one write at a time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.backends import Backend, claims_of, generate
from e2e.conftest import OPERATOR_NAMESPACE
from e2e.fault_proxy import Fate, FaultProxy, Write
from e2e.kubectl import Kubectl, until
from e2e.operators import Succession

Make = Callable[..., Backend]
DEPLOYMENT = ("deployment/modelbackend-operator", "-n", OPERATOR_NAMESPACE)
SETTINGS = {"NAMESPACE": OPERATOR_NAMESPACE, "REUSE_DELAY_SECONDS": "3"}


@pytest.fixture
def operators(
    no_other_operator: None, proxy: FaultProxy, tmp_path: Path, operator_logs: Path, request: pytest.FixtureRequest
) -> Iterator[Succession]:
    assert no_other_operator is None
    operators = Succession(proxy.url, tmp_path, operator_logs / f"{request.node.name}.log", SETTINGS)
    proxy.crash = operators.crash
    operators.start()
    yield operators
    proxy.fate = lambda _: Fate.PASSES
    operators.end()


def unheard(_: Write) -> Fate:
    return Fate.REPLY_IS_LOST


def late(write: Write) -> Fate:
    """Each write first comes too late; when the successor does it again, that is applied unheard."""
    return Fate.REPLY_IS_LOST if write.number % 2 else Fate.IS_LATE


@pytest.mark.parametrize("fate", [unheard, late])
def test_an_operator_that_dies_at_each_of_its_writes_finishes_a_life_one_write_at_a_time(
    kubectl: Kubectl, operators: Succession, proxy: FaultProxy, backend: Make, fate: Callable[[Write], Fate]
) -> None:
    proxy.fate = fate
    one = backend("dies-often")
    address, uid = one.until_ready(timeout_seconds=300), one.uid
    started = list(proxy.writes)
    assert generate(address, "Hello", "--max-tokens", "2")
    one.delete()
    one.until_gone(timeout_seconds=300)
    until("nothing is left in the ledger", lambda: not claims_of(kubectl, uid))
    leases = kubectl.list("leases", OPERATOR_NAMESPACE, f"modelbackend.dev/backend-uid={uid}")
    assert not leases
    print(*started, "-- Ready --", *proxy.writes[len(started) :], f"{operators.lives} operators", sep="\n")
    assert operators.lives > len(proxy.writes)
