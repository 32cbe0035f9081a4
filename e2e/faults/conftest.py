"""Every test of this folder runs under the watchdog: it fails when a promise was broken, and tells the whole story."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import pytest

from e2e.api import Api
from e2e.cluster.nodes import KindNodes, UnsupportedNodes, node_control
from e2e.conftest import OPERATOR_NAMESPACE
from e2e.fault_proxy import FaultProxy, fault_proxy
from e2e.faults.nodes import machine, weights_everywhere
from e2e.history import History
from e2e.kubectl import INTERRUPTED, Kubectl, until
from e2e.port_watchdog import PortWatchdog, Sighting
from e2e.story import story
from e2e.verdict import judge
from modelbackend_operator.settings import Settings

__all__ = ["machine", "weights_everywhere"]  # fixtures
DEPLOYMENT = ("deployment/modelbackend-operator", "-n", OPERATOR_NAMESPACE)
STORY = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def node_containers(kubectl: Kubectl) -> list[str]:
    """Their ids; none where the nodes are machines elsewhere."""
    nodes = [node["metadata"]["name"] for node in kubectl.list("nodes")]
    match node_control(nodes):
        case UnsupportedNodes():
            return []
        case KindNodes() as control:
            return control.containers(nodes)


@dataclass
class Watchdog:
    """What a test may tell it, and ask of it."""

    history: History
    _ports: PortWatchdog
    by_hand: set[str] = field(default_factory=set)
    """Uids or names of objects that the test writes as a person would: those writes are not the operator's."""
    expected: set[str] = field(default_factory=set)
    """Promises that the test breaks itself: each must be noticed."""
    settings: Settings = field(default_factory=Settings)
    """Of the operator that the test watches."""

    def seen(self) -> tuple[Sighting, ...]:
        """Every server that was met so far."""
        return self._ports.sightings

    def processes_of(self, backend_uid: str) -> list[Sighting]:
        """In the order of their starts."""
        mine = (seen for seen in self.seen() if seen.port is None and seen.backend_uid == backend_uid)
        return sorted(mine, key=lambda seen: seen.first_at)

    def together(self, backend_uid: str) -> list[str]:
        """Processes of this backend that ran at once."""
        lives = self.processes_of(backend_uid)
        return [
            f"{later.where} of pod {later.pod_uid} began {earlier.last_at - later.first_at:.1f} s before the end of "
            f"{earlier.where} of pod {earlier.pod_uid}"
            for earlier, later in combinations(lives, 2)
            if later.first_at <= earlier.last_at
        ]


@pytest.fixture(autouse=True)
def watchdog(api: Api, operator: str, node_containers: list[str], request: pytest.FixtureRequest) -> Iterator[Watchdog]:
    """Set up first and torn down last, so that the end of a test's backends is watched too."""
    assert operator
    history = History(api)
    pool = [port for first, last in Settings().node_ports for port in range(first, last + 1)]
    dog, began_at = PortWatchdog(history, pool, node_containers), time.monotonic()
    history.start()
    dog.start()
    watch = Watchdog(history, dog)
    yield watch
    if INTERRUPTED.is_set():
        return
    until("every backend of the test is gone", lambda: not api.list("modelbackends"))
    history.catch_up()
    dog.stop()
    history.stop()
    versions, sightings = history.versions, dog.sightings
    found = list(judge(versions, sightings, watch.by_hand, watch.settings))
    told = story(versions, sightings, found, began_at)
    request.node.stash[STORY] = told
    unexpected = [b for b in found if b.sentence.partition(":")[0] not in watch.expected]
    missed = watch.expected - {b.sentence.partition(":")[0] for b in found}
    cost = dog.cpu_seconds / (time.monotonic() - began_at)
    print(
        f"\nwatchdog: {len(versions)} versions, {len(sightings)} servers seen, {dog.rounds} rounds, {cost:.0%} of a CPU"
    )
    if unexpected:
        pytest.fail("\n".join(b.sentence for b in unexpected) + f"\n\n{told}", pytrace=False)
    if missed:
        pytest.fail(f"the watchdog did not notice a breach of {', '.join(sorted(missed))}\n\n{told}", pytrace=False)
    if request.node.stash.get(FAILED, False):
        print(told)


@pytest.fixture(scope="module")
def no_other_operator(kubectl: Kubectl, operator: str) -> Iterator[None]:
    kubectl.run("scale", *DEPLOYMENT, "--replicas=0")
    selector = "app.kubernetes.io/name=modelbackend-operator"
    until("no operator runs in the cluster", lambda: not kubectl.list("pods", operator, selector))
    yield
    kubectl.run("scale", *DEPLOYMENT, "--replicas=1")
    kubectl.run("rollout", "status", *DEPLOYMENT)


@pytest.fixture
def proxy(api: Api) -> Iterator[FaultProxy]:
    with fault_proxy(api.port) as proxy:
        yield proxy


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        item.stash[FAILED] = True
    return report
