"""A pod, from the object as the API server sent it."""

from datetime import datetime, timedelta

from modelbackend_operator.api import (
    ANNOTATION_REPLACES,
    ANNOTATION_STOP,
    ANNOTATION_TEMPLATE_HASH,
    ANNOTATION_TOKEN_MADE,
    ANNOTATION_UNCONFIRMED,
    GRPC_PORT,
    HTTP_PORT,
    LABEL_ORDINAL,
    LABEL_POD_UID,
    LABEL_SERVING,
    READINESS_GATE,
    SCHEDULING_GATE,
)
from modelbackend_operator.manifests import ordinal_in_name
from modelbackend_operator.model.pod import Pod, PodPhase
from modelbackend_operator.observe.containers import any_ended_after, containers_from
from modelbackend_operator.observe.orders import attestation_from
from modelbackend_operator.observe.stop import stop_record_from
from modelbackend_operator.reading import (
    Raw,
    annotations,
    conditions_by_type,
    created_at,
    entries,
    has_finalizer,
    is_true,
    labels,
    labels_intact,
    mapping,
    ref,
    word,
)
from modelbackend_operator.timestamps import parse_time

NOBODYS_ORDINAL = -1


def pod_from(raw: Raw) -> Pod:
    metadata, spec, status = raw["metadata"], mapping(raw.get("spec")), mapping(raw.get("status"))
    conditions = conditions_by_type(status.get("conditions"))
    disruption = conditions.get("DisruptionTarget", {})
    removed_by_pod_gc = disruption.get("reason") == "DeletionByPodGC"
    return Pod(
        ref=ref(raw),
        ordinal=ordinal_from(raw),
        template_hash=annotations(raw).get(ANNOTATION_TEMPLATE_HASH, ""),
        host_port=_host_port(spec, GRPC_PORT),
        gated=any(gate.get("name") == SCHEDULING_GATE for gate in entries(spec.get("schedulingGates"))),
        serving_label=_is_exposed(raw),
        serving_condition=is_true(conditions, READINESS_GATE),
        stop=stop_record_from(annotations(raw).get(ANNOTATION_STOP)),
        has_finalizer=has_finalizer(raw),
        created_at=created_at(raw),
        deleted_at=_deleted_at(metadata),
        grace_seconds=metadata.get("deletionGracePeriodSeconds"),
        phase=_pod_phase(status.get("phase")),
        phase_reason=status.get("reason", ""),
        phase_message=status.get("message", ""),
        unschedulable=_unschedulable(conditions.get("PodScheduled", {})),
        node=spec.get("nodeName", ""),
        host_ip=status.get("hostIP", ""),
        ip=status.get("podIP", ""),
        containers=containers_from(status),
        containers_ready=is_true(conditions, "ContainersReady"),
        ready=is_true(conditions, "Ready"),
        removed_by_pod_gc=removed_by_pod_gc,
        containers_changed_after_pod_gc=removed_by_pod_gc
        and any_ended_after(status, parse_time(disruption.get("lastTransitionTime"))),
        replaces=annotations(raw).get(ANNOTATION_REPLACES, ""),
        token_made_at=parse_time(annotations(raw).get(ANNOTATION_TOKEN_MADE)),
        handed_over=parse_time(annotations(raw).get(ANNOTATION_UNCONFIRMED)),
        volume_claims=_volume_claims(spec),
        attestation=attestation_from(raw),
        labels_intact=labels_intact(raw),
        http_host_port=_host_port(spec, HTTP_PORT),
        withdrawn=conditions.get(READINESS_GATE, {}).get("status") == "False",
    )


def _is_exposed(raw: Raw) -> bool:
    """Both labels that came as the gate opened are as they were: an edited one hides the pod from its Service."""
    return bool(labels(raw).get(LABEL_SERVING) == "true" and labels(raw).get(LABEL_POD_UID) == raw["metadata"]["uid"])


def _host_port(spec: Raw, container_port: int) -> int | None:
    ports = (port for container in entries(spec.get("containers")) for port in entries(container.get("ports")))
    found = (port.get("hostPort") for port in ports if port.get("containerPort") == container_port)
    return next((port for port in found if port), None)


def _volume_claims(spec: Raw) -> frozenset[str]:
    names = (mapping(volume.get("persistentVolumeClaim")).get("claimName") for volume in entries(spec.get("volumes")))
    return frozenset(name for name in names if name)


def _deleted_at(metadata: Raw) -> datetime | None:
    """The API server stores the end of the grace period; what people and deadlines mean is its beginning."""
    ends_at = parse_time(metadata.get("deletionTimestamp"))
    if ends_at is None:
        return None
    return ends_at - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)


def _pod_phase(phase: object) -> PodPhase:
    if not phase:
        return PodPhase.PENDING
    return word(PodPhase, phase) or PodPhase.UNKNOWN


def _unschedulable(scheduled: Raw) -> str:
    """A pod behind a gate has PodScheduled False too, with the reason SchedulingGated: nobody tried yet."""
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return ""
    return scheduled.get("message") or "the scheduler finds no node for it"


def ordinal_from(raw: Raw) -> int:
    """By the name, which cannot be edited; by the label for a name that is not ours."""
    in_name = ordinal_in_name(raw["metadata"]["name"])
    if in_name is not None:
        return in_name
    label = str(labels(raw).get(LABEL_ORDINAL, ""))
    return int(label) if label.isascii() and label.isdigit() else NOBODYS_ORDINAL
