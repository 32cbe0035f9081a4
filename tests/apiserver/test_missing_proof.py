"""Proof that does not come, or comes late, against a real API server: with the real rules and the operator's rights.

No kubelet runs here; the test writes what one would have written.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from modelbackend.v1 import inference_pb2, inference_pb2_grpc
from modelbackend.v1.model_info_pb2 import Identity
from modelbackend_operator.controller import Controller
from modelbackend_operator.drain_client import DrainClient
from modelbackend_operator.kubernetes_api import KubernetesApi
from modelbackend_operator.kubernetes_cluster import KubernetesCluster
from modelbackend_operator.queue import Settled
from modelbackend_operator.settings import NodeRemoved, Settings
from tests.apiserver.harness import ApiServer
from tests.apiserver.operator_account import NAMESPACE, operator_kubeconfig
from tests.apiserver.world import SOURCE, Json

pytestmark = pytest.mark.apiserver

CLAIMS = "/apis/modelbackend.dev/v1alpha1/portclaims"
CONTAINER = {"name": "server", "image": "i", "imageID": "i", "ready": True, "restartCount": 0, "containerID": "c://1"}
RUNNING = {**CONTAINER, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
ENDED = {**CONTAINER, "ready": False, "state": {"terminated": {"exitCode": 137, "finishedAt": "2026-01-01T00:00:01Z"}}}
PASSES_MAX = 20
COOLS_SECONDS = 10_000
"""Long enough for a test to see what released a port."""

ports = iter(range(24_000, 24_900, 10))
"""Each test has a pool of its own."""


class Lost:
    """A backend whose instance was let through, and ran on a node of which nothing is heard any more."""

    def __init__(self, server: ApiServer, namespace: str, cluster: KubernetesCluster, node: str) -> None:
        self.server, self.namespace, self.cluster, self.node = server, namespace, cluster, node
        self.later = timedelta()
        self.controller = Controller(cluster, now=lambda: datetime.now(UTC) + self.later)
        self.uid = self.pod_name = ""

    @property
    def backends(self) -> str:
        return f"/apis/modelbackend.dev/v1alpha1/namespaces/{self.namespace}/modelbackends"

    def pods(self) -> list[Json]:
        return list(self.server.get(f"/api/v1/namespaces/{self.namespace}/pods").body["items"])

    def pod(self) -> Json:
        return self.server.get(f"/api/v1/namespaces/{self.namespace}/pods/{self.pod_name}").body

    def claim(self) -> Json:
        return next(c for c in self.claims() if c["status"].get("pod", {}).get("name") == self.pod_name)

    def claims(self) -> list[Json]:
        return [c for c in self.server.get(CLAIMS).body["items"] if c["spec"]["backend"]["uid"] == self.uid]

    async def start(self, first_port: int) -> None:
        shutdown = {"drainSeconds": 0, "terminationGraceSeconds": 1, "unconfirmedAfterSeconds": 1}
        exposure = {"type": "HostPort", "portRange": {"first": first_port, "last": first_port + 9}}
        spec = {"model": {"source": SOURCE}, "exposure": exposure, "shutdown": shutdown}
        body = {"apiVersion": "modelbackend.dev/v1alpha1", "kind": "ModelBackend", "metadata": {"name": "b"}}
        made = self.server.post(self.backends, {**body, "spec": spec})
        assert made.status == 201, made.message
        self.uid = made.body["metadata"]["uid"]
        await self.cluster.read_all()
        await self.reconcile()
        (pod,) = self.pods()
        self.pod_name = pod["metadata"]["name"]
        binding = {"metadata": {"name": self.pod_name}, "target": {"kind": "Node", "name": self.node}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.pod_name}"
        assert self.server.post(f"{path}/binding", binding).status == 201
        self.report("Running", RUNNING)
        await self.reconcile()

    async def reconcile(self, seconds: float = 0) -> None:
        """So much later, until nothing is left to do but to wait."""
        self.later += timedelta(seconds=seconds)
        await self.cluster.read_all()
        for _ in range(PASSES_MAX):
            if isinstance(await self.controller.reconcile(self.uid), Settled):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it does not settle")

    def report(self, phase: str, container: Json) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.pod_name}/status"
        answer = self.server.merge(path, {"status": {"phase": phase, "containerStatuses": [container]}})
        assert answer.status == 200, answer.message

    def delete(self) -> None:
        assert self.server.request("DELETE", f"{self.backends}/b").status == 200

    def backend_is_gone(self) -> bool:
        return self.server.get(f"{self.backends}/b").status == 404

    def attest(self, text: str) -> None:
        note = {"metadata": {"annotations": {"modelbackend.dev/attest": text}}}
        assert self.server.merge(f"{CLAIMS}/{self.claim()['metadata']['name']}", note).status == 200

    def events(self, kind: str) -> set[str]:
        found = self.server.get("/api/v1/events").body["items"]
        names = {claim["metadata"]["name"] for claim in self.claims()} | {"b"}
        return {
            e["reason"] for e in found if e["involvedObject"]["kind"] == kind and e["involvedObject"]["name"] in names
        }


@pytest.fixture(scope="session")
def account(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return operator_kubeconfig(api_server, tmp_path_factory.mktemp("missing-proof"))


@pytest.fixture
def node(api_server: ApiServer, namespace: str) -> Iterator[str]:
    """A Node object, named like the test's namespace."""
    name = f"node-of-{namespace}"
    assert api_server.post("/api/v1/nodes", {"metadata": {"name": name}}).status == 201
    boot(api_server, name, "boot-1", "2026-01-01T00:00:00Z")
    yield name
    api_server.request("DELETE", f"/api/v1/nodes/{name}")


def boot(server: ApiServer, node: str, boot_id: str, heartbeat: str) -> None:
    info = dict.fromkeys(
        ("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion"), "x"
    )
    info |= {"kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64", "bootID": boot_id}
    ready = {"type": "Ready", "status": "Unknown", "reason": "r", "message": "lost", "lastHeartbeatTime": heartbeat}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"nodeInfo": info, "conditions": [ready], "addresses": addresses}
    answer = server.merge(f"/api/v1/nodes/{node}/status", {"status": status})
    assert answer.status == 200, answer.message


@pytest.fixture
async def lost(account: Path, api_server: ApiServer, namespace: str, node: str) -> AsyncIterator[Lost]:
    async for found in _lost(account, api_server, namespace, node, NodeRemoved.WITHHOLD):
        yield found


@pytest.fixture
async def lost_where_removal_counts(
    account: Path, api_server: ApiServer, namespace: str, node: str
) -> AsyncIterator[Lost]:
    async for found in _lost(account, api_server, namespace, node, NodeRemoved.ACCEPT):
        yield found


async def _lost(
    account: Path, api_server: ApiServer, namespace: str, node: str, removal: NodeRemoved
) -> AsyncIterator[Lost]:
    api = await KubernetesApi.connect(str(account), timeout_seconds=10)
    settings = Settings(namespace=NAMESPACE, evidence_node_removed=removal, reuse_delay_seconds=COOLS_SECONDS)
    servers = DrainClient(b"key", timeout_seconds=1)
    cluster = KubernetesCluster(api, servers, settings, operator_key=b"key")
    instance = Lost(api_server, namespace, cluster, node)
    await instance.start(next(ports))
    yield instance
    await api.aclose()


# -- handed over, and settled late ------------------------------------------------------------------------------------


async def test_a_deletion_completes_without_proof_and_the_witness_settles_the_ledger_when_its_kubelet_reports(
    lost: Lost,
) -> None:
    lost.delete()
    await lost.reconcile()
    await lost.reconcile(60)
    assert lost.backend_is_gone()
    witness, claim = lost.pod(), lost.claim()
    assert witness["metadata"]["annotations"]["modelbackend.dev/unconfirmed"]
    assert (claim["status"]["phase"], claim["status"]["reason"]) == ("Withheld", "Unconfirmed")
    assert claim["status"]["node"]["name"] == lost.node
    assert "Unconfirmed" in lost.events("ModelBackend")

    lost.report("Failed", ENDED)
    await lost.reconcile()
    await lost.reconcile(60)
    assert lost.pods() == []
    assert lost.claim()["status"]["evidence"] == "ContainersTerminated"
    await lost.reconcile(COOLS_SECONDS)
    assert lost.claims() == []


async def test_a_replacement_starts_on_another_port_under_another_name_beside_the_witness(lost: Lost) -> None:
    path = f"/api/v1/namespaces/{lost.namespace}/pods/{lost.pod_name}"
    assert lost.server.request("DELETE", path).status == 200
    await lost.reconcile()
    await lost.reconcile(60)
    names = {pod["metadata"]["name"] for pod in lost.pods()}
    assert names > {lost.pod_name}
    by_phase = {claim["status"]["phase"]: claim["spec"]["port"] for claim in lost.claims()}
    assert set(by_phase) == {"Withheld", "Bound"}
    conditions = lost.server.get(f"{lost.backends}/b").body["status"]["conditions"]
    assert [c["status"] for c in conditions if c["type"] == "Unconfirmed"] == ["True"]


# -- proofs of the machine --------------------------------------------------------------------------------------------


async def withheld_without_an_object(lost: Lost) -> None:
    lost.delete()
    await lost.reconcile()
    path = f"/api/v1/namespaces/{lost.namespace}/pods/{lost.pod_name}"
    assert lost.server.merge(path, {"metadata": {"finalizers": None}}).status == 200
    assert lost.server.request("DELETE", path, {"gracePeriodSeconds": 0}).status in (200, 404)
    await lost.reconcile()
    assert lost.claim()["status"]["reason"] == "PodMissing"


async def test_a_later_boot_releases_the_port_of_a_pod_that_is_gone_and_an_earlier_record_does_not(lost: Lost) -> None:
    await withheld_without_an_object(lost)
    boot(lost.server, lost.node, "boot-2", "2026-01-01T00:00:30Z")  # told by a status that is older than the deletion
    await lost.reconcile(60)
    assert lost.claim()["status"]["phase"] == "Withheld"
    boot(lost.server, lost.node, "boot-2", "2100-01-01T00:00:00Z")
    await lost.reconcile(60)
    assert lost.claim()["status"]["referenceBootID"] == "boot-2"
    boot(lost.server, lost.node, "boot-3", "2100-01-01T00:05:00Z")
    await lost.reconcile()
    assert (lost.claim()["status"]["phase"], lost.claim()["status"]["evidence"]) == ("Cooling", "NodeRebooted")


async def test_the_out_of_service_taint_releases_the_port(lost: Lost) -> None:
    await withheld_without_an_object(lost)
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    assert lost.server.merge(f"/api/v1/nodes/{lost.node}", {"spec": {"taints": [taint]}}).status == 200
    await lost.reconcile()
    assert lost.claim()["status"]["evidence"] == "OutOfService"


async def test_a_removed_node_releases_nothing_by_default(lost: Lost) -> None:
    await withheld_without_an_object(lost)
    assert lost.server.request("DELETE", f"/api/v1/nodes/{lost.node}").status == 200
    await lost.reconcile(60)
    assert lost.claim()["status"]["phase"] == "Withheld"


async def test_where_a_removed_node_counts_its_return_in_the_same_boot_is_an_alarm(
    lost_where_removal_counts: Lost,
) -> None:
    lost = lost_where_removal_counts
    await withheld_without_an_object(lost)
    assert lost.server.request("DELETE", f"/api/v1/nodes/{lost.node}").status == 200
    await lost.reconcile()
    assert lost.claim()["status"]["evidence"] == "NodeRemoved"
    assert lost.server.post("/api/v1/nodes", {"metadata": {"name": lost.node}}).status == 201
    boot(lost.server, lost.node, "boot-1", "2100-01-01T00:00:00Z")
    await lost.reconcile()
    (past,) = lost.claim()["status"]["history"]
    assert past["returned"]
    assert "NodeReturned" in lost.events("PortClaim")
    status = lost.claim()["status"]
    assert (status["phase"], status["reason"]) == ("Withheld", "NodeReturned"), "nothing proves the end any more"
    await lost.reconcile(4000)
    assert lost.claim()["status"]["phase"] == "Withheld"
    lost.attest(f"{past['pod']['uid']} its rack is dark")
    await lost.reconcile()
    assert [past["evidence"] for past in lost.claim()["status"]["history"]] == ["NodeRemoved", "Attested"]


# -- a person's word --------------------------------------------------------------------------------------------------


async def test_a_word_about_another_pod_is_refused_and_one_about_this_pod_is_kept_in_history(lost: Lost) -> None:
    await withheld_without_an_object(lost)
    pod_uid = lost.claim()["status"]["pod"]["uid"]
    lost.attest("another-pod gone")
    await lost.reconcile()
    refused = lost.claim()["status"]
    assert (refused["phase"], refused["reason"]) == ("Withheld", "AttestationRefused")
    assert pod_uid in refused["message"]
    assert "AttestationRefused" in lost.events("PortClaim")
    lost.attest(f"{pod_uid} the rack burnt down")
    await lost.reconcile()
    status = lost.claim()["status"]
    assert (status["phase"], status["evidence"]) == ("Cooling", "Attested")
    assert [past["reason"] for past in status["history"]] == ["the rack burnt down"]


class StillThere(inference_pb2_grpc.InferenceServicer):
    def __init__(self, backend_uid: str, pod_uid: str) -> None:
        self.identity = Identity(backend_uid=backend_uid, model="b", pod_uid=pod_uid)

    async def GetModelInfo(self, request: Any, context: Any) -> inference_pb2.GetModelInfoResponse:  # noqa: ARG002, N802
        return inference_pb2.GetModelInfoResponse(identity=self.identity)


async def test_a_port_that_answers_as_the_attested_pod_is_not_released_until_it_is_silent(lost: Lost) -> None:
    await withheld_without_an_object(lost)
    claim = lost.claim()
    pod_uid = claim["status"]["pod"]["uid"]
    listener = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    inference_pb2_grpc.add_InferenceServicer_to_server(StillThere(lost.uid, pod_uid), listener)  # type: ignore[abstract]
    listener.add_insecure_port(f"127.0.0.1:{claim['spec']['port']}")
    await listener.start()
    lost.attest(f"{pod_uid} unplugged, I think")
    await lost.reconcile()
    assert (lost.claim()["status"]["phase"], lost.claim()["status"]["reason"]) == ("Withheld", "StillAnswering")
    assert "StillAnswering" in lost.events("PortClaim")
    await listener.stop(None)
    await lost.reconcile(10)
    assert lost.claim()["status"]["evidence"] == "Attested"


# -- namespaces that end ----------------------------------------------------------------------------------------------


async def test_in_a_namespace_that_ends_the_witness_is_let_go_and_its_port_stays_withheld(lost: Lost) -> None:
    assert lost.server.request("DELETE", f"/api/v1/namespaces/{lost.namespace}").status == 200
    lost.delete()
    await lost.reconcile()
    await lost.reconcile(60)
    assert lost.backend_is_gone()
    assert not lost.pod()["metadata"].get("finalizers")
    assert lost.claim()["status"]["phase"] == "Withheld"
