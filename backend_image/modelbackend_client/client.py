"""The client for ordinary, synchronous code."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import grpc

from modelbackend.v1 import inference_pb2, inference_pb2_grpc

from . import requests
from .connecting import CHANNEL_OPTIONS, CONNECT_SECONDS, no_connection
from .errors import from_rpc


class Client:
    """One connection to one server. Every method raises CallError.

    `uid` and `model`, when given, are checked by the server on each call: an address may have changed hands.
    `timeout_seconds` is the deadline of each call, queue included; without one the server's own counts.
    """

    def __init__(
        self, address: str, *, uid: str | None = None, model: str | None = None, timeout_seconds: float | None = None
    ) -> None:
        self._address = address
        self._has_connected = False
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = inference_pb2_grpc.InferenceStub(self._channel)
        self._metadata = requests.identity(uid, model)
        self._timeout_seconds = timeout_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Also cancels what still runs."""
        self._channel.close()

    def generate(
        self,
        given: requests.Input,
        *,
        max_tokens: int | None = None,
        sampling: inference_pb2.Sampling | None = None,
    ) -> inference_pb2.GenerateResponse:
        request = requests.generate(given, max_tokens, sampling)
        self._connected()
        with _errors():
            return self._stub.Generate(request, timeout=self._timeout_seconds, metadata=self._metadata)

    def stream(
        self,
        given: requests.Input,
        *,
        max_tokens: int | None = None,
        sampling: inference_pb2.Sampling | None = None,
    ) -> Generator[requests.StreamEvent, None, None]:
        """Text as it is made, then one Finished. Closing the generator early cancels the request in the server."""
        request = requests.generate(given, max_tokens, sampling)
        self._connected()
        call = self._stub.GenerateStream(request, timeout=self._timeout_seconds, metadata=self._metadata)
        try:
            with _errors():
                for response in call:
                    yield response.delta if response.HasField("delta") else response.finished
        finally:
            call.cancel()

    def tokenize(self, given: requests.Input) -> list[inference_pb2.Token]:
        self._connected()
        with _errors():
            response = self._stub.Tokenize(
                requests.tokenize(given), timeout=self._timeout_seconds, metadata=self._metadata
            )
        return list(response.tokens)

    def model_info(self) -> inference_pb2.GetModelInfoResponse:
        self._connected()
        with _errors():
            return self._stub.GetModelInfo(
                inference_pb2.GetModelInfoRequest(), timeout=self._timeout_seconds, metadata=self._metadata
            )

    def _connected(self) -> None:
        """By a small call that waits: grpc's own future for this leaves a thread that fails when the channel closes."""
        if self._has_connected:
            return
        try:
            self._stub.GetModelInfo(inference_pb2.GetModelInfoRequest(), timeout=CONNECT_SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            if from_rpc(error).code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise no_connection(self._address) from None
        self._has_connected = True


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc(error) from None
