"""The door for callers over gRPC: Inference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc.aio

from modelbackend.v1 import inference_pb2, inference_pb2_grpc, model_info_pb2

from . import judging, vectors
from .admission import Admission
from .answering import AWork, Call, Results, generate, results
from .checks import REQUEST_ID_KEY, request_id
from .delivery import CallerGoneError, Delivery, Whole
from .interceptors import value
from .refusals import Refusal, abort
from .wire import Reader, model_info

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]


class Stream:
    """Writes the answer as it comes. A write waits for a slow reader; the engine does not."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def delta(self, delta: inference_pb2.TextDelta) -> None:
        await self._write(inference_pb2.GenerateStreamResponse(delta=delta))

    async def finished(self, finished: inference_pb2.Finished) -> None:
        await self._write(inference_pb2.GenerateStreamResponse(finished=finished))

    async def _write(self, response: inference_pb2.GenerateStreamResponse) -> None:
        try:
            await self._context.write(response)
        except Exception as error:
            # grpc.aio has no public exception for a caller that went: it raises whatever.
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

    async def Detokenize(  # noqa: N802
        self, request: inference_pb2.DetokenizeRequest, context: Context
    ) -> inference_pb2.DetokenizeResponse:
        reader = await self._reader(context)
        text = await asyncio.to_thread(reader.text, request.ids)
        if isinstance(text, Refusal):
            await abort(context, text)
        return inference_pb2.DetokenizeResponse(text=text)

    async def ApplyTemplate(  # noqa: N802
        self, request: inference_pb2.ApplyTemplateRequest, context: Context
    ) -> inference_pb2.ApplyTemplateResponse:
        reader = await self._reader(context)
        text = await asyncio.to_thread(reader.layout, request.chat)
        if isinstance(text, Refusal):
            await abort(context, text)
        return inference_pb2.ApplyTemplateResponse(text=text)

    async def Embed(  # noqa: N802
        self, request: inference_pb2.EmbedRequest, context: Context
    ) -> inference_pb2.EmbedResponse:
        most = self._admission.settings.max_batch_inputs
        work, made = await self._results(context, lambda reader: vectors.embed_work(reader, request, most))
        return vectors.embeddings(work, made.embedded)

    async def Rerank(  # noqa: N802
        self, request: inference_pb2.RerankRequest, context: Context
    ) -> inference_pb2.RerankResponse:
        most = self._admission.settings.max_batch_inputs
        work, made = await self._results(context, lambda reader: vectors.rerank_work(reader, request, most))
        return vectors.ranking(request, work, made.embedded)

    async def ScoreChoices(  # noqa: N802
        self, request: inference_pb2.ScoreChoicesRequest, context: Context
    ) -> inference_pb2.ScoreChoicesResponse:
        work, made = await self._results(context, lambda reader: judging.score_work(reader, request))
        return judging.scores(work, made.scored)

    async def Decide(  # noqa: N802
        self, request: inference_pb2.DecideRequest, context: Context
    ) -> inference_pb2.DecideResponse:
        question = judging.question(request)
        if isinstance(question, Refusal):
            await abort(context, self._admission.refused(question))
        work, made = await self._results(context, lambda reader: judging.decide_work(reader, request, question))
        return judging.decision(question, work, made.scored)

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
        call = await self._call(context)
        refusal = await generate(self._admission, request, delivery, call)
        if refusal is not None:
            await abort(context, refusal, (REQUEST_ID_KEY, call.request_id))

    async def _results(self, context: Context, read: Callable[[Reader], AWork | Refusal]) -> tuple[AWork, Results]:
        call = await self._call(context)
        made = await results(self._admission, read, call)
        if isinstance(made, Refusal):
            await abort(context, made, (REQUEST_ID_KEY, call.request_id))
        return made

    async def _call(self, context: Context) -> Call:
        name = request_id(value(context.invocation_metadata(), REQUEST_ID_KEY))
        if isinstance(name, Refusal):
            await abort(context, self._admission.refused(name))
        context.set_trailing_metadata(((REQUEST_ID_KEY, name),))
        return Call(name, context.time_remaining())
