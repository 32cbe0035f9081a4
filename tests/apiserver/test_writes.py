"""Every write of the operator against a real API server: it is taken, it changes what is meant, and never more."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from modelbackend_operator.actions import (
    AcquireLease,
    AddFinalizer,
    BindClaim,
    CoolClaim,
    CreateBudget,
    CreateClaim,
    CreatePod,
    CreateService,
    DeleteBudget,
    DeleteClaim,
    DeletePod,
    DeleteService,
    PointService,
    RecordNode,
    ReleaseLease,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    RemovePodFinalizer,
    ReserveClaim,
    RestoreMarks,
    SetServing,
    Ungate,
    WithholdClaim,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.conditions import answer_orders
from modelbackend_operator.kinds import Kind
from modelbackend_operator.manifests import control_secret, service_name, shared_service_name
from modelbackend_operator.model.backend import Backend, Exposure, PortRole
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.lease import Holder
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.stop import Cut, StopReason, StopRecord
from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.observe.budget import budget_from
from modelbackend_operator.observe.claim import claim_from
from modelbackend_operator.observe.lease import lease_from
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.observe.service import service_from
from modelbackend_operator.orders import force_for
from modelbackend_operator.patches import write_of
from modelbackend_operator.settings import Settings
from tests.apiserver.world import NOW, SOURCE, Json, World, node_ports
from tests.unit.builders import a_world

pytestmark = pytest.mark.apiserver

NOON = "2026-05-04T12:00:00Z"
NODE = NodeId("worker", "node-uid", "boot-1")


# -- what is made ----------------------------------------------------------------------------------------------------

EVERY_FIELD: Json = {
    "model": {"name": "SmolLM2:135M", "source": SOURCE, "sha256": "ab" * 32},
    "runtime": {"image": "registry.example/server:1", "contextLength": 4096, "threads": 2},
    "exposure": {"type": "HostPort"},
    "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "500m"}, "requests": {"memory": "1Gi"}},
    "nodeSelector": {"gpu": "yes"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "imagePullSecrets": [{"name": "registry"}],
    "podMetadata": {"labels": {"team": "search"}, "annotations": {"note": "a"}},
    "env": [{"name": "OMP_NUM_THREADS", "value": "2"}],
}


def test_an_instance_with_two_ports_gets_them_as_host_ports_or_in_one_service(world: World) -> None:
    backend = world.backend("two", exposure={"http": {}})
    first, second = next(node_ports), next(node_ports)
    made = CreateService(backend, service_name(backend, 0, ()), 0, first, "pod-uid", second)
    service = service_from(world.do(made))
    assert (service.node_ports, service.intact) == ((first, second), True)
    moved = service_from(world.do(PointService(backend, service, "another")))
    assert (moved.node_ports, moved.pod_uid, moved.intact) == ((first, second), "another", True)
    on_host = world.backend("on-host", exposure={"type": "HostPort", "http": {}})
    pod = pod_from(world.do(CreatePod(on_host, 0, "on-host-12345678-0", 20011, http_port=20012)))
    assert (pod.host_port, pod.http_host_port) == (20011, 20012)


@pytest.mark.parametrize("name", ["smollm2", "llama-3.2-1b", "7b-chat", "x" * 63, "a", "a-0"])
def test_a_backend_of_any_name_gets_its_objects(world: World, name: str) -> None:
    backend = world.backend(name)
    port = next(node_ports)
    pod = world.pod(backend, port)
    shared = world.do(CreateService(backend, shared_service_name(backend, ())))
    own = world.do(CreateService(backend, service_name(backend, 0, ()), 0, port, pod.ref.uid))
    assert service_from(shared).ordinal is None
    assert (service_from(own).ordinal, service_from(own).node_port) == (0, port)
    world.do(CreateClaim(backend, 0, port))
    second = claim_from(world.do(CreateClaim(backend, 0, next(node_ports), PortRole.HTTP)))
    assert second.role is PortRole.HTTP
    secret = world.server.post(f"/api/v1/namespaces/{world.namespace}/secrets", control_secret(backend, "t"))
    assert secret.status == 201, secret.message


def test_a_pod_with_every_field_of_the_spec_is_taken_and_read_back(world: World) -> None:
    backend = world.backend(**EVERY_FIELD)
    pod = world.pod(backend, 20001)
    assert (pod.template_hash, pod.host_port, pod.ordinal) == (backend.template_hash, 20001, 0)
    assert (pod.gated, pod.has_finalizer, pod.serving_label, pod.deleting) == (True, True, False, False)
    assert pod.unschedulable == ""


def test_nothing_in_a_pods_body_is_unknown_to_the_api_server(world: World) -> None:
    backend = world.backend(**EVERY_FIELD)
    write = write_of(CreatePod(backend, 0, "strict", 20002), Settings(), NOW)
    answer = world.server.post(f"{write.path}?fieldValidation=Strict", write.body)
    assert answer.status == 201, answer.message


DEVICES: dict[str, Json] = {
    "a whole GPU": {"resources": {"limits": {"nvidia.com/gpu": 2}}},
    "a slice of one": {"resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}},
    "a slice with attributes": {"resources": {"limits": {"nvidia.com/mig-3g.40gb.me": 1}}},
    "a shared one": {"resources": {"limits": {"nvidia.com/gpu.shared": 1}}},
    "another vendor's": {"resources": {"limits": {"amd.com/gpu": 1}}},
    "a third vendor's": {"resources": {"limits": {"gpu.intel.com/xe": "1"}}},
    "claims of dynamic resource allocation": {
        "resourceClaims": [
            {"name": "gpu", "resourceClaimTemplateName": "one-gpu"},
            {"name": "shared", "resourceClaimName": "the-shared-one"},
        ],
        "resources": {"claims": [{"name": "gpu", "request": "big"}, {"name": "shared"}]},
    },
    "spread over zones": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "minDomains": 2,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "nodeTaintsPolicy": "Honor",
                "labelSelector": {"matchLabels": {"team": "search"}},
            }
        ]
    },
    "tainted nodes": {
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {
                "key": "maintenance",
                "operator": "Equal",
                "value": "soon",
                "effect": "NoExecute",
                "tolerationSeconds": 60,
            },
        ]
    },
    "a runtime and a priority of its own": {"runtimeClassName": "nvidia", "priorityClassName": "models"},
}


@pytest.mark.parametrize("spec", DEVICES.values(), ids=DEVICES)
def test_what_asks_for_devices_reaches_the_pod_as_it_was_written(world: World, spec: Json) -> None:
    """Also through the kind's own schema, which must drop none of it."""
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    priority = {"metadata": {"name": "models"}, "value": 1000}
    for path, body in (("node.k8s.io/v1/runtimeclasses", runtime), ("scheduling.k8s.io/v1/priorityclasses", priority)):
        assert world.server.post(f"/apis/{path}", body).status in (201, 409)
    backend = world.backend(**spec)
    write = write_of(CreatePod(backend, 0, "smollm2-0", None), Settings(), NOW)
    answer = world.server.post(f"{write.path}?fieldValidation=Strict", write.body)
    assert answer.status == 201, answer.message
    made, container = answer.body["spec"], answer.body["spec"]["containers"][0]
    added_by_default = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    made["tolerations"] = [one for one in made["tolerations"] if one["key"] not in added_by_default]
    asked = {name: value for name, value in spec.items() if name != "resources"}
    assert {name: made[name] for name in asked} == asked
    resources = spec.get("resources", {})
    limits = {name: str(value) for name, value in resources.get("limits", {}).items()}
    assert container["resources"].get("limits", {}) == limits
    assert container["resources"].get("claims", []) == resources.get("claims", [])


@pytest.mark.parametrize(("exposure", "status"), [("NodePort", 201), ("ClusterIP", 201), ("HostPort", 403)])
def test_the_pod_fits_the_restricted_standard_unless_it_takes_a_port_of_the_node(
    world: World, exposure: str, status: int
) -> None:
    enforce = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    assert world.server.merge(f"/api/v1/namespaces/{world.namespace}", enforce).status == 200
    answer = world.send(CreatePod(world.backend(exposure={"type": exposure}), 0, "smollm2-0", 20003))
    assert answer.status == status, answer.message


def test_what_exists_is_not_taken_over(world: World) -> None:
    backend, other = world.backend(), world.backend("other")
    claim = world.claim(backend)
    holder = Holder(backend.ref.uid, 0, "pod-uid", StopReason.DELETED)
    world.do(AcquireLease(backend, holder))
    for action in (CreateClaim(other, 0, claim.port), AcquireLease(backend, holder)):
        answer = world.send(action)
        assert (answer.status, answer.body["reason"]) == (409, "AlreadyExists")


def test_a_lease_is_taken_read_and_given_back(world: World) -> None:
    backend = world.backend()
    holder = Holder(backend.ref.uid, 0, "pod-uid", StopReason.SPEC_CHANGED)
    lease = lease_from(world.do(AcquireLease(backend, holder)))
    assert lease.holder == holder
    world.do(ReleaseLease(lease))
    again = lease_from(world.do(AcquireLease(backend, holder)))
    assert again.epoch != lease.epoch


# -- the pod's life --------------------------------------------------------------------------------------------------


def with_others_marks(world: World, pod: Pod) -> Pod:
    """A finalizer, a label and a condition that are not ours."""
    path = Kind.POD.path(pod.ref.namespace, pod.ref.name)
    mark = {"metadata": {"labels": {"theirs": "yes"}, "finalizers": ["modelbackend.dev/termination", "example.org/b"]}}
    assert world.server.merge(path, mark).status == 200
    condition = {"type": "example.org/c", "status": "True"}
    status = world.server.merge(f"{path}/status", {"status": {"conditions": [condition]}})
    assert status.status == 200, status.message
    return pod_from(status.body)


def test_opening_the_gate_sets_the_labels_and_leaves_the_gates_of_others(world: World) -> None:
    backend = world.backend()
    write = write_of(CreatePod(backend, 0, "smollm2-0", None), Settings(), NOW)
    gates = [*write.body["spec"]["schedulingGates"], {"name": "example.org/queue"}]
    raw = world.post(Kind.POD, {**write.body, "spec": {**write.body["spec"], "schedulingGates": gates}})
    opened = world.do(Ungate(pod_from(raw)))
    assert opened["spec"]["schedulingGates"] == [{"name": "example.org/queue"}]
    labels = opened["metadata"]["labels"]
    assert labels["modelbackend.dev/pod-uid"] == raw["metadata"]["uid"]
    assert (pod_from(opened).gated, pod_from(opened).serving_label) == (False, True)


def test_a_disruption_budget_is_read_back_as_it_was_made_and_one_that_was_edited_is_not(world: World) -> None:
    backend = world.backend(replicas=2)
    made = world.do(CreateBudget(backend))
    assert budget_from(made).intact
    path = Kind.BUDGET.path(world.namespace, made["metadata"]["name"])
    other = {"spec": {"maxUnavailable": None, "minAvailable": 2}}
    edited = world.server.merge(path, other)
    assert edited.status == 200, edited.message
    assert not budget_from(edited.body).intact
    world.do(DeleteBudget(budget_from(edited.body)))
    assert world.server.get(path).status == 404


def test_labels_are_restored_on_a_pod_whose_gate_is_open(world: World) -> None:
    pod = pod_from(world.do(Ungate(world.pod(world.backend()))))
    edited = world.server.merge(
        Kind.POD.path(pod.ref.namespace, pod.ref.name), {"metadata": {"labels": {"modelbackend.dev/serving": None}}}
    )
    restored = world.do(Ungate(pod_from(edited.body)))
    assert pod_from(restored).serving_label
    assert "schedulingGates" not in restored["spec"]


def test_a_finalizer_that_was_edited_away_comes_back_beside_those_of_others(world: World) -> None:
    backend = world.backend()
    pod = world.pod(backend)
    stripped = world.server.merge(
        Kind.POD.path(pod.ref.namespace, pod.ref.name), {"metadata": {"finalizers": ["example.org/theirs"]}}
    )
    restored = world.do(RestoreMarks(pod_from(stripped.body), backend.ref.uid))
    assert sorted(restored["metadata"]["finalizers"]) == ["example.org/theirs", "modelbackend.dev/termination"]


def test_readiness_is_given_and_withdrawn_beside_the_conditions_of_others(world: World) -> None:
    pod = with_others_marks(world, world.pod(world.backend()))
    given = world.do(SetServing(pod, serving=True))
    assert pod_from(given).serving_condition
    withdrawn = world.do(SetServing(pod_from(given), serving=False))
    assert not pod_from(withdrawn).serving_condition
    assert "example.org/c" in {condition["type"] for condition in withdrawn["status"]["conditions"]}


def test_a_stop_record_comes_as_serving_goes(world: World) -> None:
    pod = pod_from(world.do(Ungate(with_others_marks(world, world.pod(world.backend())))))
    record = StopRecord(NOW, StopReason.DELETED, NOW + timedelta(seconds=30), "lease-uid/0")
    stopped = world.do(WriteStopRecord(pod, record))
    assert pod_from(stopped).stop == record
    assert not pod_from(stopped).serving_label
    assert stopped["metadata"]["labels"]["theirs"] == "yes"
    assert stopped["metadata"]["annotations"]["modelbackend.dev/template-hash"] == pod.template_hash


def test_a_deleted_pod_stays_until_our_finalizer_goes(world: World) -> None:
    pod = world.pod(world.backend())
    world.do(DeletePod(pod, 15))
    held = pod_from(world.get(Kind.POD, pod.ref).body)
    assert (held.deleting, held.has_finalizer) == (True, True)
    world.do(RemovePodFinalizer(held))
    assert world.get(Kind.POD, pod.ref).status == 404


def test_taking_our_finalizer_off_leaves_that_of_others(world: World) -> None:
    pod = with_others_marks(world, world.pod(world.backend()))
    freed = world.do(RemovePodFinalizer(pod))
    assert freed["metadata"]["finalizers"] == ["example.org/b"]


def test_deletion_of_a_running_pod_began_when_it_was_asked_for(world: World) -> None:
    pod = pod_from(world.do(Ungate(world.pod(world.backend()))))
    binding = {"metadata": {"name": pod.ref.name}, "target": {"kind": "Node", "name": "worker"}}
    bound = world.server.post(f"{Kind.POD.path(pod.ref.namespace, pod.ref.name)}/binding", binding)
    assert bound.status == 201, bound.message
    before = datetime.now(UTC).replace(microsecond=0)
    world.do(DeletePod(pod_from(world.get(Kind.POD, pod.ref).body), 600))
    deleted = pod_from(world.get(Kind.POD, pod.ref).body)
    assert deleted.deleted_at is not None
    assert before <= deleted.deleted_at <= datetime.now(UTC)
    assert (deleted.grace_seconds, deleted.node) == (600, "worker")


# -- the claim's life ------------------------------------------------------------------------------------------------


def test_a_claim_goes_through_its_phases(world: World) -> None:
    backend = world.backend()
    pod, claim = world.pod(backend), world.claim(backend)
    assert (claim.phase, claim.exposure, claim.has_finalizer) == (ClaimPhase.RESERVED, Exposure.NODE_PORT, True)

    bound = claim_from(world.do(BindClaim(claim, pod)))
    assert (bound.phase, bound.pod_name, bound.pod_uid) == (ClaimPhase.BOUND, pod.ref.name, pod.ref.uid)
    recorded = claim_from(world.do(RecordNode(bound, NODE)))
    assert (recorded.phase, recorded.node, recorded.since) == (ClaimPhase.BOUND, NODE, bound.since)
    withheld = claim_from(world.do(WithholdClaim(recorded, "PodMissing", "it vanished")))
    assert (withheld.phase, withheld.pod_uid, withheld.node) == (ClaimPhase.WITHHELD, pod.ref.uid, NODE)
    cooling = claim_from(world.do(CoolClaim(withheld, "NeverStarted")))
    assert (cooling.phase, cooling.pod_uid) == (ClaimPhase.COOLING, pod.ref.uid)
    assert "reason" not in cooling.raw["status"]
    reserved = claim_from(world.do(ReserveClaim(cooling)))
    assert (reserved.phase, reserved.pod_uid, reserved.node) == (ClaimPhase.RESERVED, "", None)
    assert [past["pod"]["uid"] for past in reserved.raw["status"]["history"]] == [pod.ref.uid]


def test_the_last_five_holders_are_remembered_with_their_evidence(world: World) -> None:
    backend = world.backend()
    pod, claim = world.pod(backend), world.claim(backend)
    for number in range(7):
        named = replace(pod, ref=replace(pod.ref, uid=f"uid-{number}"))
        bound = claim_from(world.do(BindClaim(claim, named)))
        claim = claim_from(world.do(CoolClaim(bound, "ContainersTerminated")))
    history = claim.raw["status"]["history"]
    assert [past["pod"]["uid"] for past in history] == [f"uid-{number}" for number in range(2, 7)]
    assert {past["evidence"] for past in history} == {"ContainersTerminated"}
    assert all(past["since"] and past["until"] for past in history)


def test_a_claim_ends_in_two_steps(world: World) -> None:
    claim = world.claim(world.backend())
    world.do(DeleteClaim(claim))
    terminating = claim_from(world.get(Kind.CLAIM, claim.ref).body)
    assert (terminating.terminating, terminating.has_finalizer) == (True, True)
    world.do(RemoveClaimFinalizer(terminating))
    assert world.get(Kind.CLAIM, claim.ref).status == 404


# -- backend and Services --------------------------------------------------------------------------------------------


def test_the_backends_finalizer_comes_and_goes_beside_those_of_others(world: World) -> None:
    backend = world.backend()
    path = Kind.BACKEND.path(backend.ref.namespace, backend.ref.name)
    theirs = world.server.merge(path, {"metadata": {"finalizers": ["example.org/b"]}})
    held = backend_from(world.do(AddFinalizer(backend_from(theirs.body, allow_host_path=False))), allow_host_path=False)
    assert held.has_finalizer
    freed = world.do(RemoveFinalizer(held))
    assert freed["metadata"]["finalizers"] == ["example.org/b"]


def test_a_status_is_replaced_as_a_whole_also_what_tools_were_told_before(world: World) -> None:
    backend = world.backend()
    told = {"type": "Ready", "status": "False", "reason": "Starting", "message": "m", "lastTransitionTime": NOON}
    first = world.do(WriteStatus(backend, {"observedGeneration": 1, "inFlight": 3, "conditions": [told]}))
    last = {"observedGeneration": 2, "conditions": [{**told, "reason": "NoInstances"}]}
    assert world.do(WriteStatus(backend_from(first, allow_host_path=False), last))["status"] == last


def test_a_service_is_pointed_at_the_next_pod(world: World) -> None:
    backend = world.backend()
    port = next(node_ports)
    made = world.do(CreateService(backend, "smollm2-0", 0, port, "first"))
    pointed = world.do(PointService(backend, service_from(made), "second"))
    assert service_from(pointed).pod_uid == "second"
    again = world.do(PointService(backend, service_from(pointed), "third"))
    assert (service_from(again).pod_uid, service_from(again).node_port) == ("third", port)
    assert again["metadata"]["labels"] == made["metadata"]["labels"]
    world.do(DeleteService(service_from(again)))
    assert world.get(Kind.SERVICE, service_from(again).ref).status == 404


# -- orders and records ----------------------------------------------------------------------------------------------


def annotated(world: World, backend: Backend, **orders: str | None) -> Backend:
    """As a user would: `kubectl annotate --overwrite`."""
    annotations = {f"modelbackend.dev/{kind}": text for kind, text in orders.items()}
    path = Kind.BACKEND.path(world.namespace, backend.ref.name)
    answer = world.server.merge(path, {"metadata": {"annotations": annotations}})
    assert answer.status == 200, answer.message
    return backend_from(answer.body, allow_host_path=False)


def test_orders_are_answered_in_status_and_forgotten_with_their_annotations(world: World) -> None:
    backend = world.backend()
    pod = world.pod(backend)
    force, extend = f"{pod.ref.uid} the node is needed", "another-uid 60"
    ordering = annotated(world, backend, force=force, extend=extend)
    looking = replace(observation_of_one(ordering), pods=(pod,))
    accepting = answer_orders(looking)
    assert accepting is not None
    told = backend_from(world.do(accepting.action), allow_host_path=False)
    by_kind = {entry["kind"]: entry for entry in told.status["orders"]}
    assert by_kind["Force"] == {"kind": "Force", "text": force, "pods": [pod.ref.uid]}
    assert by_kind["Extend"]["pods"] == []
    assert "no pod with uid another-uid" in by_kind["Extend"]["refused"]
    assert answer_orders(replace(looking, backend=told)) is None, "an answer is given once"
    assert force_for(told, pod) == force
    silent = annotated(world, told, force=None, extend=None)
    forgetting = answer_orders(replace(looking, backend=silent))
    assert forgetting is not None
    assert not world.do(forgetting.action)["status"].get("orders")


def observation_of_one(backend: Backend) -> Observation:
    return a_world(backend, backend_uid=backend.ref.uid)


def test_a_stop_record_with_orders_cut_and_way_given_is_read_back(world: World) -> None:
    pod = world.pod(world.backend())
    record = StopRecord(NOW, StopReason.ORDERED, NOW + timedelta(seconds=30), "lease-uid/0", extended="p 60")
    for more in ({}, {"yielded_at": NOW}, {"cut": Cut("all now", 3)}, {"cut": Cut("", None)}):
        pod = pod_from(world.do(WriteStopRecord(pod, replace(record, **more))))
        assert pod.stop == replace(record, **more)


def test_a_pod_that_ends_already_takes_an_order_into_its_record(world: World) -> None:
    pod = world.pod(world.backend())
    ending = pod_from(world.do(DeletePod(pod, 15)))
    assert ending.deleting
    record = StopRecord(NOW, StopReason.FOREIGN, NOW, "", cut=Cut("all now", 1))
    assert pod_from(world.do(WriteStopRecord(ending, record))).stop == record


def test_the_last_shutdown_and_the_obeyed_order_are_taken(world: World) -> None:
    backend = world.backend()
    reference = {"name": "smollm2-0", "uid": "pod-uid"}
    stop = {"since": NOON, "reason": "Ordered", "deadline": NOON, "order": "all now"}
    status = {
        "instances": [{"ordinal": 0, "phase": "Draining", "pod": reference, "stop": stop, "waitingSince": NOON}],
        "lastShutdown": {"outcome": "Forced", "pod": reference, "finished": NOON, "seconds": 42, "requestsCut": 3},
    }
    taken = world.do(WriteStatus(backend, status))["status"]
    assert taken["lastShutdown"] == status["lastShutdown"]
    assert taken["instances"] == status["instances"]
