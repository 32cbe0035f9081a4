"""A node port may refuse connections for a moment after its pod is Ready; callers should not notice."""

import asyncio
import contextlib
import socket

import grpc.aio
import pytest

from modelbackend_client import AsyncClient, CallError, Client
from tests.server.harness import LOOPBACK


async def forwarded_to(port: int, listener: socket.socket) -> asyncio.Server:
    """Has a socket listen that was only bound until now, and hands its connections on."""

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(target):
            while data := await source.read(2**16):
                target.write(data)
                await target.drain()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(LOOPBACK, port)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    return await asyncio.start_server(forward, sock=listener)


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_call_waits_for_a_listener_that_comes_a_moment_later(asynchronous: bool) -> None:
    # Bound all the time, so that nobody else gets the number; connections are refused until it listens.
    listener = socket.socket()
    listener.bind((LOOPBACK, 0))
    address = f"{LOOPBACK}:{listener.getsockname()[1]}"
    if asynchronous:
        client = AsyncClient(address)
        call: asyncio.Future[object] = asyncio.ensure_future(client.generate("the"))
    else:
        call = asyncio.ensure_future(asyncio.to_thread(Client(address).generate, "the"))
    await asyncio.sleep(0.3)  # the refused attempts are the input of this test
    assert not call.done(), "a refused connection was reported at once"
    server = grpc.aio.server()
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    await server.start()
    async with await forwarded_to(port, listener):
        with pytest.raises(CallError) as answered:
            await call
    await server.stop(None)
    assert answered.value.code is grpc.StatusCode.UNIMPLEMENTED, "an answer of the server, so the call reached it"
