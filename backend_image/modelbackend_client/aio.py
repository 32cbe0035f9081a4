"""The client for asyncio; see Client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import grpc.aio

from modelbackend.v1 import inference_pb2, inference_pb2_grpc

from . import requests
from .connecting import CHANNEL_OPTIONS, CONNECT_SECONDS, no_connection
from .errors import from_rpc


class AsyncClient:
    def __init__(
        self, address: str, *, uid: str | None = None, model: str | None = None, timeout_seconds: float | None = None
    ) -> None:
        self._address = address
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub: inference_pb2_grpc.InferenceAsyncStub = inference_pb2_grpc.InferenceStub(self._channel)
        self._metadata = requests.identity(uid, model)
        self._timeout_seconds = timeout_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def generate(
        self,
        given: requests.Input,
        *,
        max_tokens: int | None = None,
        sampling: inference_pb2.Sampling | None = None,
    ) -> inference_pb2.GenerateResponse:
        request = requests.generate(given, max_tokens, sampling)
        await self._connected()
        with _errors():
            return await self._stub.Generate(request, timeout=self._timeout_seconds, metadata=self._metadata)

    async def stream(
        self,
        given: requests.Input,
        *,
        max_tokens: int | None = None,
        sampling: inference_pb2.Sampling | None = None,
    ) -> AsyncGenerator[requests.StreamEvent, None]:
        """Text as it is made, then one Finished.

        To leave the loop early, close the iterator (contextlib.aclosing): that cancels the request in the server.
        """
        request = requests.generate(given, max_tokens, sampling)
        await self._connected()
        call = self._stub.GenerateStream(request, timeout=self._timeout_seconds, metadata=self._metadata)
        try:
            with _errors():
                async for response in call:
                    yield response.delta if response.HasField("delta") else response.finished
        finally:
            call.cancel()

    async def tokenize(self, given: requests.Input) -> list[inference_pb2.Token]:
        request = requests.tokenize(given)
        await self._connected()
        with _errors():
            response = await self._stub.Tokenize(request, timeout=self._timeout_seconds, metadata=self._metadata)
        return list(response.tokens)

    async def model_info(self) -> inference_pb2.GetModelInfoResponse:
        request = inference_pb2.GetModelInfoRequest()
        await self._connected()
        with _errors():
            return await self._stub.GetModelInfo(request, timeout=self._timeout_seconds, metadata=self._metadata)

    async def _connected(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._channel.channel_ready()
        except TimeoutError:
            raise no_connection(self._address) from None


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error) from None
