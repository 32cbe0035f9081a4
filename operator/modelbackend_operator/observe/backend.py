"""A ModelBackend, from the object as the API server sent it."""

from modelbackend_operator.extra_arguments import refused_arguments
from modelbackend_operator.model.backend import Backend, Exposure, Rollout
from modelbackend_operator.model_files import path_leaves_volume
from modelbackend_operator.observe.orders import attestation_from, orders_from
from modelbackend_operator.pod_template import template_hash
from modelbackend_operator.reading import Raw, annotations, has_finalizer, mapping, ref, word
from modelbackend_operator.spec import (
    InvalidSpec,
    ModelBackendSpec,
    RestartSpec,
    ShutdownSpec,
    read_spec,
    unsupported_fields,
)
from modelbackend_operator.timestamps import parse_time


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
        exposure=exposure.type if exposure is not None else exposure_from(mapping(asked.get("exposure")).get("type")),
        pinned_port=exposure.node_port if exposure is not None else None,
        port_range=(port_range.first, port_range.last) if port_range is not None else None,
        drain_seconds=shutdown.drain_seconds,
        termination_grace_seconds=shutdown.termination_grace_seconds,
        refused=_refused(spec, allow_host_path),
        escalate=shutdown.escalate,
        busy_timeout_seconds=shutdown.busy_timeout_seconds,
        orders=orders_from(annotations(raw)),
        suspended=asked.get("suspend") is True,
        rollout=readable.rollout if readable is not None else Rollout.RECREATE,
        max_restarts=restart.max_restarts,
        backoff_seconds=restart.backoff_seconds,
        max_backoff_seconds=restart.max_backoff_seconds,
        unconfirmed_after_seconds=shutdown.unconfirmed_after_seconds,
        when_unconfirmed=shutdown.when_unconfirmed,
        node_loss_seconds=shutdown.node_loss_seconds,
        attestation=attestation_from(raw),
        http=exposure is not None and exposure.http is not None,
        pinned_http_port=exposure.http.node_port if exposure is not None and exposure.http is not None else None,
        status=mapping(raw.get("status")),
        raw=raw,
    )


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
    sentences += refused_arguments(spec)
    if spec.model.source.host_path is not None and not allow_host_path:
        sentences.append(
            "spec.model.source.hostPath is not allowed in this cluster: "
            "put the file on a volume and name it in persistentVolumeClaim, or ask the administrator to allow it."
        )
    if path_leaves_volume(spec.model.source):
        sentences.append("spec.model.source has a path with a .. part: name the file by its path inside the volume.")
    return tuple(sentences)


def exposure_from(name: object) -> Exposure:
    return word(Exposure, name) or Exposure.NODE_PORT
