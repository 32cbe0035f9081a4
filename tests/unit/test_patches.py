"""Which HTTP write each action is, and that none can hit another object or another version than it was decided from."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from modelbackend_operator.actions import (
    AbortServer,
    AcquireLease,
    Action,
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
    DrainServer,
    ExplainClaim,
    HandOver,
    PointService,
    RecordNode,
    RecordReference,
    RecordReturn,
    ReleaseLease,
    RemakeToken,
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
from modelbackend_operator.claim_patches import HISTORY_LENGTH
from modelbackend_operator.model.backend import Attestation, PortRole
from modelbackend_operator.model.lease import Holder
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.stop import Cut, StopReason, StopRecord
from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.observe.budget import budget_from
from modelbackend_operator.observe.claim import claim_from
from modelbackend_operator.observe.lease import lease_from
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.observe.service import service_from
from modelbackend_operator.patches import write_of
from modelbackend_operator.pod_patches import stop_json
from modelbackend_operator.settings import Settings
from modelbackend_operator.write import Verb, Write

Json = dict[str, Any]

NOW = datetime(2026, 5, 4, 12, 0, 0, 250_000, tzinfo=UTC)
SETTINGS = Settings(server_image="server:1", namespace="modelbackend-system")
OURS, THEIRS = "modelbackend.dev/termination", "example.org/backup"


def raw(name: str, namespace: str = "models", **parts: Any) -> Json:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "resourceVersion": "41"}
    return {"metadata": {**metadata, **parts.pop("metadata", {})}, **parts}


SOURCE = {"persistentVolumeClaim": {"claimName": "weights", "path": "m.gguf"}}
BACKEND = backend_from(
    raw("smollm2", metadata={"finalizers": [THEIRS, OURS]}, spec={"model": {"source": SOURCE}}), allow_host_path=False
)
BARE = backend_from(raw("smollm2", spec={"model": {"source": SOURCE}}), allow_host_path=False)
POD = pod_from(raw("smollm2-12345678-0", spec={"schedulingGates": [{"name": "modelbackend.dev/claim"}]}))
CLAIM_SPEC = {"port": 30001, "exposure": "NodePort", "ordinal": 0}
NODE = NodeId("worker", "node-uid", "boot-1")
BOUND = {
    "phase": "Bound",
    "pod": {"name": "p", "uid": "pod-uid"},
    "node": {"name": "worker", "uid": "node-uid", "bootID": "boot-1"},
    "since": "2026-05-04T11:00:00Z",
}
CLAIM = claim_from(
    raw("port-30001", "", metadata={"finalizers": [OURS, THEIRS]}, spec=CLAIM_SPEC, status=BOUND),
)
SERVICE = service_from(raw("smollm2-12345678-0", spec={"type": "NodePort"}))
BUDGET = budget_from(raw("smollm2-12345678"))
HOLDER = Holder(BACKEND.ref.uid, 0, POD.ref.uid, StopReason.DELETED)
LEASE = lease_from(raw("modelbackend-abc", "modelbackend-system"))
RECORD = StopRecord(NOW, StopReason.DELETED, NOW + timedelta(seconds=30), "lease-uid/0")

CREATES: list[Action] = [
    CreateClaim(BACKEND, 0, 30001),
    CreatePod(BACKEND, 0, "smollm2-12345678-0", 30001),
    CreateClaim(BACKEND, 0, 30002, PortRole.HTTP),
    CreateService(BACKEND, "smollm2-12345678-1", 1, 30003, "pod-uid", 30004),
    CreateService(BACKEND, "smollm2"),
    CreateService(BACKEND, "smollm2-12345678-0", 0, 30001, "pod-uid"),
    CreateBudget(BACKEND),
    AcquireLease(BACKEND, HOLDER),
]
UPDATES: list[Action] = [
    AddFinalizer(BARE),
    RemoveFinalizer(BACKEND),
    WriteStatus(BACKEND, {"observedGeneration": 1}),
    PointService(BACKEND, SERVICE, "pod-uid"),
    Ungate(POD),
    RestoreMarks(POD, BACKEND.ref.uid),
    RemakeToken(BACKEND, POD),
    SetServing(POD, serving=True),
    WriteStopRecord(POD, RECORD),
    RemovePodFinalizer(POD),
    ReserveClaim(CLAIM),
    BindClaim(CLAIM, POD),
    RecordNode(CLAIM, NODE),
    CoolClaim(CLAIM, "ContainersTerminated"),
    WithholdClaim(CLAIM, "PodMissing", "it vanished"),
    RecordReference(CLAIM, "boot-2"),
    ExplainClaim(CLAIM, "StillAnswering", "it answers"),
    RecordReturn(CLAIM, NODE),
    HandOver(POD),
    RemoveClaimFinalizer(CLAIM),
]
DELETES: list[Action] = [
    DeletePod(POD, 15),
    DeleteService(SERVICE),
    DeleteBudget(BUDGET),
    DeleteClaim(CLAIM),
    ReleaseLease(LEASE),
]


def written(action: Action) -> Write:
    return write_of(action, SETTINGS, NOW)


def body_of(action: Action) -> Json:
    return dict(written(action).body)


def name_of(action: Action) -> str:
    return type(action).__name__


def test_every_action_but_the_call_to_a_server_is_one_write() -> None:
    assert {type(action) for action in CREATES + UPDATES + DELETES} == set(get_args(Action)) - {
        DrainServer,
        AbortServer,
    }
    with pytest.raises(ValueError, match="call to the server"):
        written(DrainServer(POD, NOW))
    with pytest.raises(ValueError, match="AbortServer is a call"):
        written(AbortServer(POD, "why"))


@pytest.mark.parametrize("action", CREATES, ids=name_of)
def test_what_is_made_is_posted_under_a_fixed_name(action: Action) -> None:
    write = written(action)
    assert (write.verb.method, write.verb.content_type) == ("POST", "application/json")
    assert write.path.endswith(f"/{write.kind.plural}")
    assert write.body["metadata"]["name"] == write.name
    assert "resourceVersion" not in write.body["metadata"]


@pytest.mark.parametrize("action", UPDATES, ids=name_of)
def test_a_change_is_for_one_object_in_one_version(action: Action) -> None:
    write = written(action)
    metadata = write.body["metadata"]
    assert write.verb.method == "PATCH"
    assert (metadata["uid"], metadata["resourceVersion"]) == (f"uid-of-{write.name}", "41")
    assert f"/{write.kind.plural}/{write.name}" in write.path


@pytest.mark.parametrize("action", DELETES, ids=name_of)
def test_a_delete_is_for_one_object_in_one_version(action: Action) -> None:
    write = written(action)
    assert write.verb is Verb.DELETE
    assert write.body["preconditions"] == {"uid": f"uid-of-{write.name}", "resourceVersion": "41"}
    assert write.path.endswith(f"/{write.kind.plural}/{write.name}")


def test_paths_lead_to_the_objects() -> None:
    base = "/apis/modelbackend.dev/v1alpha1"
    assert written(SetServing(POD, serving=True)).path == "/api/v1/namespaces/models/pods/smollm2-12345678-0/status"
    assert written(Ungate(POD)).path == "/api/v1/namespaces/models/pods/smollm2-12345678-0"
    assert written(WriteStatus(BACKEND, {})).path == f"{base}/namespaces/models/modelbackends/smollm2/status"
    assert written(CreateClaim(BACKEND, 0, 30001)).path == f"{base}/portclaims"
    assert written(BindClaim(CLAIM, POD)).path == f"{base}/portclaims/port-30001/status"
    leases = "/apis/coordination.k8s.io/v1/namespaces/modelbackend-system/leases"
    assert written(AcquireLease(BACKEND, HOLDER)).path == leases
    assert written(ReleaseLease(LEASE)).path == f"{leases}/modelbackend-abc"


def test_only_an_apply_takes_fields_from_others() -> None:
    forced = {type(action) for action in CREATES + UPDATES + DELETES if ("force", "true") in written(action).query}
    assert forced == {WriteStatus, PointService}


# -- pods ------------------------------------------------------------------------------------------------------------


def test_only_a_pods_delete_has_a_grace_period() -> None:
    assert body_of(DeletePod(POD, 15))["gracePeriodSeconds"] == 15
    assert body_of(DeletePod(POD, 0))["gracePeriodSeconds"] == 0
    assert "gracePeriodSeconds" not in body_of(DeleteClaim(CLAIM))


def test_one_patch_opens_the_gate_and_lets_services_find_the_pod() -> None:
    body = body_of(Ungate(POD))
    assert body["spec"] == {"schedulingGates": [{"name": "modelbackend.dev/claim", "$patch": "delete"}]}
    assert body["metadata"]["labels"] == {"modelbackend.dev/pod-uid": POD.ref.uid, "modelbackend.dev/serving": "true"}


def test_labels_are_restored_without_a_word_about_a_gate_that_is_open() -> None:
    assert "spec" not in body_of(Ungate(replace(POD, gated=False)))


def test_a_pod_whose_marks_were_edited_is_marked_as_ours_again() -> None:
    labels = {"app.kubernetes.io/managed-by": "modelbackend-operator", "modelbackend.dev/backend-uid": BACKEND.ref.uid}
    finalizers = ["modelbackend.dev/termination"]
    assert body_of(RestoreMarks(POD, BACKEND.ref.uid)) == {
        "metadata": {"labels": labels, "finalizers": finalizers, "uid": POD.ref.uid, "resourceVersion": "41"}
    }


def test_a_pod_that_is_being_deleted_gets_its_labels_back_and_no_finalizer_which_the_api_server_would_refuse() -> None:
    deleted = replace(POD, deleted_at=NOW)
    assert "finalizers" not in body_of(RestoreMarks(deleted, BACKEND.ref.uid))["metadata"]


def test_one_patch_writes_the_stop_record_and_hides_the_pod_from_services() -> None:
    metadata = body_of(WriteStopRecord(POD, RECORD))["metadata"]
    assert metadata["labels"] == {"modelbackend.dev/serving": None}
    assert metadata["annotations"] == {"modelbackend.dev/stop": stop_json(RECORD)}


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        replace(RECORD, extended="p-uid 60", yielded_at=NOW),
        replace(RECORD, cut=Cut("all maintenance", 3)),
        replace(RECORD, cut=Cut("", None)),
    ],
    ids=["as it begins", "extended, and busy", "cut by order", "cut at the deadline"],
)
def test_a_stop_record_is_read_back_as_it_was_written(record: StopRecord) -> None:
    annotated = raw("smollm2-12345678-0", metadata={"annotations": {"modelbackend.dev/stop": stop_json(record)}})
    assert pod_from(annotated).stop == record


@pytest.mark.parametrize(("serving", "status"), [(True, "True"), (False, "False")])
def test_the_readiness_gate_is_one_condition(serving: bool, status: str) -> None:
    write = written(SetServing(POD, serving=serving))
    (condition,) = write.body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("modelbackend.dev/serving", status)
    assert write.verb is Verb.STRATEGIC_MERGE  # merged by type: the kubelet's conditions stay


# -- finalizers ------------------------------------------------------------------------------------------------------


def test_finalizers_of_others_stay() -> None:
    theirs = replace(BARE, raw={"metadata": {"finalizers": [THEIRS]}})
    assert body_of(AddFinalizer(theirs))["metadata"]["finalizers"] == [THEIRS, OURS]
    assert body_of(RemoveFinalizer(BACKEND))["metadata"]["finalizers"] == [THEIRS]
    assert body_of(RemoveClaimFinalizer(CLAIM))["metadata"]["finalizers"] == [THEIRS]
    assert body_of(RemovePodFinalizer(POD))["metadata"]["$deleteFromPrimitiveList/finalizers"] == [OURS]


def test_a_finalizer_is_not_added_twice() -> None:
    assert body_of(AddFinalizer(BACKEND))["metadata"]["finalizers"] == [THEIRS, OURS]


# -- claims ----------------------------------------------------------------------------------------------------------


def after(action: Action, status: Json) -> Json:
    """The status once the API server has merged the patch (RFC 7386, one level deep as the patches are)."""
    merged = dict(status)
    for name, value in body_of(action)["status"].items():
        inner = {**(merged.get(name) or {}), **value} if isinstance(value, dict) else value
        merged[name] = {k: v for k, v in inner.items() if v is not None} if isinstance(inner, dict) else inner
    return {name: value for name, value in merged.items() if value is not None}


def test_a_bound_claim_names_the_pod_and_no_machine_yet() -> None:
    assert after(BindClaim(CLAIM, POD), BOUND) == {
        "phase": "Bound",
        "pod": {"name": POD.ref.name, "uid": POD.ref.uid},
        "since": "2026-05-04T12:00:00Z",
    }


def test_a_recorded_machine_replaces_the_whole_of_another() -> None:
    unknown_boot = after(RecordNode(CLAIM, NodeId("other", "other-uid", "")), BOUND)
    assert unknown_boot == {**BOUND, "node": {"name": "other", "uid": "other-uid"}}


def test_a_withheld_claim_keeps_every_fact_that_can_release_it() -> None:
    withheld = after(WithholdClaim(CLAIM, "PodMissing", "it vanished"), BOUND)
    assert (withheld["pod"], withheld["node"]) == (BOUND["pod"], BOUND["node"])
    assert (withheld["phase"], withheld["reason"], withheld["message"]) == ("Withheld", "PodMissing", "it vanished")
    elsewhere = after(WithholdClaim(CLAIM, "Unconfirmed", "overdue", NodeId("other", "other-uid", "")), BOUND)
    assert elsewhere["node"] == {"name": "other", "uid": "other-uid"}


def test_a_withheld_claim_is_explained_anew_without_a_change_of_phase_or_time() -> None:
    withheld = after(WithholdClaim(CLAIM, "Unconfirmed", "overdue"), BOUND)
    told = after(ExplainClaim(CLAIM, "StillAnswering", "it answers"), withheld)
    assert told == {**withheld, "reason": "StillAnswering", "message": "it answers"}
    silent = after(ExplainClaim(CLAIM, "", ""), told)
    assert silent == {name: value for name, value in withheld.items() if name not in ("reason", "message")}


def test_the_reference_boot_of_one_holder_is_none_of_the_next() -> None:
    withheld = after(WithholdClaim(CLAIM, "Unconfirmed", "overdue"), BOUND)
    known = after(RecordReference(CLAIM, "boot-2"), withheld)
    assert known == {**withheld, "referenceBootID": "boot-2"}
    claim = claim_from(raw("port-30001", "", spec=CLAIM_SPEC, status=known))
    assert (claim.reference_boot_id, claim.reason, claim.message) == ("boot-2", "Unconfirmed", "overdue")
    for action in (WithholdClaim(CLAIM, "x", "x"), BindClaim(CLAIM, POD), CoolClaim(CLAIM, "Attested")):
        assert "referenceBootID" not in after(action, known)


def test_what_an_administrator_attested_is_remembered_in_history() -> None:
    attested = replace(CLAIM, attestation=Attestation("pod-uid", "the rack burnt down"))
    for evidence, reason in (("Attested", "the rack burnt down"), ("ContainersTerminated", None)):
        (past,) = body_of(CoolClaim(attested, evidence))["status"]["history"]
        assert past.get("reason") == reason


def test_a_machine_that_came_back_is_marked_in_the_history_of_its_holder_alone() -> None:
    removed = [
        {"pod": {"name": f"p{n}", "uid": f"u{n}"}, "node": {"name": "worker", "uid": "n", "bootID": boot}, **rest}
        for n, (boot, rest) in enumerate(
            [
                ("boot-1", {"evidence": "NodeRemoved"}),
                ("boot-1", {"evidence": "ContainersTerminated"}),
                ("boot-2", {"evidence": "NodeRemoved"}),
            ]
        )
    ]
    status = {**BOUND, "history": removed}
    claim = claim_from(raw("port-30001", "", spec=CLAIM_SPEC, status=status))
    assert [node.boot_id for node in claim.removed_nodes] == ["boot-1", "boot-2"]
    assert claim.past_pods == {"u0", "u1", "u2"}
    told = after(RecordReturn(claim, NODE), status)
    assert [past.get("returned") for past in told["history"]] == ["2026-05-04T12:00:00Z", None, None]
    seen = claim_from(raw("port-30001", "", spec=CLAIM_SPEC, status=told))
    assert [node.boot_id for node in seen.removed_nodes] == ["boot-2"]


@pytest.mark.parametrize(
    ("last", "pod_uid", "returned"),
    [
        ({"evidence": "NodeRemoved", "returned": "2026-05-04T12:00:00Z"}, "u1", True),
        ({"evidence": "NodeRemoved", "returned": "2026-05-04T12:00:00Z"}, "another", False),
        ({"evidence": "NodeRemoved"}, "u1", False),
        ({"evidence": "Attested"}, "u1", False),
    ],
    ids=["its machine is back", "another holds it", "its machine is gone", "proven since"],
)
def test_a_claim_whose_holders_machine_is_back_says_so(last: Any, pod_uid: str, returned: bool) -> None:
    earlier = {"pod": {"name": "p", "uid": "u1"}, "evidence": "NodeRemoved", "returned": "2026-05-04T12:00:00Z"}
    history = [earlier, {"pod": {"name": "p", "uid": "u1"}, **last}]
    status = {**BOUND, "phase": "Cooling", "pod": {"name": "p", "uid": pod_uid}, "history": history}
    assert claim_from(raw("port-30001", "", spec=CLAIM_SPEC, status=status)).returned is returned


def test_a_pod_that_was_handed_over_is_read_back_as_a_witness() -> None:
    body = body_of(HandOver(POD))
    assert pod_from(raw("smollm2-12345678-0", metadata=body["metadata"])).handed_over == datetime(
        2026, 5, 4, 12, tzinfo=UTC
    )


def test_a_cooling_claim_tells_what_released_it_and_who_held_it() -> None:
    cooling = after(CoolClaim(CLAIM, "ContainersTerminated"), BOUND)
    assert (cooling["phase"], cooling["evidence"], cooling["pod"]) == ("Cooling", "ContainersTerminated", BOUND["pod"])
    assert cooling["history"] == [
        {
            "pod": BOUND["pod"],
            "node": BOUND["node"],
            "since": "2026-05-04T11:00:00Z",
            "until": "2026-05-04T12:00:00Z",
            "evidence": "ContainersTerminated",
        }
    ]


def test_a_claim_remembers_its_last_holders_oldest_first() -> None:
    old = [{"pod": {"name": f"p{n}", "uid": f"u{n}"}, "until": "x", "evidence": "NeverStarted"} for n in range(8)]
    claim = replace(CLAIM, raw={"status": {"history": old}})
    history = body_of(CoolClaim(claim, "NeverStarted"))["status"]["history"]
    assert [past["pod"]["uid"] for past in history] == ["u4", "u5", "u6", "u7", "pod-uid"]
    assert len(history) == HISTORY_LENGTH


def test_a_claim_taken_back_tells_nothing_of_its_last_holder_but_history() -> None:
    cooling = {**BOUND, "phase": "Cooling", "evidence": "NeverStarted", "history": [{"pod": BOUND["pod"]}]}
    assert after(ReserveClaim(CLAIM), cooling) == {
        "phase": "Reserved",
        "since": "2026-05-04T12:00:00Z",
        "history": [{"pod": BOUND["pod"]}],
    }


# -- the Lease -------------------------------------------------------------------------------------------------------


def test_a_lease_is_read_back_as_it_was_taken() -> None:
    body = body_of(AcquireLease(BACKEND, HOLDER))
    lease = lease_from({**body, "metadata": {**body["metadata"], "uid": "lease-uid", "resourceVersion": "1"}})
    assert (lease.holder, lease.description) == (HOLDER, "models/smollm2, instance 0")
    assert lease.epoch == "lease-uid/0"


def test_a_lease_says_when_in_the_only_form_that_is_taken() -> None:
    on_the_second = write_of(AcquireLease(BACKEND, HOLDER), SETTINGS, NOW.replace(microsecond=0))
    assert on_the_second.body["spec"]["acquireTime"] == "2026-05-04T12:00:00.000000Z"
    assert body_of(AcquireLease(BACKEND, HOLDER))["spec"]["renewTime"] == "2026-05-04T12:00:00.250000Z"
