"""The client for ordinary, synchronous code."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import grpc

from modelbackend.v1 import inference_pb2, inference_pb2_grpc

from . import requests
from .connecting import CHANNEL_OPTIONS, Tls, connect_seconds, no_connection
from .directory import Directory, directory_of
from .errors import CallError, from_rpc
from .routing import Attempts, Endpoint, Wait, too_many

Request = TypeVar("Request")
Response = TypeVar("Response")
if TYPE_CHECKING:
    Stub = inference_pb2_grpc.InferenceStub
    Method = Callable[[Stub], grpc.UnaryUnaryMultiCallable[Request, Response]]


class Client:
    """Calls to one ModelBackend, from any thread. Every method raises CallError.

    `target` is an address, `host:port`, or `namespace/name` of a ModelBackend, whose instances are then followed in the
    cluster and told whom the call is meant for: a stale view is refused, never answered by another model. A call waits
    for an instance at most `owner_wait_seconds` (30 for a name, 0 for an address) and goes to another one at most four
    times, only where the first has said that it did not start it.

    `uid` and `model`, when given, are checked by the server on each call: an address may have changed hands.
    `timeout_seconds` is the deadline of each call, queue and waits included; without one the server's own counts.
    `token` is what a server asks for that has one, `tls` how to speak to one that speaks no plain text.
    """

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
        self._channels: dict[str, tuple[grpc.Channel, Stub]] = {}
        self._has_connected: set[str] = set()
        self._waiting = 0
        self._changed = threading.Condition()
        self._directory.listen(self._on_change)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Also cancels what still runs."""
        self._directory.close()
        channels, self._channels = self._channels, {}
        for channel, _ in channels.values():
            channel.close()

    def generate(
        self, given: requests.Input, *, max_tokens: int | None = None, sampling: inference_pb2.Sampling | None = None
    ) -> inference_pb2.GenerateResponse:
        return self.call(lambda stub: stub.Generate, requests.generate(given, max_tokens, sampling))

    def stream(
        self, given: requests.Input, *, max_tokens: int | None = None, sampling: inference_pb2.Sampling | None = None
    ) -> Generator[requests.StreamEvent, None, None]:
        """Text as it is made, then one Finished. Closing the generator early cancels the request in the server."""
        return self.stream_of(requests.generate(given, max_tokens, sampling))

    def embed(self, inputs: Sequence[str], *, normalize: bool | None = None) -> inference_pb2.EmbedResponse:
        return self.call(lambda stub: stub.Embed, requests.embed(inputs, normalize))

    def rerank(self, query: str, documents: Sequence[str], *, top_n: int | None = None) -> inference_pb2.RerankResponse:
        return self.call(lambda stub: stub.Rerank, requests.rerank(query, documents, top_n))

    def score(self, given: requests.Input, choices: Sequence[str]) -> inference_pb2.ScoreChoicesResponse:
        return self.call(lambda stub: stub.ScoreChoices, requests.score(given, choices))

    def decide(self, given: requests.Input, question: requests.Question) -> inference_pb2.DecideResponse:
        """`question`: the possible answers as a list of texts, numbers as a range, or bool for yes or no."""
        return self.call(lambda stub: stub.Decide, requests.decide(given, question))

    def tokenize(self, given: requests.Input) -> list[inference_pb2.Token]:
        return list(self.call(lambda stub: stub.Tokenize, requests.tokenize(given)).tokens)

    def detokenize(self, ids: Sequence[int]) -> str:
        return self.call(lambda stub: stub.Detokenize, inference_pb2.DetokenizeRequest(ids=ids)).text

    def apply_template(self, messages: Sequence[inference_pb2.ChatMessage]) -> str:
        return self.call(lambda stub: stub.ApplyTemplate, requests.apply_template(messages)).text

    def model_info(self) -> inference_pb2.GetModelInfoResponse:
        return self.call(lambda stub: stub.GetModelInfo, inference_pb2.GetModelInfoRequest())

    # ---- any request

    def call(self, method: Method[Request, Response], request: Request) -> Response:
        """Sends a whole request of the protocol: for the fields that the methods above do not name."""
        attempts = self._attempts()
        while True:
            with self._try(attempts) as (endpoint, stub):
                timeout, metadata = attempts.seconds_left(time.monotonic()), self._caller.metadata(endpoint)
                try:
                    return method(stub)(request, timeout=timeout, metadata=metadata)
                except grpc.RpcError as error:
                    raise from_rpc(error) from None

    def stream_of(self, request: inference_pb2.GenerateRequest) -> Generator[requests.StreamEvent, None, None]:
        """As `stream`, of a whole request. Once something has come, an error ends it."""
        attempts = self._attempts()
        begun = False
        while True:
            with self._try(attempts) as (endpoint, stub):
                timeout, metadata = attempts.seconds_left(time.monotonic()), self._caller.metadata(endpoint)
                call = stub.GenerateStream(request, timeout=timeout, metadata=metadata)
                try:
                    for response in call:
                        begun = True
                        yield response.delta if response.HasField("delta") else response.finished
                except grpc.RpcError as error:
                    raise from_rpc(error, begun=begun) from None
                else:
                    return
                finally:
                    call.cancel()

    def _attempts(self) -> Attempts:
        return Attempts.begin(
            time.monotonic(), owner_wait_seconds=self._owner_wait_seconds, timeout_seconds=self._timeout_seconds
        )

    @contextmanager
    def _try(self, attempts: Attempts) -> Iterator[tuple[Endpoint, Stub]]:
        """One try, and what comes of it if it fails: the error, or nothing, and then there is another try."""
        endpoint, stub = self._connect(attempts)
        try:
            yield endpoint, stub
        except CallError as error:
            if error.code is grpc.StatusCode.UNAVAILABLE:
                self._has_connected.discard(endpoint.address)
            attempts.failed(endpoint, error, time.monotonic())

    def _connect(self, attempts: Attempts) -> tuple[Endpoint, Stub]:
        """An instance that there is a connection to."""
        while True:
            endpoint = self._endpoint(attempts)
            seconds = connect_seconds(attempts.seconds_left(time.monotonic()))
            try:
                return endpoint, self._connected(endpoint.address, seconds)
            except CallError as error:
                attempts.failed(endpoint, error, time.monotonic())

    def _endpoint(self, attempts: Attempts) -> Endpoint:
        with self._changed:
            while isinstance(found := attempts.next(self._directory.view, time.monotonic()), Wait):
                if self._waiting >= requests.WAITING_MAX:
                    raise too_many(self._waiting)
                self._waiting += 1
                try:
                    self._changed.wait(found.seconds)
                finally:
                    self._waiting -= 1
            return found

    def _on_change(self) -> None:
        """On the directory's thread."""
        with self._changed:
            self._changed.notify_all()

    def _channel(self, address: str) -> grpc.Channel:
        if self._tls is None:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        options = (*CHANNEL_OPTIONS, *self._tls.options())
        return grpc.secure_channel(address, self._tls.credentials(), options=options)

    def _connected(self, address: str, seconds: float) -> Stub:
        """By a small call that waits: grpc's own future for this leaves a thread that fails when the channel closes."""
        with self._changed:
            if address not in self._channels:
                channel = self._channel(address)
                self._channels[address] = (channel, inference_pb2_grpc.InferenceStub(channel))
            _, stub = self._channels[address]
        if address not in self._has_connected:
            try:
                stub.GetModelInfo(inference_pb2.GetModelInfoRequest(), timeout=seconds, wait_for_ready=True)
            except grpc.RpcError as error:
                if from_rpc(error).code is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise no_connection(address, seconds) from None
            self._has_connected.add(address)
        return stub
