"""Models that are downloaded: from a web server in the cluster, checked, kept, and told in words when it fails."""

import hashlib
from collections.abc import Callable, Iterator

import pytest

from e2e.backends import TINY, WEIGHTS, Backend, generate
from e2e.kubectl import Kubectl, Object
from e2e.weights import loader_pod, tiny_model

Make = Callable[..., Backend]

SERVER = "model-files"
CACHE = "model-cache"
PORT = 8000


@pytest.fixture(scope="module")
def address(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """Of a web server that has the volume of model files mounted."""
    pod = loader_pod(namespace, WEIGHTS)
    pod["metadata"] |= {"name": SERVER, "labels": {"app": SERVER}}
    command = ["python3", "-u", "-m", "http.server", str(PORT), "--directory", "/models"]
    pod["spec"]["containers"][0]["command"] = command
    service = {"selector": {"app": SERVER}, "ports": [{"port": PORT}]}
    metadata = {"name": SERVER, "namespace": namespace}
    kubectl.apply(pod, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    kubectl.run("wait", "--for=condition=Ready", f"pod/{SERVER}", "-n", namespace, "--timeout=170s")
    yield f"http://{SERVER}.{namespace}.svc:{PORT}"
    kubectl.delete("pod", SERVER, namespace, "--grace-period=1")
    kubectl.delete("service", SERVER, namespace)


@pytest.fixture(scope="module")
def checksum(tmp_path_factory: pytest.TempPathFactory) -> str:
    return hashlib.sha256(tiny_model(tmp_path_factory.mktemp("tiny") / TINY).read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def cache(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    metadata = {"name": CACHE, "namespace": namespace}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    kubectl.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    yield CACHE
    kubectl.delete("persistentvolumeclaim", CACHE, namespace)


def from_web(url: str, sha256: str | None = None, cache: str | None = None) -> Object:
    kept = {"persistentVolumeClaim": {"claimName": cache}} if cache else None
    return {"source": {"persistentVolumeClaim": None, "http": {"url": url}}, "sha256": sha256, "cache": kept}


def test_a_model_from_a_web_server_is_checked_and_served(backend: Make, address: str, checksum: str) -> None:
    one = backend("fetched", model=from_web(f"{address}/{TINY}", checksum))
    assert generate(one.until_ready(), "the", "--max-tokens", "4", "--temperature", "0")
    assert one.status["instances"][0].get("restarts", 0) == 0, "the download that has ended is no failure"


def test_a_wrong_checksum_is_told_with_both_values_and_the_right_one_recovers(
    kubectl: Kubectl, backend: Make, address: str, checksum: str
) -> None:
    one = backend("fetched-wrong", model=from_web(f"{address}/{TINY}", "0" * 64))
    message = one.until_stalled("ModelChecksumMismatch")
    assert checksum in message
    assert "0" * 64 in message
    kubectl.patch("modelbackend", one.name, one.namespace, {"spec": {"model": {"sha256": checksum}}})
    one.until_ready()


@pytest.mark.parametrize(
    ("path", "reason", "said"),
    [
        ("no-such-file.gguf", "ModelFileMissing", "404"),
        ("not-a-gguf.txt", "ModelUnreadable", "GGUF"),
    ],
)
def test_what_is_no_model_is_told_by_its_reason(backend: Make, address: str, path: str, reason: str, said: str) -> None:
    one = backend(f"fetched-{reason.lower()}", model=from_web(f"{address}/{path}"))
    assert said in one.until_stalled(reason)
    assert said in one.until_event(reason)


def test_two_backends_share_a_cache_and_fetch_once(
    kubectl: Kubectl, backend: Make, address: str, checksum: str, cache: str
) -> None:
    url = f"{address}/{TINY}?shared"
    for one in [backend(name, model=from_web(url, checksum, cache)) for name in ("cached-a", "cached-b")]:
        one.until_ready()
    log = kubectl.run("logs", SERVER, "-n", "models")
    assert log.count("?shared HTTP/1.1") == 1


def test_a_missing_secret_is_named(backend: Make, address: str) -> None:
    model = from_web(f"{address}/{TINY}")
    model["source"]["http"]["tokenSecretRef"] = {"name": "no-such-secret", "key": "token"}
    one = backend("fetched-no-secret", model=model)
    assert "no-such-secret" in one.until_stalled("VolumeUnavailable")
