"""A loopback socket that leads to a port of a pod, through the API server's port-forward.

For an operator outside the cluster only. The protocol is the WebSocket form that the kubelet serves: subprotocol
`v4.channel.k8s.io`, where every message starts with a channel number: 0 carries data and 1 errors of the first port.
Each channel's first message repeats the port as two bytes and carries nothing else.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp

from modelbackend_operator.api import CONTROL_PORT
from modelbackend_operator.kubernetes_api import KubernetesApi
from modelbackend_operator.model.pod import Pod

WebSocket = aiohttp.ClientWebSocketResponse
Connect = Callable[[], Awaitable[WebSocket]]

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
CHUNK_BYTES = 32 * 1024


def pod_forwarded_by(api: KubernetesApi) -> Callable[[Pod], contextlib.AbstractAsyncContextManager[str]]:
    """Addresses of pods' control ports, as the API server forwards them."""

    def address(pod: Pod) -> contextlib.AbstractAsyncContextManager[str]:
        path = f"/api/v1/namespaces/{pod.ref.namespace}/pods/{pod.ref.name}/portforward"
        return forwarded(lambda: api.websocket(path, query=[("ports", str(CONTROL_PORT))], protocol=PROTOCOL))

    return address


@contextlib.asynccontextmanager
async def forwarded(connect: Connect) -> AsyncIterator[str]:
    """Yields `127.0.0.1:PORT`; each connection to it opens one port-forward. Closed at the end, with all of them."""
    bridges: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        bridges.add(task)
        try:
            await _bridge(connect, reader, writer)
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass  # the caller sees its connection close
        finally:
            bridges.discard(task)
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        server.close()
        for task in tuple(bridges):
            task.cancel()
        await asyncio.gather(*bridges, return_exceptions=True)


async def _bridge(connect: Connect, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either side ends."""
    socket = await connect()
    try:
        upward = asyncio.create_task(_send(reader, socket))
        downward = asyncio.create_task(_receive(socket, writer))
        _, pending = await asyncio.wait((upward, downward), return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(upward, downward, return_exceptions=True)
    finally:
        await socket.close()


async def _send(reader: asyncio.StreamReader, socket: WebSocket) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        await socket.send_bytes(bytes([DATA]) + chunk)


async def _receive(socket: WebSocket, writer: asyncio.StreamWriter) -> None:
    greeted: set[int] = set()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            return
        channel, data = message.data[0], message.data[1:]
        if channel not in greeted:
            greeted.add(channel)
        elif channel == ERROR:
            return
        elif channel == DATA:
            writer.write(data)
            await writer.drain()
