"""ScoreChoices and Decide: probabilities of continuations, and answers made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from modelbackend.v1 import inference_pb2
from modelbackend_client import user
from modelbackend_client.errors import from_rpc
from tests.server.harness import GREEDY, Running, running

CHOICES = [" the time", " of", " a", "x", " time and time"]


async def one_by_one(server: Running, prompt: str, choice: str) -> float:
    """The log-probability of a choice, from forced single steps of generation."""
    whole = (await server.stub.Tokenize(inference_pb2.TokenizeRequest(prompt=prompt + choice))).tokens
    known = len((await server.stub.Tokenize(inference_pb2.TokenizeRequest(prompt=prompt))).tokens)
    total = 0.0
    for end in range(known, len(whole)):
        before = b"".join(token.piece for token in whole[1:end]).decode().removeprefix(" ")
        # A bias of +100 makes the token certain to be chosen; its log-probability is the model's own.
        request = inference_pb2.GenerateRequest(
            prompt=before,
            max_tokens=1,
            top_logprobs=0,
            sampling=inference_pb2.Sampling(temperature=0, logit_bias={whole[end].id: 100}),
        )
        (found,) = (await server.stub.Generate(request)).logprobs
        assert found.token.id == whole[end].id
        total += found.logprob
    return total


async def test_choices_scored_together_have_the_log_probabilities_of_each_alone(tiny: Path) -> None:
    async with running(tiny, slots=4) as server:
        prompt = "the time has"
        answer = await server.stub.ScoreChoices(inference_pb2.ScoreChoicesRequest(prompt=prompt, choices=CHOICES))
        expected = [await one_by_one(server, prompt, choice) for choice in CHOICES]
    assert [score.logprob for score in answer.scores] == pytest.approx(expected, abs=2e-3)
    assert sum(score.probability for score in answer.scores) == pytest.approx(1)
    likeliest = max(answer.scores, key=lambda score: score.logprob)
    assert likeliest.probability == max(score.probability for score in answer.scores)
    assert answer.usage.completion_tokens == 0


async def test_one_slot_gives_the_scores_that_many_give(tiny: Path) -> None:
    request = inference_pb2.ScoreChoicesRequest(prompt="the", choices=CHOICES)
    async with running(tiny, slots=1) as alone, running(tiny, slots=8) as together:
        one, many = await alone.stub.ScoreChoices(request), await together.stub.ScoreChoices(request)
    assert [score.logprob for score in one.scores] == pytest.approx([score.logprob for score in many.scores], abs=1e-3)
    assert [score.token_count for score in one.scores] == [score.token_count for score in many.scores]


def question(**given: Any) -> inference_pb2.DecideRequest:
    return inference_pb2.DecideRequest(prompt="the time is", **given)


async def test_an_option_is_decided_on_with_its_probability(tiny: Path) -> None:
    async with running(tiny, slots=4) as server:
        options = ["time", "of", "the"]
        answer = await server.stub.Decide(question(options=inference_pb2.Options(options=options)))
        turned = await server.stub.Decide(question(options=inference_pb2.Options(options=options[::-1])))
    assert answer.WhichOneof("answer") == "option"
    assert sum(answer.probabilities) == pytest.approx(1)
    assert answer.confidence == max(answer.probabilities) == pytest.approx(answer.probabilities[answer.option])
    # Neither the order nor the place of an option matters.
    assert list(turned.probabilities) == pytest.approx(list(answer.probabilities)[::-1], abs=1e-3)
    assert options[::-1][turned.option] == options[answer.option]


async def test_a_number_of_a_range_has_an_expected_value(tiny: Path) -> None:
    async with running(tiny, slots=4) as server:
        answer = await server.stub.Decide(question(range=inference_pb2.Range(low=-2, high=12)))
    assert -2 <= answer.number <= 12
    assert len(answer.probabilities) == 15
    mean = sum(number * share for number, share in zip(range(-2, 13), answer.probabilities, strict=True))
    assert answer.expected == pytest.approx(mean, abs=1e-3)


async def test_yes_or_no_is_decided_in_a_chat_too(tiny: Path) -> None:
    chat = inference_pb2.Chat(messages=[user("is it time?")])
    async with running(tiny, slots=4) as server:
        answer = await server.stub.Decide(inference_pb2.DecideRequest(chat=chat, yes_no=inference_pb2.YesNo()))
    assert answer.WhichOneof("answer") == "yes"
    assert answer.yes == (answer.probabilities[0] >= answer.probabilities[1])
    assert math.isclose(sum(answer.probabilities), 1, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([], "0 choices, 1 to 256"),
        (["a"] * 2, r"choices\[1\] is the same"),
        (["a", ""], r"choices\[1\] is empty"),
        ([f" {index}" for index in range(257)], "257 choices"),
        (["x" * 2000], "tokens long, at most 1024 fit"),
    ],
)
async def test_choices_that_cannot_be_told_apart_are_named(tiny: Path, choices: Sequence[str], words: str) -> None:
    async with running(tiny, context_length=1024) as server:
        request = inference_pb2.ScoreChoicesRequest(prompt="the", choices=choices)
        with pytest.raises(grpc.aio.AioRpcError, match=words) as refused:
            await server.stub.ScoreChoices(request)
        assert from_rpc(refused.value).not_started
        assert (await server.status()).requests.refused == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "no question is given"),
        ({"range": inference_pb2.Range(low=1, high=0)}, "from 1 to 0"),
        ({"range": inference_pb2.Range(low=0, high=256)}, "1 to 256 numbers"),
        ({"options": inference_pb2.Options()}, "0 options"),
    ],
)
async def test_a_question_without_possible_answers_is_refused(tiny: Path, given: Any, words: str) -> None:
    async with running(tiny) as server:
        with pytest.raises(grpc.aio.AioRpcError, match=words) as refused:
            await server.stub.Decide(question(**given))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_what_a_generating_model_cannot_do_is_said(tiny: Path) -> None:
    async with running(tiny) as server:
        for call in (
            server.stub.Embed(inference_pb2.EmbedRequest(inputs=["the"])),
            server.stub.Rerank(inference_pb2.RerankRequest(query="the", documents=["time"])),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert from_rpc(refused.value).reason == "MODEL_CANNOT"
        await server.client.generate("the", max_tokens=1, sampling=GREEDY)
