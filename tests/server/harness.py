"""A server in this process, on loopback and free ports, and the means to slow its model down at will."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import openai
import pytest

from modelbackend.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc
from modelbackend_client import AsyncClient
from modelbackend_server.exits import Exit
from modelbackend_server.llama import Context
from modelbackend_server.plan import BatchPlan
from modelbackend_server.sampling import Logits
from modelbackend_server.server import Ports, Server
from modelbackend_server.settings import Settings
from modelbackend_server.slots import Tokens

LOOPBACK = "127.0.0.1"
# Only what fails takes so long. A process may need half of it to start on a machine that does ten things at once.
PATIENCE_SECONDS = 120
GREEDY = inference_pb2.Sampling(temperature=0)
# The tiny model's greedy text never ends: this many tokens outlast whatever a test does meanwhile.
LONG = 4000


class Gate:
    """Lets the model evaluate batches only as allowed, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._condition = threading.Condition()
        self._allowed: float = float("inf")
        self.steps = 0
        decode = Context.decode

        def gated(context: Context, plan: BatchPlan, tokens: Mapping[int, Sequence[int] | Tokens]) -> Logits:
            with self._condition:
                if not self._condition.wait_for(lambda: self._allowed > 0, PATIENCE_SECONDS):
                    raise TimeoutError("the gate was left closed")
                self._allowed -= 1
                self.steps += 1
            return decode(context, plan, tokens)

        monkeypatch.setattr(Context, "decode", gated)

    def close(self) -> None:
        self.allow(0)

    def allow(self, steps: float) -> None:
        """So many steps more, from now."""
        with self._condition:
            self._allowed = steps
            self._condition.notify_all()

    def open(self) -> None:
        self.allow(float("inf"))


@dataclass
class Running:
    """A server that listens; `ended` is how it ended, once it has."""

    server: Server
    ports: Ports
    ended: asyncio.Task[Exit]
    client: AsyncClient
    stub: inference_pb2_grpc.InferenceAsyncStub
    control: control_pb2_grpc.ControlAsyncStub
    channel: grpc.aio.Channel

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.ports.grpc}"

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.http}"

    def openai(self, *, max_retries: int = 0, **headers: str) -> openai.AsyncOpenAI:
        """The official client. It sends these headers too, their names with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="none", max_retries=max_retries, default_headers=named
        )

    async def status(self) -> control_pb2.Status:
        return (await self.control.GetStatus(control_pb2.GetStatusRequest())).status

    async def drain(self, deadline_seconds: float | None = None) -> control_pb2.Status:
        return (await self.control.Drain(control_pb2.DrainRequest(deadline_seconds=deadline_seconds))).status

    async def until(self, **wanted: object) -> control_pb2.Status:
        """The status once it has the given values."""
        return await self._until(lambda status: all(getattr(status, name) == value for name, value in wanted.items()))

    async def until_inside(self, count: int) -> control_pb2.Status:
        """The status once so many requests wait or run."""
        return await self._until(lambda status: status.queued + status.active == count)

    async def _until(self, holds: Callable[[control_pb2.Status], bool]) -> control_pb2.Status:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                status = await self.status()
                if holds(status):
                    return status
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(weights: Path, /, *, until_serving: bool = True, **settings: Any) -> AsyncIterator[Running]:
    """A server of a file, ended at once when the block ends."""
    given: dict[str, Any] = {"threads": 1, "grpc_port": 0, "http_port": 0, "control_port": 0, "metrics_port": 0}
    server = Server(Settings(model_path=weights, listen_address=LOOPBACK, **(given | settings)))
    listening: asyncio.Future[Ports] = asyncio.get_running_loop().create_future()
    ended = asyncio.create_task(server.serve(listening.set_result))
    await asyncio.wait((listening, ended), return_when=asyncio.FIRST_COMPLETED)
    ports = listening.result() if listening.done() else ended.result()
    assert isinstance(ports, Ports)
    async with (
        grpc.aio.insecure_channel(f"{LOOPBACK}:{ports.grpc}") as channel,
        grpc.aio.insecure_channel(f"{LOOPBACK}:{ports.control}") as control_channel,
        AsyncClient(f"{LOOPBACK}:{ports.grpc}") as client,
    ):
        stub: inference_pb2_grpc.InferenceAsyncStub = inference_pb2_grpc.InferenceStub(channel)
        control: control_pb2_grpc.ControlAsyncStub = control_pb2_grpc.ControlStub(control_channel)
        alive = Running(server, ports, ended, client, stub, control, channel)
        try:
            if until_serving:
                await alive.until(state=control_pb2.STATE_SERVING)
            yield alive
        finally:
            server.on_signal()
            server.on_signal()
            await ended


def greedy(prompt: str, max_tokens: int) -> inference_pb2.GenerateRequest:
    return inference_pb2.GenerateRequest(prompt=prompt, max_tokens=max_tokens, sampling=GREEDY)


class DeafCaller:
    """Asks for a stream and reads nothing of it.

    HTTP/2 by hand (RFC 9113): a gRPC client reads ahead megabytes, this one takes WINDOW_BYTES and no more.
    """

    WINDOW_BYTES = 100

    def __init__(self, port: int, request: inference_pb2.GenerateRequest) -> None:
        self._socket = socket.create_connection((LOOPBACK, port))
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": "/modelbackend.v1.Inference/GenerateStream",
            ":authority": LOOPBACK,
            "content-type": "application/grpc",
            "te": "trailers",
        }
        # HPACK literals without indexing (RFC 7541, 6.2.2).
        headers = b"".join(
            b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
            for name, value in fields.items()
        )
        message = request.SerializeToString()
        self._socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + self._frame(4, 0, 0, struct.pack(">HI", 4, self.WINDOW_BYTES))
            + self._frame(4, 1, 0, b"")
            + self._frame(1, 4, 1, headers)
            + self._frame(0, 1, 1, struct.pack(">BI", 0, len(message)) + message)
        )

    @staticmethod
    def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def close(self) -> None:
        self._socket.close()


Stream = grpc.aio.UnaryStreamCall[inference_pb2.GenerateRequest, inference_pb2.GenerateStreamResponse]


async def next_event(stream: Stream) -> inference_pb2.GenerateStreamResponse:
    response = await stream.read()
    assert isinstance(response, inference_pb2.GenerateStreamResponse), "the stream has ended"
    return response


async def rest(stream: Stream) -> tuple[str, inference_pb2.Finished]:
    """What is still to come of a stream: its text and how it finished."""
    texts: list[str] = []
    finished: inference_pb2.Finished | None = None
    while isinstance(response := await stream.read(), inference_pb2.GenerateStreamResponse):
        assert finished is None, "something came after the end"
        if response.HasField("delta"):
            texts.append(response.delta.text)
        else:
            finished = response.finished
    assert finished is not None, "the stream ended without saying how"
    return "".join(texts), finished
