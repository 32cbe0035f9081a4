"""Two operators work on the same backends at once: they disturb each other, and break nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.backends import Backend, claims_of, generate
from e2e.conftest import OPERATOR_NAMESPACE
from e2e.fault_proxy import FaultProxy
from e2e.faults.conftest import Watchdog
from e2e.kubectl import Kubectl, until
from e2e.operators import Succession

Make = Callable[..., Backend]


@pytest.fixture
def second_operator(proxy: FaultProxy, tmp_path: Path) -> Iterator[Succession]:
    second = Succession(proxy.url, tmp_path, {"NAMESPACE": OPERATOR_NAMESPACE, "REUSE_DELAY_SECONDS": "3"})
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
        until("nothing is left in the ledger", lambda u=uid: not claims_of(kubectl, u), timeout_seconds=60)  # type: ignore[misc]
        assert watchdog.alone(uid)
    assert proxy.writes, "the second operator never wrote"
    assert not kubectl.list("leases", OPERATOR_NAMESPACE, "app.kubernetes.io/managed-by=modelbackend-operator")
