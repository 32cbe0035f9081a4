"""The way out without an operator: it says what it gives up, asks, leaves a record, and lets go."""

from pathlib import Path
from typing import Any

import pytest

from kubectl_mb.troubles import Exit
from tests.apiserver.harness import ApiServer
from tests.apiserver.test_process import GROUP, make_backend
from tests.kubectl.accounts import with_role
from tests.kubectl.conftest import Shell, holds_as_golden
from tests.kubectl.objects import FINALIZER, withheld_claim

pytestmark = pytest.mark.apiserver
REASON = ("--reason", "the cluster is torn down")


def deleted(server: ApiServer, namespace: str) -> str:
    """A backend that waits for an operator."""
    path = make_backend(server, namespace)
    assert server.merge(path, {"metadata": {"finalizers": [FINALIZER]}}).status == 200
    assert server.request("DELETE", path).status == 200
    return path


def events(server: ApiServer, namespace: str) -> list[Any]:
    items: list[Any] = server.get(f"/api/v1/namespaces/{namespace}/events").body["items"]
    return [event for event in items if event["reason"] == "FinalizerReleased"]


def test_what_is_given_up_is_named_and_recorded_before_it_is_let_go(api_server: ApiServer, shell: Shell) -> None:
    path = deleted(api_server, shell.namespace)
    port, _ = withheld_claim(api_server, shell.namespace, "smollm2")
    command = ("release-finalizers", "smollm2", "--ports", *REASON)
    code, message = shell.refuses(*command, stdin="another\n")
    assert (code, "nothing was let go" in message) == (Exit.NO, True)
    assert api_server.get(path).status == 200
    shown = shell.shows(*command, stdin="smollm2\n")
    typed = 'kubectl mb release-finalizers smollm2 -n models --ports --reason "the cluster is torn down"'
    holds_as_golden("release-finalizers", (typed, shown))
    assert api_server.get(path).status == 404
    assert api_server.get(f"{GROUP}/portclaims/port-{port}").status == 404
    (told,) = events(api_server, shell.namespace)
    assert told["message"].startswith("admin took the finalizer off by hand (the cluster is torn down); given up: ")


def test_nothing_is_let_go_of_a_backend_that_is_not_being_deleted(api_server: ApiServer, shell: Shell) -> None:
    path = make_backend(api_server, shell.namespace)
    api_server.merge(path, {"metadata": {"finalizers": [FINALIZER]}})
    code, message = shell.refuses("release-finalizers", "smollm2", *REASON, "--yes")
    assert (code, "is not being deleted" in message) == (Exit.NO, True)
    assert api_server.get(path).body["metadata"]["finalizers"] == [FINALIZER]


def test_a_command_that_was_interrupted_can_be_repeated_when_the_backend_is_gone(
    api_server: ApiServer, shell: Shell, tmp_path: Path
) -> None:
    """By an account with the documented rights, and no others."""
    account = with_role(api_server, shell.namespace, "kubectl-mb-administrator", tmp_path)
    administrator = Shell(account, shell.namespace)
    port, _ = withheld_claim(api_server, shell.namespace, "departed")
    assert f"port {port}" in administrator.shows("why", "departed")
    assert str(port) in administrator.shows("ports")
    shown = administrator.shows("release-finalizers", "departed", "--ports", *REASON, "--yes")
    assert f"PortClaim port-{port}: finalizer taken off" in shown
    assert api_server.get(f"{GROUP}/portclaims/port-{port}").status == 404


def test_an_order_that_no_operator_answers_stands_and_says_so(api_server: ApiServer, shell: Shell) -> None:
    path = make_backend(api_server, shell.namespace)
    code, message = shell.refuses("force", "smollm2", "--all", "--reason", "stuck", "--yes", "--timeout=0")
    assert (code, "written, but the operator did not answer the order" in message) == (Exit.TOO_LATE, True)
    assert api_server.get(path).body["metadata"]["annotations"] == {"modelbackend.dev/force": "all stuck"}


def test_a_word_that_no_operator_answers_stands_and_the_command_says_so(api_server: ApiServer, shell: Shell) -> None:
    port, uid = withheld_claim(api_server, shell.namespace, "departed")
    code, message = shell.refuses("attest", str(port), "--pod", uid, "--reason", "off", "--yes", "--timeout=0")
    assert (code, f"did not release port {port} within 0 s; it stands" in message) == (Exit.TOO_LATE, True), message
    annotations = api_server.get(f"{GROUP}/portclaims/port-{port}").body["metadata"]["annotations"]
    assert annotations == {"modelbackend.dev/attest": f"{uid} off"}


def test_the_end_of_a_pod_that_vanished_is_attested_by_the_name_of_its_backend(
    api_server: ApiServer, shell: Shell
) -> None:
    path, uid = make_backend(api_server, shell.namespace, exposure={"type": "ClusterIP"}), "vanished-uid"
    vanished = {"ordinal": 0, "pod": {"name": "smollm2-0", "uid": uid}, "since": "2026-05-04T12:00:00Z"}
    assert api_server.merge(f"{path}/status", {"status": {"vanished": [vanished]}}).status == 200
    code, _ = shell.refuses("attest", "smollm2", "--pod", uid, "--reason", "off", "--yes", "--timeout=0")
    assert code == Exit.TOO_LATE, "written, and nobody is there to answer"
    annotations = api_server.get(path).body["metadata"]["annotations"]
    assert annotations == {"modelbackend.dev/attest": f"{uid} off"}
