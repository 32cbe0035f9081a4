"""The objects of a backend: names that never meet, and Services and claims that end when they must."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelbackend_operator import manifests
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.observe.backend import backend_from

VOLUME = {"persistentVolumeClaim": {"claimName": "weights", "path": "smollm2.gguf"}}


RAW = {
    "metadata": {"name": "smollm2", "namespace": "models", "uid": "uid-1", "resourceVersion": "1"},
    "spec": {"model": {"source": VOLUME}},
}
BACKEND = backend_from(RAW, allow_host_path=False)


def a_backend(name: str = "smollm2", uid: str = "uid-1") -> Backend:
    return replace(BACKEND, ref=Ref(name, uid, "1", "models"))


# -- names -----------------------------------------------------------------------------------------------------------

DNS_1035_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
legal_names = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?){0,2}\Z")
uids = st.uuids().map(str)
ordinals = st.integers(0, 1023)
attempts = st.integers(0, 3)


def name_of_attempt(backend: Backend, ordinal: int, attempt: int) -> str:
    taken: set[str] = set()
    for _ in range(attempt):
        taken.add(manifests.pod_name(backend, ordinal, taken))
    return manifests.pod_name(backend, ordinal, taken)


@settings(deadline=None)
@given(legal_names, uids, ordinals, attempts)
def test_every_name_is_a_label_that_a_service_may_have(name: str, uid: str, ordinal: int, attempt: int) -> None:
    backend = a_backend(name, uid)
    for made in (
        name_of_attempt(backend, ordinal, attempt),
        manifests.shared_service_name(backend, ()),
        manifests.shared_service_name(backend, {name}),
        manifests.control_secret_name(backend),
        manifests.lease_name("models", name),
    ):
        assert DNS_1035_LABEL.fullmatch(made)


def test_the_longest_name_has_room_for_any_instance_and_attempt() -> None:
    class AllButTheLast:
        def __contains__(self, name: object) -> bool:
            return not str(name).endswith("-99999")

    assert len(manifests.pod_name(a_backend("x" * 253), 1023, AllButTheLast())) == 63


@settings(deadline=None)
@given(legal_names, uids, st.tuples(ordinals, attempts), st.tuples(ordinals, attempts))
def test_one_backend_never_uses_a_name_for_two_instances(
    name: str, uid: str, one: tuple[int, int], other: tuple[int, int]
) -> None:
    backend = a_backend(name, uid)
    assert (name_of_attempt(backend, *one) == name_of_attempt(backend, *other)) == (one == other)


@settings(deadline=None)
@given(legal_names, uids, legal_names, uids, st.tuples(ordinals, attempts), st.tuples(ordinals, attempts))
def test_backends_with_different_uids_never_meet(
    name: str, uid: str, other_name: str, other_uid: str, one: tuple[int, int], other: tuple[int, int]
) -> None:
    if uid != other_uid:
        mine, theirs = a_backend(name, uid), a_backend(other_name, other_uid)
        assert name_of_attempt(mine, *one) != name_of_attempt(theirs, *other)
        assert manifests.control_secret_name(mine) != manifests.control_secret_name(theirs)


@settings(deadline=None)
@given(legal_names, uids, ordinals, attempts)
def test_a_name_tells_its_instance(name: str, uid: str, ordinal: int, attempt: int) -> None:
    assert manifests.ordinal_in_name(name_of_attempt(a_backend(name, uid), ordinal, attempt)) == ordinal


@pytest.mark.parametrize("foreign", ["smollm2", "smollm2-0", "web-7d4b9c6f5d-x2x4z", "a-12345678-x", "-12345678-0"])
def test_a_foreign_name_tells_no_instance(foreign: str) -> None:
    assert manifests.ordinal_in_name(foreign) is None


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a", "a-"), ("a-0", "a-0-"), ("llama-3.2-1b", "llama-3-2-1b-"), ("7b-chat", "mb-7b-chat-"), ("0", "mb-0-")],
)
def test_a_person_recognises_the_backend_in_a_name(name: str, begins: str) -> None:
    assert re.fullmatch(f"{begins}[0-9a-f]{{8}}-0", manifests.pod_name(a_backend(name), 0, ()))


def test_the_first_free_name_is_taken() -> None:
    first = manifests.pod_name(a_backend(), 2, ())
    assert manifests.pod_name(a_backend(), 2, {first}) == f"{first}-1"
    assert manifests.pod_name(a_backend(), 2, {first, f"{first}-1"}) == f"{first}-2"


def test_the_shared_service_has_the_backends_name_where_it_may() -> None:
    assert manifests.shared_service_name(a_backend("smollm2"), ()) == "smollm2"
    assert manifests.shared_service_name(a_backend("smollm2"), {"smollm2"}).startswith("smollm2-")
    assert manifests.shared_service_name(a_backend("llama-3.2-1b"), ()).startswith("llama-3-2-1b-")
    assert manifests.shared_service_name(a_backend("7b-chat"), ()).startswith("mb-7b-chat-")


def test_a_models_lease_is_its_namespaces_own() -> None:
    names = {manifests.lease_name(namespace, model) for namespace, model in [("a", "m"), ("b", "m"), ("a", "n")]}
    assert len(names) == 3


# -- Services and claims ---------------------------------------------------------------------------------------------


def test_an_instances_service_selects_its_one_pod_while_it_serves() -> None:
    body = manifests.instance_service(a_backend(), "smollm2-0", 0, 30000, "pod-uid")
    assert body["spec"]["type"] == "NodePort"
    assert body["spec"]["selector"] == {"modelbackend.dev/pod-uid": "pod-uid", "modelbackend.dev/serving": "true"}
    (port,) = body["spec"]["ports"]
    assert (port["nodePort"], port["targetPort"]) == (30000, "grpc")
    two = manifests.instance_service(a_backend(), "smollm2-0", 0, 30000, "pod-uid", 30001)["spec"]["ports"]
    assert {port["name"]: (port["port"], port["nodePort"]) for port in two} == {
        "grpc": (50051, 30000),
        "http": (8080, 30001),
    }


def test_the_shared_service_selects_every_instance_that_serves() -> None:
    body = manifests.shared_service(a_backend(), "smollm2")
    assert body["spec"]["type"] == "ClusterIP"
    assert body["spec"]["selector"] == {"modelbackend.dev/backend-uid": "uid-1", "modelbackend.dev/serving": "true"}
    assert {port["name"]: (port["port"], port["targetPort"]) for port in body["spec"]["ports"]} == {
        "grpc": (50051, "grpc"),
        "http": (8080, "http"),
    }
    assert all("nodePort" not in port for port in body["spec"]["ports"])


def test_a_claim_outlives_its_backend() -> None:
    metadata = manifests.claim(a_backend(), 0, 30007)["metadata"]
    assert (metadata["name"], metadata["finalizers"]) == ("port-30007", ["modelbackend.dev/termination"])
    assert "ownerReferences" not in metadata


def test_a_backend_without_a_port_claims_none() -> None:
    with pytest.raises(ValueError, match="claims no port"):
        manifests.claim(replace(BACKEND, exposure=Exposure.CLUSTER_IP), 0, 30007)
