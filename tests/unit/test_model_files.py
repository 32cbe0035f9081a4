"""How a model's file gets into a pod: the fetcher, its volumes, and what it is told."""

import json
from typing import Any

import pytest

from modelbackend_fetch.failures import Failure
from modelbackend_fetch.settings import Settings
from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.pod_template import pod
from modelbackend_operator.problems import _EXIT_CODES

Json = dict[str, Any]

HUB = {"huggingFace": {"repo": "org/model", "file": "q/m.gguf"}}
HTTP = {"http": {"url": "https://models.example/a/m.gguf?x=1"}}
S3 = {"s3": {"bucket": "b", "key": "a//m.gguf", "endpoint": "http://s3.example:9000", "region": "eu-1"}}
IMAGE = "registry.example/server:1"


def a_pod(source: Json, *, model: Json | None = None, **spec: Any) -> Json:
    raw = {
        "metadata": {"name": "smollm2", "namespace": "models", "uid": "uid-1", "resourceVersion": "1", "generation": 1},
        "spec": {"model": {"source": source, **(model or {})}, **spec},
    }
    backend = backend_from(raw, allow_host_path=True)
    assert backend.refused == ()
    return pod(backend, 0, "smollm2-0", 30000, IMAGE)


def fetcher_of(body: Json) -> Json:
    (container,) = body["spec"]["initContainers"]
    assert isinstance(container, dict)
    return container


def variables_of(container: Json) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def settings_of(body: Json) -> Settings:
    """As the fetcher itself reads what it is told, without what comes from Secrets."""
    told = variables_of(fetcher_of(body))
    plain = {name: value for name, value in told.items() if isinstance(value, str)}
    named = {name.removeprefix("MODELBACKEND_FETCH_").lower(): value for name, value in plain.items()}
    return Settings(**{**named, "source": json.loads(named["source"])})


def server_path(body: Json) -> str:
    return str(variables_of(body["spec"]["containers"][0])["MODELBACKEND_MODEL_PATH"])


def model_volume(body: Json) -> Json:
    (found,) = [volume for volume in body["spec"]["volumes"] if volume["name"] == "model"]
    return {key: value for key, value in found.items() if key != "name"}


@pytest.mark.parametrize("source", [HUB, HTTP, S3], ids=lambda source: next(iter(source)))
def test_the_fetcher_understands_what_it_is_told_and_the_server_reads_where_it_writes(source: Json) -> None:
    body = a_pod(source)
    assert str(settings_of(body).target) == server_path(body)
    assert server_path(body).endswith("/m.gguf")
    mounts = {mount["name"]: mount for mount in fetcher_of(body)["volumeMounts"]}
    assert (mounts["model"]["mountPath"], mounts["model"].get("readOnly")) == ("/models", None)
    (served,) = [mount for mount in body["spec"]["containers"][0]["volumeMounts"] if mount["name"] == "model"]
    assert (served["mountPath"], served["readOnly"]) == ("/models", True)


def test_each_source_is_told_whole() -> None:
    assert settings_of(a_pod(HUB)).source.model_dump() == {
        "kind": "huggingFace",
        "endpoint": "https://huggingface.co",
        "repo": "org/model",
        "revision": "main",
        "file": "q/m.gguf",
    }
    assert settings_of(a_pod(S3)).source.model_dump() == {"kind": "s3", **S3["s3"]}
    assert settings_of(a_pod(HTTP)).source.model_dump() == {"kind": "http", **HTTP["http"]}


def test_a_volume_image_or_node_that_has_the_file_needs_no_fetcher() -> None:
    for source in (
        {"persistentVolumeClaim": {"claimName": "w", "path": "m.gguf"}},
        {"image": {"reference": "r:1", "path": "m.gguf"}},
        {"hostPath": {"path": "/m.gguf"}},
    ):
        assert "initContainers" not in a_pod(source)["spec"]


def test_an_image_is_mounted_as_a_volume() -> None:
    body = a_pod({"image": {"reference": "registry.example/weights:1", "path": "a/m.gguf"}})
    assert model_volume(body) == {"image": {"reference": "registry.example/weights:1"}}
    assert server_path(body) == "/models/a/m.gguf"


@pytest.mark.parametrize(
    ("spec", "certain"),
    [
        ({}, True),
        ({"resources": {"limits": {"memory": "4Gi", "hugepages-2Mi": "1Gi"}, "requests": {"cpu": "2"}}}, True),
        ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, False),
        ({"resources": {"requests": {"amd.com/gpu": 1}}}, False),
        ({"resources": {"limits": {"nvidia.com/gpu": 1}}, "runtime": {"gpuLayers": 0}}, True),
        ({"runtime": {"gpuLayers": 20}}, False),
        ({"runtimeClassName": "nvidia"}, False),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}, False),
    ],
    ids=str,
)
def test_a_model_must_fit_the_memory_only_where_nothing_else_can_hold_it(spec: Json, certain: bool) -> None:
    assert settings_of(a_pod(HTTP, **spec)).weights_in_memory is certain


@pytest.mark.parametrize(
    ("cache", "volume"),
    [
        (None, {"emptyDir": {}}),
        ({"emptyDir": {"sizeLimit": "20Gi"}}, {"emptyDir": {"sizeLimit": "20Gi"}}),
        ({"persistentVolumeClaim": {"claimName": "c"}}, {"persistentVolumeClaim": {"claimName": "c"}}),
    ],
    ids=["none", "of the pod", "shared"],
)
def test_what_is_fetched_goes_into_the_cache(cache: Json | None, volume: Json) -> None:
    body = a_pod(HTTP, model={"cache": cache} if cache else {})
    assert model_volume(body) == volume
    assert ("fsGroup" in body["spec"]["securityContext"]) is ("persistentVolumeClaim" in volume)


def test_only_what_names_the_same_file_shares_a_folder_of_the_cache() -> None:
    def folder(source: Json, **model: Any) -> str:
        return server_path(a_pod(source, model=model)).split("/")[2]

    other_key = {"http": HTTP["http"] | {"tokenSecretRef": {"name": "s", "key": "k"}}}
    assert folder(HTTP) == folder(other_key) == folder(HTTP, cache={"persistentVolumeClaim": {"claimName": "c"}})
    elsewhere = [
        HUB,
        {"huggingFace": HUB["huggingFace"] | {"revision": "v2"}},
        S3,
        {"http": {"url": "http://a/m.gguf"}},
    ]
    assert len({folder(source) for source in [HTTP, *elsewhere]} | {folder(HTTP, sha256="a" * 64)}) == 6
    assert folder(HTTP, sha256="A" * 64) == folder(HTTP, sha256="a" * 64)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://a.example/x/m-00001-of-00002.gguf", "m-00001-of-00002.gguf"),
        ("https://a.example/x/a%20b.gguf?download=true#top", "a b.gguf"),
        ("https://a.example/", "model.gguf"),
        ("https://a.example/x/%2e%2e", "model.gguf"),
        ("https://a.example/x%2f..%2fy%00.gguf", "model.gguf"),
        ("https://a.example/" + "m" * 300, "model.gguf"),
    ],
)
def test_a_file_keeps_its_name_where_that_is_one(url: str, name: str) -> None:
    assert server_path(a_pod({"http": {"url": url}})).split("/", 3)[3] == name


def test_a_dollar_in_an_address_reaches_the_fetcher_as_it_is() -> None:
    told = variables_of(fetcher_of(a_pod({"http": {"url": "https://a.example/$(MODELBACKEND_FETCH_TOKEN).gguf"}})))
    assert "$$(MODELBACKEND" in told["MODELBACKEND_FETCH_SOURCE"]
    assert "$$(MODELBACKEND" in told["MODELBACKEND_FETCH_TARGET"]


def test_secrets_are_referred_to_and_reach_the_fetcher_alone() -> None:
    token = {"tokenSecretRef": {"name": "hub", "key": "token"}}
    credentials = {"credentialsSecretRef": {"name": "keys"}}
    headers = {"headersSecretRef": {"name": "headers"}}
    for source, wanted in (
        ({"huggingFace": HUB["huggingFace"] | token}, {"TOKEN": ("hub", "token", None)}),
        ({"http": HTTP["http"] | token | headers}, {"TOKEN": ("hub", "token", None)}),
        (
            {"s3": S3["s3"] | credentials},
            {
                "ACCESS_KEY_ID": ("keys", "AWS_ACCESS_KEY_ID", None),
                "SECRET_ACCESS_KEY": ("keys", "AWS_SECRET_ACCESS_KEY", None),
                "SESSION_TOKEN": ("keys", "AWS_SESSION_TOKEN", True),
            },
        ),
    ):
        body = a_pod(source)
        told = variables_of(fetcher_of(body))
        found = {name: entry["secretKeyRef"] for name, entry in told.items() if "secretKeyRef" in entry}
        assert {
            name.removeprefix("MODELBACKEND_FETCH_"): (entry["name"], entry["key"], entry.get("optional"))
            for name, entry in found.items()
        } == wanted
        assert "secretKeyRef" not in json.dumps(body["spec"]["containers"])
        assert "headers" not in json.dumps(body["spec"]["containers"][0]["volumeMounts"])


def test_headers_and_authorities_are_mounted_for_the_fetcher() -> None:
    given = {"headersSecretRef": {"name": "headers"}, "caBundleRef": {"name": "ca", "key": "pem"}}
    body = a_pod({"http": HTTP["http"] | given})
    settings = settings_of(body)
    mounts = {mount["name"]: mount["mountPath"] for mount in fetcher_of(body)["volumeMounts"]}
    assert (str(settings.headers_folder), str(settings.ca_file)) == (
        mounts["fetch-headers"],
        mounts["fetch-ca"] + "/ca.crt",
    )
    volumes = {volume["name"]: volume for volume in body["spec"]["volumes"]}
    assert volumes["fetch-headers"]["secret"]["secretName"] == "headers"
    assert volumes["fetch-ca"]["configMap"] == {"name": "ca", "items": [{"key": "pem", "path": "ca.crt"}]}


def test_the_checksum_is_the_fetchers_to_check_where_there_is_one() -> None:
    body = a_pod(HTTP, model={"sha256": "a" * 64})
    assert settings_of(body).sha256 == "a" * 64
    assert "MODELBACKEND_MODEL_SHA256" not in variables_of(body["spec"]["containers"][0])


def test_offline_is_told() -> None:
    cache = {"persistentVolumeClaim": {"claimName": "c"}, "offline": True}
    assert settings_of(a_pod(HTTP, model={"cache": cache})).offline


def test_the_fetcher_gets_the_specs_variables_and_no_device() -> None:
    resources = {"limits": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": 1}, "requests": {"cpu": "1"}}
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy"}
    forged = {"name": "MODELBACKEND_FETCH_TARGET", "value": "/etc"}
    container = fetcher_of(a_pod(HTTP, resources=resources, env=[proxy, forged], runtime={"image": "mine:2"}))
    assert container["resources"] == {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "1"}}
    assert variables_of(container)["HTTPS_PROXY"] == "http://proxy"
    assert variables_of(container)["MODELBACKEND_FETCH_TARGET"] != "/etc"
    assert container["image"] == "mine:2"


def test_the_fetcher_is_as_restricted_as_the_server() -> None:
    body = a_pod(HTTP)
    assert fetcher_of(body)["securityContext"] == body["spec"]["containers"][0]["securityContext"]


def test_every_way_to_fail_is_a_reason() -> None:
    assert {int(code) for code in Failure} - {int(Failure.INTERNAL)} <= {*_EXIT_CODES}
