"""The door for callers over HTTP: OpenAI's API, /health and /metrics."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from . import openai_wire, vectors
from .admission import Admission
from .answering import Call, generate, results
from .checks import REQUEST_ID_KEY, Checks, request_id
from .lifecycle import State
from .log import logger
from .openai_answers import Answer, ChatShape, CompletionShape, Envelope, EventStream, Shape, ToolsShape, WholeAnswer
from .openai_errors import error_response, http_error
from .openai_messages import Json
from .openai_wire import ChatCompletion, Completion, Embeddings, Rerank
from .refusals import Reason, Refusal

TIMEOUT_KEY = "x-modelbackend-timeout-seconds"
"""The caller's own deadline, from when the server reads it."""
BODY_SECONDS = 30.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OpenAiHttp:
    def __init__(self, admission: Admission, checks: Checks, *, body_bytes_max: int) -> None:
        self._admission = admission
        self._checks = checks
        self._created = int(time.time())
        self.app = web.Application(middlewares=[self._guard], client_max_size=body_bytes_max)
        self.app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{model:.+}", self._model),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
                web.post("/v1/embeddings", self._embeddings),
                web.post("/v1/rerank", self._rerank),
            ]
        )

    # ---- around every call

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Checks the call, and puts every error into the shape that clients read."""
        if request.path != "/health" and (refusal := self._checks.refusal(request.headers.get)):
            return self._refused(refusal)
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return http_error(request, error)
        except Exception:
            logger().exception("a call of the HTTP door broke", path=request.path)
            return error_response(Refusal(Reason.DECODE_FAILED, "the server broke on this request; see its log"))

    def _refused(self, refusal: Refusal, name: str = "") -> web.Response:
        return error_response(self._admission.refused(refusal), name)

    # ---- for those who watch

    async def _health(self, _: web.Request) -> web.Response:
        state = self._admission.lifecycle.state
        serving = state is State.SERVING
        return web.json_response({"status": "ok" if serving else state.value}, status=200 if serving else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        text = generate_latest(self._admission.metrics.registry)
        return web.Response(body=text, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST})

    async def _models(self, _: web.Request) -> web.Response:
        refusal = self._not_serving()
        return error_response(refusal) if refusal else web.json_response({"object": "list", "data": [self._card()]})

    async def _model(self, request: web.Request) -> web.Response:
        refusal = self._not_serving() or self._checks.model_refusal(request.match_info["model"])
        return error_response(refusal) if refusal else web.json_response(self._card())

    def _not_serving(self) -> Refusal | None:
        ready = self._admission.ready()
        return ready if isinstance(ready, Refusal) and ready.reason is not Reason.QUEUE_FULL else None

    def _card(self) -> Json:
        model = self._checks.identity.model
        return {"id": model, "object": "model", "created": self._created, "owned_by": "modelbackend"}

    # ---- for those who ask the model

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        def shape(body: ChatCompletion) -> Shape:
            return ToolsShape() if body.may_call else ChatShape()

        return await self._answer(request, ChatCompletion, shape, "chatcmpl", "chat.completion")

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, Completion, lambda _: CompletionShape(), "cmpl", "text_completion")

    async def _answer(
        self, request: web.Request, kind: type[Any], shape_of: Callable[[Any], Shape], prefix: str, object_name: str
    ) -> web.StreamResponse:
        read = await self._call(request, kind)
        if isinstance(read, web.Response):
            return read
        call, body = read
        envelope = Envelope(
            f"{object_name}.chunk" if body.stream and kind is ChatCompletion else object_name,
            f"{prefix}-{call.request_id}",
            self._checks.identity.model,
        )
        shape = shape_of(body)
        answer: Answer = WholeAnswer(envelope, shape, call.request_id)
        if body.stream:
            with_usage = bool(body.stream_options and body.stream_options.include_usage)
            answer = EventStream(request, envelope, shape, call.request_id, usage_at_the_end=with_usage)
        refusal = await generate(self._admission, body.request(), answer, call)
        return await answer.respond(refusal)

    async def _embeddings(self, request: web.Request) -> web.Response:
        read = await self._call(request, Embeddings)
        if isinstance(read, web.Response):
            return read
        call, body = read
        asked, most = body.request(), self._admission.settings.max_batch_inputs
        made = await results(self._admission, lambda reader: vectors.embed_work(reader, asked, most), call)
        if isinstance(made, Refusal):
            return error_response(made, call.request_id)
        return self._found(openai_wire.embeddings(body, vectors.embeddings(made[0], made[1].embedded)), call)

    async def _rerank(self, request: web.Request) -> web.Response:
        read = await self._call(request, Rerank)
        if isinstance(read, web.Response):
            return read
        call, body = read
        asked, most = body.request(), self._admission.settings.max_batch_inputs
        made = await results(self._admission, lambda reader: vectors.rerank_work(reader, asked, most), call)
        if isinstance(made, Refusal):
            return error_response(made, call.request_id)
        return self._found(openai_wire.ranking(body, vectors.ranking(asked, made[0], made[1].embedded)), call)

    def _found(self, answer: Json, call: Call) -> web.Response:
        whole = answer | {"model": self._checks.identity.model}
        return web.json_response(whole, headers={REQUEST_ID_KEY: call.request_id})

    async def _call(self, request: web.Request, kind: type[Any]) -> tuple[Call, Any] | web.Response:
        """The call's name, its deadline and its body; or the answer that says what is wrong with one of them."""
        name = request_id(request.headers.get(REQUEST_ID_KEY))
        if isinstance(name, Refusal):
            return self._refused(name)
        seconds = _callers_seconds(request)
        if isinstance(seconds, Refusal):
            return self._refused(seconds, name)
        body = await self._read(request, kind)
        if isinstance(body, Refusal):
            return self._refused(body, name)
        return Call(name, seconds), body

    async def _read(self, request: web.Request, kind: type[Any]) -> Any:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                data = await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the body did not come whole within {BODY_SECONDS:g} s") from None
        body = openai_wire.read(kind, data)
        if isinstance(body, Refusal) or body.model is None:
            return body
        return self._checks.model_refusal(body.model) or body


def _callers_seconds(request: web.Request) -> float | Refusal | None:
    text = request.headers.get(TIMEOUT_KEY)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds < math.inf:
        return seconds
    return Refusal(Reason.BAD_REQUEST, f"{TIMEOUT_KEY} must be a number of seconds, more than 0", TIMEOUT_KEY)
