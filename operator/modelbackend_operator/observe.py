"""From objects as the API server sent them to the vocabulary of `model.py`: one function a kind, pure and total.

Nothing here raises for what an object lacks or for what a user wrote into it. Where a fact is missing, the reading is
the one that releases nothing: an unknown phase of a claim is Withheld, an unreadable stop record is none.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from modelbackend_operator.api import (
    ANNOTATION_ATTEST,
    ANNOTATION_EXTEND,
    ANNOTATION_FORCE,
    ANNOTATION_HOLDER,
    ANNOTATION_REPLACES,
    ANNOTATION_STOP,
    ANNOTATION_TEMPLATE_HASH,
    ANNOTATION_TOKEN_MADE,
    ANNOTATION_UNCONFIRMED,
    LABEL_BACKEND_UID,
    LABEL_MANAGED_BY,
    LABEL_ORDINAL,
    LABEL_POD_UID,
    LABEL_SERVING,
    MANAGED_BY,
    OUT_OF_SERVICE,
    READINESS_GATE,
    SCHEDULING_GATE,
    Evidence,
)
from modelbackend_operator.manifests import (
    INSTANCE_PORTS,
    SHARED_PORTS,
    budget_spec,
    instance_selector,
    ordinal_in_name,
    shared_selector,
)
from modelbackend_operator.model import (
    Attestation,
    Backend,
    Budget,
    Claim,
    ClaimPhase,
    Container,
    ContainerState,
    Cut,
    Exposure,
    Holder,
    Lease,
    Node,
    NodeId,
    OrderKind,
    Pod,
    PodPhase,
    Rollout,
    Service,
    StopReason,
    StopRecord,
)
from modelbackend_operator.pod_template import path_leaves_volume, template_hash
from modelbackend_operator.reading import (
    Raw,
    annotations,
    created_at,
    entries,
    has_finalizer,
    json_object,
    labels,
    mapping,
    owner_uid,
    ref,
    terminating,
    word,
)
from modelbackend_operator.spec import (
    InvalidSpec,
    ModelBackendSpec,
    RestartSpec,
    ShutdownSpec,
    read_spec,
    unsupported_fields,
)
from modelbackend_operator.timestamps import parse_time

_NOBODYS_ORDINAL = -1
_CRASH_LOOP = "CrashLoopBackOff"
_INTERNAL_IP = "InternalIP"


# -- ModelBackend ----------------------------------------------------------------------------------------------------


def backend_from(raw: Raw, *, allow_host_path: bool) -> Backend:
    """A spec that cannot be read starts nothing, stops nothing that runs, and can be deleted."""
    metadata, asked = raw["metadata"], mapping(raw.get("spec"))
    deleting_since = parse_time(metadata.get("deletionTimestamp"))
    spec = read_spec(asked)
    readable = spec if isinstance(spec, ModelBackendSpec) else None
    shutdown = readable.shutdown if readable is not None else ShutdownSpec()
    restart = readable.restart if readable is not None else RestartSpec()
    exposure = readable.exposure if readable is not None else None
    port_range = exposure.port_range if exposure is not None else None
    return Backend(
        ref=ref(raw),
        model=model_of(raw),
        generation=metadata.get("generation", 0),
        has_finalizer=has_finalizer(raw),
        deleting_since=deleting_since,
        ordinals=_ordinals(asked) if deleting_since is None else (),
        template_hash=template_hash(readable) if readable is not None else "",
        exposure=exposure.type if exposure is not None else _exposure(mapping(asked.get("exposure")).get("type")),
        pinned_port=exposure.node_port if exposure is not None else None,
        port_range=(port_range.first, port_range.last) if port_range is not None else None,
        drain_seconds=shutdown.drain_seconds,
        termination_grace_seconds=shutdown.termination_grace_seconds,
        refused=_refused(spec, allow_host_path),
        escalate=shutdown.escalate,
        busy_timeout_seconds=shutdown.busy_timeout_seconds,
        orders=_orders(annotations(raw)),
        suspended=asked.get("suspend") is True,
        rollout=readable.rollout if readable is not None else Rollout.RECREATE,
        max_restarts=restart.max_restarts,
        backoff_seconds=restart.backoff_seconds,
        max_backoff_seconds=restart.max_backoff_seconds,
        unconfirmed_after_seconds=shutdown.unconfirmed_after_seconds,
        when_unconfirmed=shutdown.when_unconfirmed,
        node_loss_seconds=shutdown.node_loss_seconds,
        attestation=_attestation(raw),
        status=mapping(raw.get("status")),
        raw=raw,
    )


def _orders(found: Raw) -> dict[OrderKind, str]:
    given = {OrderKind.FORCE: found.get(ANNOTATION_FORCE), OrderKind.EXTEND: found.get(ANNOTATION_EXTEND)}
    return {kind: text for kind, text in given.items() if isinstance(text, str)}


def model_of(raw: Raw) -> str:
    """The name of a ModelBackend's model: the backend's own unless the spec gives another."""
    return str(mapping(mapping(raw.get("spec")).get("model")).get("name") or raw["metadata"]["name"])


def _ordinals(spec: Raw) -> tuple[int, ...]:
    """Read apart from the rest, because a fault elsewhere in the spec must not look like a wish to stop."""
    replicas = spec.get("replicas", 1)
    wanted = replicas if isinstance(replicas, int) and not spec.get("suspend") else 0
    return tuple(range(wanted))


def _refused(spec: ModelBackendSpec | InvalidSpec, allow_host_path: bool) -> tuple[str, ...]:
    if isinstance(spec, InvalidSpec):
        return (f"this version cannot read the object: {spec.message}; correct the spec, or upgrade the operator.",)
    sentences = [sentence for _, sentence in unsupported_fields(spec)]
    if spec.model.source.host_path is not None and not allow_host_path:
        sentences.append(
            "spec.model.source.hostPath is not allowed in this cluster: "
            "put the file on a volume and name it in persistentVolumeClaim, or ask the administrator to allow it."
        )
    if path_leaves_volume(spec.model.source):
        sentences.append("spec.model.source has a path with a .. part: name the file by its path inside the volume.")
    return tuple(sentences)


# -- PortClaim -------------------------------------------------------------------------------------------------------


def claim_from(raw: Raw) -> Claim:
    spec, status = mapping(raw.get("spec")), mapping(raw.get("status"))
    pod, past = mapping(status.get("pod")), entries(status.get("history"))
    removed = [entry for entry in past if entry.get("evidence") == Evidence.NODE_REMOVED and not entry.get("returned")]
    nodes = [_node_id(entry.get("node")) for entry in removed]
    return Claim(
        ref=ref(raw),
        port=spec["port"],
        ordinal=spec.get("ordinal", _NOBODYS_ORDINAL),
        exposure=_exposure(spec.get("exposure")),
        phase=_claim_phase(status.get("phase")),
        pod_name=pod.get("name", ""),
        pod_uid=pod.get("uid", ""),
        node=_node_id(status.get("node")),
        since=parse_time(status.get("since")) or created_at(raw),
        has_finalizer=has_finalizer(raw),
        terminating=terminating(raw),
        reference_boot_id=status.get("referenceBootID", ""),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        attestation=_attestation(raw),
        past_pods=frozenset(str(mapping(entry.get("pod")).get("uid")) for entry in past),
        removed_nodes=tuple(node for node in nodes if node is not None and node.boot_id),
        raw=raw,
    )


def _node_id(node: object) -> NodeId | None:
    told = mapping(node)
    return NodeId(told["name"], told.get("uid", ""), told.get("bootID", "")) if told.get("name") else None


def _attestation(raw: Raw) -> Attestation | None:
    """`<pod uid> <reason>`; the reason may be missing, and is then asked for."""
    pod_uid, _, reason = str(annotations(raw).get(ANNOTATION_ATTEST, "")).strip().partition(" ")
    return Attestation(pod_uid, reason.strip()) if pod_uid else None


def _claim_phase(phase: object) -> ClaimPhase:
    """A new claim has none. One that a later version wrote counts as Withheld: only proof opens it."""
    if not phase:
        return ClaimPhase.RESERVED
    return word(ClaimPhase, phase) or ClaimPhase.WITHHELD


def _exposure(name: object) -> Exposure:
    return word(Exposure, name) or Exposure.NODE_PORT


# -- Pod -------------------------------------------------------------------------------------------------------------


def pod_from(raw: Raw) -> Pod:
    metadata, spec, status = raw["metadata"], mapping(raw.get("spec")), mapping(raw.get("status"))
    conditions = _by_type(status.get("conditions"))
    disruption = conditions.get("DisruptionTarget", {})
    removed_by_pod_gc = disruption.get("reason") == "DeletionByPodGC"
    return Pod(
        ref=ref(raw),
        ordinal=_ordinal(raw),
        template_hash=annotations(raw).get(ANNOTATION_TEMPLATE_HASH, ""),
        host_port=_host_port(spec),
        gated=any(gate.get("name") == SCHEDULING_GATE for gate in entries(spec.get("schedulingGates"))),
        serving_label=_is_exposed(raw),
        serving_condition=_is_true(conditions, READINESS_GATE),
        stop=_stop_record(annotations(raw).get(ANNOTATION_STOP)),
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
        containers=tuple(_container(entry) for entry in _container_statuses(status)),
        containers_ready=_is_true(conditions, "ContainersReady"),
        ready=_is_true(conditions, "Ready"),
        removed_by_pod_gc=removed_by_pod_gc,
        containers_changed_after_pod_gc=removed_by_pod_gc
        and _any_ended_after(status, parse_time(disruption.get("lastTransitionTime"))),
        replaces=annotations(raw).get(ANNOTATION_REPLACES, ""),
        token_made_at=parse_time(annotations(raw).get(ANNOTATION_TOKEN_MADE)),
        handed_over=parse_time(annotations(raw).get(ANNOTATION_UNCONFIRMED)),
        volume_claims=_volume_claims(spec),
        labels_intact=_labels_intact(raw),
        withdrawn=conditions.get(READINESS_GATE, {}).get("status") == "False",
    )


def _ordinal(raw: Raw) -> int:
    """By the name, which cannot be edited; by the label for a name that is not ours."""
    in_name = ordinal_in_name(raw["metadata"]["name"])
    if in_name is not None:
        return in_name
    label = str(labels(raw).get(LABEL_ORDINAL, ""))
    return int(label) if label.isascii() and label.isdigit() else _NOBODYS_ORDINAL


def _is_exposed(raw: Raw) -> bool:
    """Both labels that came as the gate opened are as they were: an edited one hides the pod from its Service."""
    return bool(labels(raw).get(LABEL_SERVING) == "true" and labels(raw).get(LABEL_POD_UID) == raw["metadata"]["uid"])


def _labels_intact(raw: Raw) -> bool:
    return bool(
        labels(raw).get(LABEL_MANAGED_BY) == MANAGED_BY and labels(raw).get(LABEL_BACKEND_UID) == owner_uid(raw)
    )


def _host_port(spec: Raw) -> int | None:
    ports = (port for container in entries(spec.get("containers")) for port in entries(container.get("ports")))
    return next((port["hostPort"] for port in ports if port.get("hostPort")), None)


def _volume_claims(spec: Raw) -> frozenset[str]:
    names = (mapping(volume.get("persistentVolumeClaim")).get("claimName") for volume in entries(spec.get("volumes")))
    return frozenset(name for name in names if name)


def _stop_record(annotation: object) -> StopRecord | None:
    """One that was damaged by hand is none: the instance is judged again, and recorded again where it must end."""
    record = json_object(annotation)
    since, deadline = parse_time(record.get("since")), parse_time(record.get("deadline"))
    reason = word(StopReason, record.get("reason"))
    if since is None or deadline is None or reason is None:
        return None
    return StopRecord(
        since,
        reason,
        deadline,
        epoch=str(record.get("epoch") or ""),
        extended=str(record.get("extended") or ""),
        cut=_cut(record.get("cut")),
        yielded_at=parse_time(record.get("yieldedAt")),
    )


def _cut(found: object) -> Cut | None:
    if not isinstance(found, Mapping):
        return None
    requests = found.get("requests")
    return Cut(str(found.get("order") or ""), requests if isinstance(requests, int) else None)


def _deleted_at(metadata: Raw) -> datetime | None:
    """The API server stores the end of the grace period; what people and deadlines mean is its beginning."""
    ends_at = parse_time(metadata.get("deletionTimestamp"))
    if ends_at is None:
        return None
    return ends_at - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)


def _by_type(conditions: object) -> dict[str, Raw]:
    return {condition["type"]: condition for condition in entries(conditions) if "type" in condition}


def _is_true(conditions: Mapping[str, Raw], name: str) -> bool:
    return bool(conditions.get(name, {}).get("status") == "True")


def _pod_phase(phase: object) -> PodPhase:
    if not phase:
        return PodPhase.PENDING
    return word(PodPhase, phase) or PodPhase.UNKNOWN


def _unschedulable(scheduled: Raw) -> str:
    """A pod behind a gate has PodScheduled False too, with the reason SchedulingGated: nobody tried yet."""
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return ""
    return scheduled.get("message") or "the scheduler finds no node for it"


# -- containers ------------------------------------------------------------------------------------------------------


def _container_statuses(status: Raw) -> Iterator[Raw]:
    for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        yield from entries(status.get(kind))


def _container(status: Raw) -> Container:
    """What is told is the present state, except between restarts, where it is how the last run ended."""
    state, told = _state(status.get("state"))
    last_run = mapping(mapping(status.get("lastState")).get("terminated"))
    restarts = status.get("restartCount", 0)
    between_restarts = state is ContainerState.RUNNING or told.get("reason") == _CRASH_LOOP
    if last_run and between_restarts:
        told = last_run
    exit_code = told.get("exitCode", last_run.get("exitCode"))
    return Container(
        name=status.get("name", ""),
        state=state,
        ever_created=state is ContainerState.RUNNING
        or bool(status.get("containerID") or status.get("lastState"))
        or restarts > 0,
        reason=told.get("reason", ""),
        message=told.get("message", ""),
        exit_code=exit_code,
        restarts=restarts,
    )


def _state(state: object) -> tuple[ContainerState, Raw]:
    """At most one member is set; none means waiting (core/v1 ContainerState)."""
    for name in (ContainerState.RUNNING, ContainerState.TERMINATED):
        if isinstance(told := mapping(state).get(name), Mapping):
            return name, told
    return ContainerState.WAITING, mapping(mapping(state).get(ContainerState.WAITING))


def _any_ended_after(status: Raw, moment: datetime | None) -> bool:
    """Only a kubelet writes when a container ended, so such an entry is its word after that moment."""
    ends = (mapping(mapping(c.get("state")).get("terminated")).get("finishedAt") for c in _container_statuses(status))
    return moment is not None and any(end > moment for end in map(parse_time, ends) if end is not None)


# -- Service, Lease, Node --------------------------------------------------------------------------------------------


def service_from(raw: Raw) -> Service:
    spec = mapping(raw.get("spec"))
    of_instance = spec.get("type") == "NodePort" or LABEL_ORDINAL in labels(raw)
    selector = mapping(spec.get("selector"))
    pod_uid = selector.get(LABEL_POD_UID, "")
    made = instance_selector(pod_uid) if of_instance else shared_selector(owner_uid(raw))
    return Service(
        ref=ref(raw),
        ordinal=_ordinal(raw) if of_instance else None,
        node_port=next((port["nodePort"] for port in entries(spec.get("ports")) if port.get("nodePort")), None),
        pod_uid=pod_uid,
        terminating=terminating(raw),
        intact=_labels_intact(raw)
        and selector == made
        and (_leads(spec, "NodePort", INSTANCE_PORTS) if of_instance else _leads(spec, "ClusterIP", SHARED_PORTS)),
    )


def budget_from(raw: Raw) -> Budget:
    """A field that the API server adds is none of our business; `minAvailable` would be another promise."""
    spec, made = mapping(raw.get("spec")), budget_spec(owner_uid(raw))
    as_made = all(spec.get(name) == value for name, value in made.items()) and "minAvailable" not in spec
    return Budget(ref=ref(raw), intact=_labels_intact(raw) and as_made, terminating=terminating(raw))


def _leads(spec: Raw, of_type: str, ports: Mapping[int, str]) -> bool:
    """A port that others added beside ours is none of our business."""
    found = {port.get("port"): port.get("targetPort") for port in entries(spec.get("ports"))}
    leads_there = found.items() >= ports.items()
    return leads_there and spec.get("type") == of_type and spec.get("externalTrafficPolicy") != "Local"


def lease_from(raw: Raw) -> Lease:
    record, spec = json_object(annotations(raw).get(ANNOTATION_HOLDER)), mapping(raw.get("spec"))
    return Lease(
        ref=ref(raw),
        holder=_holder(record),
        transitions=spec.get("leaseTransitions") or 0,
        description=str(record.get("description") or ""),
        acquired_at=parse_time(spec.get("acquireTime")),
    )


def _holder(record: Raw) -> Holder | None:
    backend_uid, ordinal, pod_uid = record.get("backendUID"), record.get("ordinal"), record.get("podUID")
    purpose = word(StopReason, record.get("purpose"))
    if not (isinstance(backend_uid, str) and isinstance(ordinal, int) and isinstance(pod_uid, str) and purpose):
        return None
    return Holder(backend_uid, ordinal, pod_uid, purpose)


def node_trouble(raw: Raw) -> str:
    """Why this node is not Ready, in its own or the node controller's words; empty while it is."""
    ready = _node_ready(raw)
    if ready.get("status", "True") == "True":
        return ""
    return ready.get("message") or ready.get("reason") or "it does not say why"


def node_from(raw: Raw) -> Node:
    """The heartbeat is that of the condition Ready, which a kubelet writes together with the boot id.

    A renewed Lease of the node would not do: the kubelet renews it apart from its status, which may be of before.
    """
    status, ready = mapping(raw.get("status")), _node_ready(raw)
    info, is_lost = mapping(status.get("nodeInfo")), ready.get("status", "True") != "True"
    taints = entries(mapping(raw.get("spec")).get("taints"))
    internal = (entry for entry in entries(status.get("addresses")) if entry.get("type") == _INTERNAL_IP)
    return Node(
        raw["metadata"]["name"],
        raw["metadata"]["uid"],
        info.get("bootID", ""),
        heartbeat_at=parse_time(ready.get("lastHeartbeatTime")),
        lost_since=parse_time(ready.get("lastTransitionTime")) if is_lost else None,
        out_of_service=any(taint.get("key") == OUT_OF_SERVICE for taint in taints),
        address=next((entry["address"] for entry in internal if entry.get("address")), ""),
    )


def _node_ready(raw: Raw) -> Raw:
    return _by_type(mapping(raw.get("status")).get("conditions")).get("Ready", {})
