"""Callers that cost little themselves: bytes on sockets, one event loop, a time for each piece that arrives.

A full client library takes as much CPU per token as the server's own part of it, on the same two cores.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from bench.serving.servers import LOOPBACK, Server
from modelbackend.v1 import inference_pb2

CONNECTION_WINDOW = 2**30
DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4


@dataclass(slots=True)
class Answer:
    """When it was asked and when each piece came (time.perf_counter), and the tokens that were made."""

    asked_at: float = field(default_factory=time.perf_counter)
    pieces_at: list[float] = field(default_factory=list)
    token_count: int = 0

    @property
    def first_seconds(self) -> float:
        return self.pieces_at[0] - self.asked_at


class Caller(Protocol):
    async def stream(self, prompt: str, max_tokens: int) -> Answer: ...
    async def whole(self, prompt: str, max_tokens: int) -> Answer: ...


class _Exchange(asyncio.Protocol):
    """One HTTP/1.1 request on a connection of its own."""

    def __init__(self, request: bytes, on_data: Callable[[bytes], None]) -> None:
        self._request = request
        self._on_data = on_data
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.closed.done():
            self.closed.set_result(None)


async def _post(port: int, path: str, body: dict[str, object], on_data: Callable[[bytes], None]) -> None:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    loop = asyncio.get_running_loop()
    transport, exchange = await loop.create_connection(lambda: _Exchange(request, on_data), LOOPBACK, port)
    try:
        await exchange.closed
    finally:
        transport.close()


@dataclass(slots=True)
class HttpCaller:
    """llama-server's own completion endpoint, and our OpenAI-compatible one."""

    server: Server

    @property
    def _native(self) -> bool:
        return self.server.grpc_port == 0

    def _body(self, prompt: str, max_tokens: int, *, stream: bool) -> tuple[str, dict[str, object]]:
        body: dict[str, object] = {"prompt": prompt, "temperature": 0, "stream": stream}
        if self._native:
            return "/completion", body | {"n_predict": max_tokens, "cache_prompt": True}
        options = {"stream_options": {"include_usage": True}} if stream else {}
        return "/v1/completions", body | {"max_tokens": max_tokens, "model": "bench"} | options

    async def stream(self, prompt: str, max_tokens: int) -> Answer:
        path, body = self._body(prompt, max_tokens, stream=True)
        answer, rest = Answer(), b""

        def on_data(data: bytes) -> None:
            nonlocal rest
            now = time.perf_counter()
            *events, rest = (rest + data).split(b"\n\n")
            answer.pieces_at += [now] * sum(b"data: {" in event for event in events)
            if events:
                last.append(events[-1])
                last.extend(event for event in events if b"usage" in event or b'"stop":true' in event)

        last: list[bytes] = []
        await _post(self.server.http_port, path, body, on_data)
        answer.token_count = _token_count(last)
        return answer

    async def whole(self, prompt: str, max_tokens: int) -> Answer:
        path, body = self._body(prompt, max_tokens, stream=False)
        answer, parts = Answer(), list[bytes]()
        await _post(self.server.http_port, path, body, parts.append)
        answer.pieces_at.append(time.perf_counter())
        answer.token_count = _token_count([b"data: " + b"".join(parts).partition(b"\r\n\r\n")[2]])
        return answer

    async def embed(self, texts: list[str]) -> None:
        parts: list[bytes] = []
        await _post(self.server.http_port, "/v1/embeddings", {"model": "bench", "input": texts}, parts.append)
        answer = json.loads(b"".join(parts).partition(b"\r\n\r\n")[2])
        if len(answer.get("data", ())) != len(texts):
            raise RuntimeError(f"no {len(texts)} vectors: {str(answer)[:500]}")


def _token_count(events: list[bytes]) -> int:
    for event in reversed(events):
        start = event.find(b"{")
        if start >= 0:
            told = json.loads(event[start : event.rindex(b"}") + 1])
            count = told.get("tokens_predicted") or (told.get("usage") or {}).get("completion_tokens")
            if count:
                return int(count)
    raise RuntimeError(f"no token count in {events}")


class GrpcCaller(asyncio.Protocol):
    """gRPC by hand on one HTTP/2 connection (RFC 9113)."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._next_stream = 1
        self._calls: dict[int, tuple[bytearray, Callable[[bytes], None], asyncio.Future[None]]] = {}
        self._unacknowledged = 0

    @classmethod
    async def connect(cls, server: Server) -> GrpcCaller:
        _, caller = await asyncio.get_running_loop().create_connection(cls, LOOPBACK, server.grpc_port)
        return caller

    async def stream(self, prompt: str, max_tokens: int) -> Answer:
        answer = Answer()

        def on_message(message: bytes) -> None:
            response = inference_pb2.GenerateStreamResponse.FromString(message)
            if response.HasField("delta"):
                answer.pieces_at.append(time.perf_counter())
            else:
                answer.token_count = response.finished.usage.completion_tokens

        await self._call("GenerateStream", _request(prompt, max_tokens), on_message)
        return answer

    async def whole(self, prompt: str, max_tokens: int) -> Answer:
        answer = Answer()

        def on_message(message: bytes) -> None:
            answer.pieces_at.append(time.perf_counter())
            response = inference_pb2.GenerateResponse.FromString(message)
            answer.token_count = response.finished.usage.completion_tokens

        await self._call("Generate", _request(prompt, max_tokens), on_message)
        return answer

    async def score(self, prompt: str, choices: list[str]) -> None:
        request = inference_pb2.ScoreChoicesRequest(prompt=prompt, choices=choices)
        answers: list[bytes] = []
        await self._call("ScoreChoices", request.SerializeToString(), answers.append)
        if len(inference_pb2.ScoreChoicesResponse.FromString(answers[0]).scores) != len(choices):
            raise RuntimeError("the choices were not scored")

    async def _call(self, method: str, message: bytes, on_message: Callable[[bytes], None]) -> None:
        assert self._transport is not None
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls[stream] = (bytearray(), on_message, ended)
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/modelbackend.v1.Inference/{method}",
            ":authority": LOOPBACK,
            "content-type": "application/grpc",
            "te": "trailers",
        }
        # HPACK literals without indexing (RFC 7541, 6.2.2).
        headers = b"".join(
            b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
            for name, value in fields.items()
        )
        body = struct.pack(">BI", 0, len(message)) + message
        self._transport.write(_frame(HEADERS, END_HEADERS, stream, headers) + _frame(DATA, END_STREAM, stream, body))
        try:
            await ended
        except asyncio.CancelledError:
            self._transport.write(_frame(3, 0, stream, struct.pack(">I", 8)))
            raise
        finally:
            self._calls.pop(stream, None)

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.WriteTransport, transport)
        settings = struct.pack(">HI", 4, CONNECTION_WINDOW)
        self._transport.write(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(SETTINGS, 0, 0, settings)
            + _frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", CONNECTION_WINDOW))
        )

    def data_received(self, data: bytes) -> None:
        self._received += data
        at = 0
        while len(self._received) - at >= 9:
            length = int.from_bytes(self._received[at : at + 3])
            if len(self._received) - at < 9 + length:
                break
            kind, flags, stream = struct.unpack_from(">BBI", self._received, at + 3)
            self._on_frame(kind, flags, stream, bytes(self._received[at + 9 : at + 9 + length]))
            at += 9 + length
        del self._received[:at]

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._transport.write(_frame(kind, ACK, 0, payload if kind == PING else b""))
        call = self._calls.get(stream)
        if call is None:
            return
        messages, on_message, ended = call
        if kind == DATA:
            self._unacknowledged += len(payload)
            messages += payload
            while len(messages) >= 5 and len(messages) >= 5 + (length := int.from_bytes(messages[1:5])):
                on_message(bytes(messages[5 : 5 + length]))
                del messages[: 5 + length]
            if self._unacknowledged > 2**20:
                update = struct.pack(">I", self._unacknowledged)
                self._transport.write(_frame(WINDOW_UPDATE, 0, 0, update) + _frame(WINDOW_UPDATE, 0, stream, update))
                self._unacknowledged = 0
        if flags & END_STREAM and kind in (DATA, HEADERS) and not ended.done():
            ended.set_result(None)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _request(prompt: str, max_tokens: int) -> bytes:
    sampling = inference_pb2.Sampling(temperature=0)
    return inference_pb2.GenerateRequest(prompt=prompt, max_tokens=max_tokens, sampling=sampling).SerializeToString()
