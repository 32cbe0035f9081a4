"""From a spec to the pod of one instance, and to the hash that tells whether a running pod is still that pod.

The pod fits the `restricted` Pod Security Standard (https://kubernetes.io/docs/concepts/security/pod-security-standards/)
as long as the spec asks for neither a hostPort nor a hostPath, which no namespace below `privileged` admits.
"""

import hashlib
import json
from pathlib import PurePosixPath
from typing import Any

from modelbackend_operator.api import (
    ANNOTATION_REPLACES,
    ANNOTATION_TEMPLATE_HASH,
    CONTROL_PORT,
    FINALIZER,
    GRPC_PORT,
    HTTP_PORT,
    METRICS_PORT,
    READINESS_GATE,
    SCHEDULING_GATE,
)
from modelbackend_operator.manifests import (
    CONTROL_TOKEN_KEY,
    control_secret_name,
    instance_labels,
    owned_metadata,
)
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.spec import InvalidSpec, Mode, ModelBackendSpec, ModelSource, read_spec

CONTAINER = "server"

READINESS_SERVICE = ""
"""Of grpc.health.v1: not serving while the model loads and while requests drain."""
LIVENESS_SERVICE = "modelbackend.liveness"
"""Of grpc.health.v1: serving from the first moment on, for as long as the server's event loop turns."""

UNPRIVILEGED_ID = 65532
MODELS_PATH = "/models"
CONTROL_PATH = "/var/run/modelbackend/control"
TLS_PATH = "/var/run/modelbackend/tls"
TOKEN_PATH = "/var/run/modelbackend/token"
TOKEN_FILE = "token"
ENVIRONMENT_PREFIX = "MODELBACKEND_"

_NOT_IN_THE_POD = frozenset({"replicas", "suspend", "rollout", "restart", "shutdown"})

Raw = dict[str, Any]


def template_hash(spec: ModelBackendSpec) -> str:
    """Sixteen hex digits; two specs with the same hash need no other pod.

    In it is every field that the running instance cannot take on without a restart. Not in it:
    - `replicas`, `suspend`, `rollout`, `restart`: they say how many pods there are and when, not what is in one.
    - `shutdown`: our own stops read it from the spec when they begin, so an edit counts at once. The pod's own grace
      period and drain time, which only ends ordered by others use (eviction, node shutdown), are those of its start;
      a restart for their sake would end an instance in order to change how it ends.
    - `exposure.nodePort` and `exposure.portRange`: whether the claimed port still fits is asked of the claim, so to pin
      the port that an instance has restarts nothing.
    - the operator's version and its default image: an upgrade of the operator restarts nothing.
    - defaults: a field that a later CRD adds with a default changes no hash, and neither does writing a default out.
    """
    asked = spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        exclude_none=True,
        exclude={"exposure": {"node_port", "port_range"}},
    )
    pod_fields = {name: value for name, value in asked.items() if name not in _NOT_IN_THE_POD and value != {}}
    canonical = json.dumps(pod_fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def pod(backend: Backend, ordinal: int, name: str, port: int | None, default_image: str, *, replaces: str = "") -> Raw:
    """The body of a gated pod. `port` is the claimed one: a pod knows it only where it is its hostPort.

    Raises ValueError for a spec that no pod can be made of; such a one is refused long before.
    """
    spec = read_spec(backend.raw["spec"])
    if isinstance(spec, InvalidSpec):
        raise ValueError(f"no pod can be made for {backend.ref.namespace}/{backend.ref.name}: {spec.message}")  # noqa: TRY004
    metadata = owned_metadata(backend, name, instance_labels(backend, ordinal))
    metadata["labels"] = {**spec.pod_metadata.labels, **metadata["labels"]}
    metadata["annotations"] = {**spec.pod_metadata.annotations, ANNOTATION_TEMPLATE_HASH: template_hash(spec)}
    if replaces:
        metadata["annotations"][ANNOTATION_REPLACES] = replaces
    metadata["finalizers"] = [FINALIZER]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulingGates": [{"name": SCHEDULING_GATE}],
            "readinessGates": [{"conditionType": READINESS_GATE}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": spec.shutdown.drain_seconds + spec.shutdown.termination_grace_seconds,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,  # they are MODELBACKEND_* variables wherever a Service is called modelbackend
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": UNPRIVILEGED_ID,
                "runAsGroup": UNPRIVILEGED_ID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(backend, spec, port, default_image)],
            "volumes": _volumes(backend, spec),
            **_passed_on(spec),
        },
    }


def _container(backend: Backend, spec: ModelBackendSpec, port: int | None, default_image: str) -> Raw:
    exposed = {"hostPort": port} if spec.exposure.type is Exposure.HOST_PORT else {}
    return {
        "name": CONTAINER,
        "image": spec.runtime.image or default_image,
        "ports": [
            {"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP", **exposed},
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "control", "containerPort": CONTROL_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "env": _environment(backend, spec),
        "resources": spec.resources,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "control-token", "mountPath": CONTROL_PATH, "readOnly": True},
            {"name": "model", "mountPath": _mount_path(spec.model.source), "readOnly": True},
            *({"name": name, "mountPath": path, "readOnly": True} for name, path, _ in _secrets(spec)),
        ],
        **_probes(spec),
        # A process that died without a word of its own (SIGILL, SIGSEGV) leaves the end of its log instead.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _probes(spec: ModelBackendSpec) -> Raw:
    """Loading is no fault and a long step is none: only a process that stopped answering is restarted.

    The kubelet's probes speak no TLS (https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/),
    so where callers must, health is asked for at the control port.
    """
    port = GRPC_PORT if spec.serving.tls is None else CONTROL_PORT
    alive = {"grpc": {"port": port, "service": LIVENESS_SERVICE}, "timeoutSeconds": 10}
    return {
        # Of unknown size is the model and of unknown speed its disk: an hour.
        "startupProbe": {**alive, "periodSeconds": 1, "failureThreshold": 3600},
        "livenessProbe": {**alive, "periodSeconds": 10, "failureThreshold": 12},
        "readinessProbe": {
            "grpc": {"port": port, "service": READINESS_SERVICE},
            "timeoutSeconds": 5,
            "periodSeconds": 1,
            "failureThreshold": 3,
        },
    }


# -- the server's configuration --------------------------------------------------------------------------------------


def _environment(backend: Backend, spec: ModelBackendSpec) -> list[Raw]:
    """The spec's own variables come along but stand in for none of ours: each setting has one place in the spec."""
    settings: dict[str, object] = {
        "MODEL_PATH": _model_path(spec.model.source),
        "MODEL_SHA256": spec.model.sha256,
        "MODEL": backend.model,
        "UID": backend.ref.uid,
        "GRPC_PORT": GRPC_PORT,
        "HTTP_PORT": HTTP_PORT,
        "CONTROL_PORT": CONTROL_PORT,
        "METRICS_PORT": METRICS_PORT,
        "CONTROL_TOKEN_FILE": f"{CONTROL_PATH}/{CONTROL_TOKEN_KEY}",
        "CONTEXT_LENGTH": spec.runtime.context_length,
        "SLOTS": spec.runtime.slots,
        "THREADS": spec.runtime.threads,
        "BATCH_TOKENS": spec.runtime.batch_size,
        "MICRO_BATCH_TOKENS": spec.runtime.micro_batch_size,
        "GPU_LAYERS": spec.runtime.gpu_layers,
        "KV_CACHE_TYPE": spec.runtime.kv_cache_type and spec.runtime.kv_cache_type.lower(),
        "FLASH_ATTENTION": spec.runtime.flash_attention and spec.runtime.flash_attention.lower(),
        "MODE": spec.runtime.mode.lower() if spec.runtime.mode is not Mode.GENERATE else None,
        "POOLING": spec.runtime.pooling and spec.runtime.pooling.lower(),
        "MAX_PENDING": spec.serving.max_pending,
        "MAX_PENDING_TOKENS": spec.serving.max_pending_tokens,
        "MAX_BATCH_INPUTS": spec.serving.max_batch_inputs,
        "TOKEN_FILE": f"{TOKEN_PATH}/{TOKEN_FILE}" if spec.serving.auth is not None else None,
        "TLS_FOLDER": TLS_PATH if spec.serving.tls is not None else None,
        "REQUEST_TIMEOUT_SECONDS": spec.serving.request_timeout_seconds,
        "DRAIN_SECONDS": spec.shutdown.drain_seconds,
    }
    return [
        *(_variable(name, value) for name, value in settings.items() if value is not None),
        {"name": f"{ENVIRONMENT_PREFIX}POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        *(variable for variable in spec.env if not variable["name"].startswith(ENVIRONMENT_PREFIX)),
    ]


def _variable(name: str, value: object) -> Raw:
    """Doubled, because the kubelet expands `$(NAME)` in a value, and a file may be called that."""
    return {"name": f"{ENVIRONMENT_PREFIX}{name}", "value": str(value).replace("$", "$$")}


# -- the model's file ------------------------------------------------------------------------------------------------


def path_leaves_volume(source: ModelSource) -> bool:
    """Whether the path climbs out of what it is relative to. The CRD refuses it first."""
    sources = (source.persistent_volume_claim, source.host_path)
    return any(".." in PurePosixPath(given.path).parts for given in sources if given is not None)


def _model_path(source: ModelSource) -> str:
    """In the container. Raises ValueError where there is none: such a spec is refused before a pod is made."""
    if path_leaves_volume(source):
        raise ValueError("the path of model.source has a .. part")
    if source.persistent_volume_claim is not None:
        return f"{MODELS_PATH}/{source.persistent_volume_claim.path.lstrip('/')}"
    if source.host_path is not None:
        return f"{MODELS_PATH}/{PurePosixPath(source.host_path.path).name}"
    raise ValueError("model.source names neither persistentVolumeClaim nor hostPath")


def _mount_path(source: ModelSource) -> str:
    """A volume is mounted whole; of a node's file system the one file is, and nothing beside it."""
    return MODELS_PATH if source.persistent_volume_claim is not None else _model_path(source)


def _secrets(spec: ModelBackendSpec) -> list[tuple[str, str, Raw]]:
    """The user's own Secrets: name and path of the mount, and the volume, readable by any user in the pod."""
    found: list[tuple[str, str, Raw]] = []
    if spec.serving.tls is not None:
        found.append(("tls", TLS_PATH, {"secretName": spec.serving.tls.secret_ref.name, "defaultMode": 0o444}))
    if spec.serving.auth is not None:
        reference = spec.serving.auth.token_secret_ref
        items = [{"key": reference.key, "path": TOKEN_FILE}]
        found.append(("token", TOKEN_PATH, {"secretName": reference.name, "defaultMode": 0o444, "items": items}))
    return found


def _volumes(backend: Backend, spec: ModelBackendSpec) -> list[Raw]:
    secret = {"secretName": control_secret_name(backend), "defaultMode": 0o444}
    return [
        {"name": "tmp", "emptyDir": {}},
        {"name": "control-token", "secret": secret},
        {"name": "model", **_model_volume(spec.model.source)},
        *({"name": name, "secret": volume} for name, _, volume in _secrets(spec)),
    ]


def _model_volume(source: ModelSource) -> Raw:
    """Read-only by its mount alone: a volume attached read-only could not be shared with a pod that fills it."""
    if source.persistent_volume_claim is not None:
        return {"persistentVolumeClaim": {"claimName": source.persistent_volume_claim.claim_name}}
    assert source.host_path is not None
    return {"hostPath": {"path": source.host_path.path, "type": "File"}}


# -- what the spec hands through -------------------------------------------------------------------------------------


def _passed_on(spec: ModelBackendSpec) -> Raw:
    given = {
        "nodeSelector": spec.node_selector,
        "tolerations": list(spec.tolerations),
        "affinity": spec.affinity,
        "topologySpreadConstraints": list(spec.topology_spread_constraints),
        "priorityClassName": spec.priority_class_name,
        "runtimeClassName": spec.runtime_class_name,
        "resourceClaims": list(spec.resource_claims),
        "imagePullSecrets": list(spec.image_pull_secrets),
    }
    return {name: value for name, value in given.items() if value}
