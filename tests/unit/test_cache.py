"""The write-through cache: order is taken from the objects, whatever the order in which they are heard."""

from typing import Any

import pytest

from modelbackend_operator.cache import NOBODY, Cache
from modelbackend_operator.kinds import Kind, by_backend, by_lease, by_node
from modelbackend_operator.manifests import lease_name

UID = "backend-uid"
OTHER = "other-uid"


def pod(name: str = "a-0", *, version: int, uid: str = "pod-uid", owner: str = UID, node: str = "") -> dict[str, Any]:
    owners = [
        {
            "apiVersion": "modelbackend.dev/v1alpha1",
            "kind": "ModelBackend",
            "name": "a",
            "uid": owner,
            "controller": True,
        }
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "models",
            "uid": uid,
            "resourceVersion": str(version),
            "ownerReferences": owners,
        },
        "spec": {"nodeName": node} if node else {},
    }


def backend(*, version: int, uid: str = UID, model: str | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "namespace": "models", "uid": uid, "resourceVersion": str(version)},
        "spec": {"model": {"name": model} if model else {}},
    }


def node(*, version: int, boot_id: str = "boot-1", ready: str = "True", heartbeat: str = "t1") -> dict[str, Any]:
    return {
        "metadata": {"name": "worker", "uid": "node-uid", "resourceVersion": str(version)},
        "spec": {},
        "status": {
            "nodeInfo": {"bootID": boot_id},
            "conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat}],
        },
    }


def versions(cache: Cache) -> list[str]:
    return [raw["metadata"]["resourceVersion"] for raw in cache.find(Kind.POD, by_backend(UID))]


def test_a_newer_version_replaces_an_older_one_and_names_the_backend_to_run() -> None:
    cache = Cache()
    assert cache.put(Kind.POD, pod(version=5)) == {UID}
    assert cache.put(Kind.POD, pod(version=7)) == {UID}
    assert versions(cache) == ["7"]


@pytest.mark.parametrize("late", [4, 7], ids=["older", "the same"])
def test_an_event_that_is_no_news_changes_nothing_and_runs_nobody(late: int) -> None:
    cache = Cache()
    cache.put(Kind.POD, pod(version=7))
    assert cache.put(Kind.POD, pod(version=late)) == NOBODY
    assert versions(cache) == ["7"]


def test_versions_compare_as_numbers_and_not_as_text() -> None:
    cache = Cache()
    cache.put(Kind.POD, pod(version=99))
    cache.put(Kind.POD, pod(version=100))
    assert versions(cache) == ["100"]


def test_a_list_removes_what_it_does_not_show_unless_that_was_seen_later_than_the_list() -> None:
    cache = Cache()
    cache.put(Kind.POD, pod("gone", version=5, uid="1"))
    cache.put(Kind.POD, pod("new", version=9, uid="2"))
    assert cache.replace(Kind.POD, [], version=8) == {UID}
    assert versions(cache) == ["9"]


def test_a_list_takes_back_no_newer_version() -> None:
    cache = Cache()
    cache.put(Kind.POD, pod(version=9))
    assert cache.replace(Kind.POD, [pod(version=5)], version=8) == NOBODY
    assert versions(cache) == ["9"]


def test_a_narrow_list_removes_nothing_outside_of_what_it_covers() -> None:
    cache = Cache()
    cache.put(Kind.POD, pod("mine", version=1, uid="1"))
    cache.put(Kind.POD, pod("other", version=2, uid="2", owner=OTHER))
    cache.replace(Kind.POD, [], 9, lambda raw: raw["metadata"]["name"] == "mine")
    assert [raw["metadata"]["name"] for raw in cache.all(Kind.POD)] == ["other"]


def test_a_late_event_does_not_bring_back_what_was_seen_deleted() -> None:
    cache = Cache()
    cache.put(Kind.POD, pod(version=5))
    assert cache.remove(Kind.POD, pod(version=8)) == {UID}
    assert cache.put(Kind.POD, pod(version=7)) == NOBODY
    assert versions(cache) == []


def test_a_deletion_that_is_older_than_what_is_known_removes_nothing() -> None:
    """The name was given to a new object meanwhile."""
    cache = Cache()
    cache.put(Kind.POD, pod(version=9, uid="new"))
    assert cache.remove(Kind.POD, pod(version=6, uid="old")) == NOBODY
    assert versions(cache) == ["9"]


def test_an_object_that_only_left_the_watch_can_be_read_again_by_its_name() -> None:
    """A label edited away makes the watch say DELETED, at the version that a GET then returns."""
    cache = Cache()
    cache.put(Kind.POD, pod(version=5))
    cache.remove(Kind.POD, pod(version=8))
    assert cache.put(Kind.POD, pod(version=8)) == {UID}
    assert versions(cache) == ["8"]


def test_what_a_get_did_not_find_never_comes_back_but_its_name_may_be_used_again() -> None:
    cache = Cache()
    cache.put(Kind.POD, pod(version=5))
    assert cache.forget(Kind.POD, "models", "a-0") == {UID}
    assert cache.put(Kind.POD, pod(version=6)) == NOBODY
    assert cache.put(Kind.POD, pod(version=7, uid="another")) == {UID}


def test_what_was_seen_gone_is_remembered_through_one_resync_and_not_for_ever() -> None:
    cache = Cache()
    cache.put(Kind.POD, pod(version=5))
    cache.remove(Kind.POD, pod(version=8))
    cache.age()
    assert cache.put(Kind.POD, pod(version=7)) == NOBODY
    cache.age()
    assert cache.put(Kind.POD, pod(version=7)) == {UID}


def test_a_resync_at_a_lower_version_is_a_restored_etcd_and_is_believed() -> None:
    cache = Cache()
    cache.resync(Kind.POD, [pod(version=50), pod("late", version=51, uid="late")], version=60)
    cache.remove(Kind.POD, pod("late", version=55, uid="late"))
    restored = [pod(version=20), pod("late", version=21, uid="late")]
    assert cache.resync(Kind.POD, restored, version=30) == {UID}
    assert versions(cache) == ["20", "21"]


def test_a_node_concerns_the_backends_that_run_on_it_and_its_heartbeats_nobody() -> None:
    cache = Cache()
    cache.put(Kind.POD, pod(version=1, node="worker"))
    cache.put(Kind.POD, pod("elsewhere", version=2, uid="2", owner=OTHER, node="other"))
    assert cache.put(Kind.NODE, node(version=3)) == {UID}
    assert cache.put(Kind.NODE, node(version=4, heartbeat="t2")) == NOBODY
    assert cache.put(Kind.NODE, node(version=5, ready="Unknown")) == {UID}
    assert cache.put(Kind.NODE, node(version=6, ready="Unknown", boot_id="boot-2")) == {UID}


def test_a_lease_concerns_its_holder_and_every_backend_of_its_model() -> None:
    cache = Cache()
    name = lease_name("models", "shared")
    cache.put(Kind.BACKEND, backend(version=1, model="shared"))
    lease = {"metadata": {"name": name, "namespace": "modelbackend-system", "uid": "l", "resourceVersion": "2"}}
    holder = '{"backendUID": "other-uid", "ordinal": 0, "podUID": "p", "purpose": "BackendDeleted"}'
    lease["metadata"]["annotations"] = {"modelbackend.dev/holder": holder}  # type: ignore[assignment]
    assert cache.put(Kind.LEASE, lease) == {UID, OTHER}
    assert cache.find(Kind.LEASE, by_lease(name)) == cache.find(Kind.LEASE, by_backend(OTHER))


def test_a_claim_is_found_by_its_backend_and_its_machine_and_its_deletion_is_told() -> None:
    cache = Cache()
    claim = {
        "metadata": {"name": "port-30001", "uid": "c", "resourceVersion": "3"},
        "spec": {"port": 30001, "backend": {"namespace": "models", "name": "a", "uid": UID}, "ordinal": 0},
        "status": {"node": {"name": "worker"}},
    }
    assert cache.put(Kind.CLAIM, claim) == {UID}
    assert cache.find(Kind.CLAIM, by_node("worker")) == (claim,)
    assert cache.put(Kind.NODE, node(version=4)) == {UID}
    assert cache.remove(Kind.CLAIM, claim) == {UID}
    assert cache.find(Kind.CLAIM, by_node("worker")) == ()


def test_keys_are_those_that_exist_and_those_that_left_something() -> None:
    cache = Cache()
    cache.put(Kind.BACKEND, backend(version=1))
    cache.put(Kind.POD, pod(version=2, owner=OTHER))
    assert cache.keys() == {UID, OTHER}
    cache.remove(Kind.POD, pod(version=3, owner=OTHER))
    assert cache.keys() == {UID}


def test_a_change_of_owner_concerns_the_old_and_the_new_one() -> None:
    cache = Cache()
    cache.put(Kind.POD, pod(version=1))
    assert cache.put(Kind.POD, pod(version=2, owner=OTHER)) == {UID, OTHER}
    assert versions(cache) == []


@pytest.mark.parametrize(
    ("finalizers", "owners", "owner"),
    [
        (["modelbackend.dev/termination"], [], UID),
        ([], [], ""),
        (["modelbackend.dev/termination"], [{"apiVersion": "apps/v1", "uid": "x", "controller": True}], ""),
    ],
    ids=["orphaned but held by our finalizer", "a stranger with our label", "controlled by another kind"],
)
def test_a_label_makes_an_owner_only_of_what_our_finalizer_holds(
    finalizers: list[str], owners: list[dict[str, Any]], owner: str
) -> None:
    stray = pod(version=1)
    stray["metadata"] |= {
        "finalizers": finalizers,
        "ownerReferences": owners,
        "labels": {"modelbackend.dev/backend-uid": UID},
    }
    assert Cache().put(Kind.POD, stray) == ({owner} if owner else NOBODY)
