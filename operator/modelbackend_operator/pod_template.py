"""From a spec to the pod of one instance, and to the hash that tells whether a running pod is still that pod.

The pod fits the `restricted` Pod Security Standard (https://kubernetes.io/docs/concepts/security/pod-security-standards/)
as long as the spec asks for neither a hostPort nor a hostPath, which no namespace below `privileged` admits.
"""

import hashlib
import json
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
from modelbackend_operator.extra_arguments import extra_settings
from modelbackend_operator.manifests import (
    CONTROL_TOKEN_KEY,
    control_secret_name,
    instance_labels,
    owned_metadata,
)
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model_files import (
    FETCH_PREFIX,
    fetched_source,
    fetcher,
    model_mount,
    model_path,
    model_volume,
    needs_shared_group,
    secret_volumes,
    variable,
)
from modelbackend_operator.spec import InvalidSpec, Mode, ModelBackendSpec, read_spec

CONTAINER = "server"

READINESS_SERVICE = ""
"""Of grpc.health.v1: not serving while the model loads and while requests drain."""
LIVENESS_SERVICE = "modelbackend.liveness"
"""Of grpc.health.v1: serving from the first moment on, for as long as the server's event loop turns."""

UNPRIVILEGED_ID = 65532
CONTROL_PATH = "/var/run/modelbackend/control"
TLS_PATH = "/var/run/modelbackend/tls"
TOKEN_PATH = "/var/run/modelbackend/token"
TOKEN_FILE = "token"
ENVIRONMENT_PREFIX = "MODELBACKEND_"

_CONTROL: dict[str, object] = {
    "CONTROL_PORT": CONTROL_PORT,
    "CONTROL_TOKEN_FILE": f"{CONTROL_PATH}/{CONTROL_TOKEN_KEY}",
}

_NOT_IN_THE_POD = frozenset({"replicas", "suspend", "rollout", "restart", "shutdown"})

Raw = dict[str, Any]


def template_hash(spec: ModelBackendSpec) -> str:
    """Sixteen hex digits; two specs with the same hash need no other pod.

    In it is every field that the running instance cannot take on without a restart. Not in it:
    - `replicas`, `suspend`, `rollout`, `restart`: they say how many pods there are and when, not what is in one.
    - `shutdown`: our own stops read it from the spec when they begin, so an edit counts at once. The pod's own grace
      period and drain time, which only ends ordered by others use (eviction, node shutdown), are those of its start;
      a restart for their sake would end an instance in order to change how it ends.
    - `exposure.nodePort`, `exposure.http.nodePort` and `exposure.portRange`: whether the claimed port still
      fits is asked of the claim, so to pin the port that an instance has restarts nothing.
    - the operator's version and its default image: an upgrade of the operator restarts nothing.
    - defaults: a field that a later CRD adds with a default changes no hash, and neither does writing a default out.
    """
    asked = spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        exclude_none=True,
        exclude={"exposure": {"node_port": True, "port_range": True, "http": {"node_port"}}},
    )
    pod_fields = {name: value for name, value in asked.items() if name not in _NOT_IN_THE_POD and value != {}}
    canonical = json.dumps(pod_fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def pod(
    backend: Backend,
    ordinal: int,
    name: str,
    port: int | None,
    default_image: str,
    *,
    replaces: str = "",
    http_port: int | None = None,
) -> Raw:
    """The body of a gated pod. The ports are the claimed ones: a pod knows them only where they are its host ports.

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
            "securityContext": _security_context(spec),
            **_init_containers(backend, spec, default_image),
            "containers": [_container(backend, spec, port, http_port, default_image)],
            "volumes": _volumes(backend, spec),
            **_passed_on(spec),
        },
    }


def _security_context(spec: ModelBackendSpec) -> Raw:
    context = {
        "runAsNonRoot": True,
        "runAsUser": UNPRIVILEGED_ID,
        "runAsGroup": UNPRIVILEGED_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if needs_shared_group(spec):
        context |= {"fsGroup": UNPRIVILEGED_ID, "fsGroupChangePolicy": "OnRootMismatch"}
    return context


def _init_containers(backend: Backend, spec: ModelBackendSpec, default_image: str) -> Raw:
    """The fetcher answers where the server will; the spec's own variables are its, too, such as a proxy's address."""
    settings = {"UID": backend.ref.uid, "MODEL": backend.model, **_CONTROL}
    shared = {
        **_common(spec, default_image),
        "env": [
            *(variable(FETCH_PREFIX + name, value) for name, value in settings.items()),
            _own_uid(FETCH_PREFIX),
            *_own_variables(spec),
        ],
    }
    found = fetcher(spec, shared)
    return {"initContainers": [found]} if found is not None else {}


def _common(spec: ModelBackendSpec, default_image: str) -> Raw:
    return {
        "image": spec.runtime.image or default_image,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "control-token", "mountPath": CONTROL_PATH, "readOnly": True},
        ],
        # A process that died without a word of its own (SIGILL, SIGSEGV) leaves the end of its log instead.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _container(
    backend: Backend, spec: ModelBackendSpec, port: int | None, http_port: int | None, default_image: str
) -> Raw:
    on_host = spec.exposure.type is Exposure.HOST_PORT
    exposed = {"hostPort": port} if on_host else {}
    http_exposed = {"hostPort": http_port} if on_host and http_port is not None else {}
    common = _common(spec, default_image)
    return {
        **common,
        "name": CONTAINER,
        "ports": [
            {"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP", **exposed},
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP", **http_exposed},
            {"name": "control", "containerPort": CONTROL_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "env": _environment(backend, spec),
        "resources": spec.resources,
        "volumeMounts": [
            *common["volumeMounts"],
            model_mount(spec.model),
            *({"name": name, "mountPath": path, "readOnly": True} for name, path, _ in _secrets(spec)),
        ],
        **_probes(spec),
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
        "MODEL_PATH": model_path(spec.model),
        # The fetcher has checked what it brought; hashed again, a large file would take minutes at every start.
        "MODEL_SHA256": spec.model.sha256 if fetched_source(spec.model.source) is None else None,
        "MODEL": backend.model,
        "UID": backend.ref.uid,
        "GRPC_PORT": GRPC_PORT,
        "HTTP_PORT": HTTP_PORT,
        "METRICS_PORT": METRICS_PORT,
        **_CONTROL,
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
        **dict(extra_settings(spec)),
    }
    return [
        *(variable(ENVIRONMENT_PREFIX + name, value) for name, value in settings.items() if value is not None),
        _own_uid(ENVIRONMENT_PREFIX),
        *_own_variables(spec),
    ]


def _own_uid(prefix: str) -> Raw:
    return {"name": f"{prefix}POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}


def _own_variables(spec: ModelBackendSpec) -> list[Raw]:
    return [variable for variable in spec.env if not variable["name"].startswith(ENVIRONMENT_PREFIX)]


# -- volumes -----------------------------------------------------------------------------------------------------------


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
        {"name": "model", **model_volume(spec)},
        *({"name": name, **volume} for name, _, volume in secret_volumes(spec.model.source)),
        *({"name": name, "secret": volume} for name, _, volume in _secrets(spec)),
    ]


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
