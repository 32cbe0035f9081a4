"""The door for callers over gRPC: Inference."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc.aio

from modelbackend.v1 import inference_pb2, inference_pb2_grpc, model_info_pb2

from .admission import Admission
from .answering import CallerGoneError, Delivery, Whole, generate
from .checks import REQUEST_ID_KEY, request_id
from .interceptors import value
from .refusals import Reason, Refusal, abort
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
        text = await asyncio.to_thread(reader.layout, request.chat.messages)
        if isinstance(text, Refusal):
            await abort(context, text)
        return inference_pb2.ApplyTemplateResponse(text=text)

    async def Embed(  # noqa: N802
        self,
        request: inference_pb2.EmbedRequest,  # noqa: ARG002
        context: Context,
    ) -> inference_pb2.EmbedResponse:
        words = "this model generates text; ask a ModelBackend of mode Embed for vectors"
        await abort(context, Refusal(Reason.MODEL_CANNOT, words))

    async def Rerank(  # noqa: N802
        self,
        request: inference_pb2.RerankRequest,  # noqa: ARG002
        context: Context,
    ) -> inference_pb2.RerankResponse:
        await abort(context, Refusal(Reason.MODEL_CANNOT, "this model generates text; it ranks no documents"))

    async def ScoreChoices(  # noqa: N802
        self,
        request: inference_pb2.ScoreChoicesRequest,  # noqa: ARG002
        context: Context,
    ) -> inference_pb2.ScoreChoicesResponse:
        await abort(context, Refusal(Reason.UNSUPPORTED, "this version of the server does not score choices"))

    async def Decide(  # noqa: N802
        self,
        request: inference_pb2.DecideRequest,  # noqa: ARG002
        context: Context,
    ) -> inference_pb2.DecideResponse:
        await abort(context, Refusal(Reason.UNSUPPORTED, "this version of the server does not decide"))

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
        name = request_id(value(context.invocation_metadata(), REQUEST_ID_KEY))
        if isinstance(name, Refusal):
            await abort(context, name)
        context.set_trailing_metadata(((REQUEST_ID_KEY, name),))
        refusal = await generate(
            self._admission, request, delivery, request_id=name, callers_seconds=context.time_remaining()
        )
        if refusal is not None:
            await abort(context, refusal, (REQUEST_ID_KEY, name))
