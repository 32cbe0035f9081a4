"""From the cache to an observation: what belongs to a backend, and what only looks so."""

import json
from datetime import UTC, datetime
from typing import Any

from modelbackend_operator.cache import Cache
from modelbackend_operator.kinds import Kind, by_backend
from modelbackend_operator.manifests import lease_name
from modelbackend_operator.model.lease import ModelStop
from modelbackend_operator.model.node import Node
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.settings import Settings
from modelbackend_operator.snapshot import observation_of

UID = "backend-uid"
SETTINGS = Settings()


def metadata(name: str, uid: str, namespace: str = "models", **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1", **more}


def owned(name: str, uid: str, owner: str = UID, namespace: str = "models") -> dict[str, Any]:
    owners = [{"apiVersion": "modelbackend.dev/v1alpha1", "name": "a", "uid": owner, "controller": True}]
    return metadata(name, uid, namespace, ownerReferences=owners)


def a_cache(**exposure: Any) -> Cache:
    source = {"persistentVolumeClaim": {"claimName": "weights", "path": "model.gguf"}}
    spec = {"model": {"source": source}, "exposure": exposure}
    cache = Cache()
    cache.put(Kind.BACKEND, {"metadata": metadata("a", UID, generation=1), "spec": spec})
    return cache


def put_claim(cache: Cache, port: int, owner: str, node: str = "") -> None:
    backend = {"namespace": "models", "name": f"of-{owner}", "uid": owner}
    claim: dict[str, Any] = {"spec": {"port": port, "exposure": "NodePort", "backend": backend, "ordinal": 0}}
    claim["metadata"] = {"name": f"port-{port}", "uid": f"claim-{port}", "resourceVersion": "1"}
    claim["status"] = {"phase": "Bound", "node": {"name": node, "uid": "n", "bootID": "b"}} if node else {}
    cache.put(Kind.CLAIM, claim)


def observe(cache: Cache, *, live: bool = False, outside: dict[int, str] | None = None) -> Observation:
    return observation_of(cache, UID, SETTINGS, ports_outside=outside or {}, live=live)


def test_ports_are_taken_by_others_claims_and_by_what_is_outside_within_the_pool_only() -> None:
    cache = a_cache()
    put_claim(cache, 30001, UID)
    put_claim(cache, 30002, "other")
    put_claim(cache, 20000, "other")
    observation = observe(cache, outside={30003: "a Service outside this operator"})
    assert [claim.port for claim in observation.claims] == [30001]
    assert observation.ports.taken_by == {30002: "models/of-other", 30003: "a Service outside this operator"}
    assert observation.ports.pools == ((30000, 30085),)
    assert observation.ports.taken_in == {"Reserved": 1}


def test_a_pinned_port_outside_of_the_pool_is_told_as_taken_too() -> None:
    cache = a_cache(nodePort=31000)
    put_claim(cache, 31000, "other")
    put_claim(cache, 31001, "other")
    assert observe(cache).ports.taken == {31000}
    both = a_cache(nodePort=31000, http={"nodePort": 31001})
    put_claim(both, 31001, "other")
    assert observe(both).ports.taken == {31001}


def test_an_object_in_another_namespace_is_not_the_backends_whatever_it_says() -> None:
    cache = a_cache()
    cache.put(Kind.POD, {"metadata": owned("mine-0", "1")})
    cache.put(Kind.POD, {"metadata": owned("theirs-0", "2", namespace="tenant")})
    assert [pod.ref.name for pod in observe(cache).pods] == ["mine-0"]


def test_names_of_others_in_the_namespace_are_taken_and_own_ones_are_not() -> None:
    cache = a_cache()
    cache.put(Kind.POD, {"metadata": owned("mine-0", "1")})
    cache.put(Kind.POD, {"metadata": owned("other-0", "2", owner="other")})
    cache.put(Kind.SERVICE, {"metadata": metadata("stranger", "3")})
    cache.put(Kind.SERVICE, {"metadata": metadata("elsewhere", "4", "tenant")})
    assert observe(cache).taken_names == {"other-0", "stranger"}


def test_a_namespace_that_no_watch_told_of_yet_is_not_taken_for_one_that_ends() -> None:
    cache = a_cache()
    assert not observe(cache).namespace_terminating
    assert observe(cache, live=True).namespace_terminating
    namespace = {"metadata": {"name": "models", "uid": "n", "resourceVersion": "1"}}
    cache.put(Kind.NAMESPACE, namespace)
    assert not observe(cache, live=True).namespace_terminating
    ending = namespace["metadata"] | {"resourceVersion": "2", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cache.put(Kind.NAMESPACE, {"metadata": ending})
    assert observe(cache).namespace_terminating


def test_nodes_are_those_of_pods_and_of_claims_whose_pod_is_gone() -> None:
    cache = a_cache()
    put_claim(cache, 30001, UID, node="lost")
    for number, name in enumerate(("lost", "unrelated")):
        node = {"metadata": {"name": name, "uid": f"uid-{number}", "resourceVersion": "1"}}
        cache.put(Kind.NODE, node | {"status": {"nodeInfo": {"bootID": "boot"}}})
    assert observe(cache).nodes == {"lost": Node("lost", "uid-0", "boot")}


def test_the_lease_is_that_of_the_model_and_without_a_backend_the_one_taken_for_it() -> None:
    cache = a_cache()
    name = lease_name("models", "a")
    holder = f'{{"backendUID": "{UID}", "ordinal": 0, "podUID": "p", "purpose": "BackendDeleted"}}'
    annotations = {"modelbackend.dev/holder": holder}
    cache.put(Kind.LEASE, {"metadata": metadata(name, "l", SETTINGS.namespace, annotations=annotations)})
    with_backend = observe(cache)
    assert with_backend.lease is not None
    cache.forget(Kind.BACKEND, "models", "a")
    without = observe(cache)
    assert (without.backend, without.lease) == (None, with_backend.lease)


def test_of_a_backend_that_nothing_is_known_of_there_is_nothing_to_see() -> None:
    observation = observation_of(Cache(), "unknown", SETTINGS, ports_outside={})
    assert observation.backend is None
    assert (observation.claims, observation.pods, observation.services, observation.lease) == ((), (), (), None)


def test_a_withheld_port_says_whose_end_is_not_proven() -> None:
    """Also of an earlier backend of the same name: the port is not that of this one."""
    cache = a_cache(type="NodePort", nodePort=30005)
    put_claim(cache, 30005, "earlier")
    withheld = {"phase": "Withheld", "pod": {"name": "a-1234-0", "uid": "p"}}
    (raw,) = cache.all(Kind.CLAIM)
    cache.put(Kind.CLAIM, {**raw, "metadata": {**raw["metadata"], "resourceVersion": "2"}, "status": withheld})
    told = "models/of-earlier (withheld: pod a-1234-0 is not proven to have ended)"
    assert observe(cache).ports.taken_by == {30005: told}


def put_pod(cache: Cache, name: str, owner: str, **annotations: str) -> None:
    body = {"metadata": {**owned(name, name, owner), "annotations": annotations}}
    cache.put(Kind.POD, body)


def test_witnesses_of_others_in_the_namespace_are_seen_and_their_living_pods_are_not() -> None:
    cache = a_cache()
    put_pod(cache, "earlier-0", "earlier", **{"modelbackend.dev/unconfirmed": "2026-05-04T12:00:00Z"})
    put_pod(cache, "other-0", "other")
    assert [pod.ref.name for pod in observe(cache).other_witnesses] == ["earlier-0"]
    assert observe(cache).pods == ()


def tell_status(cache: Cache, **entry: Any) -> None:
    (raw,) = cache.find(Kind.BACKEND, by_backend(UID))
    status = {"instances": [{"ordinal": 0, "pod": {"name": "a-0", "uid": "a-0"}, **entry}]}
    cache.put(Kind.BACKEND, {**raw, "metadata": {**raw["metadata"], "resourceVersion": "2"}, "status": status})


def test_a_pod_is_known_to_have_run_once_status_has_told_its_machine() -> None:
    cache = a_cache()
    put_pod(cache, "a-0", UID)
    assert not observe(cache).pods[0].told_running
    tell_status(cache, node={"name": "n", "uid": "u"})
    assert observe(cache).pods[0].told_running


def test_a_stop_gives_way_by_the_word_of_status_too() -> None:
    record = {
        "since": "2026-05-04T12:00:00Z",
        "reason": "ScaledDown",
        "deadline": "2026-05-04T12:00:30Z",
        "epoch": "l/0",
    }
    cache = a_cache()
    put_pod(cache, "a-0", UID, **{"modelbackend.dev/stop": json.dumps(record)})
    stop = observe(cache).pods[0].stop
    assert stop is not None
    assert stop.yielded_at is None
    tell_status(cache, stop={**record, "yieldedAt": "2026-05-04T12:01:00Z"})
    stop = observe(cache).pods[0].stop
    assert stop is not None
    assert stop.yielded_at == datetime(2026, 5, 4, 12, 1, tzinfo=UTC)


def put_neighbour(cache: Cache, uid: str = "other", model: str = "a", namespace: str = "models") -> None:
    spec = {"model": {"name": model}}
    cache.put(Kind.BACKEND, {"metadata": metadata(f"of-{uid}", uid, namespace, generation=1), "spec": spec})


def put_stopping_pod(cache: Cache, owner: str, namespace: str = "models", **record: Any) -> None:
    noon = "2026-05-04T12:00:00Z"
    usual = {"since": noon, "deadline": noon, "reason": "SpecChanged", "epoch": "lease-uid/0"}
    annotations = {"modelbackend.dev/stop": json.dumps({**usual, **record})}
    pod = owned(f"{owner}-12345678-0", f"pod-of-{owner}", owner, namespace)
    cache.put(Kind.POD, {"metadata": {**pod, "annotations": annotations}})


def test_an_open_stop_of_another_backend_of_the_model_is_seen() -> None:
    cache = a_cache()
    put_neighbour(cache)
    put_stopping_pod(cache, "other")
    assert observe(cache).model_stops == (ModelStop("pod-of-other", "models/of-other, instance 0"),)


def test_stops_that_are_none_of_the_models_business_are_not_seen() -> None:
    cache = a_cache()
    put_stopping_pod(cache, UID)
    put_neighbour(cache, "another-model", model="b")
    put_stopping_pod(cache, "another-model")
    put_neighbour(cache, "another-namespace", namespace="else")
    put_stopping_pod(cache, "another-namespace", "else")
    put_neighbour(cache, "busy")
    put_stopping_pod(cache, "busy", yieldedAt="2026-05-04T12:00:30Z")
    put_neighbour(cache, "evicted")
    put_stopping_pod(cache, "evicted", epoch="")
    assert observe(cache).model_stops == ()
