"""The spec of a ModelBackend: what the user asks for, and which of it this version cannot do yet.

Defaults and bounds repeat those of `crds/modelbackends.yaml`, which users meet; a test holds the two equal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from modelbackend_operator.api import JsonObject, Part, Port, json_name
from modelbackend_operator.model.backend import Exposure, Rollout, WhenUnconfirmed

WEEK_SECONDS = 604_800
"""The longest time that the server takes for anything."""


class SecretReference(Part):
    name: str


class SecretKeyReference(Part):
    name: str
    key: str


class ConfigMapKeyReference(Part):
    name: str
    key: str


class PersistentVolumeClaimSource(Part):
    claim_name: str
    path: str


class HuggingFaceSource(Part):
    repo: str
    revision: str = "main"
    file: str
    endpoint: str | None = None
    token_secret_ref: SecretKeyReference | None = None
    ca_bundle_ref: ConfigMapKeyReference | None = None


class S3Source(Part):
    endpoint: str | None = None
    region: str | None = None
    bucket: str
    key: str
    credentials_secret_ref: SecretReference | None = None
    ca_bundle_ref: ConfigMapKeyReference | None = None


class HttpSource(Part):
    url: str
    token_secret_ref: SecretKeyReference | None = None
    headers_secret_ref: SecretReference | None = None
    ca_bundle_ref: ConfigMapKeyReference | None = None


class ImageSource(Part):
    reference: str
    path: str


class HostPathSource(Part):
    path: str


class ModelSource(Part):
    """Where the weights are: exactly one of these."""

    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    hugging_face: HuggingFaceSource | None = None
    s3: S3Source | None = None
    http: HttpSource | None = None
    image: ImageSource | None = None
    host_path: HostPathSource | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        # The CRD refuses this first; it is checked again for a newer CRD with a source that we do not know.
        if sum(source is not None for _, source in self) != 1:
            raise ValueError(f"name exactly one of {', '.join(SOURCES)}")
        return self


SOURCES = tuple(json_name(name) for name in ModelSource.model_fields)


class CacheVolumeClaim(Part):
    claim_name: str


class CacheEmptyDir(Part):
    size_limit: str | int | None = None


class ModelCache(Part):
    persistent_volume_claim: CacheVolumeClaim | None = None
    empty_dir: CacheEmptyDir | None = None
    offline: bool = False


class ModelSpec(Part):
    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    source: ModelSource
    sha256: str | None = None
    cache: ModelCache | None = None


class Mode(StrEnum):
    GENERATE = "Generate"
    EMBED = "Embed"


class KvCacheType(StrEnum):
    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    Q8_0 = "Q8_0"
    Q5_1 = "Q5_1"
    Q5_0 = "Q5_0"
    Q4_1 = "Q4_1"
    Q4_0 = "Q4_0"


class FlashAttention(StrEnum):
    AUTO = "Auto"
    ENABLED = "Enabled"
    DISABLED = "Disabled"


class Pooling(StrEnum):
    NONE = "None"
    MEAN = "Mean"
    CLS = "CLS"
    LAST = "Last"
    RANK = "Rank"


class RuntimeSpec(Part):
    """How llama.cpp runs the model. An absent number is the server's own choice."""

    image: str | None = None
    context_length: Annotated[int, Field(ge=2, le=16_777_216)] | None = None
    slots: Annotated[int, Field(ge=1, le=64)] = 1
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    batch_size: Annotated[int, Field(ge=1, le=65_536)] | None = None
    micro_batch_size: Annotated[int, Field(ge=1, le=65_536)] | None = None
    gpu_layers: Annotated[int, Field(ge=0, le=10_000)] | None = None
    kv_cache_type: KvCacheType | None = None
    flash_attention: FlashAttention | None = None
    pooling: Pooling | None = None
    mode: Mode = Mode.GENERATE
    extra_args: tuple[str, ...] = ()


class ServingTls(Part):
    secret_ref: SecretReference


class ServingAuth(Part):
    token_secret_ref: SecretKeyReference


class ServingSpec(Part):
    max_pending: Annotated[int, Field(ge=0, le=1_000_000)] = 256
    max_pending_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    max_batch_inputs: Annotated[int, Field(ge=1, le=100_000)] | None = None
    request_timeout_seconds: Annotated[int, Field(ge=1, le=WEEK_SECONDS)] = 600
    tls: ServingTls | None = None
    auth: ServingAuth | None = None


class PortRange(Part):
    """Both ends belong to it."""

    first: Port
    last: Port


class HttpExposure(Part):
    node_port: Port | None = None


class ExposureSpec(Part):
    type: Exposure = Exposure.NODE_PORT
    node_port: Port | None = None
    port_range: PortRange | None = None
    http: HttpExposure | None = None


class ShutdownSpec(Part):
    drain_seconds: Annotated[int, Field(ge=0, le=WEEK_SECONDS)] = 30
    escalate: bool = True
    termination_grace_seconds: Annotated[int, Field(ge=1, le=3_600)] = 15
    busy_timeout_seconds: Annotated[int, Field(ge=1, le=WEEK_SECONDS)] | None = None
    unconfirmed_after_seconds: Annotated[int, Field(ge=1, le=WEEK_SECONDS)] = 60
    when_unconfirmed: WhenUnconfirmed = WhenUnconfirmed.HAND_OVER
    node_loss_seconds: Annotated[int, Field(ge=1, le=WEEK_SECONDS)] | None = None


class RestartSpec(Part):
    max_restarts: Annotated[int, Field(ge=0, le=1000)] | None = None
    backoff_seconds: Annotated[int, Field(ge=1, le=3_600)] = 10
    max_backoff_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300


class PodMetadata(Part):
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class ModelBackendSpec(Part):
    model: ModelSpec
    runtime: RuntimeSpec = RuntimeSpec()
    serving: ServingSpec = ServingSpec()
    replicas: Annotated[int, Field(ge=0, le=64)] = 1
    exposure: ExposureSpec = ExposureSpec()
    shutdown: ShutdownSpec = ShutdownSpec()
    rollout: Rollout = Rollout.RECREATE
    restart: RestartSpec = RestartSpec()
    suspend: bool = False

    # Handed to the pod as they are; their types are those of core/v1.
    resources: JsonObject = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[JsonObject, ...] = ()
    affinity: JsonObject | None = None
    topology_spread_constraints: tuple[JsonObject, ...] = ()
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    resource_claims: tuple[JsonObject, ...] = ()
    image_pull_secrets: tuple[JsonObject, ...] = ()
    pod_metadata: PodMetadata = PodMetadata()
    env: tuple[JsonObject, ...] = ()


@dataclass(frozen=True)
class InvalidSpec:
    """A spec this operator cannot read, and why, in words for the object's condition."""

    message: str


def read_spec(raw: Mapping[str, Any]) -> ModelBackendSpec | InvalidSpec:
    """Read `spec` of a ModelBackend as the API server returned it.

    Deleting a backend must not depend on the answer: what runs is known from pods and claims.
    """
    try:
        return ModelBackendSpec.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(step) for step in ("spec", *first["loc"]))
        return InvalidSpec(f"{path}: {first['msg'].removeprefix('Value error, ')}")


@dataclass(frozen=True)
class _NotYet:
    """A field whose behaviour is still to come; `allowed` are the values that ask for nothing new."""

    path: str
    instead: str
    allowed: tuple[object, ...] = (None,)


_POOLINGS = (None, *(pooling for pooling in Pooling if pooling is not Pooling.NONE))
_NOT_YET = (_NotYet("runtime.pooling", "use another one: a text has one vector", _POOLINGS),)


def unsupported_fields(spec: ModelBackendSpec) -> list[tuple[str, str]]:
    """What the spec asks for and this version cannot do: (path below `spec`, a sentence saying what to do).

    A default written out by hand cannot be told from one filled in by the schema, and is no finding.
    """
    return [
        (field.path, f"spec.{field.path} is not supported by this version: {field.instead}.")
        for field in _NOT_YET
        if _value_at(spec, field.path) not in field.allowed
    ]


def _value_at(spec: Part, path: str) -> object:
    value: object = spec
    for name in path.split("."):
        value = value.by_json_name(name) if isinstance(value, Part) else None
    return value
