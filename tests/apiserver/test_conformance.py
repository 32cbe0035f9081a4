"""The fake cluster of `tests/sim` against a real API server: the same operations have the same outcomes, and what is
observed afterwards is the same but for uids, versions and times.

The operations are drawn at random from all that the operator can write, also from looks that are old, and from what
people and kubelets do to its objects. No controller runs on either side.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest

from modelbackend_operator import actions as do
from modelbackend_operator.actions import Action
from modelbackend_operator.drain_client import DrainClient
from modelbackend_operator.kinds import Kind
from modelbackend_operator.kubernetes_api import KubernetesApi
from modelbackend_operator.kubernetes_cluster import KubernetesCluster
from modelbackend_operator.manifests import pod_name, service_name, shared_service_name
from modelbackend_operator.model.backend import PortRole
from modelbackend_operator.model.lease import Holder, Lease
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod, PodPhase
from modelbackend_operator.model.stop import StopReason, StopRecord
from modelbackend_operator.outcome import Applied
from modelbackend_operator.settings import Settings
from tests.apiserver.harness import ApiServer
from tests.apiserver.operator_account import NAMESPACE, operator_kubeconfig
from tests.sim.world import World
from tests.unit.builders import ENDED

pytestmark = pytest.mark.apiserver

STEPS = 60
SEEDS = range(8)
FIRST_PORT = 31500
NODE = NodeId("node-1", "node-uid", "boot-1")
TIMED = (do.BindClaim, do.ReserveClaim, do.CoolClaim, do.WithholdClaim, do.SetServing, do.RemakeToken, do.HandOver)
RECORDED_AT = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def account(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return operator_kubeconfig(api_server, tmp_path_factory.mktemp("conformance"))


@pytest.fixture
async def cluster(account: Path) -> AsyncIterator[KubernetesCluster]:
    api = await KubernetesApi.connect(str(account), timeout_seconds=10)
    servers = DrainClient(b"key", timeout_seconds=1)
    yield KubernetesCluster(api, servers, Settings(namespace=NAMESPACE), operator_key=b"key")
    await api.aclose()


# -- what is compared -------------------------------------------------------------------------------------------------


def seen(look: Observation) -> dict[str, Any]:
    """Every fact that the rules may read, with names in the place of uids."""
    names = {pod.ref.uid: pod.ref.name for pod in look.pods}
    found: dict[str, Any] = {}
    if look.backend is not None:
        backend = look.backend
        found["backend"] = (backend.has_finalizer, backend.deleting_since is not None, backend.ordinals)
        found["status"] = backend.status.get("replicas")
    for pod in look.pods:
        stop = (pod.stop.reason, pod.stop.epoch != "") if pod.stop is not None else None
        witness = pod.handed_over is not None
        marks = (pod.gated, pod.serving_label, pod.serving_condition, pod.has_finalizer, pod.labels_intact, witness)
        deletion = (pod.deleting, pod.grace_seconds)
        ports = (pod.host_port, pod.http_host_port)
        found[f"pod {pod.ref.name}"] = (pod.ordinal, ports, marks, stop, deletion, pod.phase, pod.node)
    for claim in look.claims:
        holder = (claim.pod_name, claim.pod_uid in names, claim.node.name if claim.node else "")
        told = (claim.role, claim.reference_boot_id, claim.evidence, claim.reason)
        found[claim.ref.name] = (claim.ordinal, claim.phase, holder, claim.has_finalizer, claim.terminating, told)
    for service in look.services:
        leads_to = names.get(service.pod_uid, bool(service.pod_uid))
        found[f"Service {service.ref.name}"] = (service.ordinal, service.node_ports, leads_to, service.intact)
    if look.lease is not None and look.lease.holder is not None:
        holding = look.lease.holder
        found["Lease"] = (holding.ordinal, names.get(holding.pod_uid, "gone"), holding.purpose)
    return found


# -- what is done -----------------------------------------------------------------------------------------------------


def writes(look: Observation, port: int) -> Iterator[Action]:
    """All that the operator could write after this look, sensible or not."""
    backend = look.backend
    if backend is not None:
        yield from (do.AddFinalizer(backend), do.RemoveFinalizer(backend), do.WriteStatus(backend, {"replicas": 1}))
        yield do.CreateClaim(backend, 0, port)
        yield do.CreateClaim(backend, 0, port + len(SEEDS), PortRole.HTTP)
        yield do.CreatePod(backend, 0, pod_name(backend, 0, look.taken_names), port)
        yield do.CreateService(backend, shared_service_name(backend, look.taken_names))
        for pod in look.pods:
            own = service_name(backend, 0, look.taken_names)
            yield do.CreateService(backend, own, 0, port, pod.ref.uid)
            yield do.CreateService(backend, own, 0, port, pod.ref.uid, port + len(SEEDS))
            yield do.AcquireLease(backend, Holder(backend.ref.uid, 0, pod.ref.uid, StopReason.DELETED))
            yield do.RemakeToken(backend, pod)
            yield from (do.PointService(backend, s, pod.ref.uid) for s in look.services if s.ordinal is not None)
    for pod in look.pods:
        epoch = look.lease.epoch if look.lease is not None else ""
        record = StopRecord(RECORDED_AT, StopReason.DELETED, RECORDED_AT + timedelta(seconds=30), epoch)
        yield from (do.Ungate(pod), do.SetServing(pod, serving=True), do.SetServing(pod, serving=False))
        yield from (do.WriteStopRecord(pod, record), do.RestoreMarks(pod, look.backend_uid))
        yield from (do.DeletePod(pod, 15), do.DeletePod(pod, 0), do.RemovePodFinalizer(pod))
        yield do.HandOver(pod)
        yield from (do.BindClaim(claim, pod) for claim in look.claims)
    for claim in look.claims:
        yield from (do.ReserveClaim(claim), do.RecordNode(claim, NODE), do.CoolClaim(claim, "NeverStarted"))
        yield from (
            do.WithholdClaim(claim, "PodMissing", "gone"),
            do.RecordReference(claim, NODE.boot_id),
            do.ExplainClaim(claim, "StillAnswering", "its port answers"),
            do.DeleteClaim(claim),
            do.RemoveClaimFinalizer(claim),
        )
    yield from (do.DeleteService(service) for service in look.services)
    if look.lease is not None:
        yield do.ReleaseLease(look.lease)


@dataclass
class Both:
    """The fake and the real thing, side by side."""

    fake: World
    real: KubernetesCluster
    server: ApiServer
    uid: str
    namespace: str
    looks: list[tuple[Observation, Observation]] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    async def look(self) -> None:
        real = await self.real.snapshot(self.uid, live=True)
        self.looks.append((self.fake.observe(self.uid), real))
        ours, theirs = (seen(look) for look in self.looks[-1])
        assert ours == theirs, "\n".join([*self.story, f"the fake:     {ours}", f"the real one: {theirs}"])

    async def write(self, random: Random, port: int) -> None:
        """One write that both can be asked for, mostly from the last look."""
        age = random.choice((1, 1, 1, 2, 3))
        ours, theirs = (list(writes(look, port)) for look in self.looks[-min(age, len(self.looks))])
        assert [type(action) for action in ours] == [type(action) for action in theirs]
        number = random.randrange(len(ours)) if ours else None
        if number is None:
            return
        for name, give_back in tuple(self.fake.moves()):
            if name.startswith("give node port"):
                give_back()
        before = self.fake.state
        outcome = self.fake.apply(ours[number])
        if isinstance(ours[number], TIMED) and outcome == Applied() and self.fake.state is before:
            return  # it would change a time, and nothing else, if a second has passed
        answer = await self.real.apply(theirs[number])
        self.story.append(f"{type(ours[number]).__name__} ({age} looks old): {type(answer).__name__}")
        assert type(outcome) is type(answer), "\n".join(
            [*self.story, f"the fake: {outcome}", f"the real one: {answer}"]
        )

    def people(self) -> Iterator[tuple[str, Callable[[], object], Callable[[], int]]]:
        """What others could do now: to the fake, and to the real one."""
        look = self.looks[-1][0]
        for pod in look.pods:
            path = Kind.POD.path(self.namespace, pod.ref.name)
            for grace in (30, 5, 0):
                yield self._on_pod(pod, path, grace)
            yield (
                f"strip {pod.ref.name}",
                lambda pod=pod: self.fake.edit(pod, has_finalizer=False),  # type: ignore[misc]
                lambda path=path: self.server.merge(path, {"metadata": {"finalizers": []}}).status,  # type: ignore[misc]
            )
            if not (pod.gated or pod.node or pod.deleting):
                yield self._bound(pod, path)
            if pod.node and pod.deleting and not pod.phase.terminal:
                yield self._reported(pod, path)
        for claim in look.claims:
            path = Kind.CLAIM.path("", claim.ref.name)
            yield self._deleted(claim.ref.name, lambda claim=claim: self.fake.delete_claim(claim), path)  # type: ignore[misc]
        for service in look.services:
            path = Kind.SERVICE.path(self.namespace, service.ref.name)
            yield self._deleted(service.ref.name, lambda service=service: self.fake.remove(service), path)  # type: ignore[misc]
        if look.backend is not None and look.backend.deleting_since is None:
            path = Kind.BACKEND.path(self.namespace, look.backend.ref.name)
            yield self._deleted("the backend", lambda: self.fake.delete_backend(self.uid), path)
        if look.lease is not None:
            lease: Lease = look.lease
            path = Kind.LEASE.path(NAMESPACE, self.looks[-1][1].lease.ref.name)  # type: ignore[union-attr]
            yield self._deleted("the Lease", lambda: self.fake.remove(lease), path)

    def _deleted(self, name: str, fake: Callable[[], object], path: str) -> Any:
        return f"delete {name}", fake, lambda: self.server.request("DELETE", path).status

    def _on_pod(self, pod: Pod, path: str, grace: int) -> Any:
        return (
            f"delete {pod.ref.name} with {grace} s",
            lambda: self.fake.delete_pod(pod, grace),
            lambda: self.server.request("DELETE", path, {"gracePeriodSeconds": grace}).status,
        )

    def _bound(self, pod: Pod, path: str) -> Any:
        target = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": pod.ref.name},
            "target": {"name": NODE.name},
        }
        return (
            f"schedule {pod.ref.name}",
            lambda: self.fake.edit(pod, node=NODE.name),
            lambda: self.server.post(f"{path}/binding", target).status,
        )

    def _reported(self, pod: Pod, path: str) -> Any:
        ended = {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": "2026-05-04T12:00:00Z",
            "finishedAt": "2026-05-04T12:00:01Z",
        }
        container = {
            "name": "server",
            "state": {"terminated": ended},
            "ready": False,
            "restartCount": 0,
            "image": "i",
            "imageID": "i",
        }
        status = {"status": {"phase": "Succeeded", "containerStatuses": [container]}}
        return (
            f"the kubelet reports the end of {pod.ref.name}",
            lambda: self.fake.edit(pod, phase=PodPhase.SUCCEEDED, containers=(ENDED,)),
            lambda: self.server.merge(f"{path}/status", status).status,
        )


async def side_by_side(cluster: KubernetesCluster, server: ApiServer, namespace: str) -> Both:
    source = {"persistentVolumeClaim": {"claimName": "weights", "path": "model.gguf"}}
    body = {
        "apiVersion": "modelbackend.dev/v1alpha1",
        "kind": "ModelBackend",
        "metadata": {"name": "smollm2"},
        "spec": {"model": {"source": source}},
    }
    answer = server.post(Kind.BACKEND.path(namespace), body)
    assert answer.status == 201, answer.message
    uid = answer.body["metadata"]["uid"]
    await cluster.read_all()
    backend = (await cluster.snapshot(uid)).backend
    assert backend is not None
    both = Both(World(backend), cluster, server, uid, namespace)
    await both.look()
    return both


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_fake_cluster_does_what_the_real_one_does(
    seed: int, cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    random, port = Random(seed), FIRST_PORT + seed
    both = await side_by_side(cluster, api_server, namespace)
    for _ in range(STEPS):
        people = list(both.people())
        if people and random.random() < 0.2:
            what, fake, real = random.choice(people)
            both.story.append(f"somebody: {what}")
            fake()
            assert real() in (200, 201, 202), what
        else:
            await both.write(random, port)
        await both.look()


def test_operations_reach_every_write_of_the_operator() -> None:
    """A write that is added must be compared, too; calls to servers and what the API server has no part in are not."""
    compared = {name for name in dir(do) if f"do.{name}(" in Path(__file__).read_text()}
    every = {kind.__name__ for kind in get_args(Action)}
    of_no_protocol = {"CreateBudget", "DeleteBudget", "RecordReturn"}
    """Nothing waits for a PodDisruptionBudget or for a line of a claim's history, so the fake has neither."""
    assert every - compared <= {"DrainServer", "AbortServer"} | of_no_protocol
