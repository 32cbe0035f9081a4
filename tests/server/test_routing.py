"""The client library between instances: it waits, goes elsewhere, and never has a request run twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from kubernetes import client as kubernetes_client

from modelbackend.v1 import inference_pb2
from modelbackend_client import AsyncClient, CallError, Client, connecting, requests
from modelbackend_client.kubernetes_directory import KubernetesDirectory
from modelbackend_client.routing import Endpoint, View
from tests.server.harness import GREEDY, LOOPBACK, PATIENCE_SECONDS, Gate, Running, running


class Told:
    """A directory that knows what a test tells it."""

    def __init__(self, *endpoints: Endpoint) -> None:
        self.view = View(endpoints)
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def tell(self, *endpoints: Endpoint) -> None:
        self.view = View(endpoints)
        for listener in self._listeners:
            listener()

    def close(self) -> None:
        self._listeners.clear()


def endpoint(server: Running) -> Endpoint:
    settings = server.server.settings
    return Endpoint(server.address, settings.uid or None, settings.pod_uid or None)


def client(told: Told, **given: Any) -> AsyncClient:
    return AsyncClient("", directory=told, **({"owner_wait_seconds": 20} | given))


async def one_token(caller: AsyncClient) -> str:
    return (await caller.generate("the", max_tokens=1, sampling=GREEDY)).text


async def test_a_call_that_a_draining_instance_refuses_goes_to_another(tiny: Path) -> None:
    async with running(tiny) as leaving, running(tiny) as staying:
        told = Told(endpoint(leaving), endpoint(staying))
        await leaving.drain(60)
        async with client(told) as caller:
            assert await one_token(caller)
            events = [event async for event in caller.stream("the", max_tokens=3, sampling=GREEDY)]
            assert isinstance(events[-1], inference_pb2.Finished)
        counters = [(await server.status()).requests for server in (leaving, staying)]
        assert [(each.accepted, each.refused) for each in counters] == [(0, 2), (2, 0)]

        def synchronously() -> int:
            with Client("", directory=told, owner_wait_seconds=20) as caller:
                caller.generate("the", max_tokens=1, sampling=GREEDY)
                return len(list(caller.stream("the", max_tokens=3, sampling=GREEDY)))

        assert await asyncio.to_thread(synchronously) > 1


@pytest.fixture
def nobody() -> Iterator[Endpoint]:
    """An address that is kept, and where nobody listens: that of a pod that has just gone."""
    with socket.socket() as kept:
        kept.bind((LOOPBACK, 0))
        yield Endpoint(f"{LOOPBACK}:{kept.getsockname()[1]}")


async def test_a_call_goes_on_to_another_instance_where_the_first_cannot_be_reached(
    tiny: Path, nobody: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 0.3)
    async with running(tiny) as server:
        told = Told(nobody, endpoint(server))
        async with client(told) as caller:
            assert await one_token(caller)
            assert [event async for event in caller.stream("the", max_tokens=3, sampling=GREEDY)]

        def synchronously() -> int:
            with Client("", directory=told, owner_wait_seconds=20) as caller:
                caller.generate("the", max_tokens=1, sampling=GREEDY)
                return len(list(caller.stream("the", max_tokens=3, sampling=GREEDY)))

        assert await asyncio.to_thread(synchronously) > 1
        assert (await server.status()).requests.accepted == 4


async def test_the_callers_deadline_ends_the_wait_for_a_connection_too(nobody: Endpoint) -> None:
    async with client(Told(nobody), timeout_seconds=0.2) as caller:
        with pytest.raises(CallError, match="nothing was sent") as late:
            await one_token(caller)
    assert (late.value.code, late.value.not_started) == (grpc.StatusCode.DEADLINE_EXCEEDED, True)


async def test_a_call_waits_for_an_instance_that_comes(tiny: Path) -> None:
    told = Told()
    async with client(told) as caller, running(tiny) as server:
        call = asyncio.create_task(one_token(caller))
        await asyncio.sleep(0)
        told.tell(endpoint(server))
        assert await asyncio.wait_for(call, PATIENCE_SECONDS)


async def test_a_call_for_which_nobody_comes_ends_in_its_time() -> None:
    async with client(Told(), owner_wait_seconds=0.2) as caller:
        with pytest.raises(CallError, match="no instance is ready") as late:
            await one_token(caller)
    assert (late.value.reason, late.value.not_started) == ("NO_INSTANCE", True)


async def test_calls_that_wait_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "WAITING_MAX", 1)
    async with client(Told()) as caller:
        waiting = asyncio.create_task(one_token(caller))
        await asyncio.sleep(0.01)
        with pytest.raises(CallError, match="wait for an instance already") as busy:
            await one_token(caller)
        assert (busy.value.reason, busy.value.not_started) == ("CLIENT_BUSY", True)
        waiting.cancel()


async def test_a_stale_view_is_refused_and_the_call_held_until_the_view_is_right(tiny: Path) -> None:
    async with running(tiny, uid="backend", pod_uid="new-pod") as server:
        stale = Endpoint(server.address, "backend", "old-pod")
        told = Told(stale)
        async with client(told) as caller:
            call = asyncio.create_task(one_token(caller))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await server.status()).requests.refused == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            told.tell(endpoint(server))
            assert await call
        status = await server.status()
        assert status.requests.accepted == 1


async def test_a_view_that_stays_stale_ends_with_the_servers_own_words(tiny: Path) -> None:
    async with running(tiny, uid="another") as server:
        async with client(Told(Endpoint(server.address, "mine")), owner_wait_seconds=1) as caller:
            with pytest.raises(CallError, match="belongs to ModelBackend another") as refused:
                await one_token(caller)
        assert refused.value.reason == "BACKEND_MISMATCH"
        assert (await server.status()).requests.accepted == 0


@contextlib.asynccontextmanager
async def breakable(port: int) -> AsyncIterator[tuple[int, Callable[[], None]]]:
    """A port before another one, whose connections can be broken."""
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(LOOPBACK, port)
        writers.extend((writer, there_writer))
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    def cut() -> None:
        for writer in writers:
            writer.transport.abort()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    yield server.sockets[0].getsockname()[1], cut
    cut()
    server.close()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call_in_flight_when_its_instance_dies_fails_and_is_not_sent_again(
    tiny: Path, gate: Gate, streamed: bool
) -> None:
    async with running(tiny) as server, running(tiny) as other, breakable(server.ports.grpc) as (port, cut):
        gate.allow(3)
        told = Told(Endpoint(f"{LOOPBACK}:{port}"), endpoint(other))
        async with client(told) as caller:

            async def whole() -> None:
                if streamed:
                    async for _ in caller.stream("the", max_tokens=100, sampling=GREEDY):
                        pass
                else:
                    await caller.generate("the", max_tokens=100, sampling=GREEDY)

            call = asyncio.create_task(whole())
            await server.until(active=1)
            cut()
            with pytest.raises(CallError) as broken:
                await asyncio.wait_for(call, PATIENCE_SECONDS)
            assert broken.value.code is grpc.StatusCode.UNAVAILABLE
            assert not broken.value.not_started
        await server.until(active=0)
        gate.open()
        assert (await other.status()).requests.accepted == 0


async def test_a_cancelled_call_is_cancelled_in_the_server_too(tiny: Path, gate: Gate) -> None:
    async with running(tiny) as server, client(Told(endpoint(server))) as caller:
        gate.allow(3)
        call = asyncio.create_task(caller.generate("the", max_tokens=100, sampling=GREEDY))
        await server.until(active=1)
        call.cancel()
        assert (await server.until(active=0)).requests.cancelled == 1
        gate.open()


@contextlib.asynccontextmanager
async def cluster(*events: dict[str, Any], first: list[Any]) -> AsyncIterator[kubernetes_client.CustomObjectsApi]:
    """An API server that lists and watches one ModelBackend as told."""

    async def modelbackends(request: web.Request) -> web.StreamResponse:
        assert request.query["fieldSelector"] == "metadata.name=m"
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": first})
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        for event in events:
            await response.write(json.dumps(event).encode() + b"\n")
        await asyncio.sleep(PATIENCE_SECONDS)
        return response

    app = web.Application()
    app.router.add_get("/apis/modelbackend.dev/v1alpha1/namespaces/ns/modelbackends", modelbackends)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0)
    await site.start()
    port = runner.addresses[0][1]
    configuration = kubernetes_client.Configuration(host=f"http://{LOOPBACK}:{port}")
    yield kubernetes_client.CustomObjectsApi(kubernetes_client.ApiClient(configuration))
    await runner.cleanup()


async def test_a_backend_is_found_by_its_name_and_followed(tiny: Path) -> None:
    async with running(tiny, uid="backend", pod_uid="pod") as server:
        metadata = {"name": "m", "namespace": "ns", "uid": "backend", "resourceVersion": "8"}
        entry = {"ordinal": 0, "role": "Grpc", "podUID": "pod", "address": server.address}
        serving = {"metadata": metadata, "status": {"endpoints": [entry]}}
        starting = {"metadata": metadata, "status": {}}
        async with cluster({"type": "MODIFIED", "object": serving}, first=[starting]) as api:
            directory = KubernetesDirectory("ns", "m", api=api)
            async with client(directory) as caller:  # type: ignore[arg-type]
                assert await one_token(caller)
                info = await caller.model_info()
        assert info.identity.pod_uid == "pod"
