"""The client for asyncio; see Client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import grpc.aio

from modelbackend.v1 import inference_pb2, inference_pb2_grpc

from . import requests
from .connecting import CHANNEL_OPTIONS, Tls, connect_seconds, no_connection
from .directory import Directory, directory_of
from .errors import CallError, from_rpc
from .routing import Attempts, Endpoint, Wait, too_many

Request = TypeVar("Request")
Response = TypeVar("Response")
if TYPE_CHECKING:
    Stub = inference_pb2_grpc.InferenceAsyncStub
    Method = Callable[[Stub], grpc.aio.UnaryUnaryMultiCallable[Request, Response]]


class AsyncClient:
    def __init__(
        self,
        target: str,
        *,
        uid: str | None = None,
        model: str | None = None,
        timeout_seconds: float | None = None,
        owner_wait_seconds: float | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        directory: Directory | None = None,
    ) -> None:
        self._directory, wait_seconds = (directory, 0.0) if directory is not None else directory_of(target, uid)
        self._owner_wait_seconds = wait_seconds if owner_wait_seconds is None else owner_wait_seconds
        self._timeout_seconds = timeout_seconds
        self._tls = tls
        self._caller = requests.Caller(model=model, token=token)
        self._channels: dict[str, tuple[grpc.aio.Channel, Stub]] = {}
        self._waiting = 0
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._directory.listen(self._on_change)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Also cancels what still runs."""
        self._directory.close()
        channels, self._channels = self._channels, {}
        for channel, _ in channels.values():
            await channel.close()

    async def generate(
        self, given: requests.Input, *, max_tokens: int | None = None, sampling: inference_pb2.Sampling | None = None
    ) -> inference_pb2.GenerateResponse:
        return await self.call(lambda stub: stub.Generate, requests.generate(given, max_tokens, sampling))

    async def stream(
        self, given: requests.Input, *, max_tokens: int | None = None, sampling: inference_pb2.Sampling | None = None
    ) -> AsyncGenerator[requests.StreamEvent, None]:
        """Text as it is made, then one Finished.

        To leave the loop early, close the iterator (contextlib.aclosing): that cancels the request in the server.
        """
        async for event in self.stream_of(requests.generate(given, max_tokens, sampling)):
            yield event

    async def embed(self, inputs: Sequence[str], *, normalize: bool | None = None) -> inference_pb2.EmbedResponse:
        return await self.call(lambda stub: stub.Embed, requests.embed(inputs, normalize))

    async def rerank(
        self, query: str, documents: Sequence[str], *, top_n: int | None = None
    ) -> inference_pb2.RerankResponse:
        return await self.call(lambda stub: stub.Rerank, requests.rerank(query, documents, top_n))

    async def score(self, given: requests.Input, choices: Sequence[str]) -> inference_pb2.ScoreChoicesResponse:
        return await self.call(lambda stub: stub.ScoreChoices, requests.score(given, choices))

    async def decide(self, given: requests.Input, question: requests.Question) -> inference_pb2.DecideResponse:
        return await self.call(lambda stub: stub.Decide, requests.decide(given, question))

    async def tokenize(self, given: requests.Input) -> list[inference_pb2.Token]:
        return list((await self.call(lambda stub: stub.Tokenize, requests.tokenize(given))).tokens)

    async def detokenize(self, ids: Sequence[int]) -> str:
        return (await self.call(lambda stub: stub.Detokenize, inference_pb2.DetokenizeRequest(ids=ids))).text

    async def apply_template(self, messages: Sequence[inference_pb2.ChatMessage]) -> str:
        return (await self.call(lambda stub: stub.ApplyTemplate, requests.apply_template(messages))).text

    async def model_info(self) -> inference_pb2.GetModelInfoResponse:
        return await self.call(lambda stub: stub.GetModelInfo, inference_pb2.GetModelInfoRequest())

    # ---- any request

    async def call(self, method: Method[Request, Response], request: Request) -> Response:
        """Sends a whole request of the protocol: for the fields that the methods above do not name."""
        attempts = self._attempts()
        while True:
            async with self._try(attempts) as (endpoint, stub):
                timeout, metadata = attempts.seconds_left(time.monotonic()), self._caller.metadata(endpoint)
                try:
                    return await method(stub)(request, timeout=timeout, metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    raise from_rpc(error) from None

    async def stream_of(self, request: inference_pb2.GenerateRequest) -> AsyncGenerator[requests.StreamEvent, None]:
        """As `stream`, of a whole request. Once something has come, an error ends it."""
        attempts = self._attempts()
        begun = False
        while True:
            async with self._try(attempts) as (endpoint, stub):
                timeout, metadata = attempts.seconds_left(time.monotonic()), self._caller.metadata(endpoint)
                call = stub.GenerateStream(request, timeout=timeout, metadata=metadata)
                try:
                    async for response in call:
                        begun = True
                        yield response.delta if response.HasField("delta") else response.finished
                except grpc.aio.AioRpcError as error:
                    raise from_rpc(error, begun=begun) from None
                else:
                    return
                finally:
                    call.cancel()

    def _attempts(self) -> Attempts:
        return Attempts.begin(
            time.monotonic(), owner_wait_seconds=self._owner_wait_seconds, timeout_seconds=self._timeout_seconds
        )

    @asynccontextmanager
    async def _try(self, attempts: Attempts) -> AsyncIterator[tuple[Endpoint, Stub]]:
        """One try, and what comes of it if it fails: the error, or nothing, and then there is another try."""
        endpoint, stub = await self._connect(attempts)
        try:
            yield endpoint, stub
        except CallError as error:
            attempts.failed(endpoint, error, time.monotonic())

    async def _connect(self, attempts: Attempts) -> tuple[Endpoint, Stub]:
        """An instance that there is a connection to."""
        while True:
            endpoint = await self._endpoint(attempts)
            seconds = connect_seconds(attempts.seconds_left(time.monotonic()))
            try:
                return endpoint, await self._connected(endpoint.address, seconds)
            except CallError as error:
                attempts.failed(endpoint, error, time.monotonic())

    async def _endpoint(self, attempts: Attempts) -> Endpoint:
        while isinstance(found := attempts.next(self._directory.view, time.monotonic()), Wait):
            if self._waiting >= requests.WAITING_MAX:
                raise too_many(self._waiting)
            self._waiting += 1
            try:
                await self._change(found.seconds)
            finally:
                self._waiting -= 1
        return found

    async def _change(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _on_change(self) -> None:
        """On the directory's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _channel(self, address: str) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        options = (*CHANNEL_OPTIONS, *self._tls.options())
        return grpc.aio.secure_channel(address, self._tls.credentials(), options=options)

    async def _connected(self, address: str, seconds: float) -> Stub:
        if address not in self._channels:
            channel = self._channel(address)
            self._channels[address] = (channel, inference_pb2_grpc.InferenceStub(channel))
        channel, stub = self._channels[address]
        try:
            async with asyncio.timeout(seconds):
                await channel.channel_ready()
        except TimeoutError:
            raise no_connection(address, seconds) from None
        return stub
