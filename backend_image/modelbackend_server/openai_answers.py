"""How an answer is written over HTTP: as one JSON object, or as server-sent events."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from typing import Protocol

from aiohttp import hdrs, web

from modelbackend.v1 import inference_pb2

from . import openai_wire
from .answering import CUT
from .checks import REQUEST_ID_KEY
from .delivery import CallerGoneError, Delivery, Whole
from .openai_errors import error_body, error_response
from .openai_messages import Json
from .refusals import Reason, Refusal
from .tools import CLOSE, CallReader, ToolCall

# Made once: json.dumps makes one at each call that names options.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Shape(Protocol):
    """How one kind of completion looks in JSON."""

    def whole(self, response: inference_pb2.GenerateResponse) -> Json: ...
    def beginning(self) -> list[Json]: ...
    def delta(self, delta: inference_pb2.TextDelta) -> list[Json]: ...
    def ending(self, finished: inference_pb2.Finished) -> list[Json]: ...


class ChatShape:
    def whole(self, response: inference_pb2.GenerateResponse) -> Json:
        return {
            "index": 0,
            "message": {"role": "assistant", "content": response.text, "refusal": None},
            "logprobs": openai_wire.chat_logprobs(response.logprobs),
            "finish_reason": openai_wire.FINISH_REASONS[response.finished.finish_reason],
        }

    def beginning(self) -> list[Json]:
        return [_chat_choice({"role": "assistant", "content": ""})]

    def delta(self, delta: inference_pb2.TextDelta) -> list[Json]:
        return [_chat_choice({"content": delta.text}, openai_wire.chat_logprobs(delta.logprobs))]

    def ending(self, finished: inference_pb2.Finished) -> list[Json]:
        return [_chat_choice({}) | {"finish_reason": openai_wire.FINISH_REASONS[finished.finish_reason]}]


class ToolsShape:
    """Of a chat whose model may call tools: calls are taken out of the text, each whole."""

    def __init__(self) -> None:
        self._reader = CallReader()
        self._calls = 0

    def whole(self, response: inference_pb2.GenerateResponse) -> Json:
        parts = self._reader.feed(response.text) + self._rest(response.finished)
        text = "".join(part for part in parts if isinstance(part, str))
        calls = [self._call(part) for part in parts if isinstance(part, ToolCall)]
        message: Json = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            # White space between calls is nobody's text.
            message |= {"content": text.strip() or None, "tool_calls": calls}
        return {
            "index": 0,
            "message": message,
            "logprobs": openai_wire.chat_logprobs(response.logprobs),
            "finish_reason": self._finish_reason(response.finished),
        }

    def beginning(self) -> list[Json]:
        return [_chat_choice({"role": "assistant", "content": ""})]

    def delta(self, delta: inference_pb2.TextDelta) -> list[Json]:
        deltas = self._deltas(self._reader.feed(delta.text))
        logprobs = openai_wire.chat_logprobs(delta.logprobs)
        if logprobs is not None:
            # They come when their tokens do, also while it is open what these belong to.
            deltas.insert(0, _chat_choice({}, logprobs))
        return deltas

    def ending(self, finished: inference_pb2.Finished) -> list[Json]:
        deltas = self._deltas(self._rest(finished))
        return [*deltas, _chat_choice({}) | {"finish_reason": self._finish_reason(finished)}]

    def _rest(self, finished: inference_pb2.Finished) -> list[str | ToolCall]:
        closing = self._reader.feed(CLOSE) if finished.matched_stop == CLOSE else []
        return closing + self._reader.flush()

    def _deltas(self, parts: list[str | ToolCall]) -> list[Json]:
        return [
            _chat_choice(
                {"content": part} if isinstance(part, str) else {"tool_calls": [self._call(part, indexed=True)]}
            )
            for part in parts
        ]

    def _call(self, call: ToolCall, *, indexed: bool = False) -> Json:
        index = {"index": self._calls} if indexed else {}
        self._calls += 1
        function = {"name": call.name, "arguments": call.arguments}
        return index | {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}

    def _finish_reason(self, finished: inference_pb2.Finished) -> str:
        reason = openai_wire.FINISH_REASONS[finished.finish_reason]
        return "tool_calls" if self._calls and reason == "stop" else reason


def _chat_choice(delta: Json, logprobs: Json | None = None) -> Json:
    return {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": None}


class CompletionShape:
    def __init__(self) -> None:
        self._offset = 0

    def whole(self, response: inference_pb2.GenerateResponse) -> Json:
        return {
            "index": 0,
            "text": response.text,
            "logprobs": openai_wire.completion_logprobs(response.logprobs, 0),
            "finish_reason": openai_wire.FINISH_REASONS[response.finished.finish_reason],
        }

    def beginning(self) -> list[Json]:
        return []

    def delta(self, delta: inference_pb2.TextDelta) -> list[Json]:
        logprobs = openai_wire.completion_logprobs(delta.logprobs, self._offset)
        self._offset += len(delta.text)
        return [{"index": 0, "text": delta.text, "logprobs": logprobs, "finish_reason": None}]

    def ending(self, finished: inference_pb2.Finished) -> list[Json]:
        reason = openai_wire.FINISH_REASONS[finished.finish_reason]
        return [{"index": 0, "text": "", "logprobs": None, "finish_reason": reason}]


class Envelope:
    """What surrounds every choice of one answer."""

    def __init__(self, object_name: str, identifier: str, model: str) -> None:
        self._fields: Json = {"id": identifier, "object": object_name, "created": int(time.time()), "model": model}

    def around(self, *choices: Json, **more: object) -> Json:
        return self._fields | {"choices": list(choices)} | more


class Answer(Delivery, Protocol):
    async def respond(self, refusal: Refusal | None) -> web.StreamResponse:
        """The response, once the request has ended."""
        ...


class WholeAnswer(Whole):
    def __init__(self, envelope: Envelope, shape: Shape, name: str) -> None:
        super().__init__()
        self._envelope = envelope
        self._shape = shape
        self._name = name

    async def respond(self, refusal: Refusal | None) -> web.StreamResponse:
        finished = self.response.finished
        if refusal is None and finished.finish_reason == inference_pb2.FINISH_REASON_CANCELLED:
            refusal = CUT
        if refusal is not None:
            return error_response(refusal, self._name)
        answer = self._envelope.around(self._shape.whole(self.response), usage=openai_wire.usage(finished))
        return web.json_response(answer, headers={REQUEST_ID_KEY: self._name})


class EventStream:
    """The response begins with the first event: until then an error has a status of its own."""

    def __init__(
        self, request: web.Request, envelope: Envelope, shape: Shape, name: str, *, usage_at_the_end: bool
    ) -> None:
        self._request = request
        self._envelope = envelope
        self._shape = shape
        self._name = name
        self._usage_at_the_end = usage_at_the_end
        self._cut = False
        self._response = web.StreamResponse(
            headers={
                hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8",
                hdrs.CACHE_CONTROL: "no-cache",
                # A proxy (nginx) that collects the events would make a stream of it no more.
                "x-accel-buffering": "no",
                REQUEST_ID_KEY: name,
            }
        )

    async def delta(self, delta: inference_pb2.TextDelta) -> None:
        await self._choices([*self._first(), *self._shape.delta(delta)])

    async def finished(self, finished: inference_pb2.Finished) -> None:
        if finished.finish_reason not in openai_wire.FINISH_REASONS:
            self._cut = True
            return
        await self._choices([*self._first(), *self._shape.ending(finished)])
        usage = self._envelope.around(usage=openai_wire.usage(finished))
        await self._write((_event(usage) if self._usage_at_the_end else "") + "data: [DONE]\n\n")

    async def respond(self, refusal: Refusal | None) -> web.StreamResponse:
        if refusal is None and self._cut:
            refusal = CUT
        if refusal is not None:
            if not self._response.prepared:
                return error_response(refusal, self._name)
            if refusal.reason is Reason.STALLED and self._request.transport is not None:
                # It reads no last words either, and would hold the connection with what is on the way for ever.
                self._request.transport.abort()
        with contextlib.suppress(CallerGoneError, ConnectionError):
            if refusal is not None:
                # The official clients raise an event that holds an error. The stream then ends without [DONE].
                await self._write(_event(error_body(refusal)))
            await self._response.write_eof()
        return self._response

    def _first(self) -> list[Json]:
        return [] if self._response.prepared else self._shape.beginning()

    async def _choices(self, choices: list[Json]) -> None:
        # With usage asked for, every chunk but the last says that it has none.
        more = {"usage": None} if self._usage_at_the_end else {}
        if choices:
            await self._write("".join(_event(self._envelope.around(choice, **more)) for choice in choices))

    async def _write(self, text: str) -> None:
        try:
            if not self._response.prepared:
                await self._response.prepare(self._request)
            await self._response.write(text.encode())
        except ConnectionError as error:
            raise CallerGoneError from error


def _event(data: Json) -> str:
    return f"data: {_ENCODER.encode(data)}\n\n"
