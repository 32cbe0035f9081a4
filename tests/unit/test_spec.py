"""Each field of the spec does something or is refused; none is silently ignored."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.pod_template import pod
from modelbackend_operator.spec import InvalidSpec, ModelBackendSpec, read_spec, unsupported_fields
from tests.crd_files import schema_of

Json = dict[str, Any]

HOST_PATH: Json = {"model": {"source": {"hostPath": {"path": "/models/m.gguf"}}}}

REACHES_THE_POD: dict[str, Any] = {
    "model.name": "llama",
    "model.source.hostPath": {"path": "/models/other.gguf"},
    "model.source.huggingFace": {"repo": "a/b", "file": "f"},
    "model.source.s3": {"bucket": "b", "key": "k"},
    "model.source.http": {"url": "http://a/b"},
    "model.source.image": {"reference": "r", "path": "p"},
    "model.sha256": "a" * 64,
    "runtime.image": "server:2",
    "runtime.contextLength": 1024,
    "runtime.threads": 3,
    "runtime.batchSize": 64,
    "runtime.slots": 2,
    "runtime.microBatchSize": 32,
    "runtime.gpuLayers": 4,
    "runtime.kvCacheType": "Q8_0",
    "runtime.flashAttention": "Enabled",
    "serving.maxPending": 5,
    "runtime.mode": "Embed",
    "runtime.extraArgs": ["--prompt-cache-bytes=1000"],
    "runtime.pooling": "Mean",
    "serving.maxPendingTokens": 1000,
    "serving.auth": {"tokenSecretRef": {"name": "s", "key": "k"}},
    "serving.tls": {"secretRef": {"name": "s"}},
    "serving.maxBatchInputs": 10,
    "serving.requestTimeoutSeconds": 5,
    "exposure.type": "HostPort",
    "shutdown.drainSeconds": 5,
    "shutdown.terminationGraceSeconds": 5,
    "resources": {"limits": {"nvidia.com/gpu": 1}},
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "priorityClassName": "high",
    "runtimeClassName": "nvidia",
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}],
    "imagePullSecrets": [{"name": "registry"}],
    "podMetadata.labels": {"team": "ml"},
    "podMetadata.annotations": {"note": "yes"},
    "env": [{"name": "A", "value": "b"}],
}
"""Fields that the pod's body shows, with a value other than the default."""

DECIDED_ELSEWHERE = {
    "model.source.persistentVolumeClaim",
    "model.cache",
    "exposure.nodePort",
    "exposure.portRange",
    "exposure.http",
    "shutdown.escalate",
    "shutdown.busyTimeoutSeconds",
    "replicas",
    "rollout",
    "restart.maxRestarts",
    "restart.backoffSeconds",
    "restart.maxBackoffSeconds",
    "suspend",
    "shutdown.unconfirmedAfterSeconds",
    "shutdown.whenUnconfirmed",
    "shutdown.nodeLossSeconds",
}
"""Fields with behaviour whose effect is not seen in a body made of `HOST_PATH`."""

NOT_YET: dict[str, Any] = {
    "runtime.pooling": "None",
}


def with_field(spec: Mapping[str, Any], path: str, value: Any) -> Json:
    """A copy in which the field at this path has this value; a source takes the place of the other."""
    name, _, rest = path.partition(".")
    if not rest:
        return {name: value} if "hostPath" in spec else {**spec, name: value}
    return {**spec, name: with_field(spec.get(name, {}), rest, value)}


def read(spec: Json) -> ModelBackendSpec:
    result = read_spec(spec)
    assert isinstance(result, ModelBackendSpec), result
    return result


def pod_of(spec: Json) -> Json:
    raw = {"metadata": {"name": "b", "namespace": "n", "uid": "u", "resourceVersion": "1"}, "spec": spec}
    body = pod(backend_from(raw, allow_host_path=True), 0, "b-0", 20001, "server:1")
    body["metadata"]["annotations"].pop("modelbackend.dev/template-hash")
    return dict(body)


@pytest.mark.parametrize(("path", "value"), REACHES_THE_POD.items(), ids=REACHES_THE_POD)
def test_a_field_that_is_not_refused_reaches_the_pod(path: str, value: Any) -> None:
    spec = with_field(HOST_PATH, path, value)
    assert unsupported_fields(read(spec)) == []
    assert pod_of(spec) != pod_of(HOST_PATH)


@pytest.mark.parametrize(("path", "value"), NOT_YET.items(), ids=NOT_YET)
def test_a_field_without_behaviour_is_refused_by_name(path: str, value: Any) -> None:
    ((found, sentence),) = unsupported_fields(read(with_field(HOST_PATH, path, value)))
    assert found == path
    assert sentence.startswith(f"spec.{path} is not supported by this version: ")
    assert sentence.endswith(".")


def fields_of(schema: Json, path: str = "") -> Iterator[str]:
    """The schema's fields, each as deep as the tables above name it."""
    known = {*REACHES_THE_POD, *DECIDED_ELSEWHERE, *NOT_YET}
    if path in known or "properties" not in schema:
        yield path
        return
    for name, child in schema["properties"].items():
        yield from fields_of(child, f"{path}.{name}".lstrip("."))


def test_every_field_of_the_schema_is_honoured_or_refused() -> None:
    fields = set(fields_of(schema_of("modelbackends")["properties"]["spec"]))
    assert fields == {*REACHES_THE_POD, *DECIDED_ELSEWHERE, *NOT_YET}


def test_every_field_is_in_the_reference() -> None:
    reference = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    named = {*REACHES_THE_POD, *DECIDED_ELSEWHERE, *NOT_YET}
    assert [field for field in sorted(named) if f"`{field}`" not in reference] == []


def test_a_refusal_names_the_field_and_says_what_to_do() -> None:
    spec = read({**HOST_PATH, "runtime": {"mode": "Embed", "pooling": "None"}})
    assert unsupported_fields(spec) == [
        (
            "runtime.pooling",
            "spec.runtime.pooling is not supported by this version: use another one: a text has one vector.",
        ),
    ]


def test_a_field_of_a_later_version_is_passed_over() -> None:
    assert read({**HOST_PATH, "fromTheFuture": 1, "runtime": {"alsoNew": True}}) == read(HOST_PATH)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec.model: Field required"),
        (
            {"model": {"source": {"fromTheFuture": {}}}},
            "spec.model.source: name exactly one of persistentVolumeClaim, huggingFace, s3, http, image, hostPath",
        ),
        ({**HOST_PATH, "replicas": 65}, "spec.replicas: Input should be less than or equal to 64"),
        ({**HOST_PATH, "rollout": "Canary"}, "spec.rollout: Input should be 'Recreate' or 'Surge'"),
    ],
    ids=["nothing", "unknown source", "out of bounds", "unknown word"],
)
def test_a_spec_that_cannot_be_read_is_told_by_its_field(spec: Json, message: str) -> None:
    assert read_spec(spec) == InvalidSpec(message)
