"""What is generated, and how it is delivered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from modelbackend.v1 import inference_pb2
from modelbackend_client import CallError, assistant, system, user
from tests.server.harness import GREEDY, greedy, rest, running
from tests.server.tiny_gguf import CONTEXT_LENGTH, write_tiny_gguf

PROMPT = "the time of the new"


async def test_a_greedy_text_is_the_same_each_time_streamed_or_whole(tiny: Path) -> None:
    async with running(tiny) as server:
        whole = await server.client.generate(PROMPT, max_tokens=100, sampling=GREEDY)
        again = await server.client.generate(PROMPT, max_tokens=100, sampling=GREEDY)
        text, finished = await rest(server.stub.GenerateStream(greedy(PROMPT, 100)))
    assert whole == again
    assert text == whole.text
    assert finished == whole.finished
    assert finished.finish_reason == inference_pb2.FINISH_REASON_LENGTH
    assert finished.usage.completion_tokens == 100
    assert not finished.HasField("seed")


async def test_sharing_the_model_with_others_changes_no_text(tiny: Path) -> None:
    prompts = [f"{word} of the time" for word in ("new", "first", "other", "some", "most", "all")]
    async with running(tiny, slots=1) as server:
        alone = [await server.client.generate(prompt, max_tokens=60, sampling=GREEDY) for prompt in prompts]
    async with running(tiny, slots=3, batch_tokens=8) as server:
        together = await asyncio.gather(
            *(server.client.generate(prompt, max_tokens=60, sampling=GREEDY) for prompt in prompts)
        )
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert len({answer.text for answer in alone}) == len(prompts)


async def test_a_prompt_longer_than_a_batch_is_evaluated_in_chunks(tiny: Path) -> None:
    prompt = "the time of the new " * 40
    async with running(tiny, batch_tokens=4096) as server:
        at_once = await server.client.generate(prompt, max_tokens=40, sampling=GREEDY)
    async with running(tiny, batch_tokens=7) as server:
        in_chunks = await server.client.generate(prompt, max_tokens=40, sampling=GREEDY)
    assert in_chunks == at_once


async def test_a_seed_makes_chance_repeatable_and_is_told_when_it_was_drawn(tiny: Path) -> None:
    async with running(tiny) as server:
        first = await server.client.generate(PROMPT, max_tokens=60)
        seed = inference_pb2.Sampling(seed=first.finished.seed)
        second = await server.client.generate(PROMPT, max_tokens=60, sampling=seed)
        other = await server.client.generate(PROMPT, max_tokens=60, sampling=inference_pb2.Sampling(seed=7))
    assert first.finished.HasField("seed")
    assert second.text == first.text
    assert other.text != first.text


async def test_a_generation_stops_where_the_model_ends_its_text(tiny: Path) -> None:
    # Every token about as likely as the next, so that the end comes within a few hundred tokens.
    flat = inference_pb2.Sampling(temperature=10, top_k=0, top_p=1, min_p=0, seed=3)
    async with running(tiny) as server:
        answer = await server.client.generate(PROMPT, sampling=flat)
    assert answer.finished.finish_reason == inference_pb2.FINISH_REASON_STOP
    assert "</s>" not in answer.text


async def test_without_a_limit_a_text_ends_with_the_context(tiny: Path) -> None:
    async with running(tiny, context_length=64) as server:
        answer = await server.client.generate(PROMPT, sampling=GREEDY)
    assert answer.finished.finish_reason == inference_pb2.FINISH_REASON_LENGTH
    usage = answer.finished.usage
    assert usage.prompt_tokens + usage.completion_tokens == 64


async def test_a_stream_never_shows_half_a_character(tiny: Path) -> None:
    # Byte tokens are half of this vocabulary: most characters come in pieces, and many bytes are no character.
    flat = inference_pb2.Sampling(temperature=2, top_k=0, top_p=1, min_p=0, seed=11)
    request = inference_pb2.GenerateRequest(prompt=PROMPT, max_tokens=600, sampling=flat)
    async with running(tiny) as server:
        whole = await server.stub.Generate(request)
        deltas = [event.delta async for event in server.stub.GenerateStream(request) if event.HasField("delta")]
    assert "".join(delta.text for delta in deltas) == whole.text
    assert any(ord(character) > 0x7F and character != "\ufffd" for character in whole.text)
    assert all(delta.text and delta.token_count >= 1 for delta in deltas)
    assert sum(delta.token_count for delta in deltas) <= whole.finished.usage.completion_tokens


async def test_messages_are_laid_out_by_the_models_own_template(tiny: Path) -> None:
    messages = [system("be new"), user("the time"), assistant("of"), user("the first")]
    laid_out = "[system]be new\n[user]the time\n[assistant]of\n[user]the first\n[assistant]"
    async with running(tiny) as server:
        chat = await server.client.generate(messages, max_tokens=30, sampling=GREEDY)
        tokens = await server.client.tokenize(messages)
        text = b"".join(token.piece for token in tokens)
    # The tokenizer's own marks at the beginning: <s>, and the space that SentencePiece puts before a text.
    assert text.decode() == "<s> " + laid_out
    assert chat.finished.usage.prompt_tokens == len(tokens)


async def test_a_template_that_refuses_messages_is_quoted(tiny: Path) -> None:
    async with running(tiny) as server:
        with pytest.raises(CallError, match="system must come first") as refused:
            await server.client.generate([user("the time"), system("be new")])
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.not_started


async def test_a_model_without_a_template_refuses_chat_and_says_what_to_do(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "plain.gguf", chat_template=None)
    async with running(tmp_path / "plain.gguf") as server:
        with pytest.raises(CallError, match="no chat template; send a prompt instead"):
            await server.client.generate([user("the time")])
        assert not (await server.client.model_info()).model.has_chat_template


async def test_special_tokens_written_into_a_prompt_are_text(tiny: Path) -> None:
    async with running(tiny) as server:
        tokens = await server.client.tokenize("a</s>b")
    assert [token.id for token in tokens].count(2) == 0
    assert b"".join(token.piece for token in tokens[1:]) == b" a</s>b"


async def test_a_prompt_too_long_is_refused_with_both_numbers(tiny: Path) -> None:
    async with running(tiny, context_length=32) as server:
        tokens = await server.client.tokenize("the time of " * 20)
        with pytest.raises(CallError) as refused:
            await server.client.generate("the time of " * 20)
        # One token less than the context is the longest that can be continued.
        fitting = await server.client.generate("x" * 29)
        assert (await server.status()).requests.refused == 1
    assert refused.value.reason == "PROMPT_TOO_LONG"
    assert f"{len(tokens)} tokens long, at most 31 fit a context of 32" in refused.value.message
    assert fitting.finished.usage.prompt_tokens == 31
    assert fitting.finished.usage.completion_tokens == 1


OUT_OF_RANGE: tuple[tuple[str, Any], ...] = (
    ("temperature", -0.5),
    ("temperature", 11),
    ("temperature", float("nan")),
    ("top_p", 0),
    ("top_p", 1.5),
    ("min_p", -1),
    ("min_p", 2),
    ("repeat_penalty", 0),
    ("repeat_penalty", float("inf")),
)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (inference_pb2.GenerateRequest(), "neither prompt nor chat is given"),
        (inference_pb2.GenerateRequest(chat=inference_pb2.Chat()), "chat has no messages"),
        (
            inference_pb2.GenerateRequest(
                chat=inference_pb2.Chat(messages=[inference_pb2.ChatMessage(content="no role")])
            ),
            "chat.messages[0].role is 0, which is none of system, user, assistant",
        ),
        (greedy("the", 0), "max_tokens is 0, it must be at least 1"),
        *(
            (
                inference_pb2.GenerateRequest(prompt="the", sampling=inference_pb2.Sampling(**{name: value})),
                f"sampling.{name} is {value:g}, it must be",
            )
            for name, value in OUT_OF_RANGE
        ),
    ],
)
async def test_a_bad_request_is_refused_in_words(
    tiny: Path, request_: inference_pb2.GenerateRequest, words: str
) -> None:
    async with running(tiny) as server:
        for call in (server.stub.Generate(request_), server.stub.GenerateStream(request_).read()):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert words in (refused.value.details() or "")


async def test_the_models_facts_are_told(tiny: Path) -> None:
    async with running(tiny, model="tiny-one", uid="backend-1", pod_uid="pod-1") as server:
        info = await server.client.model_info()
    assert (info.identity.model, info.identity.backend_uid, info.identity.pod_uid) == ("tiny-one", "backend-1", "pod-1")
    assert info.model.architecture == "llama"
    assert info.model.weights_name == "tiny"
    assert info.model.layer_count == 2
    assert info.model.trained_context_length == CONTEXT_LENGTH
    assert info.model.context_length == 4096
    assert info.model.has_chat_template


@pytest.mark.real_model
async def test_smollm2_knows_the_capital_of_france(smollm2: Path) -> None:
    async with running(smollm2) as server:
        text, finished = await rest(server.stub.GenerateStream(greedy("The capital of France is", 3)))
        answer = await server.client.generate([user("Hello")], max_tokens=5, sampling=GREEDY)
    assert text.startswith(" Paris.")
    assert finished.usage.prompt_tokens == 5
    assert answer.finished.usage.prompt_tokens > 5
