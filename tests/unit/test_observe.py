"""What is read out of objects: every detail that a proof or a decision rests on, and nothing that makes it stumble."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelbackend_operator.manifests import instance_selector, instance_service, shared_service
from modelbackend_operator.model.backend import Attestation, Backend, Exposure, OrderKind, PortRole
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.node import Node, NodeId
from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.observe.claim import claim_from
from modelbackend_operator.observe.lease import lease_from
from modelbackend_operator.observe.node import node_from, node_trouble
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.observe.service import service_from
from modelbackend_operator.timestamps import micro_time, parse_time, rfc3339

Json = dict[str, Any]

CREATED = "2026-05-04T11:00:00Z"
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
SOURCE = {"persistentVolumeClaim": {"claimName": "weights", "path": "m.gguf"}}


def raw(name: str, metadata: Json | None = None, **parts: Any) -> Json:
    identity = {"name": name, "namespace": "models", "uid": "the-uid", "resourceVersion": "7"}
    return {"metadata": {**identity, "creationTimestamp": CREATED, **(metadata or {})}, **parts}


def a_backend(metadata: Json | None = None, *, allow_host_path: bool = False, **spec: Any) -> Backend:
    body = raw("smollm2", metadata, spec={"model": {"source": SOURCE}, **spec})
    return backend_from(body, allow_host_path=allow_host_path)


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-05-04T12:00:00Z", NOON),
        ("2026-05-04T14:00:00+02:00", NOON),
        ("2026-05-04T12:00:00.250000Z", NOON + timedelta(milliseconds=250)),
        ("2026-05-04T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("2026-05-04T12:00:00", NOON),
        ("soon", None),
        ("", None),
        (None, None),
        (7, None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_instants_are_read_in_utc_and_nonsense_is_none(text: object, moment: datetime | None) -> None:
    assert parse_time(text) == moment


@given(st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(timezone(timedelta(hours=5)))))
def test_an_instant_survives_being_written(moment: datetime) -> None:
    assert parse_time(micro_time(moment)) == moment
    assert parse_time(rfc3339(moment)) == moment.replace(microsecond=0)


# -- ModelBackend ----------------------------------------------------------------------------------------------------


def test_a_model_is_called_like_its_backend_unless_it_has_a_name() -> None:
    assert a_backend().model == "smollm2"
    assert a_backend(model={"name": "SmolLM 2", "source": SOURCE}).model == "SmolLM 2"


@pytest.mark.parametrize(
    ("spec", "ordinals"),
    [({}, (0,)), ({"replicas": 0}, ()), ({"replicas": 3}, (0, 1, 2)), ({"replicas": 3, "suspend": True}, ())],
)
def test_the_spec_asks_for_as_many_instances_as_it_has_replicas(spec: Json, ordinals: tuple[int, ...]) -> None:
    assert a_backend(**spec).ordinals == ordinals


def test_a_backend_that_is_deleted_asks_for_none() -> None:
    backend = a_backend({"deletionTimestamp": "2026-05-04T12:00:00Z", "deletionGracePeriodSeconds": 0})
    assert (backend.ordinals, backend.deleting_since) == ((), NOON)


def test_only_our_finalizer_counts() -> None:
    assert not a_backend({"finalizers": ["foregroundDeletion"]}).has_finalizer
    assert a_backend({"finalizers": ["foregroundDeletion", "modelbackend.dev/termination"]}).has_finalizer


def test_ports_are_read_from_the_exposure() -> None:
    backend = a_backend(exposure={"type": "HostPort", "portRange": {"first": 20000, "last": 20010}})
    assert (backend.exposure, backend.port_range, backend.pinned_port) == (Exposure.HOST_PORT, (20000, 20010), None)
    assert a_backend(exposure={"nodePort": 30005}).pinned_port == 30005
    two = a_backend(exposure={"nodePort": 30005, "http": {"nodePort": 30006}})
    assert (two.roles, [two.pin(role) for role in two.roles]) == ((PortRole.GRPC, PortRole.HTTP), [30005, 30006])
    assert a_backend(exposure={"http": {}}).pin(PortRole.HTTP) is None
    assert (a_backend().roles, a_backend(exposure={"type": "ClusterIP"}).roles) == ((PortRole.GRPC,), ())


def test_what_cannot_be_honoured_is_said_in_sentences() -> None:
    (sentence,) = a_backend(runtime={"mode": "Embed", "pooling": "None"}).refused
    assert sentence.startswith("spec.runtime.pooling is not supported by this version")
    assert a_backend().refused == ()


def test_a_file_of_the_node_is_read_only_where_the_administrator_allows_it() -> None:
    model = {"source": {"hostPath": {"path": "/data/m.gguf"}}}
    (sentence,) = a_backend(model=model).refused
    assert sentence.startswith("spec.model.source.hostPath is not allowed in this cluster")
    assert a_backend(model=model, allow_host_path=True).refused == ()


def test_a_path_out_of_the_volume_is_refused() -> None:
    source = {"persistentVolumeClaim": {"claimName": "w", "path": "../other/m.gguf"}}
    (sentence,) = a_backend(model={"source": source}).refused
    assert "has a path with a .. part" in sentence


def test_a_spec_that_cannot_be_read_starts_nothing_and_stops_nothing() -> None:
    backend = a_backend(model={"source": {"oci": {}}}, exposure={"type": "HostPort"})
    (sentence,) = backend.refused
    assert sentence.startswith("this version cannot read the object: spec.model.source")
    assert backend.ordinals == (0,)
    assert backend.exposure is Exposure.HOST_PORT


def test_a_backend_without_a_spec_can_still_be_deleted() -> None:
    bare = raw("smollm2", {"deletionTimestamp": CREATED})
    assert backend_from(bare, allow_host_path=False).deleting_since is not None


# -- PortClaim -------------------------------------------------------------------------------------------------------

CLAIM_SPEC = {"port": 30001, "exposure": "HostPort", "ordinal": 2}


def test_a_new_claim_is_reserved_since_it_was_made() -> None:
    claim = claim_from(raw("port-30001", spec=CLAIM_SPEC))
    assert (claim.phase, claim.since) == (ClaimPhase.RESERVED, parse_time(CREATED))
    assert (claim.port, claim.ordinal, claim.exposure) == (30001, 2, Exposure.HOST_PORT)
    assert (claim.pod_uid, claim.node) == ("", None)


def test_a_bound_claim_names_its_pod_and_machine() -> None:
    status = {
        "phase": "Bound",
        "pod": {"name": "p", "uid": "pod-uid"},
        "node": {"name": "worker", "uid": "node-uid"},
        "since": "2026-05-04T12:00:00Z",
    }
    claim = claim_from(raw("port-30001", spec=CLAIM_SPEC, status=status))
    assert (claim.phase, claim.since, claim.pod_name, claim.pod_uid) == (ClaimPhase.BOUND, NOON, "p", "pod-uid")
    assert claim.node == NodeId("worker", "node-uid", "")


def test_a_phase_that_a_later_version_wrote_releases_nothing() -> None:
    assert claim_from(raw("port-30001", spec=CLAIM_SPEC, status={"phase": "Draining"})).phase is ClaimPhase.WITHHELD


# -- Service, Lease, Node --------------------------------------------------------------------------------------------


def test_an_instances_service_tells_port_and_pod() -> None:
    spec = {
        "type": "NodePort",
        "ports": [{"name": "grpc", "port": 50051, "nodePort": 30001}],
        "selector": {"modelbackend.dev/pod-uid": "pod-uid", "modelbackend.dev/serving": "true"},
    }
    service = service_from(raw("smollm2-12345678-1", spec=spec))
    assert (service.ordinal, service.node_port, service.pod_uid) == (1, 30001, "pod-uid")


def test_a_service_with_two_ports_tells_both() -> None:
    body = instance_service(a_backend(), "smollm2-12345678-0", 0, 30001, "pod-uid", 30002)
    service = service_from(as_served(body, {}))
    assert (service.node_port, service.http_node_port, service.node_ports) == (30001, 30002, (30001, 30002))
    elsewhere = [body["spec"]["ports"][0], {**body["spec"]["ports"][1], "targetPort": 9}]
    assert service.intact
    assert not service_from(as_served(body, {"spec": {"ports": elsewhere}})).intact


SERVICES_AS_MADE = {
    "an instance's": instance_service(a_backend(), "smollm2-12345678-0", 0, 30001, "pod-uid"),
    "the shared one": shared_service(a_backend(), "smollm2"),
}
EDITS: dict[str, Json] = {
    "another selector": {"spec": {"selector": {"app": "evil"}}},
    "one more label in the selector": {"spec": {"selector": {"app": "evil", **instance_selector("pod-uid")}}},
    "another target": {"spec": {"ports": [{"port": 50051, "targetPort": 9, "nodePort": 30001}]}},
    "only the pod's own node": {"spec": {"externalTrafficPolicy": "Local"}},
    "another type": {"spec": {"type": "LoadBalancer"}},
    "no labels": {"metadata": {"labels": {}}},
    "another backend's label": {"metadata": {"labels": {"modelbackend.dev/backend-uid": "another"}}},
}


def as_served(body: Json, edit: Json) -> Json:
    parts = {part: {**body[part], **edit.get(part, {})} for part in ("metadata", "spec")}
    return {**body, **parts, "metadata": {"uid": "u", "resourceVersion": "1", **parts["metadata"]}}


@pytest.mark.parametrize("body", SERVICES_AS_MADE.values(), ids=SERVICES_AS_MADE)
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_service_that_others_edited_is_told_from_one_as_it_was_made(body: Json, edit: Json) -> None:
    assert service_from(as_served(body, {})).intact
    assert not service_from(as_served(body, edit)).intact


def test_a_shared_service_without_the_http_port_is_put_right() -> None:
    body = SERVICES_AS_MADE["the shared one"]
    ports = [port for port in body["spec"]["ports"] if port["name"] != "http"]
    assert not service_from(as_served(body, {"spec": {"ports": ports}})).intact


def test_a_port_that_others_added_to_a_service_is_none_of_our_business() -> None:
    body = SERVICES_AS_MADE["the shared one"]
    ports = [*body["spec"]["ports"], {"name": "theirs", "port": 80, "targetPort": 80}]
    assert service_from(as_served(body, {"spec": {"ports": ports}})).intact


def test_the_shared_service_is_no_instances_whatever_it_is_called() -> None:
    spec = {"type": "ClusterIP", "ports": [{"port": 50051}], "selector": {"modelbackend.dev/backend-uid": "u"}}
    service = service_from(raw("chat-12345678-1", spec=spec))
    assert (service.ordinal, service.node_port, service.pod_uid) == (None, None, "")


def a_lease_of(annotation: str | None) -> Json:
    annotations = {} if annotation is None else {"modelbackend.dev/holder": annotation}
    return raw("modelbackend-abc", {"annotations": annotations}, spec={"holderIdentity": "somebody"})


@pytest.mark.parametrize(
    "annotation",
    [None, "{", "[]", '{"backendUID": "b", "ordinal": "0", "podUID": "p", "purpose": "BackendDeleted"}'],
)
def test_a_lease_of_somebody_unknown_is_not_ours(annotation: str | None) -> None:
    lease = lease_from(a_lease_of(annotation))
    assert (lease.holder, lease.transitions) == (None, 0)


def test_a_lease_says_since_when_it_is_held() -> None:
    held = raw("modelbackend-abc", spec={"acquireTime": "2026-05-04T11:00:00.500000Z", "leaseTransitions": 2})
    assert lease_from(held).acquired_at == datetime(2026, 5, 4, 11, 0, 0, 500000, tzinfo=UTC)
    assert lease_from(a_lease_of(None)).acquired_at is None


def test_orders_are_read_as_they_were_written_and_only_ours() -> None:
    given = {"modelbackend.dev/force": " p-uid now", "modelbackend.dev/extend": "p-uid 60", "else": "x"}
    backend = backend_from(raw("smollm2", {"annotations": given}, spec={}), allow_host_path=False)
    assert backend.orders == {OrderKind.FORCE: " p-uid now", OrderKind.EXTEND: "p-uid 60"}


def test_a_node_in_one_life_has_a_boot_id() -> None:
    assert node_from(raw("worker", status={"nodeInfo": {"bootID": "b"}})).identity == NodeId("worker", "the-uid", "b")
    assert node_from(raw("worker")) == Node("worker", "the-uid", "")


def test_what_a_node_tells_of_its_machine() -> None:
    ready = {
        "type": "Ready",
        "status": "Unknown",
        "lastHeartbeatTime": "2026-05-04T12:00:00Z",
        "lastTransitionTime": "2026-05-04T12:01:00Z",
    }
    addresses = [{"type": "Hostname", "address": "worker"}, {"type": "InternalIP", "address": "10.0.0.1"}]
    status = {"conditions": [{"type": "MemoryPressure"}, ready], "addresses": addresses}
    node = node_from(raw("worker", status=status))
    assert (node.heartbeat_at, node.lost_since) == (NOON, NOON + timedelta(minutes=1))
    assert (node.address, node.out_of_service) == ("10.0.0.1", False)
    assert node_from(raw("worker", status={"conditions": [{**ready, "status": "True"}]})).lost_since is None
    taints = [{"key": "a"}, {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
    assert node_from(raw("worker", spec={"taints": taints})).out_of_service


@pytest.mark.parametrize(
    ("annotation", "attestation"),
    [
        ("pod-uid the rack burnt down", Attestation("pod-uid", "the rack burnt down")),
        ("  pod-uid   x ", Attestation("pod-uid", "x")),
        ("pod-uid", Attestation("pod-uid", "")),
        (" ", None),
    ],
)
def test_an_attestation_names_a_pod_and_says_why(annotation: str, attestation: Attestation | None) -> None:
    metadata = {"annotations": {"modelbackend.dev/attest": annotation}}
    assert a_backend(metadata).attestation == attestation
    spec = {"port": 30001, "exposure": "NodePort", "ordinal": 0}
    assert claim_from(raw("port-30001", metadata, spec=spec)).attestation == attestation


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (None, ""),
        ({"status": "True", "message": "kubelet is posting ready status"}, ""),
        (
            {"status": "Unknown", "message": "Kubelet stopped posting node status."},
            "Kubelet stopped posting node status.",
        ),
        ({"status": "False", "reason": "KubeletNotReady"}, "KubeletNotReady"),
        ({"status": "False"}, "it does not say why"),
    ],
)
def test_a_node_that_is_not_ready_tells_why(condition: Json | None, words: str) -> None:
    conditions = [{"type": "Ready", **condition}] if condition is not None else []
    assert node_trouble(raw("worker", status={"conditions": conditions})) == words


# -- whatever people write -------------------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1000) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
record_fields = st.sampled_from(
    ["since", "deadline", "reason", "epoch", "backendUID", "ordinal", "podUID", "purpose", "description"]
)
json_texts = st.text(max_size=40) | st.dictionaries(record_fields, anything, max_size=9).map(json.dumps)


@settings(deadline=None)
@given(json_texts)
def test_no_annotation_makes_the_reader_stumble(text: str) -> None:
    pod = raw("smollm2-12345678-0", {"annotations": {"modelbackend.dev/stop": text}})
    assert pod_from(pod).ref.name == "smollm2-12345678-0"
    assert lease_from(a_lease_of(text)).ref.name == "modelbackend-abc"


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["model", "exposure", "shutdown", "replicas", "suspend", "env"]), anything))
def test_no_spec_makes_the_reader_stumble(spec: Json) -> None:
    backend = backend_from(raw("smollm2", spec=spec), allow_host_path=False)
    assert backend.ref.name == "smollm2"
