"""Stop strings, log-probabilities, grammars and biases, as callers ask for them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import grpc
import pytest

from modelbackend.v1 import control_pb2, inference_pb2
from modelbackend_client.errors import from_rpc
from tests.server.harness import GREEDY, Gate, Running, rest, running


def request(**given: Any) -> inference_pb2.GenerateRequest:
    arguments: dict[str, Any] = {"prompt": "the", "max_tokens": 40, "sampling": GREEDY}
    return inference_pb2.GenerateRequest(**(arguments | given))


async def both_ways(server: Running, asked: inference_pb2.GenerateRequest) -> inference_pb2.GenerateResponse:
    """The answer at once, after a stream has given the same."""
    whole = await server.stub.Generate(asked)
    logprobs: list[inference_pb2.TokenLogprob] = []
    texts: list[str] = []
    async for response in server.stub.GenerateStream(asked):
        if response.HasField("delta"):
            texts.append(response.delta.text)
            logprobs.extend(response.delta.logprobs)
            assert not asked.HasField("top_logprobs") or len(response.delta.logprobs) == response.delta.token_count
    assert "".join(texts) == whole.text
    assert [each.token.id for each in logprobs] == [each.token.id for each in whole.logprobs]
    return whole


async def test_the_text_ends_before_a_stop_string_wherever_it_begins(tiny: Path) -> None:
    async with running(tiny) as server:
        text = (await server.stub.Generate(request())).text
        # Not those with half a character in them: the caller sees U+FFFD there, the model made something else.
        stops = [text[begin : begin + 5] for begin in (0, 2, 3)]
        assert all(stop.isascii() and len(stop) == 5 for stop in stops)
        for stop in stops:
            answer = await both_ways(server, request(stop=["never there", stop]))
            assert answer.text == text[: text.index(stop)]
            assert answer.finished.finish_reason == inference_pb2.FINISH_REASON_STOP
            assert answer.finished.matched_stop == stop
        whole = await both_ways(server, request(stop=["never there"]))
        assert whole.text == text
        assert not whole.finished.HasField("matched_stop")


async def test_each_token_comes_with_its_log_probability_and_the_likeliest(tiny: Path) -> None:
    async with running(tiny) as server:
        plain = await server.stub.Generate(request())
        answer = await both_ways(server, request(top_logprobs=3))
        chosen_only = await both_ways(server, request(top_logprobs=0))
    assert answer.text == plain.text
    assert plain.logprobs == []
    assert len(answer.logprobs) == 40
    for each in answer.logprobs:
        assert len(each.top) == 3
        # Greedy: the likeliest is the one that was taken.
        assert each.top[0].token.id == each.token.id
        assert each.logprob == pytest.approx(each.top[0].logprob)
        assert [one.logprob for one in each.top] == sorted((one.logprob for one in each.top), reverse=True)
        assert sum(math.exp(one.logprob) for one in each.top) <= 1.0001
    assert b"".join(each.token.piece for each in answer.logprobs).decode(errors="replace").startswith(plain.text[:10])
    assert [list(each.top) for each in chosen_only.logprobs] == [[]] * 40


async def test_a_grammar_decides_what_the_text_looks_like(tiny: Path) -> None:
    async with running(tiny) as server:
        answer = await both_ways(server, request(grammar='root ::= ("time" | "of") " x"'))
    assert answer.text in ("time x", "of x")
    assert answer.finished.finish_reason == inference_pb2.FINISH_REASON_STOP


async def test_a_bias_makes_a_token_certain_or_impossible(tiny: Path) -> None:
    async with running(tiny) as server:
        (token, *_) = (await both_ways(server, request(top_logprobs=0))).logprobs
        sampling = inference_pb2.Sampling(temperature=0, logit_bias={token.token.id: -100})
        without = await both_ways(server, request(sampling=sampling, top_logprobs=0))
        assert token.token.id not in {each.token.id for each in without.logprobs}


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"stop": [""]}, "stop[0]", "1 to 256 bytes"),
        ({"stop": ["x" * 257]}, "stop[0]", "1 to 256 bytes"),
        ({"stop": [str(index) for index in range(17)]}, "stop", "at most 16"),
        ({"top_logprobs": 21}, "top_logprobs", "0 to 20"),
        ({"grammar": "no rules"}, "grammar", "where a rule begins"),
        ({"grammar": ""}, "grammar", "no rule called root"),
        (
            {"sampling": inference_pb2.Sampling(logit_bias={999_999: 1})},
            "sampling.logit_bias",
            "the vocabulary ends at",
        ),
        ({"sampling": inference_pb2.Sampling(logit_bias={1: 101})}, "sampling.logit_bias", "-100 to 100"),
        ({"sampling": inference_pb2.Sampling(logit_bias={1: math.nan})}, "sampling.logit_bias", "-100 to 100"),
        ({"sampling": inference_pb2.Sampling(frequency_penalty=2.1)}, "sampling.frequency_penalty", "-2 to 2"),
        ({"sampling": inference_pb2.Sampling(presence_penalty=-3)}, "sampling.presence_penalty", "-2 to 2"),
        ({"sampling": inference_pb2.Sampling(typical_p=0)}, "sampling.typical_p", "more than 0 and at most 1"),
        ({"sampling": inference_pb2.Sampling(top_p=math.nan)}, "sampling.top_p", "more than 0 and at most 1"),
    ],
)
async def test_a_parameter_outside_its_range_is_refused_by_name(tiny: Path, given: Any, field: str, words: str) -> None:
    async with running(tiny) as server:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await server.stub.Generate(request(**given))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        error = from_rpc(refused.value)
        assert (error.field, error.not_started) == (field, True)
        assert words in error.message


async def test_detokenize_gives_back_what_tokenize_took(tiny: Path) -> None:
    async with running(tiny) as server:
        text = "the time, ünïcode and 日本"
        tokens = (await server.stub.Tokenize(inference_pb2.TokenizeRequest(prompt=text))).tokens
        ids = [token.id for token in tokens[1:]]
        assert (await server.stub.Detokenize(inference_pb2.DetokenizeRequest(ids=ids))).text.strip() == text
        with pytest.raises(grpc.aio.AioRpcError, match=r"ids\[1\] is 999999, the vocabulary ends at"):
            await server.stub.Detokenize(inference_pb2.DetokenizeRequest(ids=[1, 999_999]))


async def test_a_template_is_applied_to_messages(tiny: Path) -> None:
    chat = inference_pb2.Chat(messages=[inference_pb2.ChatMessage(role=inference_pb2.ROLE_USER, content="hello")])
    async with running(tiny) as server:
        answer = await server.stub.ApplyTemplate(inference_pb2.ApplyTemplateRequest(chat=chat))
        assert answer.text == "[user]hello\n[assistant]"
        with pytest.raises(grpc.aio.AioRpcError, match="no messages"):
            await server.stub.ApplyTemplate(inference_pb2.ApplyTemplateRequest())


async def test_a_request_is_cancelled_by_its_name(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server:
        gate.allow(3)
        named = (("x-request-id", "mine"),)
        stream = server.stub.GenerateStream(request(max_tokens=4000), metadata=named)
        await server.until(active=1)
        waiting = server.stub.Generate(request(), metadata=named)
        other = server.stub.GenerateStream(request(max_tokens=3))
        await server.until(queued=2)
        answer = await server.control.CancelRequest(control_pb2.CancelRequestRequest(request_id="mine"))
        assert answer.cancelled == 2
        for call in (stream, waiting):
            with pytest.raises(grpc.aio.AioRpcError) as cancelled:
                await (rest(stream) if call is stream else waiting)
            assert from_rpc(cancelled.value).reason == "CANCELLED"
        gate.open()
        _, finished = await rest(other)
        assert finished.usage.completion_tokens == 3
        again = await server.control.CancelRequest(control_pb2.CancelRequestRequest(request_id="mine"))
        assert again.cancelled == 0
        assert (await server.status()).requests.cancelled == 2
