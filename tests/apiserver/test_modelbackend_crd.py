"""What the API server itself makes of a ModelBackend: defaults, rules, columns, scale and the first status."""

import json
from copy import deepcopy
from typing import Any

import pytest

from modelbackend_operator.api import API_VERSION, MODELBACKEND_KIND, MODELBACKEND_PLURAL
from modelbackend_operator.spec import ModelBackendSpec, read_spec, unsupported_fields
from tests.apiserver.harness import TABLE, Answer, ApiServer, Json
from tests.crd_files import rule_messages

pytestmark = pytest.mark.apiserver

VOLUME = {"persistentVolumeClaim": {"claimName": "weights", "path": "smollm2.gguf"}}
MODEL: Json = {"source": VOLUME}


def collection(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{MODELBACKEND_PLURAL}"


def backend(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": MODELBACKEND_KIND,
        "metadata": {"name": name},
        "spec": {"model": MODEL, **spec},
    }


def create(server: ApiServer, namespace: str, name: str = "smollm2", **spec: Any) -> Answer:
    return server.post(collection(namespace), backend(name, **spec))


def created(server: ApiServer, namespace: str, name: str = "smollm2", **spec: Any) -> Json:
    answer = create(server, namespace, name, **spec)
    assert answer.status == 201, answer.message
    return answer.body


def test_a_spec_with_only_a_source_gets_every_default(api_server: ApiServer, namespace: str) -> None:
    spec = created(api_server, namespace)["spec"]
    assert spec == {
        "model": MODEL,
        "runtime": {"slots": 1, "mode": "Generate"},
        "serving": {"maxPending": 256, "requestTimeoutSeconds": 600},
        "replicas": 1,
        "exposure": {"type": "NodePort"},
        "shutdown": {
            "drainSeconds": 30,
            "escalate": True,
            "terminationGraceSeconds": 15,
            "unconfirmedAfterSeconds": 60,
            "whenUnconfirmed": "HandOver",
        },
        "rollout": "Recreate",
        "restart": {"backoffSeconds": 10, "maxBackoffSeconds": 300},
        "suspend": False,
    }


def test_the_defaults_ask_for_nothing_that_is_not_supported(api_server: ApiServer, namespace: str) -> None:
    spec = read_spec(created(api_server, namespace)["spec"])
    assert isinstance(spec, ModelBackendSpec)
    assert unsupported_fields(spec) == []


def test_a_defaulted_part_keeps_what_the_user_wrote_beside_it(api_server: ApiServer, namespace: str) -> None:
    spec = created(api_server, namespace, exposure={"nodePort": 30007}, shutdown={"drainSeconds": 5})["spec"]
    assert spec["exposure"] == {"type": "NodePort", "nodePort": 30007}
    assert (spec["shutdown"]["drainSeconds"], spec["shutdown"]["terminationGraceSeconds"]) == (5, 15)


EVERYTHING_A_POD_TAKES: Json = {
    "resources": {
        "limits": {"nvidia.com/gpu": 1, "memory": "2Gi"},
        "requests": {"cpu": "500m"},
        "claims": [{"name": "gpu", "request": "one"}],
    },
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 60}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h200"]}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "llm"}},
        }
    ],
    "priorityClassName": "high",
    "runtimeClassName": "nvidia",
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    "imagePullSecrets": [{"name": "registry"}],
    "podMetadata": {"labels": {"team": "ml"}, "annotations": {"example.com/note": "yes"}},
    "env": [
        {"name": "HTTP_PROXY", "value": "http://proxy"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
    ],
}


def test_what_is_for_the_pod_is_stored_as_written(api_server: ApiServer, namespace: str) -> None:
    spec = created(api_server, namespace, **EVERYTHING_A_POD_TAKES)["spec"]
    assert {name: spec[name] for name in EVERYTHING_A_POD_TAKES} == EVERYTHING_A_POD_TAKES


@pytest.mark.parametrize(
    "source",
    [
        VOLUME,
        {"huggingFace": {"repo": "owner/name", "revision": "refs/pr/1", "file": "sub/model.gguf"}},
        {"s3": {"bucket": "my_weights.eu", "key": "a//b.gguf", "endpoint": "https://s3.example.com:9000"}},
        {"http": {"url": "https://example.com/model.gguf?x=1@2", "caBundleRef": {"name": "ca", "key": "ca.crt"}}},
        {"image": {"reference": "registry.example.com/weights:v1", "path": "model.gguf"}},
        {"hostPath": {"path": "/srv/models/model..v2.gguf"}},
    ],
    ids=lambda source: next(iter(source)),
)
def test_every_source_is_accepted_alone(api_server: ApiServer, namespace: str, source: Json) -> None:
    created(api_server, namespace, model={"source": source})


@pytest.mark.parametrize("name", ["llama-3.2-1b", "7b-chat", "a", "a-0", "x" * 63])
def test_names_that_are_no_dns_label_are_accepted(api_server: ApiServer, namespace: str, name: str) -> None:
    assert created(api_server, namespace, name)["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("name", "words"),
    [("x" * 64, "metadata.name: Too long: may not be more than 63"), ("Llama", "a lowercase RFC 1123 subdomain")],
)
def test_names_that_do_not_fit_are_refused(api_server: ApiServer, namespace: str, name: str, words: str) -> None:
    answer = create(api_server, namespace, name)
    assert answer.status == 422
    assert words in answer.message


@pytest.mark.parametrize(
    "exposure",
    [
        {"type": "NodePort", "nodePort": 30000},
        {"type": "NodePort", "nodePort": 32767, "http": {"nodePort": 32766}},
        {"type": "NodePort", "portRange": {"first": 30000, "last": 30000}},
        {"type": "NodePort", "http": {}},
        {"type": "HostPort", "nodePort": 1024},
        {"type": "HostPort", "nodePort": 65535},
        {"type": "HostPort", "portRange": {"first": 20000, "last": 29999}},
        {"type": "ClusterIP"},
    ],
    ids=json.dumps,
)
def test_ports_within_the_limits_of_their_type_are_accepted(
    api_server: ApiServer, namespace: str, exposure: Json
) -> None:
    created(api_server, namespace, exposure=exposure)


PIN = {"nodePort": 30001}
ONE_INSTANCE = "a pinned exposure.nodePort serves one instance, so replicas must be 0 or 1; remove the pin to run more"
RECREATE = (
    "a pinned exposure.nodePort needs rollout Recreate, "
    "because Surge runs two pods at once and the port can be behind only one"
)
ONE_SOURCE = "model.source must name exactly one of persistentVolumeClaim, huggingFace, s3, http, image, hostPath"
MODEL_NAME_FORM = "model.name consists of letters, digits and . _ : / - and begins and ends with a letter or digit"
MODEL_NAME_FIXED = (
    "model.name is the identity of the model and cannot be changed, added or removed; "
    "create another ModelBackend instead"
)
INSIDE = "the path is relative and stays inside, so it has no leading / and no .. part"
REPO = "huggingFace.repo is written owner/name"
REVISION = "huggingFace.revision is a branch, a tag or a commit hash"
URL = "this must be a URL that begins with http:// or https:// and names a host"
HOST_PATH = "hostPath.path is absolute and has no .. part"
SHA256 = "model.sha256 is 64 hexadecimal digits, as sha256sum prints them"
PASSWORD = (
    "a URL with a user or password in it would be read by everybody who may read this object; put them into a Secret"
)
BUCKET = "s3.bucket consists of letters, digits and . _ -"
REGION = "s3.region consists of letters, digits and -"
OFFLINE = "model.cache.offline needs a persistentVolumeClaim, because a new pod's own volume is empty"
FETCHED_ONLY = (
    "model.cache is for what is downloaded; a file on a volume, in an image or on the node is read where it lies"
)
ONE_CACHE = "model.cache must name exactly one of persistentVolumeClaim, emptyDir"
MICRO_BATCH = "runtime.microBatchSize must not be greater than runtime.batchSize"
EXTRA_ARGS = "runtime.extraArgs are flags of the server, each written as --name=value"
POOLING = "runtime.pooling needs mode Embed"
NO_NODE_PORT = "exposure.type ClusterIP takes no port of the nodes; remove exposure.nodePort, portRange and http"
PIN_OR_RANGE = "exposure.nodePort pins one port and exposure.portRange leaves the choice open; give only one of them"
TWO_PORTS = "exposure.nodePort and exposure.http.nodePort must differ"
IN_BAND = "with exposure.type NodePort, ports must be from 30000 to 32767"
OUT_OF_BAND = "with exposure.type HostPort, ports must be outside 30000 to 32767, which belong to node port Services"
RANGE = "exposure.portRange.first must not be greater than last"
BACKOFF = "restart.backoffSeconds must not be greater than restart.maxBackoffSeconds"
ONE_CLAIM = "an entry of resourceClaims must name exactly one of resourceClaimName, resourceClaimTemplateName"
OUR_LABELS = "labels of modelbackend.dev and app.kubernetes.io/managed-by belong to the operator"
OUR_ANNOTATIONS = "annotations of modelbackend.dev belong to the operator"
OUR_VARIABLES = "variables that begin with MODELBACKEND_ are set by the operator; use the fields of runtime and serving"
VALUE_ONCE = "an entry of env has value or valueFrom, not both"


def of_model(**model: Any) -> Json:
    return {"model": {"source": VOLUME, **model}}


def of_source(kind: str, **source: Any) -> Json:
    return {"model": {"source": {kind: source}}}


def of_cache(**cache: Any) -> Json:
    return {"model": {"source": {"http": {"url": "http://a/b"}}, "cache": cache}}


REFUSALS: list[tuple[Json, str, str]] = [
    ({"model": {"source": {}}}, "spec.model.source", ONE_SOURCE),
    ({"model": {"source": {**VOLUME, "http": {"url": "http://a/b"}}}}, "spec.model.source", ONE_SOURCE),
    (of_model(name="-llama"), "spec.model.name", MODEL_NAME_FORM),
    (of_model(name="llama 3"), "spec.model.name", MODEL_NAME_FORM),
    (
        of_source("persistentVolumeClaim", claimName="w", path="/m.gguf"),
        "spec.model.source.persistentVolumeClaim.path",
        INSIDE,
    ),
    (
        of_source("persistentVolumeClaim", claimName="w", path="a/../../m.gguf"),
        "spec.model.source.persistentVolumeClaim.path",
        INSIDE,
    ),
    (of_source("image", reference="r", path="/m.gguf"), "spec.model.source.image.path", INSIDE),
    (of_source("huggingFace", repo="a/b", file="../c"), "spec.model.source.huggingFace.file", INSIDE),
    (of_source("huggingFace", repo="name", file="f"), "spec.model.source.huggingFace.repo", REPO),
    (
        of_source("huggingFace", repo="a/b", file="f", revision="a..b"),
        "spec.model.source.huggingFace.revision",
        REVISION,
    ),
    (
        of_source("huggingFace", repo="a/b", file="f", endpoint="ftp://a"),
        "spec.model.source.huggingFace.endpoint",
        URL,
    ),
    (of_source("http", url="example.com/model.gguf"), "spec.model.source.http.url", URL),
    (of_source("s3", bucket="b", key="k", endpoint="s3"), "spec.model.source.s3.endpoint", URL),
    (of_source("hostPath", path="models/m.gguf"), "spec.model.source.hostPath.path", HOST_PATH),
    (of_source("hostPath", path="/models/../etc/shadow"), "spec.model.source.hostPath.path", HOST_PATH),
    (of_model(sha256="abc"), "spec.model.sha256", SHA256),
    (of_model(sha256="g" * 64), "spec.model.sha256", SHA256),
    (of_source("http", url="https://me:hush@a/b"), "spec.model.source.http.url", PASSWORD),
    (of_source("s3", bucket="b", key="k", endpoint="http://me@a"), "spec.model.source.s3.endpoint", PASSWORD),
    (of_source("s3", bucket="../b", key="k"), "spec.model.source.s3.bucket", BUCKET),
    (of_source("s3", bucket="b", key="k", region="eu/1"), "spec.model.source.s3.region", REGION),
    (of_cache(), "spec.model.cache", ONE_CACHE),
    (of_cache(emptyDir={}, persistentVolumeClaim={"claimName": "c"}), "spec.model.cache", ONE_CACHE),
    (of_cache(emptyDir={}, offline=True), "spec.model.cache", OFFLINE),
    (of_model(cache={"emptyDir": {}}), "spec.model", FETCHED_ONLY),
    ({"runtime": {"batchSize": 64, "microBatchSize": 65}}, "spec.runtime", MICRO_BATCH),
    ({"runtime": {"pooling": "Mean"}}, "spec.runtime", POOLING),
    ({"runtime": {"extraArgs": ["--verbose"]}}, "spec.runtime.extraArgs", EXTRA_ARGS),
    ({"runtime": {"extraArgs": ["--log-level=debug", "lora=a.gguf"]}}, "spec.runtime.extraArgs", EXTRA_ARGS),
    ({"runtime": {"extraArgs": ["--lora=a.gguf\n--uid=x"]}}, "spec.runtime.extraArgs", EXTRA_ARGS),
    ({"exposure": PIN, "replicas": 2}, "spec", ONE_INSTANCE),
    ({"exposure": {"http": PIN}, "replicas": 2}, "spec", ONE_INSTANCE),
    ({"exposure": PIN, "rollout": "Surge"}, "spec", RECREATE),
    ({"exposure": {"type": "ClusterIP", **PIN}}, "spec.exposure", NO_NODE_PORT),
    ({"exposure": {"type": "ClusterIP", "http": {}}}, "spec.exposure", NO_NODE_PORT),
    ({"exposure": {**PIN, "portRange": {"first": 30000, "last": 30010}}}, "spec.exposure", PIN_OR_RANGE),
    ({"exposure": {**PIN, "http": PIN}}, "spec.exposure", TWO_PORTS),
    ({"exposure": {"nodePort": 29999}}, "spec.exposure", IN_BAND),
    ({"exposure": {"nodePort": 32768}}, "spec.exposure", IN_BAND),
    ({"exposure": {"portRange": {"first": 20000, "last": 30010}}}, "spec.exposure", IN_BAND),
    ({"exposure": {"type": "HostPort", "nodePort": 30000}}, "spec.exposure", OUT_OF_BAND),
    ({"exposure": {"type": "HostPort", "nodePort": 32767}}, "spec.exposure", OUT_OF_BAND),
    (
        {"exposure": {"type": "HostPort", "portRange": {"first": 29000, "last": 33000}}},
        "spec.exposure",
        OUT_OF_BAND,
    ),
    ({"exposure": {"portRange": {"first": 30010, "last": 30000}}}, "spec.exposure.portRange", RANGE),
    ({"restart": {"backoffSeconds": 301}}, "spec.restart", BACKOFF),
    ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims[0]", ONE_CLAIM),
    ({"podMetadata": {"labels": {"modelbackend.dev/serving": "true"}}}, "spec.podMetadata", OUR_LABELS),
    ({"podMetadata": {"labels": {"app.kubernetes.io/managed-by": "x"}}}, "spec.podMetadata", OUR_LABELS),
    ({"podMetadata": {"annotations": {"modelbackend.dev/stop": "x"}}}, "spec.podMetadata", OUR_ANNOTATIONS),
    ({"env": [{"name": "MODELBACKEND_UID", "value": "x"}]}, "spec.env", OUR_VARIABLES),
    (
        {"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "f"}}}]},
        "spec.env[0]",
        VALUE_ONCE,
    ),
]


@pytest.mark.parametrize(("spec", "field", "message"), REFUSALS, ids=lambda part: json.dumps(part)[:60])
def test_a_rule_refuses_in_words_a_person_understands(
    api_server: ApiServer, namespace: str, spec: Json, field: str, message: str
) -> None:
    answer = create(api_server, namespace, **spec)
    assert answer.status == 422
    causes = {cause["message"] for cause in answer.body["details"]["causes"] if cause["field"] == field}
    assert any(cause.endswith(message) for cause in causes), answer.message


def test_every_rule_of_the_schema_is_asserted_here() -> None:
    assert rule_messages("modelbackends") == {message for *_, message in REFUSALS} | {MODEL_NAME_FIXED}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"exposure": {"nodePort": 1023}}, "spec.exposure.nodePort: Invalid value: 1023"),
        ({"exposure": {"type": "LoadBalancer"}}, 'supported values: "NodePort", "HostPort", "ClusterIP"'),
        ({"replicas": -1}, "spec.replicas in body should be greater than or equal to 0"),
        ({"shutdown": {"terminationGraceSeconds": 0}}, "should be greater than or equal to 1"),
        ({"runtime": {"slots": 0}}, "spec.runtime.slots in body should be greater than or equal to 1"),
        ({"model": {}}, "spec.model.source: Required value"),
        ({"env": [{"name": "A"}, {"name": "A"}]}, 'spec.env[1]: Duplicate value: {"name":"A"}'),
        ({"resources": {"limits": {"memory": "2 GB"}}}, "spec.resources.limits.memory"),
    ],
    ids=lambda part: json.dumps(part)[:60],
)
def test_bounds_are_refused_with_the_field_named(api_server: ApiServer, namespace: str, spec: Json, words: str) -> None:
    answer = create(api_server, namespace, **spec)
    assert answer.status == 422
    assert words in answer.message


@pytest.mark.parametrize(
    ("before", "after"), [("llama", "qwen"), (None, "llama"), ("llama", None)], ids=["change", "add", "remove"]
)
def test_model_name_stays_as_it_was_created(
    api_server: ApiServer, namespace: str, before: str | None, after: str | None
) -> None:
    stored = created(api_server, namespace, model={**MODEL, **({"name": before} if before else {})})
    changed = deepcopy(stored)
    changed["spec"]["model"].pop("name", None)
    if after:
        changed["spec"]["model"]["name"] = after
    path = f"{collection(namespace)}/smollm2"
    answer = api_server.request("PUT", path, changed)
    assert answer.status == 422
    assert f"spec.model: Invalid value: {MODEL_NAME_FIXED}" in answer.message
    assert api_server.get(path).body["spec"] == stored["spec"]


def test_other_parts_of_the_model_may_change(api_server: ApiServer, namespace: str) -> None:
    created(api_server, namespace, model={**MODEL, "name": "llama"})
    answer = api_server.merge(f"{collection(namespace)}/smollm2", {"spec": {"model": {"sha256": "a" * 64}}})
    assert answer.status == 200, answer.message
    assert answer.body["metadata"]["generation"] == 2


def test_a_new_object_says_that_nobody_has_looked_at_it(api_server: ApiServer, namespace: str) -> None:
    created(api_server, namespace)
    status = api_server.get(f"{collection(namespace)}/smollm2").body["status"]
    assert status["observedGeneration"] == -1
    (ready,) = status["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "Unknown", "WaitingForOperator")


def test_waiting_for_ready_does_not_succeed_before_the_operator_has_spoken(
    api_server: ApiServer, namespace: str
) -> None:
    created(api_server, namespace)
    waited = api_server.kubectl(
        "wait", "mb/smollm2", f"--namespace={namespace}", "--for=condition=Ready", "--timeout=1s"
    )
    assert waited.returncode == 1
    assert "timed out waiting for the condition" in waited.stderr


FULL_STATUS: Json = {
    "observedGeneration": 1,
    "replicas": 1,
    "readyReplicas": 1,
    "inFlight": 3,
    "selector": "modelbackend.dev/backend-uid=u",
    "serviceName": "smollm2",
    "endpoints": [{"ordinal": 0, "role": "Grpc", "podUID": "p", "address": "10.0.0.1:30007"}],
    "instances": [
        {
            "ordinal": 0,
            "phase": "Draining",
            "pod": {"name": "smollm2-abc-0", "uid": "p"},
            "node": {"name": "worker", "uid": "n", "bootID": "b"},
            "address": "10.0.0.1",
            "port": 30007,
            "inFlight": 3,
            "stop": {
                "since": "2026-01-02T03:04:05Z",
                "reason": "ScaledDown",
                "deadline": "2026-01-02T03:04:35Z",
                "epoch": "l/1",
            },
            "reason": "Draining",
            "message": "3 requests run",
            "restarts": 1,
            "waitingSince": "2026-01-02T03:04:00Z",
        }
    ],
    "model": {
        "name": "smollm2",
        "description": "llama 135M Q4_1",
        "architecture": "llama",
        "parameterCount": 134515008,
        "sizeBytes": 98000000,
        "contextLength": 2048,
        "trainedContextLength": 8192,
        "sha256": "a" * 64,
    },
    "lastShutdown": {
        "outcome": "Drained",
        "pod": {"name": "smollm2-abc-0", "uid": "o"},
        "finished": "2026-01-02T03:00:00Z",
        "seconds": 4,
        "requestsCut": 0,
    },
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "reason": "Ready",
            "message": "1 of 1 instances serve",
        }
    ],
}


def test_a_whole_status_is_stored_as_written_and_leaves_the_generation(api_server: ApiServer, namespace: str) -> None:
    created(api_server, namespace)
    path = f"{collection(namespace)}/smollm2"
    answer = api_server.merge(f"{path}/status", {"status": FULL_STATUS})
    assert answer.status == 200, answer.message
    stored = api_server.get(path).body
    assert stored["status"] == FULL_STATUS
    assert stored["metadata"]["generation"] == 1


def test_status_cannot_be_written_through_the_spec(api_server: ApiServer, namespace: str) -> None:
    created(api_server, namespace)
    path = f"{collection(namespace)}/smollm2"
    assert api_server.merge(path, {"status": {"inFlight": 9}}).status == 200
    assert "inFlight" not in api_server.get(path).body["status"]


def test_the_table_has_the_columns_a_user_needs(api_server: ApiServer, namespace: str) -> None:
    created(api_server, namespace)
    api_server.merge(f"{collection(namespace)}/smollm2/status", {"status": FULL_STATUS})
    created(api_server, namespace, "untouched")
    table = api_server.get(collection(namespace), accept=TABLE).body
    shown = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    assert shown == ["Name", "Model", "Ready", "Address", "In-Flight", "Reason", "Age"]
    served, untouched = (row["cells"] for row in table["rows"])
    assert served[:6] == ["smollm2", "smollm2", "True", "10.0.0.1:30007", 3, "Ready"]
    assert untouched[:6] == ["untouched", None, "Unknown", None, None, "WaitingForOperator"]


@pytest.mark.parametrize("alias", ["mb", "modelbackend", "all", "backends"])
def test_kubectl_finds_it_by_short_name_and_category(api_server: ApiServer, namespace: str, alias: str) -> None:
    created(api_server, namespace)
    listing = api_server.kubectl("get", alias, f"--namespace={namespace}")
    assert listing.returncode == 0, listing.stderr
    assert listing.stdout.split("\n")[0].split() == ["NAME", "MODEL", "READY", "ADDRESS", "IN-FLIGHT", "REASON", "AGE"]
    assert "smollm2" in listing.stdout


def test_the_scale_subresource_shows_and_sets_replicas(api_server: ApiServer, namespace: str) -> None:
    created(api_server, namespace)
    path = f"{collection(namespace)}/smollm2"
    api_server.merge(f"{path}/status", {"status": FULL_STATUS})
    scale = api_server.get(f"{path}/scale").body
    assert (scale["spec"]["replicas"], scale["status"]) == (
        1,
        {"replicas": 1, "selector": FULL_STATUS["selector"]},
    )
    scaled = api_server.kubectl("scale", "mb/smollm2", "--replicas=0", f"--namespace={namespace}")
    assert scaled.returncode == 0, scaled.stderr
    assert api_server.get(path).body["spec"]["replicas"] == 0


def test_a_pinned_backend_cannot_be_scaled_past_its_port(api_server: ApiServer, namespace: str) -> None:
    created(api_server, namespace, exposure=PIN)
    scaled = api_server.kubectl("scale", "mb/smollm2", "--replicas=2", f"--namespace={namespace}")
    assert scaled.returncode == 1
    assert ONE_INSTANCE in scaled.stderr
