"""What is read out of a pod: every detail that a proof or a decision rests on."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from modelbackend_operator.model.pod import Container, ContainerState, Pod, PodPhase
from modelbackend_operator.model.stop import Cut, StopReason, StopRecord
from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.pod_template import pod as pod_body

Json = dict[str, Any]

CREATED = "2026-05-04T11:00:00Z"
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
SOURCE = {"persistentVolumeClaim": {"claimName": "weights", "path": "m.gguf"}}


def raw(name: str, metadata: Json | None = None, **parts: Any) -> Json:
    identity = {"name": name, "namespace": "models", "uid": "the-uid", "resourceVersion": "7"}
    return {"metadata": {**identity, "creationTimestamp": CREATED, **(metadata or {})}, **parts}


def a_pod(metadata: Json | None = None, spec: Json | None = None, **status: Any) -> Pod:
    return pod_from(raw("smollm2-12345678-0", metadata, spec=spec or {}, status=status))


def a_container(**status: Any) -> Container:
    (container,) = a_pod(containerStatuses=[{"name": "server", **status}]).containers
    return container


# -- Pod -------------------------------------------------------------------------------------------------------------


def test_a_pod_of_our_making_is_read_back_as_it_was_meant() -> None:
    spec = {"model": {"source": SOURCE}, "exposure": {"type": "HostPort"}}
    backend = backend_from(raw("smollm2", spec=spec), allow_host_path=False)
    body = pod_body(backend, 3, "smollm2-12345678-3", 20007, "server:1")
    body["metadata"] |= {"uid": "pod-uid", "resourceVersion": "1"}
    pod = pod_from(body)
    assert (pod.ordinal, pod.template_hash, pod.host_port) == (3, backend.template_hash, 20007)
    assert (pod.gated, pod.has_finalizer, pod.serving_label) == (True, True, False)
    assert (pod.phase, pod.node, pod.deleting) == (PodPhase.PENDING, "", False)


def test_another_controllers_gate_is_not_ours() -> None:
    assert not a_pod(spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}).gated


@pytest.mark.parametrize(
    ("edit", "exposed"),
    [({}, True), ({"modelbackend.dev/serving": "false"}, False), ({"modelbackend.dev/pod-uid": "another"}, False)],
)
def test_a_pod_is_exposed_while_both_labels_are_as_its_gate_left_them(edit: Json, exposed: bool) -> None:
    written = {"modelbackend.dev/serving": "true", "modelbackend.dev/pod-uid": "the-uid"}
    assert a_pod({"labels": {**written, **edit}}).serving_label is exposed


def test_a_label_edited_by_hand_moves_no_pod_to_another_instance() -> None:
    assert a_pod({"labels": {"modelbackend.dev/ordinal": "5"}}).ordinal == 0


OURS = {"app.kubernetes.io/managed-by": "modelbackend-operator", "modelbackend.dev/backend-uid": "b-uid"}
OWNER = {
    "apiVersion": "modelbackend.dev/v1alpha1",
    "kind": "ModelBackend",
    "name": "b",
    "uid": "b-uid",
    "controller": True,
}


@pytest.mark.parametrize(
    ("edit", "intact"),
    [
        ({}, True),
        ({"example.org/theirs": "x"}, True),
        ({"app.kubernetes.io/managed-by": "evil"}, False),
        ({"modelbackend.dev/backend-uid": "another"}, False),
    ],
)
def test_a_pod_that_lost_the_labels_it_is_found_by_is_told(edit: Json, intact: bool) -> None:
    assert a_pod({"labels": {**OURS, **edit}, "ownerReferences": [OWNER]}).labels_intact is intact


@pytest.mark.parametrize(("labels", "ordinal"), [({"modelbackend.dev/ordinal": "5"}, 5), ({}, -1)])
def test_a_pod_with_a_foreign_name_is_what_its_label_says(labels: Json, ordinal: int) -> None:
    assert pod_from(raw("made-by-hand", {"labels": labels})).ordinal == ordinal


def test_deletion_began_when_it_was_asked_for_not_when_its_grace_ends() -> None:
    pod = a_pod({"deletionTimestamp": "2026-05-04T12:00:45Z", "deletionGracePeriodSeconds": 45})
    assert (pod.deleted_at, pod.grace_seconds, pod.deleting) == (NOON, 45, True)
    assert a_pod({"deletionTimestamp": "2026-05-04T12:00:00Z"}).deleted_at == NOON
    assert not a_pod().deleting


def test_conditions_are_read_by_their_type() -> None:
    conditions = [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False"},
        {"type": "modelbackend.dev/serving", "status": "True"},
    ]
    pod = a_pod(conditions=conditions)
    assert (pod.containers_ready, pod.ready, pod.serving_condition) == (True, False, True)


@pytest.mark.parametrize(
    ("reason", "words"),
    [("Unschedulable", "0/3 nodes are available"), ("SchedulingGated", "")],
)
def test_only_the_schedulers_refusal_is_told(reason: str, words: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes are available"}
    assert a_pod(conditions=[condition]).unschedulable == words


def test_the_kubelets_refusal_is_told() -> None:
    pod = a_pod(phase="Failed", reason="OutOfcpu", message="Pod was rejected: Node didn't have enough resource: cpu")
    assert (pod.phase, pod.phase_reason) == (PodPhase.FAILED, "OutOfcpu")
    assert pod.phase_message.startswith("Pod was rejected")


def test_a_phase_of_a_later_version_is_unknown_and_not_terminal() -> None:
    assert not a_pod(phase="Hibernated").phase.terminal


def test_a_stop_record_is_read() -> None:
    record = {
        "since": "2026-05-04T12:00:00.000000Z",
        "reason": "SpecChanged",
        "deadline": "2026-05-04T12:00:30.500000Z",
        "epoch": "lease-uid/0",
    }
    expected = StopRecord(NOON, StopReason.SPEC_CHANGED, NOON + timedelta(seconds=30.5), "lease-uid/0")
    assert a_pod({"annotations": {"modelbackend.dev/stop": json.dumps(record)}}).stop == expected


@pytest.mark.parametrize(
    ("conditions", "withdrawn"),
    [
        ([], False),
        ([{"type": "modelbackend.dev/serving", "status": "True"}], False),
        ([{"type": "modelbackend.dev/serving", "status": "False"}], True),
    ],
    ids=["never served", "serves", "served"],
)
def test_a_pod_that_served_is_told_from_one_that_never_did(conditions: list[Json], withdrawn: bool) -> None:
    assert a_pod(conditions=conditions).withdrawn is withdrawn


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ({"order": "all now", "requests": 2}, Cut("all now", 2)),
        ({"order": None, "requests": "many"}, Cut("", None)),
        ({}, Cut("", None)),
        ("yes", None),
        (None, None),
    ],
)
def test_a_decision_to_cut_is_read_as_far_as_it_makes_sense(cut: object, expected: Cut | None) -> None:
    record = {"since": CREATED, "reason": "Ordered", "deadline": CREATED, "cut": cut}
    stop = a_pod({"annotations": {"modelbackend.dev/stop": json.dumps(record)}}).stop
    assert stop is not None
    assert stop.cut == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "7",
        '{"since": "x"}',
        '{"since": "2026-05-04T12:00:00Z", "deadline": "2026-05-04T12:00:00Z"}',
    ],
)
def test_a_damaged_stop_record_is_none(text: str) -> None:
    assert a_pod({"annotations": {"modelbackend.dev/stop": text}}).stop is None


# -- containers ------------------------------------------------------------------------------------------------------


def test_containers_of_every_sort_are_seen() -> None:
    sorts = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    statuses: Json = {sort: [{"name": sort, "state": {"running": {}}}] for sort in sorts}
    pod = a_pod(**statuses)
    assert tuple(container.name for container in pod.containers) == sorts


@pytest.mark.parametrize(
    ("status", "ever_created"),
    [
        ({"state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}, "restartCount": 0}, False),
        ({"state": {"waiting": {"reason": "PodInitializing"}}}, False),
        ({}, False),
        ({"state": {"waiting": {}}, "containerID": "containerd://a"}, True),
        ({"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}, True),
        ({"state": {"waiting": {}}, "restartCount": 1}, True),
        ({"state": {"running": {"startedAt": CREATED}}}, True),
        ({"state": {"terminated": {"exitCode": 0}}, "containerID": "containerd://a"}, True),
    ],
)
def test_a_container_was_made_if_anything_says_so(status: Json, ever_created: bool) -> None:
    assert a_container(**status).ever_created is ever_created


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"running": {}}, ContainerState.RUNNING),
        ({"running": {"startedAt": CREATED}}, ContainerState.RUNNING),
        ({"terminated": {"exitCode": 0}}, ContainerState.TERMINATED),
        ({"waiting": {"reason": "ImagePullBackOff"}}, ContainerState.WAITING),
        ({}, ContainerState.WAITING),
        (None, ContainerState.WAITING),
    ],
)
def test_a_container_without_a_state_waits(state: Json | None, expected: ContainerState) -> None:
    assert a_container(state=state).state is expected


LAST_RUN = {"terminated": {"exitCode": 66, "reason": "Error", "message": "no file at /models/m.gguf"}}


@pytest.mark.parametrize(
    "state",
    [{"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}, {"running": {"startedAt": CREATED}}],
    ids=["backing off", "running again"],
)
def test_between_restarts_the_last_words_of_the_server_count(state: Json) -> None:
    container = a_container(state=state, lastState=LAST_RUN, restartCount=3)
    assert (container.exit_code, container.reason, container.restarts) == (66, "Error", 3)
    assert container.message == "no file at /models/m.gguf"


def test_an_image_that_went_missing_is_not_hidden_by_an_earlier_crash() -> None:
    container = a_container(state={"waiting": {"reason": "ImagePullBackOff", "message": "m"}}, lastState=LAST_RUN)
    assert (container.reason, container.message, container.exit_code) == ("ImagePullBackOff", "m", 66)


def test_the_present_end_of_a_container_counts_before_an_earlier_one() -> None:
    container = a_container(state={"terminated": {"exitCode": 0, "reason": "Completed"}}, lastState=LAST_RUN)
    assert (container.exit_code, container.reason) == (0, "Completed")


# -- pod garbage collection ------------------------------------------------------------------------------------------

COLLECTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "lastTransitionTime": "2026-05-04T12:00:00Z",
}


def ended_at(moment: str | None) -> Json:
    return {"name": "server", "containerID": "a", "state": {"terminated": {"exitCode": 137, "finishedAt": moment}}}


def test_a_pod_ended_by_garbage_collection_is_marked() -> None:
    assert a_pod(conditions=[COLLECTED]).removed_by_pod_gc
    assert not a_pod(conditions=[{**COLLECTED, "reason": "EvictionByEvictionAPI"}]).removed_by_pod_gc


@pytest.mark.parametrize(
    ("moment", "changed"),
    [
        ("2026-05-04T12:00:01Z", True),
        ("2026-05-04T12:00:00Z", False),
        ("2026-05-04T11:59:59Z", False),
        (None, False),
    ],
)
def test_only_an_end_after_the_collection_is_a_kubelets_word(moment: str | None, changed: bool) -> None:
    assert (
        a_pod(conditions=[COLLECTED], containerStatuses=[ended_at(moment)]).containers_changed_after_pod_gc is changed
    )


def test_without_the_time_of_the_collection_nothing_came_after_it() -> None:
    collected = {name: value for name, value in COLLECTED.items() if name != "lastTransitionTime"}
    statuses = [ended_at("2026-05-04T12:00:01Z")]
    assert not a_pod(conditions=[collected], containerStatuses=statuses).containers_changed_after_pod_gc
