"""`chat` with a real server behind the address in a status; `logs` by whatever kubectl is on the PATH."""

import asyncio
import os
from pathlib import Path

import pytest

from kubectl_mb.troubles import Exit
from tests.apiserver.harness import ApiServer
from tests.apiserver.test_process import make_backend
from tests.kubectl.conftest import Shell
from tests.kubectl.examples import serving
from tests.server.harness import LOOPBACK
from tests.server.process import FREE_PORTS, started
from tests.server.tiny_gguf import write_tiny_gguf
from tests.unit.builders import POD_UID

pytestmark = pytest.mark.apiserver


def told_to_serve_at(server: ApiServer, path: str, address: str) -> None:
    status = serving()["status"]
    status["endpoints"][0]["address"] = address
    assert server.merge(f"{path}/status", {"status": {**status, "observedGeneration": 1}}).status == 200


async def test_a_chat_streams_the_answers_of_the_server_at_the_address(
    api_server: ApiServer, shell: Shell, tmp_path: Path
) -> None:
    path = make_backend(api_server, shell.namespace)
    uid = api_server.get(path).body["metadata"]["uid"]
    write_tiny_gguf(tmp_path / "tiny.gguf")
    identity = (f"--uid={uid}", f"--pod-uid={POD_UID}")
    async with started(f"--model={tmp_path / 'tiny.gguf'}", *FREE_PORTS, *identity) as server:
        port = (await server.log("listening"))["grpc"]
        await server.log("lifecycle", state="serving")
        told_to_serve_at(api_server, path, f"{LOOPBACK}:{port}")
        asked = ("chat", "smollm2", "--max-tokens", "4", "--temperature", "0")
        once = await asyncio.to_thread(shell.shows, *asked, "--prompt", "Hello")
        assert once.strip()
        twice = await asyncio.to_thread(lambda: shell.shows(*asked, stdin="Hello\nAgain\n"))
        assert twice.startswith(once)
        assert len(twice) > len(once)


def test_a_backend_that_nobody_serves_is_told_with_its_reason(api_server: ApiServer, shell: Shell) -> None:
    make_backend(api_server, shell.namespace)
    code, message = shell.refuses("chat", "smollm2", "--prompt", "Hello")
    assert (code, "no instance of smollm2 serves" in message) == (Exit.UNAVAILABLE, True)


def test_a_port_forward_that_cannot_be_had_is_told_as_such(api_server: ApiServer, shell: Shell) -> None:
    path = make_backend(api_server, shell.namespace)
    told_to_serve_at(api_server, path, f"{LOOPBACK}:1")
    asked = ("chat", "smollm2", "--prompt", "Hello")
    assert shell.refuses(*asked) == (Exit.NOT_FOUND, f"Error: pod {shell.namespace}/smollm2-0 is gone; try again\n")
    container = {"name": "server", "image": "none"}
    pod = {"metadata": {"name": "smollm2-0"}, "spec": {"containers": [container]}}
    assert api_server.post(f"/api/v1/namespaces/{shell.namespace}/pods", pod).status == 201
    code, message = shell.refuses(*asked)
    assert (code, f"no port-forward to pod {shell.namespace}/smollm2-0" in message) == (Exit.UNAVAILABLE, True)


def test_logs_are_kubectls_of_the_instances_pod(
    api_server: ApiServer, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_backend(api_server, shell.namespace)
    told_to_serve_at(api_server, path, "10.0.0.1:30007")
    typed = tmp_path / "typed"
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$@" > {typed}\nexit 7\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert shell.refuses("logs", "smollm2", "-c", "fetch-model", "-f", "--tail", "5")[0] == 7
    flags = f"--namespace={shell.namespace} --kubeconfig={shell.kubeconfig} --container=fetch-model --follow --tail=5"
    assert typed.read_text().strip() == f"logs smollm2-0 {flags}"
    code, message = shell.refuses("logs", "smollm2", "--instance", "3")
    assert (code, "has no such pod now" in message) == (Exit.NOT_FOUND, True)
