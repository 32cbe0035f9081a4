"""The pod that is made of a spec, and the hash that says when a running one must make way for another."""

from typing import Any

import pytest

from modelbackend_operator.api import json_name
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.pod_template import pod, template_hash
from modelbackend_operator.spec import SOURCES, ModelBackendSpec

Json = dict[str, Any]

VOLUME = {"persistentVolumeClaim": {"claimName": "weights", "path": "smollm2.gguf"}}
IMAGE = "registry.example/server:1"


def a_backend(**spec: Any) -> Backend:
    raw = {
        "metadata": {"name": "smollm2", "namespace": "models", "uid": "uid-1", "resourceVersion": "1", "generation": 1},
        "spec": {"model": {"source": VOLUME}, **spec},
    }
    return backend_from(raw, allow_host_path=True)


def a_pod(port: int | None = 30000, **spec: Any) -> Json:
    return pod(a_backend(**spec), 0, "smollm2-0", port, IMAGE)


def container_of(body: Json) -> Json:
    (container,) = body["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def environment_of(body: Json) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in container_of(body)["env"]}


def hash_of(**spec: Any) -> str:
    return template_hash(ModelBackendSpec.model_validate({"model": {"source": VOLUME}, **spec}))


# -- the pod ---------------------------------------------------------------------------------------------------------


def test_a_pod_is_born_gated_unready_and_with_the_finalizer() -> None:
    body = a_pod()
    assert body["spec"]["schedulingGates"] == [{"name": "modelbackend.dev/claim"}]
    assert body["spec"]["readinessGates"] == [{"conditionType": "modelbackend.dev/serving"}]
    assert body["metadata"]["finalizers"] == ["modelbackend.dev/termination"]


def test_nothing_selects_a_pod_before_its_gate_opens() -> None:
    labels = a_pod()["metadata"]["labels"]
    assert not {"modelbackend.dev/pod-uid", "modelbackend.dev/serving"} & labels.keys()


def test_a_pods_owner_controls_it_and_does_not_wait_for_it() -> None:
    assert a_pod()["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "modelbackend.dev/v1alpha1",
            "kind": "ModelBackend",
            "name": "smollm2",
            "uid": "uid-1",
            "controller": True,
        }
    ]


def test_ends_ordered_by_others_leave_time_to_drain() -> None:
    shutdown = {"drainSeconds": 100, "terminationGraceSeconds": 7}
    body = a_pod(shutdown=shutdown)
    assert body["spec"]["terminationGracePeriodSeconds"] == 107
    assert environment_of(body)["MODELBACKEND_DRAIN_SECONDS"] == "100"


def test_only_a_host_port_is_known_to_the_pod() -> None:
    def grpc_port(exposure: str, port: int | None) -> object:
        return container_of(a_pod(port, exposure={"type": exposure}))["ports"][0].get("hostPort")

    assert grpc_port("HostPort", 20001) == 20001
    assert grpc_port("NodePort", 30001) is None
    assert grpc_port("ClusterIP", None) is None


def test_a_second_host_port_leads_to_http_and_asking_for_one_is_another_template() -> None:
    on_host = {"exposure": {"type": "HostPort", "http": {}}}
    ports = container_of(pod(a_backend(**on_host), 0, "smollm2-0", 20001, IMAGE, http_port=20002))["ports"]
    opened = {port["name"]: port["hostPort"] for port in ports if "hostPort" in port}
    assert opened == {"grpc": 20001, "http": 20002}
    exposures: list[Json] = [{}, {"http": {}}, {"http": {"nodePort": 30001}}]
    hashes = [hash_of(exposure=exposure) for exposure in exposures]
    assert hashes[0] != hashes[1] == hashes[2]


def test_the_server_is_told_what_the_spec_says() -> None:
    body = a_pod(
        model={"name": "The model", "source": VOLUME, "sha256": "ab" * 32},
        runtime={
            "contextLength": 4096,
            "slots": 4,
            "threads": 3,
            "batchSize": 64,
            "microBatchSize": 32,
            "gpuLayers": 12,
            "kvCacheType": "Q8_0",
            "flashAttention": "Enabled",
        },
        serving={"maxPending": 5, "maxPendingTokens": 700, "requestTimeoutSeconds": 60},
    )
    assert environment_of(body) == {
        "MODELBACKEND_MODEL_PATH": "/models/smollm2.gguf",
        "MODELBACKEND_MODEL_SHA256": "ab" * 32,
        "MODELBACKEND_MODEL": "The model",
        "MODELBACKEND_UID": "uid-1",
        "MODELBACKEND_POD_UID": "",
        "MODELBACKEND_GRPC_PORT": "50051",
        "MODELBACKEND_HTTP_PORT": "8080",
        "MODELBACKEND_CONTROL_PORT": "50052",
        "MODELBACKEND_METRICS_PORT": "9090",
        "MODELBACKEND_CONTROL_TOKEN_FILE": "/var/run/modelbackend/control/token",
        "MODELBACKEND_CONTEXT_LENGTH": "4096",
        "MODELBACKEND_SLOTS": "4",
        "MODELBACKEND_THREADS": "3",
        "MODELBACKEND_BATCH_TOKENS": "64",
        "MODELBACKEND_MICRO_BATCH_TOKENS": "32",
        "MODELBACKEND_GPU_LAYERS": "12",
        "MODELBACKEND_KV_CACHE_TYPE": "q8_0",
        "MODELBACKEND_FLASH_ATTENTION": "enabled",
        "MODELBACKEND_MAX_PENDING": "5",
        "MODELBACKEND_MAX_PENDING_TOKENS": "700",
        "MODELBACKEND_REQUEST_TIMEOUT_SECONDS": "60",
        "MODELBACKEND_DRAIN_SECONDS": "30",
    }


def test_what_the_spec_leaves_open_is_the_servers_choice() -> None:
    names = environment_of(a_pod()).keys()
    assert not {"MODELBACKEND_THREADS", "MODELBACKEND_CONTEXT_LENGTH", "MODELBACKEND_MODEL_SHA256"} & names


def test_a_dollar_in_a_path_reaches_the_server_as_it_is() -> None:
    source = {"persistentVolumeClaim": {"claimName": "w", "path": "$(MODELBACKEND_UID).gguf"}}
    body = a_pod(model={"source": source})
    assert environment_of(body)["MODELBACKEND_MODEL_PATH"] == "/models/$$(MODELBACKEND_UID).gguf"


def test_the_pods_own_uid_comes_from_the_kubelet() -> None:
    (variable,) = [v for v in container_of(a_pod())["env"] if v["name"] == "MODELBACKEND_POD_UID"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}


def test_the_specs_environment_overrides_nothing_of_the_operators() -> None:
    body = a_pod(env=[{"name": "MODELBACKEND_UID", "value": "forged"}, {"name": "OMP_NUM_THREADS", "value": "2"}])
    assert environment_of(body)["MODELBACKEND_UID"] == "uid-1"
    assert environment_of(body)["OMP_NUM_THREADS"] == "2"


def test_the_specs_labels_and_annotations_override_nothing_of_the_operators() -> None:
    forged = {"modelbackend.dev/backend-uid": "forged", "modelbackend.dev/template-hash": "forged", "team": "search"}
    metadata = a_pod(podMetadata={"labels": forged, "annotations": forged})["metadata"]
    assert metadata["labels"]["modelbackend.dev/backend-uid"] == "uid-1"
    assert metadata["annotations"]["modelbackend.dev/template-hash"] != "forged"
    assert (metadata["labels"]["team"], metadata["annotations"]["team"]) == ("search", "search")


def test_what_is_for_the_pod_is_handed_through() -> None:
    handed: Json = {
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
        "imagePullSecrets": [{"name": "registry"}],
    }
    spec = a_pod(**handed)["spec"]
    assert {name: spec[name] for name in handed} == handed
    assert not handed.keys() & a_pod()["spec"].keys()
    limits = {"limits": {"nvidia.com/gpu": 1}}
    assert container_of(a_pod(resources=limits))["resources"] == limits


def test_the_operators_image_serves_where_the_spec_names_none() -> None:
    assert container_of(a_pod())["image"] == IMAGE
    assert container_of(a_pod(runtime={"image": "mine:2"}))["image"] == "mine:2"


def test_the_model_is_mounted_read_only() -> None:
    body = a_pod(model={"source": {"persistentVolumeClaim": {"claimName": "w", "path": "a/b.gguf"}}})
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "w"}} in body["spec"]["volumes"]
    assert {"name": "model", "mountPath": "/models", "readOnly": True} in container_of(body)["volumeMounts"]
    assert environment_of(body)["MODELBACKEND_MODEL_PATH"] == "/models/a/b.gguf"


def test_of_a_nodes_files_the_one_is_mounted_and_nothing_beside_it() -> None:
    body = a_pod(model={"source": {"hostPath": {"path": "/data/weights/b.gguf"}}})
    assert {"name": "model", "hostPath": {"path": "/data/weights/b.gguf", "type": "File"}} in body["spec"]["volumes"]
    assert {"name": "model", "mountPath": "/models/b.gguf", "readOnly": True} in container_of(body)["volumeMounts"]
    assert environment_of(body)["MODELBACKEND_MODEL_PATH"] == "/models/b.gguf"


@pytest.mark.parametrize(
    "source",
    [
        {"persistentVolumeClaim": {"claimName": "w", "path": "a/../../b"}},
        {"hostPath": {"path": "/data/../etc/shadow"}},
        {"huggingFace": {"repo": "a/b", "file": "../b.gguf"}},
        {"image": {"reference": "r", "path": "../b.gguf"}},
    ],
)
def test_no_pod_is_made_for_a_file_that_cannot_be_mounted(source: Json) -> None:
    with pytest.raises(ValueError, match=r"model\.source"):
        a_pod(model={"source": source})


# -- the template hash -----------------------------------------------------------------------------------------------


SECRET = {"name": "s", "key": "k"}

RELEASED: dict[str, tuple[str, Json]] = {
    "nothing but its model": ("6dd27d57ac72550b", {}),
    "some of each": (
        "154b1b68201453f3",
        {
            "model": {"name": "m", "source": VOLUME, "sha256": "0" * 64},
            "runtime": {"image": "server:1", "contextLength": 8192, "threads": 4},
            "serving": {"maxPending": 10},
            "exposure": {"nodePort": 30010},
            "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}},
            "env": [{"name": "A", "value": "b"}],
        },
    ),
    "a HostPort": ("d767023fedcf3254", {"exposure": {"type": "HostPort"}}),
    "a ClusterIP": ("822db6edcde68cbe", {"exposure": {"type": "ClusterIP"}}),
    "a pinned port": (
        "6dd27d57ac72550b",
        {"exposure": {"nodePort": 30010, "portRange": {"first": 30000, "last": 30020}}},
    ),
    "a model of a hub": (
        "115308675d14c104",
        {
            "model": {
                "source": {
                    "huggingFace": {"repo": "a/b", "file": "m.gguf", "revision": "0" * 40, "tokenSecretRef": SECRET}
                },
                "cache": {"persistentVolumeClaim": {"claimName": "cache"}},
            }
        },
    ),
    "a model of a bucket": (
        "93ef3e41c1f93aba",
        {
            "model": {
                "source": {
                    "s3": {
                        "endpoint": "https://s3.example",
                        "region": "eu",
                        "bucket": "b",
                        "key": "m.gguf",
                        "credentialsSecretRef": {"name": "s"},
                    }
                }
            }
        },
    ),
    "a model of a web server": (
        "549acfda07c757b7",
        {
            "model": {
                "source": {
                    "http": {
                        "url": "https://models.example/m.gguf",
                        "headersSecretRef": {"name": "h"},
                        "caBundleRef": {"name": "ca", "key": "ca.crt"},
                    }
                },
                "sha256": "0" * 64,
                "cache": {"emptyDir": {"sizeLimit": "8Gi"}, "offline": False},
            }
        },
    ),
    "a model in an image": (
        "d7b075c781457e9d",
        {"model": {"source": {"image": {"reference": "registry.example/m:1", "path": "m.gguf"}}}},
    ),
    "a model on the node": ("7714cad2d1189e0d", {"model": {"source": {"hostPath": {"path": "/data/m.gguf"}}}}),
    "GPUs and where they are": (
        "2b64e703f15d57fc",
        {
            "resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"memory": "8Gi"}},
            "runtimeClassName": "nvidia",
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        },
    ),
    "a device claim": (
        "bb5828d2d459bf37",
        {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
            "resources": {"claims": [{"name": "gpu"}]},
        },
    ),
    "everything that llama.cpp is told": (
        "84782cdeaa097a03",
        {
            "runtime": {
                "contextLength": 8192,
                "slots": 4,
                "threads": 8,
                "batchSize": 512,
                "microBatchSize": 256,
                "gpuLayers": 20,
                "kvCacheType": "Q8_0",
                "flashAttention": "Enabled",
                "extraArgs": ["--prompt-cache-bytes=1000000"],
            }
        },
    ),
    "vectors": ("214e16031e21ee11", {"runtime": {"mode": "Embed", "pooling": "Mean"}}),
    "limits, TLS and a token": (
        "7822fce1e9292a39",
        {
            "serving": {
                "maxPending": 10,
                "maxPendingTokens": 1000,
                "maxBatchInputs": 8,
                "requestTimeoutSeconds": 60,
                "tls": {"secretRef": {"name": "t"}},
                "auth": {"tokenSecretRef": SECRET},
            }
        },
    ),
    "what decorates a pod": (
        "5945d96f39e1f632",
        {
            "podMetadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}},
            "priorityClassName": "high",
            "imagePullSecrets": [{"name": "r"}],
            "affinity": {"podAntiAffinity": {}},
            "env": [{"name": "A", "value": "b"}],
        },
    ),
    "how many, and how they end": (
        "6dd27d57ac72550b",
        {
            "replicas": 3,
            "rollout": "Surge",
            "restart": {"maxRestarts": 2},
            "shutdown": {"drainSeconds": 300, "busyTimeoutSeconds": 600, "whenUnconfirmed": "Wait"},
        },
    ),
}
"""Specs, and the hashes that pods out there carry since the first version. They are not to be computed anew."""


@pytest.mark.parametrize(("known", "spec"), RELEASED.values(), ids=RELEASED)
def test_the_hash_of_a_spec_is_the_same_in_every_version(known: str, spec: Json) -> None:
    """If this fails, an upgrade of the operator restarts every such instance there is: is that meant?"""
    assert hash_of(**spec) == known


def test_the_hashes_of_earlier_versions_cover_every_exposure_source_and_field() -> None:
    specs = [spec for _, spec in RELEASED.values()]
    assert {json_name(name) for name in ModelBackendSpec.model_fields} - {"suspend"} <= {
        name for s in specs for name in s
    }
    assert set(SOURCES) <= {kind for s in specs for kind in s.get("model", {}).get("source", VOLUME)}
    assert {s.get("exposure", {}).get("type", "NodePort") for s in specs} == set(Exposure)


def test_the_order_of_keys_changes_no_hash() -> None:
    assert hash_of(nodeSelector={"a": "1", "b": "2"}) == hash_of(nodeSelector={"b": "2", "a": "1"})


def test_a_default_that_is_written_out_changes_no_hash() -> None:
    written_out = hash_of(
        runtime={"slots": 1, "mode": "Generate", "extraArgs": []},
        serving={"maxPending": 256},
        exposure={"type": "NodePort"},
        podMetadata={},
    )
    assert written_out == hash_of()


@pytest.mark.parametrize(
    "edit",
    [
        {"replicas": 3},
        {"suspend": True},
        {"rollout": "Surge"},
        {"restart": {"maxRestarts": 3}},
        {"exposure": {"nodePort": 30001}},
        {"exposure": {"portRange": {"first": 30001, "last": 30002}}},
        {"shutdown": {"drainSeconds": 300, "terminationGraceSeconds": 60}},
        {"a_field_of_a_later_version": 1},
    ],
    ids=lambda edit: next(iter(edit)),
)
def test_an_edit_that_needs_no_other_pod_changes_no_hash(edit: Json) -> None:
    assert hash_of(**edit) == hash_of()


@pytest.mark.parametrize(
    "edit",
    [
        {"model": {"source": {"persistentVolumeClaim": {"claimName": "weights", "path": "other.gguf"}}}},
        {"model": {"source": VOLUME, "sha256": "0" * 64}},
        {"runtime": {"image": "other"}},
        {"serving": {"maxPending": 1}},
        {"exposure": {"type": "HostPort"}},
        {"resources": {"limits": {"cpu": "1"}}},
        {"nodeSelector": {"a": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"affinity": {"nodeAffinity": {}}},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"priorityClassName": "high"},
        {"runtimeClassName": "nvidia"},
        {"resourceClaims": [{"name": "gpu"}]},
        {"imagePullSecrets": [{"name": "registry"}]},
        {"podMetadata": {"labels": {"a": "b"}}},
        {"env": [{"name": "A", "value": "b"}]},
    ],
    ids=str,
)
def test_an_edit_that_needs_another_pod_changes_the_hash(edit: Json) -> None:
    assert hash_of(**edit) != hash_of()


def test_every_field_of_the_spec_is_on_one_side_of_the_hash() -> None:
    """A field added to the spec must be thought about here."""
    restarts = {
        "model",
        "runtime",
        "serving",
        "exposure",
        "resources",
        "node_selector",
        "tolerations",
        "affinity",
        "topology_spread_constraints",
        "priority_class_name",
        "runtime_class_name",
        "resource_claims",
        "image_pull_secrets",
        "pod_metadata",
        "env",
    }
    restarts_nothing = {"replicas", "suspend", "rollout", "restart", "shutdown"}
    assert set(ModelBackendSpec.model_fields) == restarts | restarts_nothing


def test_a_server_with_tls_gets_the_certificate_and_is_probed_where_none_is_spoken() -> None:
    body = a_pod(serving={"tls": {"secretRef": {"name": "certificate"}}})
    container = container_of(body)
    assert environment_of(body)["MODELBACKEND_TLS_FOLDER"] == "/var/run/modelbackend/tls"
    assert {"name": "tls", "mountPath": "/var/run/modelbackend/tls", "readOnly": True} in container["volumeMounts"]
    assert {"name": "tls", "secret": {"secretName": "certificate", "defaultMode": 0o444}} in body["spec"]["volumes"]
    probes = [container[probe]["grpc"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert probes == [50052] * 3
    assert container_of(a_pod())["readinessProbe"]["grpc"]["port"] == 50051


def test_a_server_that_asks_for_a_token_gets_that_key_of_the_secret_alone() -> None:
    body = a_pod(serving={"auth": {"tokenSecretRef": {"name": "s", "key": "k"}}})
    assert environment_of(body)["MODELBACKEND_TOKEN_FILE"] == "/var/run/modelbackend/token/token"
    secret = {"secretName": "s", "defaultMode": 0o444, "items": [{"key": "k", "path": "token"}]}
    assert {"name": "token", "secret": secret} in body["spec"]["volumes"]
