"""One API server for the whole session, with both kinds installed, and a namespace of its own for each test."""

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.apiserver.harness import ApiServer, BinariesMissingError, running_api_server
from tests.apiserver.world import World
from tests.crd_files import PLURALS, read_crd

SKIP_VARIABLE = "MODELBACKEND_SKIP_APISERVER"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A real kube-apiserver with the ModelBackend and PortClaim kinds. Missing binaries fail the tests."""
    if os.environ.get(SKIP_VARIABLE) == "1":
        pytest.skip(f"left out by {SKIP_VARIABLE}=1")
    try:
        with running_api_server(tmp_path_factory.mktemp("apiserver")) as server:
            for plural in PLURALS:
                server.install(read_crd(plural))
            yield server
            assert refused_to_the_operator(server) == set(), "the rights in the chart do not suffice"
    except BinariesMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


def refused_to_the_operator(server: ApiServer) -> set[tuple[str, str]]:
    """Verb and resource, over all tests.

    Some of them provoke it: the right to disruption budgets is taken away, a namespace is named that is not there, and
    that a tenant's Secret cannot be read is shown by trying.
    """
    calls = (call for call in server.calls() if call.user.endswith(":modelbackend-operator"))
    refused = {
        (call.verb, call.resource) for call in calls if not call.allowed and call.namespace != "no-such-namespace"
    }
    return {one for one in refused if one != ("get", "secrets") and one[1] != "poddisruptionbudgets"}


@pytest.fixture
def namespace(api_server: ApiServer) -> str:
    """A fresh namespace; it stays, because nothing here would empty it."""
    name = f"test-{next(_numbers)}"
    answer = api_server.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert answer.status == 201, answer.message
    return name


@pytest.fixture
def world(api_server: ApiServer, namespace: str) -> World:
    return World(api_server, namespace)
