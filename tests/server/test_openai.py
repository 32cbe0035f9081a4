"""The HTTP door as the official OpenAI client meets it: its objects, its streams, its exceptions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from modelbackend.v1 import control_pb2, inference_pb2
from modelbackend_client import user
from modelbackend_server.exits import ExitCode
from modelbackend_server.llama import Context, DecodeError
from tests.server.harness import GREEDY, LONG, PATIENCE_SECONDS, Gate, Running, running
from tests.server.slow_load import slow_load
from tests.server.tiny_gguf import CONTEXT_LENGTH

MODEL = "tiny"
HELLO: Any = [{"role": "user", "content": "the time"}]
Call = Callable[[openai.AsyncOpenAI], Awaitable[object]]


def completion(client: openai.AsyncOpenAI, **given: Any) -> Awaitable[Any]:
    arguments: dict[str, Any] = {"model": MODEL, "prompt": "the", "max_tokens": 5, "temperature": 0}
    return client.completions.create(**(arguments | given))


def chat(client: openai.AsyncOpenAI, **given: Any) -> Awaitable[Any]:
    arguments: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 5, "temperature": 0}
    return client.chat.completions.create(**(arguments | given))


async def test_the_one_model_is_listed_under_its_name(tiny: Path) -> None:
    async with running(tiny) as server, server.openai() as client:
        (listed,) = (await client.models.list()).data
        assert (listed.id, listed.object) == (MODEL, "model")
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError, match="'tiny', not 'another'"):
            await client.models.retrieve("another")


async def test_a_chat_is_answered_with_the_text_that_grpc_gives(tiny: Path) -> None:
    async with running(tiny) as server, server.openai() as client:
        expected = await server.client.generate([user("the time")], max_tokens=12, sampling=GREEDY)
        answer = await chat(client, max_tokens=12)
        (choice,) = answer.choices
        assert choice.message.content == expected.text
        assert (choice.message.role, choice.finish_reason, choice.logprobs) == ("assistant", "length", None)
        usage = expected.finished.usage
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (usage.prompt_tokens, 12)
        assert answer.usage.total_tokens == usage.prompt_tokens + 12
        assert (answer.object, answer.model) == ("chat.completion", MODEL)


@pytest.mark.parametrize(
    "given",
    [
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "time"}]}
            ]
        },
        {"max_tokens": None, "max_completion_tokens": 5},
        {"user": "someone", "metadata": {"a": "b"}, "store": False, "n": 1, "stream": False},
        {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}},
        {"extra_body": {"top_k": 40, "min_p": 0.1, "repeat_penalty": 1.0, "top_logprobs": None}},
        {"frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "stop": []},
        {"seed": 7, "top_p": 0.5},
    ],
)
async def test_what_says_the_same_in_other_words_gives_the_same_text(tiny: Path, given: dict[str, Any]) -> None:
    async with running(tiny) as server, server.openai() as client:
        expected = await chat(client)
        answer = await chat(client, **given)
    assert answer.choices == expected.choices


async def test_a_streamed_chat_begins_with_the_role_and_ends_with_the_reason(tiny: Path) -> None:
    async with running(tiny) as server, server.openai() as client:
        expected = await chat(client, max_tokens=40)
        chunks = [chunk async for chunk in await chat(client, max_tokens=40, stream=True)]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert (deltas[0].role, deltas[0].content) == ("assistant", "")
    assert "".join(delta.content or "" for delta in deltas) == expected.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.usage for chunk in chunks} == {None}


async def test_usage_comes_last_where_it_is_asked_for(tiny: Path) -> None:
    async with running(tiny) as server, server.openai() as client:
        for create in (chat, completion):
            stream = await create(client, stream=True, stream_options={"include_usage": True})
            *chunks, last = [chunk async for chunk in stream]
            assert last.choices == []
            assert last.usage.completion_tokens == 5
            assert last.usage.total_tokens == last.usage.prompt_tokens + 5
            assert all(chunk.choices and chunk.usage is None for chunk in chunks)


async def test_a_plain_completion_streams_the_text_that_it_gives_at_once(tiny: Path) -> None:
    async with running(tiny) as server, server.openai() as client:
        expected = await completion(client, max_tokens=40)
        chunks = [chunk async for chunk in await completion(client, max_tokens=40, stream=True)]
        default = await completion(client, max_tokens=None)
    assert expected.object == "text_completion"
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected.choices[0].text
    assert chunks[-1].choices[0].finish_reason == expected.choices[0].finish_reason == "length"
    assert default.usage.completion_tokens == 16


@pytest.mark.parametrize(
    ("call", "error", "code", "parameter", "words"),
    [
        (lambda c: chat(c, temperature=11), openai.BadRequestError, "bad_request", "temperature", "must be 0 to 10"),
        (lambda c: chat(c, messages=[]), openai.BadRequestError, "bad_request", "messages", "no messages"),
        (
            lambda c: chat(c, max_tokens=0),
            openai.BadRequestError,
            "bad_request",
            "max_tokens",
            "or equal to 1",
        ),
        (lambda c: chat(c, n=2), openai.BadRequestError, "bad_request", "n", "Input should be 1"),
        (
            lambda c: chat(
                c, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
            ),
            openai.BadRequestError,
            "bad_request",
            "messages.0.content.0.type",
            "Input should be 'text'",
        ),
        (
            lambda c: chat(c, extra_body={"unheard_of": 1}),
            openai.BadRequestError,
            "bad_request",
            "unheard_of",
            "knows no such parameter",
        ),
        (
            lambda c: chat(c, extra_body={"lora": [{"id": 0, "scale": 0.5}]}),
            openai.BadRequestError,
            "bad_request",
            "lora",
            "at one scale for all requests",
        ),
        (
            lambda c: chat(c, top_logprobs=3),
            openai.BadRequestError,
            "bad_request",
            None,
            "logprobs is not true",
        ),
        (
            lambda c: chat(c, response_format={"type": "json_schema"}),
            openai.BadRequestError,
            "bad_request",
            None,
            "and no other, has a json_schema",
        ),
        (lambda c: completion(c, prompt=["a", "b"]), openai.BadRequestError, "bad_request", "prompt", "at most 1 item"),
        (lambda c: completion(c, echo=True), openai.BadRequestError, "bad_request", "echo", "Input should be False"),
        (
            lambda c: completion(c, prompt="x" * 5000),
            openai.BadRequestError,
            "context_length_exceeded",
            "prompt",
            "tokens long, at most",
        ),
        (lambda c: chat(c, model="gpt-4"), openai.NotFoundError, "model_not_found", "model", "'tiny', not 'gpt-4'"),
    ],
)
async def test_what_is_wrong_is_named_in_the_clients_own_exceptions(
    tiny: Path, call: Call, error: type[openai.APIStatusError], code: str, parameter: str | None, words: str
) -> None:
    async with running(tiny, context_length=1024) as server, server.openai() as client:
        with pytest.raises(error) as raised:
            await call(client)
        assert raised.value.code == code
        if parameter is not None:
            assert raised.value.param == parameter
        assert words in str(raised.value)
        assert (await server.status()).requests.refused == 1


async def test_a_full_queue_is_a_rate_limit_that_says_when_to_come_back(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1, max_pending=0) as server, server.openai() as client:
        gate.close()
        first = asyncio.ensure_future(chat(client))
        await server.until(active=1)
        for stream in (False, True):
            with pytest.raises(openai.RateLimitError, match="the queue is full") as refused:
                await chat(client, stream=stream)
            assert refused.value.code == "queue_full"
            headers = refused.value.response.headers
            assert (headers["retry-after"], headers["x-should-retry"]) == ("1", "true")
        gate.open()
        await first
        status = await server.until(active=0)
    assert (status.requests.accepted, status.requests.refused) == (1, 2)


async def test_the_official_client_waits_as_told_and_is_then_served(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1, max_pending=0) as server, server.openai(max_retries=5) as client:
        gate.close()
        first = asyncio.ensure_future(chat(client))
        await server.until(active=1)
        second = asyncio.ensure_future(chat(client))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await server.status()).requests.refused == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        gate.open()
        assert (await second).choices == (await first).choices


async def test_a_failure_of_the_model_is_never_repeated_by_the_official_client(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tiny) as server, server.openai(max_retries=5) as client:

        def broken(*_: object) -> None:
            raise DecodeError("llama_decode returned -1")

        monkeypatch.setattr(Context, "decode", broken)
        with pytest.raises(openai.InternalServerError) as failed:
            await chat(client)
        assert failed.value.code == "decode_failed"
        assert (await server.status()).requests.accepted == 1


async def test_while_it_loads_the_server_says_so_at_every_path(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_load = slow_load(monkeypatch)
    async with running(tiny, until_serving=False) as server, server.openai() as client:
        for call in (client.models.list, lambda: chat(client), lambda: completion(client, stream=True)):
            with pytest.raises(openai.InternalServerError, match="not loaded yet") as refused:
                await call()
            assert (refused.value.status_code, refused.value.code) == (503, "loading")
            assert refused.value.response.headers["retry-after"] == "2"
        may_load.set()
        await server.until(state=control_pb2.STATE_SERVING)
        await chat(client)


async def test_a_drain_lets_a_stream_end_whole_and_takes_nothing_new(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server, server.openai() as client:
        gate.allow(3)
        stream = await chat(client, max_tokens=200, stream=True, stream_options={"include_usage": True})
        waiting = asyncio.ensure_future(chat(client, max_tokens=200))
        await server.until(active=1, queued=1)
        assert (await server.drain(60)).active == 1
        with pytest.raises(openai.InternalServerError, match="about to stop") as refused:
            await chat(client)
        assert refused.value.code == "draining"
        # The next try must not come down the same connection.
        assert refused.value.response.headers["connection"] == "close"
        gate.open()
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].usage.completion_tokens == 200
        assert (await waiting).usage.completion_tokens == 200
        server.server.on_signal()
        assert (await server.ended).code is ExitCode.DRAINED


async def test_a_stream_that_is_cut_ends_with_an_error_and_without_done(tiny: Path) -> None:
    settings: dict[str, Any] = {"drain_seconds": 0.1, "context_length": CONTEXT_LENGTH}
    async with running(tiny, **settings) as server, server.openai() as client:
        stream = await chat(client, max_tokens=CONTEXT_LENGTH - 100, stream=True)
        whole = asyncio.ensure_future(chat(client, max_tokens=CONTEXT_LENGTH - 100))
        await server.until_inside(2)
        server.server.on_signal()
        with pytest.raises(openai.APIError, match="had to stop while this request was running"):
            async for _ in stream:
                pass
        # One slot: it never started.
        with pytest.raises(openai.InternalServerError, match="before the request could start"):
            await whole
        await server.ended


async def test_a_client_that_goes_frees_its_slot(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server, server.openai() as client:
        gate.allow(3)
        stream = await chat(client, max_tokens=LONG, stream=True)
        await server.until(active=1)
        await stream.close()
        await server.until(active=0)
        # Without a stream nothing is written before the end: the connection itself is watched.
        with pytest.raises(openai.APITimeoutError):
            await chat(client, max_tokens=LONG, timeout=0.2)
        status = await server.until(active=0, queued=0)
        assert status.requests.cancelled == 2
        gate.open()
        await chat(client)


async def test_a_callers_deadline_is_honoured_also_in_the_queue(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server, server.openai(x_modelbackend_timeout_seconds="0.3") as client:
        gate.close()
        running_one = asyncio.ensure_future(chat(client))
        await server.until(active=1)
        with pytest.raises(openai.InternalServerError, match="never started") as waiting:
            await chat(client)
        with pytest.raises(openai.InternalServerError, match="while the request was running") as started:
            await running_one
        assert (waiting.value.status_code, waiting.value.code) == (504, "deadline_in_queue")
        assert (started.value.status_code, started.value.code) == (504, "deadline_running")
        assert started.value.response.headers["x-should-retry"] == "false"
        gate.open()
        assert (await server.until(active=0)).requests.started == 1


async def test_a_call_for_another_backend_is_misdirected(tiny: Path) -> None:
    async with running(tiny, uid="uid-1") as server:
        async with server.openai(x_modelbackend_uid="uid-1", x_modelbackend_model=MODEL) as right:
            await chat(right)
        async with server.openai(x_modelbackend_uid="uid-2") as stranger:
            with pytest.raises(openai.APIStatusError, match="belongs to ModelBackend uid-1") as refused:
                await chat(stranger)
        assert (refused.value.status_code, refused.value.code) == (421, "backend_mismatch")
        assert (await server.status()).requests.accepted == 1


async def test_a_request_has_the_name_its_caller_gave_it(tiny: Path) -> None:
    async with running(tiny) as server, server.openai() as client:
        answer = await client.with_options(default_headers={"x-request-id": "mine-1"}).chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=1
        )
        assert (answer.id, answer._request_id) == ("chatcmpl-mine-1", "mine-1")
        assert (await chat(client)).id != (await chat(client)).id


def requests_total(server: Running, outcome: str) -> float:
    found = server.server.metrics.registry.get_sample_value("modelbackend_requests_total", {"outcome": outcome})
    return found or 0


async def test_both_doors_count_into_the_same_house(tiny: Path) -> None:
    async with running(tiny) as server, server.openai() as client:
        await chat(client)
        await server.stub.Generate(inference_pb2.GenerateRequest(prompt="the", max_tokens=1))
        assert requests_total(server, "length") == 2


async def test_stop_log_probabilities_and_grammar_come_through(tiny: Path) -> None:
    async with running(tiny) as server, server.openai() as client:
        text = (await completion(client, max_tokens=20)).choices[0].text
        stopped = (await completion(client, max_tokens=20, stop=text[3:6])).choices[0]
        assert (stopped.text, stopped.finish_reason) == (text[: text.index(text[3:6])], "stop")

        answer = (await chat(client, logprobs=True, top_logprobs=2)).choices[0]
        assert len(answer.logprobs.content) == 5
        for each in answer.logprobs.content:
            assert each.top_logprobs[0].logprob == pytest.approx(each.logprob)
            assert [len(each.top_logprobs), bytes(each.bytes).decode(errors="replace")] == [2, each.token]

        legacy = (await completion(client, logprobs=1)).choices[0].logprobs
        chunks = [chunk.choices[0].logprobs async for chunk in await completion(client, logprobs=1, stream=True)]
        streamed = [found for found in chunks if found is not None]
        assert [token for found in streamed for token in found.tokens] == legacy.tokens
        assert [logprob for found in streamed for logprob in found.token_logprobs] == legacy.token_logprobs
        assert legacy.text_offset[0] == 0

        grammar = {"grammar": 'root ::= "time" | "of"'}
        assert (await chat(client, extra_body=grammar)).choices[0].message.content in ("time", "of")
        with pytest.raises(openai.BadRequestError, match="no rule called root") as refused:
            await chat(client, extra_body={"grammar": "x ::= [a-z]"})
        assert refused.value.param == "grammar"


async def test_a_response_format_is_kept(tiny: Path) -> None:
    schema = {"type": "object", "properties": {"size": {"enum": ["s", "l"]}}, "required": ["size"]}
    async with running(tiny) as server, server.openai() as client:
        kept = {"type": "json_schema", "json_schema": {"name": "size", "schema": schema, "strict": True}}
        answer = await chat(client, response_format=kept, max_tokens=100)
        assert answer.choices[0].finish_reason == "stop"
        assert json.loads(answer.choices[0].message.content)["size"] in ("s", "l")
        wrong = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "x+"}}}
        with pytest.raises(openai.BadRequestError, match="pattern") as refused:
            await chat(client, response_format=wrong)
        assert refused.value.param == "response_format"
        # Any JSON may be long: that it began as an object is all that a few tokens show.
        text = (await chat(client, response_format={"type": "json_object"}, max_tokens=3)).choices[0].message.content
        assert text.startswith("{")
