"""Commands that order, answered by a real operator. No kubelet runs, so pods are made, and never run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_mb.troubles import Exit
from tests.apiserver.harness import ApiServer, await_condition
from tests.apiserver.test_process import (
    GROUP,
    PATIENCE_SECONDS,
    account,
    claims_of,
    is_let_through,
    make_backend,
    operator,
    pods,
)
from tests.apiserver.world import node_ports
from tests.kubectl.conftest import Shell, holds_as_golden
from tests.kubectl.objects import withheld_claim

__all__ = ["account"]

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("running_operator")]


@pytest.fixture(scope="module")
def running_operator(account: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all tests of this module."""
    with operator(account, tmp_path_factory.mktemp("operator") / "log"):
        yield


@pytest.fixture
def backend(api_server: ApiServer, shell: Shell) -> str:
    """Its path, once its pod waits for a node."""
    path = make_backend(api_server, shell.namespace)
    await_condition("the gate to open", lambda: is_let_through(api_server, shell.namespace), PATIENCE_SECONDS)
    return path


def uid_of_pod(server: ApiServer, namespace: str) -> str:
    return str(pods(server, namespace)[0]["metadata"]["uid"])


def status(server: ApiServer, path: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get(path).body["status"]
    return found


def test_an_extension_is_accepted_for_the_pod_and_one_that_makes_no_sense_is_not_written(
    api_server: ApiServer, shell: Shell, backend: str
) -> None:
    shown = shell.shows("extend", "smollm2", "600")
    uid = uid_of_pod(api_server, shell.namespace)
    assert status(api_server, backend)["orders"] == [{"kind": "Extend", "text": f"{uid} 600", "pods": [uid]}]
    holds_as_golden("extend", ("kubectl mb extend smollm2 600 -n models", shown))
    assert shell.refuses("extend", "smollm2", "600") == (
        Exit.NO,
        "Error: this very order was given to ModelBackend smollm2 already; an order acts once; to give it again, "
        "say it with another --reason or number of seconds\n",
    )
    assert shell.refuses("extend", "smollm2", "0")[0] == Exit.NO


def test_force_asks_first_and_ends_the_instance_whose_successor_is_another_pod(
    api_server: ApiServer, shell: Shell, backend: str
) -> None:
    uid = uid_of_pod(api_server, shell.namespace)
    declined = shell.type("force", "smollm2", "--reason", "stuck", stdin="n\n")
    assert declined.exit_code == Exit.NO
    assert not status(api_server, backend).get("orders")
    shown = shell.shows("force", "smollm2", "--reason", "stuck in a batch job", stdin="y\n")
    holds_as_golden("force", ('kubectl mb force smollm2 -n models --reason "stuck in a batch job"', shown))
    await_condition(
        "another pod",
        lambda: uid not in {p["metadata"]["uid"] for p in pods(api_server, shell.namespace)},
        PATIENCE_SECONDS,
    )
    assert status(api_server, backend)["orders"][0]["pods"] == [uid]


def test_an_order_that_the_operator_refuses_is_told_in_its_words(shell: Shell, backend: str) -> None:
    assert backend
    code, message = shell.refuses("force", "smollm2", "--pod", "of-another-day", "--reason", "why", "--yes")
    assert (code, "this backend has no pod with uid of-another-day" in message) == (Exit.NO, True)


def test_a_drain_stops_all_and_keeps_the_object_and_resume_starts_it_again(
    api_server: ApiServer, shell: Shell, backend: str
) -> None:
    drained = shell.shows("drain", "smollm2")
    watched = shell.shows("watch", "smollm2", "--timeout=120")
    assert pods(api_server, shell.namespace) == []
    assert "Suspended" in shell.shows("why", "smollm2")
    assert "was suspended already" in shell.shows("drain", "smollm2")
    resumed = shell.shows("resume", "smollm2")
    holds_as_golden(
        "drain",
        ("kubectl mb drain smollm2 -n models", drained),
        ("kubectl mb resume smollm2 -n models", resumed),
    )
    assert "nothing of smollm2 starts or ends" in watched
    await_condition("a pod", lambda: bool(pods(api_server, shell.namespace)), PATIENCE_SECONDS)
    assert server_spec(api_server, backend)["suspend"] is False


def server_spec(server: ApiServer, path: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get(path).body["spec"]
    return found


def test_one_instance_is_drained_by_itself_and_replaced(api_server: ApiServer, shell: Shell, backend: str) -> None:
    assert backend
    uid = uid_of_pod(api_server, shell.namespace)
    assert "another one follows" in shell.shows("drain", "smollm2", "--instance", "0")

    def replaced() -> bool:
        return [pod["metadata"]["uid"] for pod in pods(api_server, shell.namespace)] not in ([], [uid])

    await_condition("another pod", replaced, PATIENCE_SECONDS)


def test_a_word_about_the_right_pod_releases_a_port_and_one_about_another_is_not_written(
    api_server: ApiServer, shell: Shell
) -> None:
    port, uid = withheld_claim(api_server, shell.namespace, "departed")
    claim = f"{GROUP}/portclaims/port-{port}"
    code, message = shell.refuses("attest", str(port), "--pod", "another", "--reason", "seen", "--yes")
    assert (code, f"({uid}), not for another" in message) == (Exit.NO, True)
    assert "annotations" not in api_server.get(claim).body["metadata"]
    unplugged = ("--reason", "the machine is unplugged")
    assert shell.type("attest", str(port), "--pod", uid, *unplugged, stdin="n\n").exit_code == Exit.NO
    shown = shell.shows("attest", str(port), "--pod", uid, *unplugged, stdin="y\n")
    command = f'kubectl mb attest {port} --pod {uid} --reason "the machine is unplugged"'
    assert "released with evidence Attested" in shown
    holds_as_golden("attest", (command, shown))
    (past,) = api_server.get(claim).body["status"]["history"]
    assert (past["evidence"], past["reason"]) == ("Attested", "the machine is unplugged")


def test_nothing_can_be_attested_of_a_port_that_nobody_has(shell: Shell) -> None:
    nobodys = str(next(node_ports))
    code, message = shell.refuses("attest", nobodys, "--pod", "any", "--reason", "why", "--yes")
    assert (code, f"nobody has a claim on port {nobodys}" in message) == (Exit.NOT_FOUND, True)


def test_an_earlier_word_about_another_pod_does_not_answer_for_the_right_one(
    api_server: ApiServer, shell: Shell
) -> None:
    port, uid = withheld_claim(api_server, shell.namespace, "departed")
    claim = f"{GROUP}/portclaims/port-{port}"
    api_server.merge(claim, {"metadata": {"annotations": {"modelbackend.dev/attest": "another seen"}}})
    await_condition(
        "the refusal", lambda: status(api_server, claim).get("reason") == "AttestationRefused", PATIENCE_SECONDS
    )
    shown = shell.shows("attest", str(port), "--pod", uid, "--reason", "the machine is unplugged", "--yes")
    assert "released with evidence Attested" in shown


def test_a_word_about_a_backend_names_one_of_its_pods_and_is_answered_by_the_operator(
    api_server: ApiServer, shell: Shell, backend: str
) -> None:
    assert backend
    code, message = shell.refuses("attest", "smollm2", "--pod", "another", "--reason", "seen", "--yes")
    assert (code, "and not another; nothing was written" in message) == (Exit.NO, True)
    uid = uid_of_pod(api_server, shell.namespace)
    code, message = shell.refuses("attest", "smollm2", "--pod", uid, "--reason", "seen", "--yes")
    (claim,) = claims_of(api_server, shell.namespace)
    told = f"that pod holds port {claim['spec']['port']}: annotate PortClaim {claim['metadata']['name']} with it"
    assert (code, told in message) == (Exit.NO, True), message


def test_a_word_about_a_pod_that_holds_no_port_is_refused_while_it_lives_and_taken_when_it_ends(
    api_server: ApiServer, shell: Shell
) -> None:
    make_backend(api_server, shell.namespace, exposure={"type": "ClusterIP"})
    await_condition("the gate to open", lambda: is_let_through(api_server, shell.namespace), PATIENCE_SECONDS)
    (pod,) = pods(api_server, shell.namespace)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    word = ("attest", "smollm2", "--pod", uid, "--reason", "the machine is unplugged")
    code, message = shell.refuses(*word, "--yes")
    assert (code, "is not being deleted; delete it first" in message) == (Exit.NO, True), message
    path = f"/api/v1/namespaces/{shell.namespace}/pods/{name}"
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "unplugged"}}
    assert api_server.post(f"{path}/binding", binding).status == 201
    assert api_server.request("DELETE", path).status == 200
    shown = shell.shows(*word, stdin="y\n")
    holds_as_golden(
        "attest-backend",
        ('kubectl mb attest smollm2 -n models --pod UID --reason "the machine is unplugged"', shown),
    )
