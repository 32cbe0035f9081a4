"""The event pump over kopf: what it listens to, and what it must never do to an object."""

from typing import Any

import pytest

from modelbackend_operator.api import FINALIZER
from modelbackend_operator.handlers import _handler, _kopf_settings, _registry, _resource
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.kubernetes_api import Credentials
from modelbackend_operator.settings import Settings


async def no_credentials() -> Credentials:
    raise AssertionError("nobody connects here")


def hear_nothing(*_: Any) -> None:
    raise AssertionError("nothing is heard here")


def test_kopf_never_holds_nor_releases_our_finalizer() -> None:
    """kopf takes the finalizer in its settings off every object, because no handler of ours asks for one."""
    name = _kopf_settings(Settings()).persistence.finalizer
    assert name != FINALIZER
    assert name.startswith("modelbackend.dev/")


def test_no_handler_is_one_for_which_kopf_writes_to_objects() -> None:
    registry = _registry(hear_nothing, no_credentials, tuple(Kind))
    assert len(registry._watching.get_all_handlers()) == len(Kind)
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()
    assert not registry._indexing.get_all_handlers()


@pytest.mark.parametrize(
    ("kind", "resource"), [(Kind.POD, ("", "v1", "pods")), (Kind.LEASE, ("coordination.k8s.io", "v1", "leases"))]
)
def test_a_kinds_path_names_its_group_and_version(kind: Kind, resource: tuple[str, str, str]) -> None:
    assert _resource(kind) == resource


def test_pods_services_and_leases_are_narrowed_by_the_api_server() -> None:
    selectors = _kopf_settings(Settings()).watching.label_selectors
    for kind in (Kind.POD, Kind.SERVICE, Kind.LEASE):
        assert selectors[_resource(kind)] == "app.kubernetes.io/managed-by=modelbackend-operator"
    assert _resource(Kind.NODE) not in selectors


@pytest.mark.parametrize(
    ("event", "deleted"), [(None, False), ("ADDED", False), ("MODIFIED", False), ("DELETED", True)]
)
async def test_an_event_is_passed_on_with_its_object_and_whether_that_is_gone(event: str | None, deleted: bool) -> None:
    heard: list[tuple[Kind, Raw, bool]] = []
    raw = {"metadata": {"name": "a"}}
    await _handler(Kind.POD, lambda *what: heard.append(what))(event={"type": event, "object": raw}, unused=1)
    assert heard == [(Kind.POD, raw, deleted)]
