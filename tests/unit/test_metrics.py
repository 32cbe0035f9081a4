"""The operator's metrics: what a step, a call and a look count for."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from modelbackend_operator.actions import (
    AcquireLease,
    AddFinalizer,
    DeletePod,
    HandOver,
    RecordReturn,
    RemoveFinalizer,
    RemovePodFinalizer,
    SetServing,
    WithholdClaim,
    WriteStopRecord,
)
from modelbackend_operator.metrics import Metrics
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.lease import Holder
from modelbackend_operator.model.stop import Cut, StopReason
from modelbackend_operator.outcome import Applied, Conflict
from tests.unit.builders import (
    BACKEND_UID,
    NODE,
    NOW,
    POD_UID,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_draining_pod,
    a_serving_pod,
    a_stop,
    a_terminating_pod,
    a_world,
)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"modelbackend_operator_{name}", labels)


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def test_a_lifecycle_is_timed_by_the_steps_that_end_it_and_only_when_they_took_effect() -> None:
    metrics = Metrics()
    pod = a_serving_pod(created_at=ago(40))
    metrics.step(a_world(a_backend()), SetServing(pod, serving=True), Conflict())
    assert value(metrics, "instance_start_seconds_count") == 0
    metrics.step(a_world(a_backend()), SetServing(pod, serving=True), Applied())
    metrics.step(a_world(a_backend()), SetServing(pod, serving=False), Applied())
    assert value(metrics, "instance_start_seconds_count") == 1
    assert 40 <= (value(metrics, "instance_start_seconds_sum") or 0) < 60

    deleted = replace(a_deleted_backend(), deleting_since=ago(90))
    metrics.step(a_world(deleted), RemoveFinalizer(deleted), Applied())
    assert 90 <= (value(metrics, "backend_delete_seconds_sum") or 0) < 120


def test_a_stop_is_timed_and_counted_by_how_it_went() -> None:
    metrics, world = Metrics(), a_world(a_backend())
    drained = a_draining_pod(stop=a_stop(since=ago(20)))
    forced = a_draining_pod(stop=a_stop(since=ago(40), cut=Cut("", 3)))
    unknown = a_draining_pod(stop=a_stop(since=ago(40), cut=Cut("all now", None)))
    for pod in (drained, forced, unknown):
        metrics.step(world, DeletePod(pod, 15), Applied())
        metrics.step(world, RemovePodFinalizer(pod), Applied())
    metrics.step(world, DeletePod(replace(drained, deleted_at=ago(0)), 0), Applied())  # its object only
    for name in ("drain_seconds", "instance_end_seconds"):
        assert 20 <= (value(metrics, f"{name}_sum", outcome="Drained") or 0) < 40
        assert value(metrics, f"{name}_count", outcome="Drained") == 1
        assert value(metrics, f"{name}_count", outcome="Forced") == 2
    assert value(metrics, "requests_cut_total") == 3


def test_an_instance_that_gives_way_is_counted_once() -> None:
    metrics, world = Metrics(), a_world(a_backend())
    record = a_stop(yielded_at=NOW)
    metrics.step(world, WriteStopRecord(a_draining_pod(), a_stop()), Applied())
    metrics.step(world, WriteStopRecord(a_draining_pod(), record), Applied())
    metrics.step(world, WriteStopRecord(a_draining_pod(stop=record), record), Applied())
    assert value(metrics, "instances_busy_total") == 1


def test_the_wait_for_a_models_turn_is_timed_also_when_there_was_none() -> None:
    metrics = Metrics()
    entry = {"ordinal": 0, "pod": {"name": "smollm2-0", "uid": POD_UID}}
    holder = Holder(BACKEND_UID, 0, POD_UID, StopReason.DELETED)
    for more in ({"waitingSince": ago(50).isoformat()}, {}):
        backend = a_backend(status={"instances": [{**entry, **more}]})
        metrics.step(a_world(backend), AcquireLease(backend, holder), Applied())
    assert value(metrics, "model_lease_wait_seconds_count") == 2
    assert 50 <= (value(metrics, "model_lease_wait_seconds_sum") or 0) < 80


def test_steps_are_counted_by_action_and_outcome() -> None:
    metrics = Metrics()
    metrics.step(a_world(a_backend()), AddFinalizer(a_backend()), Conflict())
    metrics.step(a_world(a_backend()), WithholdClaim(a_claim(ClaimPhase.BOUND), "PodMissing", "words"), Applied())
    assert value(metrics, "steps_total", action="AddFinalizer", outcome="Conflict") == 1
    assert value(metrics, "claims_withheld_total", reason="PodMissing") == 1


def test_hand_overs_and_machines_that_came_back_are_counted() -> None:
    metrics = Metrics()
    for outcome in (Conflict(), Applied()):
        metrics.step(a_world(a_backend()), HandOver(a_terminating_pod()), outcome)
        metrics.step(a_world(None), RecordReturn(a_claim(), NODE), outcome)
    assert value(metrics, "instances_unconfirmed_total") == 1
    assert value(metrics, "node_returned_alarms_total") == 1


def watched() -> Metrics:
    metrics = Metrics()
    metrics.watch(
        queue_depth=lambda: 3,
        queue_oldest_seconds=lambda: 0.5,
        resync_age_seconds=lambda: 12,
        loop_lag_seconds=lambda: 0.01,
        is_leader=lambda: True,
        claims=lambda: {"Bound": 2},
        ports_withheld=lambda: {"PodMissing": 2},
        unconfirmed=lambda: 1,
        stalled=lambda: {"Unschedulable": 3},
        oldest_deletion_seconds=lambda: 90,
    )
    return metrics


def test_what_is_looked_at_now_is_told_for_every_phase_also_when_none_is_in_it() -> None:
    metrics = watched()
    assert value(metrics, "queue_depth") == 3
    assert value(metrics, "resync_age_seconds") == 12
    assert value(metrics, "is_leader") == 1
    phases = {phase: value(metrics, "claims", phase=phase) for phase in ("Reserved", "Bound", "Withheld", "Cooling")}
    assert phases == {"Reserved": 0, "Bound": 2, "Withheld": 0, "Cooling": 0}
    assert b"modelbackend_operator_queue_depth 3.0" in metrics.exposition()


def test_ports_that_are_withheld_are_counted_by_reason_and_instances_that_are_unconfirmed() -> None:
    metrics = watched()
    assert value(metrics, "ports_withheld", reason="PodMissing") == 2
    assert value(metrics, "ports_withheld", reason="NodeLost") is None
    assert value(metrics, "unconfirmed") == 1


def test_backends_that_wait_for_a_person_are_counted_by_reason_and_the_longest_deletion_is_timed() -> None:
    metrics = watched()
    assert value(metrics, "stalled", reason="Unschedulable") == 3
    assert value(metrics, "oldest_deletion_seconds") == 90


NAMES_OF_OBJECTS = {"name", "namespace", "backend", "pod", "uid", "port", "node", "claim", "instance", "ordinal"}


def test_names_follow_prometheus_conventions_and_no_label_names_an_object() -> None:
    """https://prometheus.io/docs/practices/naming/. A series that named an object would outlive it."""
    metrics = watched()
    metrics.reconciled("Settled", 0.1)
    metrics.called("GET", "pods", 200, 0.1)
    metrics.step(a_world(a_backend()), WithholdClaim(a_claim(ClaimPhase.BOUND), "PodMissing", "words"), Applied())
    for family in metrics.registry.collect():
        assert re.fullmatch(r"modelbackend_operator(_[a-z]+)+", family.name), family.name
        assert family.documentation.endswith("."), family.name
        assert family.type in ("gauge", "counter", "histogram"), family.name
        assert family.type != "histogram" or family.name.endswith("_seconds"), family.name
        for sample in family.samples:
            assert family.type != "counter" or sample.name.endswith(("_total", "_created")), sample.name
            assert not set(sample.labels) & NAMES_OF_OBJECTS, sample
