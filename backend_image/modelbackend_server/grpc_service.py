"""The door for callers: Inference."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

import grpc.aio

from modelbackend.v1 import inference_pb2, inference_pb2_grpc, model_info_pb2

from .admission import Admission
from .generation import Ended, Ending, Generation, Outcome, TokenMade
from .refusals import Reason, Refusal, abort
from .text import TextDecoder
from .wire import Reader, model_info

FINISH_REASONS = {
    Ending.STOP: inference_pb2.FINISH_REASON_STOP,
    Ending.LENGTH: inference_pb2.FINISH_REASON_LENGTH,
    Ending.CUT: inference_pb2.FINISH_REASON_CANCELLED,
}
CALLERS_HEAD_START_SECONDS = 0.1
"""A caller counts from when it sends, we from when we receive."""
OUTCOMES = {Ending.STOP: Outcome.STOP, Ending.LENGTH: Outcome.LENGTH, Ending.CUT: Outcome.CUT}

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]


class CallerGoneError(Exception):
    """The caller went while we wrote to it. grpc.aio has no public exception for that: it raises whatever."""


class Delivery(Protocol):
    """Where the answer goes. Both may raise CallerGoneError."""

    async def delta(self, text: str, token_count: int) -> None: ...
    async def finished(self, finished: inference_pb2.Finished) -> None: ...


class Whole:
    """Collects the answer for a call that answers once."""

    def __init__(self) -> None:
        self.response = inference_pb2.GenerateResponse()
        self._texts: list[str] = []

    async def delta(self, text: str, token_count: int) -> None:  # noqa: ARG002
        self._texts.append(text)

    async def finished(self, finished: inference_pb2.Finished) -> None:
        self.response.text = "".join(self._texts)
        self.response.finished.CopyFrom(finished)


class Stream:
    """Writes the answer as it comes. A write waits for a slow reader; the engine does not."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def delta(self, text: str, token_count: int) -> None:
        delta = inference_pb2.TextDelta(text=text, token_count=token_count)
        await self._write(inference_pb2.GenerateStreamResponse(delta=delta))

    async def finished(self, finished: inference_pb2.Finished) -> None:
        await self._write(inference_pb2.GenerateStreamResponse(finished=finished))

    async def _write(self, response: inference_pb2.GenerateStreamResponse) -> None:
        try:
            await self._context.write(response)
        except Exception as error:
            raise CallerGoneError from error


class InferenceService(inference_pb2_grpc.InferenceServicer):
    def __init__(self, admission: Admission, identity: model_info_pb2.Identity) -> None:
        self._admission = admission
        self._identity = identity

    async def Generate(  # noqa: N802
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> inference_pb2.GenerateResponse:
        whole = Whole()
        await self._generate(request, context, whole)
        return whole.response

    # A coroutine that writes, not a generator: a generator whose caller has gone ends when it is collected, and
    # until then it would hold the slot.
    async def GenerateStream(  # type: ignore[override]  # noqa: N802
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> None:
        await self._generate(request, context, Stream(context))

    async def Tokenize(  # noqa: N802
        self, request: inference_pb2.TokenizeRequest, context: Context
    ) -> inference_pb2.TokenizeResponse:
        reader = await self._reader(context)
        tokens = await asyncio.to_thread(reader.tokens, request)
        if isinstance(tokens, Refusal):
            await abort(context, tokens)
        vocabulary = reader.loaded.vocabulary
        return inference_pb2.TokenizeResponse(
            tokens=[inference_pb2.Token(id=token, piece=vocabulary.piece(token, special=True)) for token in tokens]
        )

    async def GetModelInfo(  # noqa: N802
        self,
        request: inference_pb2.GetModelInfoRequest,  # noqa: ARG002
        context: Context,
    ) -> inference_pb2.GetModelInfoResponse:
        reader = await self._reader(context)
        model = model_info(reader.loaded, self._admission.settings.model_sha256)
        return inference_pb2.GetModelInfoResponse(identity=self._identity, model=model)

    async def _reader(self, context: Context) -> Reader:
        """For what needs the vocabulary but no slot: also while draining, also when the queue is full."""
        if self._admission.reader is None:
            await abort(context, self._admission.not_loaded())
        return self._admission.reader

    async def _generate(self, request: inference_pb2.GenerateRequest, context: Context, delivery: Delivery) -> None:
        limit_seconds = self._admission.settings.request_timeout_seconds
        callers_seconds = context.time_remaining()
        seconds = limit_seconds if callers_seconds is None else min(callers_seconds, limit_seconds)
        generation = await self._accept(request, deadline=time.monotonic() + seconds)
        if isinstance(generation, Refusal):
            self._admission.count_refusal(generation.reason)
            await abort(context, generation)
        with self._admission.hosted(generation):
            refusal = await answer(generation, delivery)
        if refusal is not None:
            await abort(context, refusal)

    async def _accept(self, request: inference_pb2.GenerateRequest, deadline: float) -> Generation | Refusal:
        # Asked before the work of reading, so that a flood is refused cheaply; `accept` asks again after it.
        reader = self._admission.ready()
        if isinstance(reader, Refusal):
            return reader
        work = await asyncio.to_thread(reader.work, request)
        return work if isinstance(work, Refusal) else self._admission.accept(work, deadline)


async def answer(generation: Generation, delivery: Delivery) -> Refusal | None:
    """Delivers a generation to its end, and sets its outcome; returns the error that the call shall end with."""
    try:
        async with asyncio.timeout(generation.deadline - time.monotonic()):
            ending, token_count = await follow(generation, delivery)
            if ending is Ending.NEVER_STARTED:
                generation.outcome = Outcome.CUT
                return Refusal(Reason.STOPPED, "the server stopped before the request could start")
            if ending is Ending.DECODE_FAILED:
                generation.outcome = Outcome.FAILED
                return Refusal(Reason.DECODE_FAILED, "llama.cpp could not evaluate this request; see the server's log")
            await delivery.finished(_finished(generation, ending, token_count))
            generation.outcome = OUTCOMES[ending]
    except TimeoutError:
        generation.outcome = Outcome.DEADLINE
        if generation.leave():
            return Refusal(Reason.DEADLINE_IN_QUEUE, "the deadline passed in the queue; the request never started")
        return Refusal(Reason.DEADLINE_RUNNING, "the deadline passed while the request was running")
    except (asyncio.CancelledError, CallerGoneError) as gone:
        # The caller's own deadline reaches us as a cancel, and its clock began before ours.
        if time.monotonic() >= generation.deadline - CALLERS_HEAD_START_SECONDS:
            generation.outcome = Outcome.DEADLINE
        if isinstance(gone, asyncio.CancelledError):
            raise
    return None


async def follow(generation: Generation, delivery: Delivery) -> tuple[Ending, int]:
    """Delivers text as it comes; returns how it ended and the number of tokens made."""
    decoder = TextDecoder()
    made = 0
    while True:
        events = await generation.take()
        pieces = [event.piece for event in events if isinstance(event, TokenMade)]
        made += len(pieces)
        ended = events[-1] if isinstance(events[-1], Ended) else None
        text, token_count = decoder.feed(pieces, final=ended is not None)
        if text:
            await delivery.delta(text, token_count)
        if ended is not None:
            return ended.ending, made


def _finished(generation: Generation, ending: Ending, token_count: int) -> inference_pb2.Finished:
    work = generation.work
    return inference_pb2.Finished(
        finish_reason=FINISH_REASONS[ending],
        usage=inference_pb2.Usage(prompt_tokens=len(work.prompt), completion_tokens=token_count),
        seed=None if work.sampling.greedy else work.sampling.seed,
    )
