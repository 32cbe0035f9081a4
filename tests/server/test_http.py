"""The HTTP door below the official client: bytes, headers, and callers that behave badly."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from modelbackend.v1 import control_pb2
from tests.server.harness import GREEDY, LONG, LOOPBACK, PATIENCE_SECONDS, Gate, Running, running

CHAT = "/v1/chat/completions"
LONG_CHAT = {"messages": [{"role": "user", "content": "the"}], "max_tokens": LONG, "temperature": 0, "stream": True}


@asynccontextmanager
async def session(server: Running) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session


async def ask(
    server: Running, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[int, Any, Mapping[str, str]]:
    """Status, JSON and headers of one call."""
    async with session(server) as client, client.request(method, path, data=body, headers=headers) as response:
        text = await response.text()
        return response.status, json.loads(text) if text.startswith("{") else text, response.headers


async def raw_call(server: Running, body: Mapping[str, Any]) -> socket.socket:
    """Sends a whole request over a socket of its own, with the smallest of buffers to read into, and reads nothing."""
    loop = asyncio.get_running_loop()
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    caller.setblocking(False)
    await loop.sock_connect(caller, (LOOPBACK, server.ports.http))
    await loop.sock_sendall(caller, head.encode() + data)
    return caller


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", CHAT, b"", 400, "EOF while parsing"),
        ("POST", CHAT, b"{", 400, "EOF while parsing"),
        ("POST", CHAT, b"[]", 400, "should be an object"),
        ("POST", CHAT, b'{"messages": 1}', 400, "messages: Input should be a valid"),
        ("POST", CHAT, b"[" * 100_000, 400, "Invalid JSON"),
        ("POST", CHAT, b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, "Invalid JSON"),
        ("POST", CHAT, b'{"messages": [{"role": "user", "content": "\xff"}]}', 400, "Invalid JSON"),
        ("POST", CHAT, b'{"messages": [], "temperature": NaN}', 400, "temperature: Input should be a finite number"),
        ("POST", CHAT, b'{"messages": [], "seed": 18446744073709551616}', 400, "seed"),
        ("POST", CHAT, b'{"messages": [], "logit_bias": {"x": 1}}', 400, "logit_bias"),
        ("POST", CHAT, b" " * (4 * 2**20 + 1), 413, "Maximum request body size"),
        ("GET", CHAT, b"", 405, "does not take GET"),
        ("POST", "/v1/nothing", b"{}", 404, "there is nothing at /v1/nothing"),
    ],
)
async def test_every_error_has_the_shape_that_clients_read(
    tiny: Path, method: str, path: str, body: bytes, status: int, words: str
) -> None:
    async with running(tiny) as server:
        found, answer, headers = await ask(server, method, path, body)
        assert found == status
        assert answer["error"].keys() >= {"message", "type", "param", "code"}
        assert words in answer["error"]["message"]
        assert headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"x-request-id": "with space"}, "x-request-id"),
        ({"x-request-id": "x" * 129}, "x-request-id"),
        ({"x-modelbackend-timeout-seconds": "soon"}, "x-modelbackend-timeout-seconds"),
        ({"x-modelbackend-timeout-seconds": "0"}, "x-modelbackend-timeout-seconds"),
        ({"x-modelbackend-timeout-seconds": "inf"}, "x-modelbackend-timeout-seconds"),
    ],
)
async def test_a_header_that_makes_no_sense_is_named(tiny: Path, headers: dict[str, str], field: str) -> None:
    async with running(tiny) as server:
        status, answer, _ = await ask(server, "POST", CHAT, json.dumps(LONG_CHAT).encode(), headers)
    assert (status, answer["error"]["param"]) == (400, field)


async def test_health_and_metrics_are_told_beside_the_models_work(tiny: Path, gate: Gate) -> None:
    async with running(tiny, uid="uid-1") as server:
        gate.close()
        caller = await raw_call(server, LONG_CHAT)
        await server.until(active=1)
        # A stranger's probe: whoever it means, it asks for this process.
        stranger = {"x-modelbackend-uid": "uid-2"}
        assert (await ask(server, "GET", "/health", headers=stranger))[:2] == (200, {"status": "ok"})
        status, text, headers = await ask(server, "GET", "/metrics")
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=")
        assert "modelbackend_requests_active 1.0" in text
        assert 'modelbackend_calls_total{identity="absent"}' in text
        await server.drain(60)
        assert (await ask(server, "GET", "/health"))[:2] == (503, {"status": "draining"})
        caller.close()
        await server.until(active=0)


async def test_a_stream_is_server_sent_events_that_end_with_done(tiny: Path) -> None:
    async with running(tiny) as server, session(server) as client:
        async with client.post(CHAT, json=LONG_CHAT | {"max_tokens": 5}) as response:
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert response.headers["cache-control"] == "no-cache"
            text = await response.text()
        *events, rest = text.split("\n\n")
        assert rest == ""
        assert events[-1] == "data: [DONE]"
        assert all(json.loads(event.removeprefix("data: "))["choices"] for event in events[:-1])
        # The connection serves on.
        async with client.post(CHAT, json=LONG_CHAT | {"max_tokens": 5, "stream": False}) as response:
            assert response.status == 200


async def test_curl_gets_a_stream_and_an_error_with_its_status(tiny: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not on this machine")
    async with running(tiny) as server:

        async def ask_with_curl(body: Mapping[str, Any]) -> str:
            call = [curl, "--silent", "--no-buffer", "--write-out", "%{http_code}", server.url + CHAT, "--json"]
            found = await asyncio.to_thread(subprocess.run, [*call, json.dumps(body)], capture_output=True, check=True)
            return found.stdout.decode()

        assert (await ask_with_curl(LONG_CHAT | {"max_tokens": 5})).endswith("data: [DONE]\n\n200")
        refused = await ask_with_curl(LONG_CHAT | {"n": 2})
    assert refused.endswith("400")
    assert json.loads(refused.removesuffix("400"))["error"]["param"] == "n"


async def test_a_reader_that_takes_nothing_holds_back_only_itself_and_is_cut_off(tiny: Path) -> None:
    # The name is in every event: the buffers on the way hold fewer of them than there will be.
    async with running(tiny, slots=1, stall_seconds=1, context_length=8192, model="m" * 5000) as server:
        deaf = await raw_call(server, LONG_CHAT | {"max_tokens": 8000})
        await server.until_inside(1)
        answer = await server.client.generate("the", max_tokens=20, sampling=GREEDY)
        assert answer.finished.usage.completion_tokens == 20
        status = await server.until(active=0)
        assert (status.requests.finished, status.requests.cancelled, status.requests.failed) == (1, 1, 0)
        stalled = server.server.metrics.registry.get_sample_value("modelbackend_requests_total", {"outcome": "stalled"})
        assert stalled == 1
        # Its connection is gone, in the middle: what is on the way would be held for ever.
        received = b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while data := await asyncio.get_running_loop().sock_recv(deaf, 2**20):
                received = data
        assert not received.endswith(b"0\r\n\r\n")
        deaf.close()


async def test_a_connection_that_is_reset_in_mid_write_frees_its_place(tiny: Path) -> None:
    async with running(tiny, slots=1, context_length=8192) as server:
        caller = await raw_call(server, LONG_CHAT | {"max_tokens": 8000})
        await server.until_inside(1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.get_running_loop().sock_recv(caller, 100)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.close()
        status = await server.until(active=0, queued=0)
        assert (status.requests.cancelled, status.requests.failed) == (1, 0)


async def test_a_caller_that_closes_its_half_is_taken_to_have_gone(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server:
        gate.allow(3)
        caller = await raw_call(server, LONG_CHAT)
        await server.until(active=1)
        caller.shutdown(socket.SHUT_WR)
        assert (await server.until(active=0)).requests.cancelled == 1
        caller.close()
        gate.open()
        await server.client.generate("the", max_tokens=1, sampling=GREEDY)


async def test_half_a_request_holds_no_place(tiny: Path) -> None:
    async with running(tiny, slots=1, max_pending=0) as server:
        reader, writer = await asyncio.open_connection(LOOPBACK, server.ports.http)
        writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
        await writer.drain()
        status, _, _ = await ask(server, "POST", CHAT, json.dumps(LONG_CHAT | {"max_tokens": 1}).encode())
        assert status == 200
        writer.close()
        assert await reader.read() == b""
        assert (await server.status()).requests.accepted == 1


async def test_a_signal_ends_a_server_that_has_idle_and_half_open_connections(tiny: Path) -> None:
    async with running(tiny, drain_seconds=1000) as server, session(server) as client:
        async with client.get("/health") as response:
            await response.read()
        _, writer = await asyncio.open_connection(LOOPBACK, server.ports.http)
        writer.write(b"POST /v1/chat")
        await writer.drain()
        server.server.on_signal()
        await asyncio.wait_for(server.ended, 10)
        writer.close()


async def test_a_full_token_budget_refuses_what_would_wait_behind_it(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1, max_pending_tokens=50) as server:
        gate.close()
        calls = [asyncio.create_task(server.client.generate("x" * 40, max_tokens=1, sampling=GREEDY)) for _ in range(2)]
        await server.until(active=1, queued=1)
        body = {"prompt": "y" * 40, "max_tokens": 1}
        status, answer, _ = await ask(server, "POST", "/v1/completions", json.dumps(body).encode())
        assert (status, answer["error"]["code"], answer["error"]["not_started"]) == (429, "queue_full", True)
        assert "50 is the limit" in answer["error"]["message"]
        short = asyncio.create_task(server.client.generate("y", max_tokens=1, sampling=GREEDY))
        await server.until(active=1, queued=2)
        gate.open()
        await asyncio.gather(*calls, short)


async def test_a_prompt_longer_than_the_budget_is_served_when_nobody_waits(tiny: Path) -> None:
    async with running(tiny, max_pending_tokens=5) as server:
        await server.client.generate("x" * 40, max_tokens=1, sampling=GREEDY)


async def test_drained_while_it_loads_the_server_says_so(tiny: Path) -> None:
    async with running(tiny) as server:
        await server.drain(60)
        await server.until(state=control_pb2.STATE_DRAINING)
        status, answer, headers = await ask(server, "GET", "/v1/models")
        assert (status, answer["error"]["code"], headers["connection"]) == (503, "draining", "close")
