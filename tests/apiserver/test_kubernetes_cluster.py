"""Every answer that a write can get, from a real API server, with the rights that `deploy/` gives the operator."""

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from modelbackend_operator.actions import (
    AcquireLease,
    AddFinalizer,
    BindClaim,
    CoolClaim,
    CreateClaim,
    CreatePod,
    CreateService,
    DeleteClaim,
    DeletePod,
    DeleteService,
    PointService,
    ReleaseLease,
    RemakeToken,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    RemovePodFinalizer,
    SetServing,
    Ungate,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.control_key import NoControlKeyError, control_key
from modelbackend_operator.drain_client import DrainClient, control_token
from modelbackend_operator.events import Event, EventType
from modelbackend_operator.kinds import Kind
from modelbackend_operator.kubernetes_api import Answer, KubernetesApi
from modelbackend_operator.kubernetes_cluster import KubernetesCluster
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.lease import Holder, ModelStop, ModelWait
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.stop import StopReason, StopRecord
from modelbackend_operator.outcome import Applied, Conflict, Denied, Exists, Gone, Unknown
from modelbackend_operator.settings import Settings
from tests.apiserver.harness import ApiServer
from tests.apiserver.operator_account import NAMESPACE, kubeconfig_with_token, operator_kubeconfig

pytestmark = pytest.mark.apiserver

NEW_YEAR = "2026-01-01T00:00:00Z"
KEY = b"the operator's key"
BACKENDS = "/apis/modelbackend.dev/v1alpha1/namespaces/{}/modelbackends"
CLAIMS = "/apis/modelbackend.dev/v1alpha1/portclaims"


@pytest.fixture(scope="session")
def operator_account(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return operator_kubeconfig(api_server, tmp_path_factory.mktemp("operator"))


@pytest.fixture
async def cluster(operator_account: Path) -> AsyncIterator[KubernetesCluster]:
    """As the operator has it, but with no watch behind it: what it sees, it read or wrote itself."""
    async with connected(operator_account) as cluster:
        yield cluster


class connected:  # noqa: N801 - used as a function
    def __init__(self, kubeconfig: Path, *, timeout_seconds: float = 10) -> None:
        self._kubeconfig = kubeconfig
        self._timeout_seconds = timeout_seconds
        self.told: set[str] = set()

    async def __aenter__(self) -> KubernetesCluster:
        self._api = await KubernetesApi.connect(str(self._kubeconfig), timeout_seconds=self._timeout_seconds)
        settings = Settings(namespace=NAMESPACE)
        servers = DrainClient(KEY, timeout_seconds=1)
        return KubernetesCluster(self._api, servers, settings, operator_key=KEY, on_change=self.told.update)

    async def __aexit__(self, *_: object) -> None:
        await self._api.aclose()


def make_backend(server: ApiServer, namespace: str, name: str = "smollm2", **spec: Any) -> str:
    """Create one as a user would; returns its uid."""
    source = {"persistentVolumeClaim": {"claimName": "weights", "path": "model.gguf"}}
    body = {
        "apiVersion": "modelbackend.dev/v1alpha1",
        "kind": "ModelBackend",
        "metadata": {"name": name},
        "spec": {"model": {"source": source}, **spec},
    }
    answer = server.post(BACKENDS.format(namespace), body)
    assert answer.status == 201, answer.message
    return str(answer.body["metadata"]["uid"])


def backend_in(observation: Observation) -> Backend:
    assert observation.backend is not None
    return observation.backend


async def a_gated_pod(cluster: KubernetesCluster, uid: str, port: int | None = None) -> Observation:
    backend = backend_in(await cluster.snapshot(uid))
    assert await cluster.apply(CreatePod(backend, 0, f"{backend.ref.name}-12345678-0", port)) == Applied()
    return await cluster.snapshot(uid)


# -- what a write comes to -------------------------------------------------------------------------------------------


async def test_a_write_is_seen_at_once_without_any_watch(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    before = backend_in(await cluster.snapshot(uid))
    assert not before.has_finalizer
    assert await cluster.apply(AddFinalizer(before)) == Applied()
    after = backend_in(await cluster.snapshot(uid))
    assert after.has_finalizer
    assert int(after.ref.resource_version) > int(before.ref.resource_version)


async def test_a_write_decided_from_an_old_look_conflicts_and_the_next_look_is_new(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    old = backend_in(await cluster.snapshot(uid))
    path = f"{BACKENDS.format(namespace)}/{old.ref.name}"
    assert api_server.merge(path, {"spec": {"replicas": 2}}).status == 200
    assert await cluster.apply(AddFinalizer(old)) == Conflict()
    assert await cluster.apply(WriteStatus(old, {"observedGeneration": 1})) == Conflict()
    assert backend_in(await cluster.snapshot(uid)).ordinals == (0, 1)


async def test_a_write_to_an_object_made_anew_under_the_same_name_conflicts(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    old = backend_in(await cluster.snapshot(uid))
    assert api_server.request("DELETE", f"{BACKENDS.format(namespace)}/smollm2").status == 200
    newer = make_backend(api_server, namespace)
    assert await cluster.apply(AddFinalizer(old)) == Conflict()
    assert (await cluster.snapshot(uid)).backend is None
    assert backend_in(await cluster.snapshot(newer)).ref.uid == newer


async def test_a_write_to_what_is_gone_is_gone_and_is_not_seen_any_more(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    old = backend_in(await cluster.snapshot(uid))
    assert api_server.request("DELETE", f"{BACKENDS.format(namespace)}/smollm2").status == 200
    assert await cluster.apply(AddFinalizer(old)) == Gone()
    assert (await cluster.snapshot(uid)).backend is None


async def test_a_port_is_claimed_once_and_the_loser_learns_by_whom(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    winner, loser = make_backend(api_server, namespace, "winner"), make_backend(api_server, namespace, "loser")
    await cluster.read_all()
    first, second = backend_in(await cluster.snapshot(winner)), backend_in(await cluster.snapshot(loser))
    assert await cluster.apply(CreateClaim(first, 0, 30011)) == Applied()
    assert await cluster.apply(CreateClaim(second, 0, 30011)) == Exists()
    ports = (await cluster.snapshot(loser)).ports
    assert ports.taken_by[30011] == f"{namespace}/winner"
    assert [claim.port for claim in (await cluster.snapshot(winner)).claims] == [30011]


async def test_a_claim_made_by_another_operator_meanwhile_is_seen_after_the_refused_create(
    cluster: KubernetesCluster, operator_account: Path, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    backend = backend_in(await cluster.snapshot(uid))
    async with connected(operator_account) as other:
        await other.read_all()
        assert await other.apply(CreateClaim(backend, 0, 30012)) == Applied()
    assert (await cluster.snapshot(uid)).claims == ()
    assert await cluster.apply(CreateClaim(backend, 0, 30012)) == Exists()
    assert [claim.port for claim in (await cluster.snapshot(uid)).claims] == [30012]


async def test_a_refusal_carries_the_api_servers_words(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    backend = backend_in(await cluster.snapshot(uid))
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"services": "0"}}}
    assert api_server.post(f"/api/v1/namespaces/{namespace}/resourcequotas", quota).status == 201
    counted = {"status": {"hard": {"services": "0"}, "used": {"services": "0"}}}
    assert api_server.merge(f"/api/v1/namespaces/{namespace}/resourcequotas/none/status", counted).status == 200
    outcome = await cluster.apply(CreateService(backend, "smollm2"))
    assert isinstance(outcome, Denied)
    assert "quota" in outcome.message
    ready = {"type": "Ready", "status": "Perhaps", "reason": "R", "message": "", "lastTransitionTime": NEW_YEAR}
    impossible = await cluster.apply(WriteStatus(backend, {"conditions": [ready]}))
    assert isinstance(impossible, Denied)
    assert "Perhaps" in impossible.message


async def test_what_the_api_server_takes_for_its_own_failure_is_unknown(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    """An apply that does not fit the schema's types is answered with 500."""
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    mistyped = WriteStatus(backend_in(await cluster.snapshot(uid)), {"observedGeneration": "not a number"})
    outcome = await cluster.apply(mistyped)
    assert isinstance(outcome, Unknown)
    assert "expected numeric" in outcome.message


async def test_a_node_port_held_by_a_foreign_service_is_denied_and_then_known_as_taken(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30013}]}
    foreign = {"metadata": {"name": "foreign"}, "spec": spec}
    assert api_server.post(f"/api/v1/namespaces/{namespace}/services", foreign).status == 201
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    observation = await cluster.snapshot(uid)
    assert 30013 not in observation.ports.taken
    outcome = await cluster.apply(CreateService(backend_in(observation), "smollm2-0", 0, 30013, "pod-uid"))
    assert isinstance(outcome, Denied)
    assert "30013" in outcome.message
    assert "already allocated" in outcome.message
    assert (await cluster.snapshot(uid)).ports.taken_by[30013] == f"Service {namespace}/foreign"


async def test_of_two_node_ports_the_one_that_a_foreign_service_holds_is_known_as_taken(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30022}]}
    foreign = {"metadata": {"name": "foreign"}, "spec": spec}
    assert api_server.post(f"/api/v1/namespaces/{namespace}/services", foreign).status == 201
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    backend = backend_in(await cluster.snapshot(uid))
    outcome = await cluster.apply(CreateService(backend, "smollm2-0", 0, 30021, "pod-uid", 30022))
    assert isinstance(outcome, Denied)
    taken_by = (await cluster.snapshot(uid)).ports.taken_by
    assert (taken_by.get(30021), taken_by.get(30022)) == (None, f"Service {namespace}/foreign")


async def test_a_node_port_that_the_allocator_has_yet_to_give_back_is_asked_for_again(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lag itself is a matter of microseconds, so the one answer that shows it is played back."""
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    create = CreateService(backend_in(await cluster.snapshot(uid)), "smollm2-0", 0, 31014, "pod-uid")
    call = KubernetesApi.call

    async def lagging(api: KubernetesApi, verb: str, path: str, **rest: Any) -> Answer:
        if verb == "POST" and path.endswith("/services"):
            return Answer(422, {"message": "spec.ports[0].nodePort: 31014: provided port is already allocated"})
        return await call(api, verb, path, **rest)

    with monkeypatch.context() as patched:
        patched.setattr(KubernetesApi, "call", lagging)
        outcome = await cluster.apply(create)
    assert outcome == Unknown("node port 31014 belongs to no Service; the API server has yet to give it back")
    assert 31014 not in (await cluster.snapshot(uid)).ports.taken
    assert await cluster.apply(create) == Applied()


async def test_nothing_is_created_in_a_terminating_namespace_and_the_observation_says_why(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    observation = await cluster.snapshot(uid)
    assert not observation.namespace_terminating
    assert api_server.request("DELETE", f"/api/v1/namespaces/{namespace}").status == 200
    outcome = await cluster.apply(CreatePod(backend_in(observation), 0, "smollm2-12345678-0", None))
    assert isinstance(outcome, Denied)
    assert "being terminated" in outcome.message
    assert (await cluster.snapshot(uid, live=True)).namespace_terminating


async def test_no_answer_is_unknown_for_a_write_and_no_knowledge_for_a_read(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    backend = backend_in(await cluster.snapshot(uid))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        text = api_server.kubeconfig.read_text()
        deaf = tmp_path / "deaf.kubeconfig"
        deaf.write_text(text.replace(api_server.url, f"https://127.0.0.1:{silent.getsockname()[1]}"))
        async with connected(deaf, timeout_seconds=0.5) as cut_off:
            assert isinstance(await cut_off.apply(AddFinalizer(backend)), Unknown)
            with pytest.raises(ClusterUnavailable, match="no answer"):
                await cut_off.read_all()


async def test_a_reader_without_rights_knows_nothing_instead_of_seeing_nothing(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    make_backend(api_server, namespace)
    stranger = kubeconfig_with_token(api_server, tmp_path / "stranger.kubeconfig", "no-such-token")
    async with connected(stranger) as cluster:
        with pytest.raises(ClusterUnavailable, match="Unauthorized"):
            await cluster.read_all()
        with pytest.raises(ClusterUnavailable):
            await cluster.snapshot("any-uid", live=True)


async def test_a_kind_that_is_not_served_is_not_taken_for_a_kind_without_objects(api_server: ApiServer) -> None:
    api = await KubernetesApi.connect(str(api_server.kubeconfig), timeout_seconds=10)
    answer = await api.call("GET", "/apis/modelbackend.dev/v1alpha1/nosuchkinds/name")
    assert answer.code == 404
    assert not answer.denies_existence()
    await api.aclose()


# -- the life of an instance, write by write -------------------------------------------------------------------------


async def test_an_instance_is_claimed_bound_exposed_and_let_through(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    backend = backend_in(await cluster.snapshot(uid))
    assert await cluster.apply(CreateClaim(backend, 0, 30014)) == Applied()
    observation = await a_gated_pod(cluster, uid, 30014)
    claim, pod = observation.claims[0], observation.pods[0]
    assert (claim.phase, pod.gated, pod.has_finalizer) == (ClaimPhase.RESERVED, True, True)
    assert await cluster.apply(BindClaim(claim, pod)) == Applied()
    assert await cluster.apply(CreateService(backend, "smollm2-0", 0, 30014, pod.ref.uid)) == Applied()
    assert await cluster.apply(Ungate(pod)) == Applied()

    observation = await cluster.snapshot(uid)
    claim, pod, service = observation.claims[0], observation.pods[0], observation.services[0]
    assert (claim.phase, claim.pod_uid) == (ClaimPhase.BOUND, pod.ref.uid)
    assert (pod.gated, pod.serving_label) == (False, True)
    assert (service.node_port, service.pod_uid) == (30014, pod.ref.uid)
    assert await cluster.apply(PointService(backend, service, "another-pod")) == Applied()
    assert await cluster.apply(SetServing(pod, serving=True)) == Applied()
    observation = await cluster.snapshot(uid)
    assert observation.services[0].pod_uid == "another-pod"
    assert observation.pods[0].serving_condition


async def test_an_instance_is_withdrawn_ended_and_released(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    backend = backend_in(await cluster.snapshot(uid))
    await cluster.apply(CreateClaim(backend, 0, 30015))
    observation = await a_gated_pod(cluster, uid, 30015)
    await cluster.apply(BindClaim(observation.claims[0], observation.pods[0]))
    await cluster.apply(CreateService(backend, "smollm2-0", 0, 30015, observation.pods[0].ref.uid))
    await cluster.apply(Ungate(observation.pods[0]))

    pod = (await cluster.snapshot(uid)).pods[0]
    now = datetime.now(UTC)
    record = StopRecord(now, StopReason.SCALED_DOWN, now, "lease/0")
    assert await cluster.apply(WriteStopRecord(pod, record)) == Applied()
    pod = (await cluster.snapshot(uid)).pods[0]
    assert (pod.stop, pod.serving_label) == (record, False)
    assert await cluster.apply(DeletePod(pod, 5)) == Applied()
    observation = await cluster.snapshot(uid)
    assert observation.pods[0].deleting, "our finalizer holds what the API server would have removed"
    assert await cluster.apply(DeleteService(observation.services[0])) == Applied()
    assert await cluster.apply(CoolClaim(observation.claims[0], "NeverStarted")) == Applied()
    observation = await cluster.snapshot(uid)
    assert (observation.services, observation.claims[0].phase) == ((), ClaimPhase.COOLING)
    assert await cluster.apply(RemovePodFinalizer(observation.pods[0])) == Applied()

    observation = await cluster.snapshot(uid, live=True)
    assert observation.pods == ()
    assert await cluster.apply(DeleteClaim(observation.claims[0])) == Applied()
    observation = await cluster.snapshot(uid)
    assert observation.claims[0].terminating, "a DELETE that a finalizer holds is seen as such"
    assert await cluster.apply(RemoveClaimFinalizer(observation.claims[0])) == Applied()
    assert (await cluster.snapshot(uid, live=True)).claims == ()
    assert api_server.get(f"{CLAIMS}/port-30015").status == 404


async def test_a_models_lease_is_had_by_one_and_free_when_given_back(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uids = [make_backend(api_server, namespace, name, model=model("shared")) for name in ("a", "b")]
    await cluster.read_all()
    first, second = [backend_in(await cluster.snapshot(uid)) for uid in uids]
    holders = [Holder(uid, 0, f"pod-of-{uid}", StopReason.SCALED_DOWN) for uid in uids]
    assert await cluster.apply(AcquireLease(first, holders[0])) == Applied()
    assert await cluster.apply(AcquireLease(second, holders[1])) == Exists()
    lease = (await cluster.snapshot(uids[1])).lease
    assert lease is not None
    assert (lease.holder, lease.description) == (holders[0], f"{namespace}/a, instance 0")
    assert await cluster.apply(ReleaseLease(lease)) == Applied()
    assert (await cluster.snapshot(uids[1])).lease is None
    assert await cluster.apply(AcquireLease(second, holders[1])) == Applied()
    again = (await cluster.snapshot(uids[0], live=True)).lease
    assert again is not None
    assert again.epoch != lease.epoch
    assert await cluster.apply(ReleaseLease(lease)) == Conflict(), "the Lease of another epoch is not ours to release"


async def test_a_backend_ends_with_its_last_finalizer(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    await cluster.apply(AddFinalizer(backend_in(await cluster.snapshot(uid))))
    assert api_server.request("DELETE", f"{BACKENDS.format(namespace)}/smollm2").status == 200
    held = backend_in(await cluster.snapshot(uid, live=True))
    assert held.deleting_since is not None
    assert await cluster.apply(RemoveFinalizer(held)) == Applied()
    assert (await cluster.snapshot(uid, live=True)).backend is None


# -- the second look -------------------------------------------------------------------------------------------------


async def test_a_live_look_sees_what_the_cache_does_not(
    cluster: KubernetesCluster, operator_account: Path, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    async with connected(operator_account) as other:
        await other.read_all()
        backend = backend_in(await other.snapshot(uid))
        await other.apply(CreateClaim(backend, 0, 30016))
        await a_gated_pod(other, uid, 30016)
        await other.apply(CreateService(backend, "smollm2"))
    cached = await cluster.snapshot(uid)
    assert (cached.claims, cached.pods, cached.services, cached.live) == ((), (), (), False)
    live = await cluster.snapshot(uid, live=True)
    assert (len(live.claims), len(live.pods), len(live.services), live.live) == (1, 1, 1, True)


async def test_what_one_backends_live_look_finds_of_another_wakes_the_other(
    operator_account: Path, api_server: ApiServer, namespace: str
) -> None:
    """The watch event that follows will be no news any more."""
    mine, other = make_backend(api_server, namespace, "mine"), make_backend(api_server, namespace, "other")
    connection = connected(operator_account)
    async with connection as cluster:
        await cluster.read_all()
        await cluster.apply(CreateClaim(backend_in(await cluster.snapshot(other)), 0, 30020))
        assert api_server.request("DELETE", f"{CLAIMS}/port-30020").status == 200
        connection.told.clear()
        await cluster.snapshot(mine, live=True)
        assert other in connection.told
        assert (await cluster.snapshot(other)).claims[0].terminating


async def test_giving_a_models_lease_back_wakes_whoever_waits_for_it(
    operator_account: Path, api_server: ApiServer, namespace: str
) -> None:
    holder, waiter = [make_backend(api_server, namespace, name, model=model("one")) for name in ("holder", "waiter")]
    connection = connected(operator_account)
    async with connection as cluster:
        await cluster.read_all()
        taken = AcquireLease(backend_in(await cluster.snapshot(holder)), Holder(holder, 0, "p", StopReason.DELETED))
        assert await cluster.apply(taken) == Applied()
        lease = (await cluster.snapshot(waiter)).lease
        assert lease is not None
        connection.told.clear()
        assert await cluster.apply(ReleaseLease(lease)) == Applied()
        assert waiter in connection.told


async def test_an_open_stop_of_a_neighbour_is_seen_by_a_live_look_although_its_lease_was_deleted_by_hand(
    cluster: KubernetesCluster, operator_account: Path, api_server: ApiServer, namespace: str
) -> None:
    """Of the same model only. The other operator wrote it, and no watch has told of it yet."""
    uids = {name: make_backend(api_server, namespace, name, model=model("one")) for name in ("stops", "waits")}
    stranger = make_backend(api_server, namespace, "stranger", model=model("two"))
    await cluster.read_all()
    async with connected(operator_account) as other:
        await other.read_all()
        pod = (await a_gated_pod(other, uids["stops"])).pods[0]
        now = datetime(2026, 5, 4, 12, tzinfo=UTC)
        record = StopRecord(now, StopReason.SPEC_CHANGED, now, "lease-uid/0")
        assert await other.apply(WriteStopRecord(pod, record)) == Applied()
    assert (await cluster.snapshot(uids["waits"])).model_stops == ()
    seen = await cluster.snapshot(uids["waits"], live=True)
    assert seen.lease is None
    assert seen.model_stops == (ModelStop(pod.ref.uid, f"{namespace}/stops, instance 0"),)
    assert (await cluster.snapshot(stranger, live=True)).model_stops == ()
    assert (await cluster.snapshot(uids["stops"], live=True)).model_stops == ()


async def test_who_waits_for_a_models_turn_is_seen_by_its_neighbours(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uids = [make_backend(api_server, namespace, name, model=model("one")) for name in ("first", "second")]
    await cluster.read_all()
    first = backend_in(await cluster.snapshot(uids[0]))
    entry = {"ordinal": 0, "phase": "Serving", "waitingSince": "2026-05-04T12:00:00Z"}
    assert await cluster.apply(WriteStatus(first, {"instances": [entry]})) == Applied()
    seen = await cluster.snapshot(uids[1])
    since = datetime(2026, 5, 4, 12, tzinfo=UTC)
    assert seen.model_waits == (ModelWait(since, uids[0], f"{namespace}/first, instance 0"),)
    assert seen.lease_free_since is not None
    assert (await cluster.snapshot(uids[1])).lease_free_since == seen.lease_free_since
    assert (await cluster.snapshot(uids[0])).lease_free_since is None  # nobody else waits


async def test_a_pod_whose_labels_were_edited_away_is_still_seen_by_its_name_in_the_ledger(
    cluster: KubernetesCluster, operator_account: Path, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    await cluster.apply(CreateClaim(backend_in(await cluster.snapshot(uid)), 0, 30017))
    observation = await a_gated_pod(cluster, uid, 30017)
    await cluster.apply(BindClaim(observation.claims[0], observation.pods[0]))
    path = f"/api/v1/namespaces/{namespace}/pods/{observation.pods[0].ref.name}"
    nothing = dict.fromkeys(api_server.get(path).body["metadata"]["labels"])
    assert api_server.merge(path, {"metadata": {"labels": nothing}}).status == 200
    async with connected(operator_account) as fresh:
        await fresh.read_all()
        assert (await fresh.snapshot(uid)).pods == (), "a labelled LIST does not show it"
        assert [pod.ref.uid for pod in (await fresh.snapshot(uid, live=True)).pods] == [observation.pods[0].ref.uid]


async def test_a_backend_that_was_made_anew_is_not_the_one_that_was_asked_for(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    await cluster.apply(CreateClaim(backend_in(await cluster.snapshot(uid)), 0, 30018))
    assert api_server.request("DELETE", f"{BACKENDS.format(namespace)}/smollm2").status == 200
    make_backend(api_server, namespace)
    live = await cluster.snapshot(uid, live=True)
    assert live.backend is None
    assert [claim.port for claim in live.claims] == [30018], "what it left is still to be settled"


async def test_a_strangers_pod_takes_the_name_and_is_not_adopted(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    name = "smollm2-12345678-0"
    stranger = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    assert api_server.post(f"/api/v1/namespaces/{namespace}/pods", stranger).status == 201
    backend = backend_in(await cluster.snapshot(uid))
    assert await cluster.apply(CreatePod(backend, 0, name, None)) == Exists()
    observation = await cluster.snapshot(uid)
    assert observation.pods == ()
    assert name in observation.taken_names


async def test_a_complete_reading_names_backends_that_exist_and_those_that_only_left_something(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    lives, left = make_backend(api_server, namespace, "lives"), make_backend(api_server, namespace, "left")
    await cluster.read_all()
    await cluster.apply(CreateClaim(backend_in(await cluster.snapshot(left)), 0, 30019))
    assert api_server.request("DELETE", f"{BACKENDS.format(namespace)}/left").status == 200
    assert {lives, left} <= await cluster.read_all()
    assert (await cluster.snapshot(left)).backend is None


# -- beside the protocol ---------------------------------------------------------------------------------------------


async def test_a_backends_token_is_made_with_its_pod_and_cannot_be_read_by_the_operator(
    cluster: KubernetesCluster, operator_account: Path, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    await a_gated_pod(cluster, uid)
    path = f"/api/v1/namespaces/{namespace}/secrets"
    secrets = api_server.get(path).body["items"]
    assert len(secrets) == 1
    api = await KubernetesApi.connect(str(operator_account), timeout_seconds=10)
    assert (await api.call("GET", f"{path}/{secrets[0]['metadata']['name']}")).code == 403
    await api.aclose()
    assert len(control_token(KEY, uid)) == 64


async def test_a_token_that_was_deleted_is_made_again_for_a_pod_that_waits_for_it(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.read_all()
    made = await a_gated_pod(cluster, uid)
    path = f"/api/v1/namespaces/{namespace}/secrets"
    (secret,) = api_server.get(path).body["items"]
    assert api_server.request("DELETE", f"{path}/{secret['metadata']['name']}").status == 200
    assert await cluster.apply(RemakeToken(backend_in(made), made.pods[0])) == Applied()
    (again,) = api_server.get(path).body["items"]
    assert again["data"] == secret["data"]
    (pod,) = (await cluster.snapshot(uid)).pods
    assert pod.token_made_at is not None
    assert await cluster.apply(RemakeToken(backend_in(made), pod)) == Applied()  # when it was there, it stays


async def test_the_control_key_is_made_once_and_then_the_same_for_everybody(operator_account: Path) -> None:
    api = await KubernetesApi.connect(str(operator_account), timeout_seconds=10)
    keys = await asyncio.gather(*(control_key(api, NAMESPACE) for _ in range(4)))
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
    with pytest.raises(NoControlKeyError, match="no-such-namespace"):
        await control_key(api, "no-such-namespace")
    await api.aclose()


async def test_an_event_is_about_the_backend(cluster: KubernetesCluster, api_server: ApiServer, namespace: str) -> None:
    uid = make_backend(api_server, namespace)
    await cluster.post_event(Event(namespace, "smollm2", uid, EventType.NORMAL, "PortClaimed", "claimed port 30001"))
    events = api_server.get(f"/api/v1/namespaces/{namespace}/events").body["items"]
    assert [(event["involvedObject"]["uid"], event["reason"]) for event in events] == [(uid, "PortClaimed")]


async def test_a_lost_event_is_no_failure(cluster: KubernetesCluster) -> None:
    await cluster.post_event(Event("no-such-namespace", "a", "uid", EventType.NORMAL, "PortClaimed", "words"))


async def test_a_lease_in_a_tenants_namespace_is_not_heard(cluster: KubernetesCluster) -> None:
    holder = '{"backendUID": "somebody", "ordinal": 0, "podUID": "p", "purpose": "BackendDeleted"}'
    metadata = {"name": "modelbackend-x", "uid": "u", "resourceVersion": "1"}
    metadata |= {"annotations": {"modelbackend.dev/holder": holder}}  # type: ignore[dict-item]
    cluster.hear(Kind.LEASE, {"metadata": {**metadata, "namespace": NAMESPACE}}, False)
    assert (await cluster.snapshot("somebody")).lease is not None
    cluster.hear(Kind.LEASE, {"metadata": {**metadata, "namespace": NAMESPACE}}, True)
    cluster.hear(Kind.LEASE, {"metadata": {**metadata, "namespace": "tenant"}}, False)
    assert (await cluster.snapshot("somebody")).lease is None


def model(name: str) -> dict[str, Any]:
    return {"name": name, "source": {"persistentVolumeClaim": {"claimName": "weights", "path": "model.gguf"}}}
