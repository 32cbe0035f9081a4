"""What is in Git stays as it is in Git: of a ModelBackend only status and the operator's finalizer are written."""

import http.client
import json
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.apiserver.conftest import api_server, namespace
from tests.apiserver.harness import ApiServer, await_condition
from tests.apiserver.test_process import (
    GROUP,
    PATIENCE_SECONDS,
    Operator,
    account,
    claims_of,
    is_let_through,
    make_backend,
    operator,
    pods,
)

pytestmark = pytest.mark.apiserver
__all__ = ["account", "api_server", "namespace"]

FINALIZER = "modelbackend.dev/termination"
BOOKKEEPING = ("resourceVersion", "managedFields", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
MANAGER = "fieldManager=gitops&force=true"
APPLIES = 1000
PRUNED = 100
REQUESTED_MEBIBYTES = 160
"""Of the chart's values: resources.requests.memory."""


@contextmanager
def every_version(server: ApiServer, namespace: str, log: Path) -> Iterator[list[dict[str, Any]]]:
    """Filled when the block ends, with its backend gone: each object that a watch told of."""
    flags = ("get", "modelbackends", f"--namespace={namespace}", "--output=json", "--show-managed-fields")
    command = [str(server.bin_folder / "kubectl"), f"--kubeconfig={server.kubeconfig}", *flags]
    found: list[dict[str, Any]] = []
    with log.open("w") as output:
        watch = subprocess.Popen([*command, "--watch", "--output-watch-events"], stdout=output)
    try:
        yield found
        await_condition("the watch to tell the end", lambda: '"DELETED"' in log.read_text(), PATIENCE_SECONDS)
    finally:
        watch.terminate()
        watch.wait()
    decoder, text = json.JSONDecoder(), log.read_text().lstrip()
    while text:
        event, end = decoder.raw_decode(text)
        found.append(event["object"])
        text = text[end:].lstrip()


def as_in_git(raw: dict[str, Any]) -> str:
    metadata = {key: value for key, value in raw["metadata"].items() if key not in BOOKKEEPING}
    finalizers = [name for name in metadata.pop("finalizers", ()) if name != FINALIZER]
    return json.dumps([raw["apiVersion"], raw["kind"], metadata, finalizers, raw["spec"]], sort_keys=True)


def owned_by_others(raw: dict[str, Any], user: str) -> set[str]:
    """Fields outside of status that a manager other than the user has ever set."""
    entries = (entry for entry in raw["metadata"].get("managedFields", ()) if entry["manager"] != user)
    return {
        f"{top}.{field}" if isinstance(below, dict) and below else top
        for entry in entries
        for top, below in entry["fieldsV1"].items()
        for field in (below or {"": {}})
        if top != "f:status"
    }


def test_over_a_whole_life_spec_and_metadata_stay_byte_for_byte_but_for_the_finalizer(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with (
        every_version(api_server, namespace, tmp_path / "watch") as versions,
        operator(account, tmp_path / "log", reuse_delay_seconds="0"),
    ):
        path = make_backend(api_server, namespace, replicas=2)
        await_condition("two pods", lambda: len(pods(api_server, namespace)) == 2, PATIENCE_SECONDS)
        await_condition("a gate to open", lambda: is_let_through(api_server, namespace), PATIENCE_SECONDS)
        assert api_server.request("DELETE", path).status == 200
        await_condition("the end", lambda: api_server.get(path).status == 404, PATIENCE_SECONDS)
    assert len(versions) > 4
    assert len({as_in_git(raw) for raw in versions}) == 1
    user = versions[0]["metadata"]["managedFields"][0]["manager"]
    assert {field for raw in versions for field in owned_by_others(raw, user)} <= {"f:metadata.f:finalizers"}
    assert any(FINALIZER in raw["metadata"].get("finalizers", ()) for raw in versions)


def test_the_same_manifest_applied_a_thousand_times_changes_nothing(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    path = make_backend(api_server, namespace)
    keys = ("apiVersion", "kind", "metadata", "spec")
    manifest = {key: value for key, value in api_server.get(path).body.items() if key in keys}
    manifest["metadata"] = {"name": "smollm2", "namespace": namespace}
    with operator(account, tmp_path / "log"):
        apply_often(api_server, path, manifest, 1)
        await_condition("the gate to open", lambda: is_let_through(api_server, namespace), PATIENCE_SECONDS)
        settled = until_quiet(api_server, path)
        events = f"/api/v1/namespaces/{namespace}/events"
        told = len(api_server.get(events).body["items"])
        calls = sum(call.namespace == namespace and call.verb != "watch" for call in api_server.calls())
        apply_often(api_server, path, manifest, APPLIES)
        assert api_server.get(path).body["metadata"]["resourceVersion"] == settled
        assert len(api_server.get(events).body["items"]) == told
        writes = sum(call.namespace == namespace and call.verb != "watch" for call in api_server.calls()) - calls
        assert writes == 0


def apply_often(server: ApiServer, path: str, manifest: dict[str, Any], times: int) -> None:
    """By server-side apply, as GitOps tools do, over one connection."""
    address = urlsplit(server.url)
    trust = ssl.create_default_context(cafile=str(server.ca_file))
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=trust, timeout=30)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/apply-patch+yaml"}
    for _ in range(times):
        connection.request("PATCH", f"{path}?{MANAGER}", json.dumps(manifest), headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    connection.close()


def until_quiet(server: ApiServer, path: str) -> str:
    """Until nothing is written for two seconds."""
    versions = [""]

    def same() -> bool:
        time.sleep(2)
        versions.append(server.get(path).body["metadata"]["resourceVersion"])
        return versions[-1] == versions[-2]

    await_condition("quiet", same, 60)
    return str(versions[-1])


def test_a_hundred_backends_that_are_pruned_at_once_all_end_and_leave_nothing(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    paths = [make_backend(api_server, namespace, f"b{number}") for number in range(PRUNED)]
    with operator(account, tmp_path / "log", reuse_delay_seconds="0", workers="16") as running:
        await_condition("claims", lambda: len(claims_of(api_server, namespace)) > PRUNED // 4, 120)
        foreground = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        for number, path in enumerate(paths):
            assert api_server.request("DELETE", path, foreground if number % 2 else None).status == 200
        collected: set[str] = set()

        def collect() -> bool:
            """As the garbage collector would, which is not here: a foreground deletion ends after its dependants."""
            left = api_server.get(f"{GROUP}/namespaces/{namespace}/modelbackends").body["items"]
            for raw in left:
                if raw["metadata"].get("finalizers") == ["foregroundDeletion"]:
                    name = raw["metadata"]["name"]
                    api_server.merge(
                        f"{GROUP}/namespaces/{namespace}/modelbackends/{name}", {"metadata": {"finalizers": None}}
                    )
                    collected.add(name)
            return not left

        await_condition("all to be gone", collect, 180)
        await_condition("every port to be free", lambda: not claims_of(api_server, namespace), 60)
        assert pods(api_server, namespace) == []
        assert "failed by a bug" not in running.log.read_text()
        assert len(collected) > PRUNED // 4
        assert peak_mebibytes(running) < REQUESTED_MEBIBYTES


def peak_mebibytes(running: Operator) -> int:
    """The most that it ever had in memory (proc_pid_status(5))."""
    for line in Path(f"/proc/{running.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no VmHWM")
