"""Choices and decisions: how likely the model finds each of several continuations, and what that decides.

A decision is made among texts. What counts for an answer is the probability that the model writes exactly it: of an
answer whose tokens begin those of another ("1" and "10"), what the longer one has is taken off. An answer may be
written in several ways ("yes", " Yes"); their probabilities are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from modelbackend.v1 import inference_pb2

from . import scoring
from .generation import Scored, ScoreWork
from .refusals import Reason, Refusal
from .wire import Reader

CHOICES_MAX = 256
YES, NO = ("Yes", "yes"), ("No", "no")


@dataclass(frozen=True, slots=True)
class Question:
    """The possible answers of a decision, each with the ways to write it; `low` is the first number of a range."""

    kind: str
    answers: tuple[tuple[str, ...], ...]
    low: int = 0

    @property
    def writings(self) -> list[str]:
        return [writing for answer in self.answers for writing in answer]


def score_work(reader: Reader, request: inference_pb2.ScoreChoicesRequest) -> ScoreWork | Refusal:
    if refusal := _wrong_texts(request.choices, "choices"):
        return refusal
    return _work(reader, request, list(request.choices), "choices")


def decide_work(reader: Reader, request: inference_pb2.DecideRequest, question: Question) -> ScoreWork | Refusal:
    return _work(reader, request, question.writings, question.kind)


def question(request: inference_pb2.DecideRequest) -> Question | Refusal:
    # A text that does not end in a space goes on with one, or not: that is the tokenizer's affair, not the answer's.
    apart = request.WhichOneof("input") == "prompt" and not request.prompt[-1:].isspace()

    def ways(*texts: str) -> tuple[str, ...]:
        spaced = [f" {text}" for text in texts if apart and not text[:1].isspace()]
        return tuple(dict.fromkeys((*texts, *spaced)))

    match request.WhichOneof("question"):
        case "options":
            refusal = _wrong_texts(request.options.options, "options.options")
            return refusal or Question("options", tuple(ways(option) for option in request.options.options))
        case "range":
            low, high = request.range.low, request.range.high
            if not 0 <= high - low < CHOICES_MAX:
                words = f"range goes from {low} to {high}, it must have 1 to {CHOICES_MAX} numbers"
                return Refusal(Reason.BAD_REQUEST, words, "range")
            return Question("range", tuple(ways(str(number)) for number in range(low, high + 1)), low)
        case "yes_no":
            return Question("yes_no", (ways(*YES), ways(*NO)))
        case _:
            return Refusal(Reason.BAD_REQUEST, "no question is given: options, range or yes_no", "options")


def _wrong_texts(texts: Sequence[str], field: str) -> Refusal | None:
    if not 1 <= len(texts) <= CHOICES_MAX:
        return Refusal(Reason.BAD_REQUEST, f"{len(texts)} {field}, 1 to {CHOICES_MAX} are taken", field)
    for index, text in enumerate(texts):
        if not text or text in texts[:index]:
            path = f"{field}[{index}]"
            words = f"{path} is {'the same as one before it' if text else 'empty'}"
            return Refusal(Reason.BAD_REQUEST, words, path)
    return None


def _work(
    reader: Reader,
    request: inference_pb2.ScoreChoicesRequest | inference_pb2.DecideRequest,
    continuations: Sequence[str],
    field: str,
) -> ScoreWork | Refusal:
    """Prompt and continuation are tokenised together: where letters merge over the border, the merged token counts."""
    if reader.loaded.mode != "generate":
        return Refusal(Reason.MODEL_CANNOT, "this ModelBackend makes vectors of texts; it judges none")
    if request.chat.must_call:
        return Refusal(Reason.BAD_REQUEST, "nothing is generated here, and so no tool called", "chat.must_call")
    prompt = reader.tokens(request)
    if isinstance(prompt, Refusal):
        return prompt
    vocabulary = reader.loaded.vocabulary
    if request.WhichOneof("input") == "prompt":
        wholes = [
            vocabulary.tokenize(request.prompt + text, add_special=True, parse_special=False) for text in continuations
        ]
    else:
        laid_out = reader.layout(request.chat)
        assert isinstance(laid_out, str), "its tokens were made just now"
        wholes = [reader.laid_out_tokens(laid_out + text) for text in continuations]
    try:
        work = scoring.split(prompt, wholes)
    except ValueError as error:
        return Refusal(Reason.BAD_REQUEST, f"{error}: nothing can be told apart", field)
    longest = len(work.prompt) + max(len(tail) for tail in work.tails)
    if longest > reader.loaded.context_length:
        return reader.too_long(f"the prompt with the longest continuation is {longest}", 0, field)
    return work


# -- answers ---------------------------------------------------------------------------------------------------------


def usage(work: ScoreWork) -> inference_pb2.Usage:
    """Nothing is generated: the continuations are read, as the prompt is."""
    return inference_pb2.Usage(prompt_tokens=work.prompt_tokens)


def scores(work: ScoreWork, scored: Sequence[Scored]) -> inference_pb2.ScoreChoicesResponse:
    totals = _totals(scored)
    shares = _shares([_relative(total, max(totals)) for total in totals])
    found = [
        inference_pb2.ChoiceScore(logprob=total, token_count=len(tail), probability=share)
        for total, tail, share in zip(totals, work.tails, shares, strict=True)
    ]
    return inference_pb2.ScoreChoicesResponse(scores=found, usage=usage(work))


def decision(asked: Question, work: ScoreWork, scored: Sequence[Scored]) -> inference_pb2.DecideResponse:
    totals = _totals(scored)
    exact = _exact(work.tails, [_relative(total, max(totals)) for total in totals])
    weights = []
    at = 0
    for answer in asked.answers:
        weights.append(math.fsum(exact[at : at + len(answer)]))
        at += len(answer)
    shares = _shares(weights)
    best = max(range(len(shares)), key=lambda index: shares[index])
    response = inference_pb2.DecideResponse(confidence=shares[best], probabilities=shares, usage=usage(work))
    match asked.kind:
        case "options":
            response.option = best
        case "range":
            response.number = asked.low + best
            response.expected = asked.low + math.fsum(index * share for index, share in enumerate(shares))
        case _:
            response.yes = best == 0
    return response


def _totals(scored: Sequence[Scored]) -> list[float]:
    """The log-probability of each whole tail."""
    return [math.fsum(tokens) for event in scored for tokens in event.logprobs]


def _relative(total: float, highest: float) -> float:
    """A probability relative to the highest one: the absolute ones may be too small for a number."""
    return math.exp(total - highest)


def _exact(tails: Sequence[tuple[int, ...]], weights: Sequence[float]) -> list[float]:
    """The weight of each tail without that of the tails that go on where it ends. Equal tails share theirs."""
    own = dict(zip(tails, weights, strict=True))
    exact = dict(own)
    # Longest first: each gives its weight to the nearest tail that it continues.
    for tail in sorted(own, key=len, reverse=True):
        for length in range(len(tail) - 1, 0, -1):
            if tail[:length] in exact:
                exact[tail[:length]] -= own[tail]
                break
    times = {tail: list(tails).count(tail) for tail in own}
    return [max(exact[tail], 0.0) / times[tail] for tail in tails]


def _shares(weights: Sequence[float]) -> list[float]:
    total = math.fsum(weights)
    return [weight / total for weight in weights] if total > 0 else [1 / len(weights)] * len(weights)
