"""Commands that look, on objects of a real API server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubectl_mb.cli import cli
from kubectl_mb.completion import candidates
from kubectl_mb.troubles import Exit
from tests.apiserver.harness import ApiServer
from tests.apiserver.test_process import make_backend
from tests.kubectl.accounts import with_role
from tests.kubectl.conftest import Shell
from tests.kubectl.examples import serving
from tests.kubectl.objects import manifest, withheld_claim

pytestmark = pytest.mark.apiserver


def told(server: ApiServer, path: str, status: dict[str, Any]) -> None:
    answer = server.merge(f"{path}/status", {"status": status})
    assert answer.status == 200, answer.message


def a_serving_backend(server: ApiServer, namespace: str, name: str = "smollm2") -> str:
    path = make_backend(server, namespace, name)
    told(server, path, {**serving()["status"], "observedGeneration": 1})
    return path


def test_a_list_shows_who_serves_and_who_was_not_looked_at_yet(api_server: ApiServer, shell: Shell) -> None:
    a_serving_backend(api_server, shell.namespace)
    make_backend(api_server, shell.namespace, "new")
    header, *lines = shell.shows("list").splitlines()
    assert header.split() == ["NAME", "MODEL", "READY", "INSTANCES", "ADDRESS", "IN-FLIGHT", "REASON", "AGE"]
    rows = {line.split()[0]: line.split()[1:-1] for line in lines}
    assert rows["smollm2"] == ["smollm2", "True", "1/1", "10.0.0.1:30007", "-", "Ready"]
    assert rows["new"] == ["-", "Unknown", "0/1", "-", "-", "WaitingForOperator"]
    assert "serving" in shell.shows("list", "-o", "wide")
    assert shell.namespace in shell.shows("list", "--all-namespaces")
    names = {item["metadata"]["name"] for item in json.loads(shell.shows("list", "-o", "json"))["items"]}
    assert names == {item["metadata"]["name"] for item in yaml.safe_load(shell.shows("list", "-o", "yaml"))["items"]}
    assert names == {"smollm2", "new"}


def test_why_says_that_nothing_is_waited_for_or_that_nobody_looks(api_server: ApiServer, shell: Shell) -> None:
    a_serving_backend(api_server, shell.namespace)
    make_backend(api_server, shell.namespace, "new")
    assert "waits for nothing" in shell.shows("why", "smollm2")
    (cause,) = json.loads(shell.shows("why", "new", "-o", "json"))
    assert (cause["subject"], cause["reason"]) == ("backend", "NotObserved")


def test_a_name_that_is_not_there_has_its_own_exit_code(shell: Shell) -> None:
    for command in (("why",), ("watch",), ("timeline",), ("logs",), ("chat",), ("drain",), ("extend", "nobody", "5")):
        words = command if len(command) > 1 else (*command, "nobody")
        code, message = shell.refuses(*words)
        assert code == Exit.NOT_FOUND, words
        assert f"no ModelBackend nobody in namespace {shell.namespace}" in message


def test_the_ledger_shows_a_withheld_port_and_why_finds_it_when_its_backend_is_gone(
    api_server: ApiServer, shell: Shell
) -> None:
    port, uid = withheld_claim(api_server, shell.namespace, "departed")
    lines = shell.shows("ports", "--withheld").splitlines()
    assert any(line.split()[:4] == [str(port), "Grpc", "Withheld", f"{shell.namespace}/departed"] for line in lines)
    assert uid in shell.shows("ports", "-o", "wide")
    (cause,) = json.loads(shell.shows("why", "departed", "-o", "json"))
    assert cause["subject"] == f"port {port}"
    assert f"kubectl mb attest {port} --pod {uid}" in cause["releasedBy"]
    assert f"port {port}" in shell.shows("timeline", "departed")


def test_a_timeline_is_text_or_a_picture(api_server: ApiServer, shell: Shell) -> None:
    a_serving_backend(api_server, shell.namespace)
    assert "was made" in shell.shows("timeline", "smollm2")
    assert shell.shows("timeline", "smollm2", "-o", "svg").startswith("<svg")
    assert shell.shows("timeline", "smollm2", "-o", "html").startswith("<!doctype html>")


def test_watch_ends_at_once_where_nothing_happens_and_in_time_where_nothing_ends(
    api_server: ApiServer, shell: Shell
) -> None:
    a_serving_backend(api_server, shell.namespace)
    make_backend(api_server, shell.namespace, "new")
    assert "nothing of smollm2 starts or ends" in shell.shows("watch", "smollm2")
    assert shell.refuses("watch", "new", "--timeout=0")[0] == Exit.TOO_LATE


def test_a_tenant_with_the_documented_role_sees_its_own_and_is_told_what_it_does_not_see(
    api_server: ApiServer, shell: Shell, tmp_path: Path
) -> None:
    a_serving_backend(api_server, shell.namespace)
    tenant = Shell(with_role(api_server, shell.namespace, "kubectl-mb-user", tmp_path), shell.namespace)
    assert "smollm2" in tenant.shows("list")
    assert "You may not read leases, nodes, portclaims" in tenant.shows("why", "smollm2")
    tenant.shows("timeline", "smollm2")
    tenant.shows("plan", "-f", "-", stdin=manifest(shell.namespace, runtime={"contextLength": 512}))
    tenant.shows("drain", "smollm2")
    tenant.shows("resume", "smollm2")
    code, message = tenant.refuses("ports")
    assert (code, "not allowed to list portclaims" in message) == (Exit.NOT_ALLOWED, True)


@pytest.mark.parametrize("content", [None, "clusters: ["], ids=["no such file", "no YAML"])
def test_a_kubeconfig_that_cannot_be_read_is_named(shell: Shell, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    code, message = Shell(path, shell.namespace).refuses("list")
    assert code == Exit.UNAVAILABLE
    assert "no way to a cluster" in message


def test_an_api_server_that_is_away_is_told_with_its_own_exit_code(shell: Shell, tmp_path: Path) -> None:
    config = yaml.safe_load(shell.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    code, message = Shell(path, shell.namespace).refuses("list")
    assert (code, "is the API server reachable?" in message) == (Exit.UNAVAILABLE, True)


def test_colours_are_for_terminals_and_for_those_who_want_them(
    api_server: ApiServer, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_serving_backend(api_server, shell.namespace)
    assert "\x1b[" not in shell.shows("why", "smollm2")
    assert "\x1b[" in shell.type("why", "smollm2", color=True).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in shell.type("why", "smollm2", color=True).output


def test_kubectl_finds_the_plugin_and_completes_the_names_of_its_objects(
    api_server: ApiServer, shell: Shell, plugin: Path
) -> None:
    make_backend(api_server, shell.namespace, "smollm2")
    flags = (f"--kubeconfig={shell.kubeconfig}", f"--namespace={shell.namespace}")
    environment = {**os.environ, "PATH": f"{plugin}:{os.environ['PATH']}"}

    def kubectl(*words: str) -> str:
        command = ["kubectl", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=180).stdout

    assert "smollm2" in kubectl("mb", "list", *flags)
    assert kubectl("__complete", "mb", "why", *flags, "smo").splitlines()[0] == "smollm2"


@pytest.mark.parametrize(("words", "offered"), [(["wh"], "why"), (["list", "--all"], "--all-namespaces"), ([], "list")])
def test_commands_and_flags_are_completed(words: list[str], offered: str) -> None:
    assert offered in {line.split("\t")[0] for line in candidates(cli, words)}


@pytest.mark.parametrize("shell_name", ["bash", "zsh"])
def test_a_completion_script_is_printed_for(shell_name: str) -> None:
    assert "_KUBECTL_MB_COMPLETE" in CliRunner().invoke(cli, ["completion", shell_name]).output


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A folder with the two programs that the package installs."""
    return install_plugin(tmp_path)


def install_plugin(folder: Path) -> Path:
    for name, function in (("kubectl-mb", "main"), ("kubectl_complete-mb", "complete")):
        program = folder / name
        program.write_text(f"#!{sys.executable}\nfrom kubectl_mb.__main__ import {function}\n{function}()\n")
        program.chmod(0o755)
    return folder


def test_every_command_has_help_with_an_example() -> None:
    for name, command in cli.commands.items():
        if name != "completion":
            assert f"kubectl mb {name}" in (command.help or ""), name
