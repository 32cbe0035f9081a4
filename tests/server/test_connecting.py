"""A node port may refuse connections for a moment after its pod is Ready; callers should not notice."""

import asyncio
import socket

import grpc.aio
import pytest

from modelbackend_client import AsyncClient, CallError, Client
from tests.server.harness import LOOPBACK


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_call_waits_for_a_listener_that_comes_a_moment_later(asynchronous: bool) -> None:
    port = closed_port()
    address = f"{LOOPBACK}:{port}"
    if asynchronous:
        client = AsyncClient(address)
        call: asyncio.Future[object] = asyncio.ensure_future(client.generate("the"))
    else:
        call = asyncio.ensure_future(asyncio.to_thread(Client(address).generate, "the"))
    await asyncio.sleep(0.3)  # the refused attempts are the input of this test
    assert not call.done(), "a refused connection was reported at once"
    server = grpc.aio.server()
    server.add_insecure_port(address)
    await server.start()
    try:
        with pytest.raises(CallError) as answered:
            await call
    finally:
        await server.stop(None)
    assert answered.value.code is grpc.StatusCode.UNIMPLEMENTED, "an answer of the server, so the call reached it"
