"""From the engine's tokens to what a caller gets: text of whole characters, log-probabilities, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from modelbackend.v1 import inference_pb2

from .generation import Ended, Ending, Event, TokenMade, Work
from .llama import Vocabulary
from .text import TextDecoder

FINISH_REASONS = {
    Ending.STOP: inference_pb2.FINISH_REASON_STOP,
    Ending.LENGTH: inference_pb2.FINISH_REASON_LENGTH,
    Ending.CUT: inference_pb2.FINISH_REASON_CANCELLED,
}


class CallerGoneError(Exception):
    """The caller went while we wrote to it."""


class Delivery(Protocol):
    """Where the answer goes. Both wait for a slow caller, and may raise CallerGoneError."""

    async def delta(self, delta: inference_pb2.TextDelta) -> None: ...
    async def finished(self, finished: inference_pb2.Finished) -> None: ...


class Whole:
    """Collects the answer for a call that answers once."""

    def __init__(self) -> None:
        self.response = inference_pb2.GenerateResponse()
        self._texts: list[str] = []

    async def delta(self, delta: inference_pb2.TextDelta) -> None:
        self._texts.append(delta.text)
        self.response.logprobs.extend(delta.logprobs)

    async def finished(self, finished: inference_pb2.Finished) -> None:
        self.response.text = "".join(self._texts)
        self.response.finished.CopyFrom(finished)


class Texts:
    """Receives the events of one text. How it ended is told only where it ended in one of FINISH_REASONS."""

    def __init__(self, work: Work, vocabulary: Vocabulary, delivery: Delivery) -> None:
        self._work = work
        self._vocabulary = vocabulary
        self._delivery = delivery
        self._decoder = TextDecoder()
        self._made = 0
        # Of tokens whose text is not complete yet.
        self._logprobs: list[inference_pb2.TokenLogprob] = []

    async def take(self, events: Sequence[Event]) -> None:
        tokens = [event for event in events if isinstance(event, TokenMade)]
        ended = events[-1] if isinstance(events[-1], Ended) else None
        self._made += len(tokens)
        if self._work.logprobs is not None:
            self._logprobs += [found for token in tokens if (found := self._logprob(token)) is not None]
        text, token_count = self._decoder.feed([token.piece for token in tokens], final=ended is not None)
        if text:
            logprobs, self._logprobs = self._logprobs, []
            await self._delivery.delta(inference_pb2.TextDelta(text=text, token_count=token_count, logprobs=logprobs))
        if ended is not None and ended.ending in FINISH_REASONS:
            await self._delivery.finished(self._finished(ended))

    def _logprob(self, made: TokenMade) -> inference_pb2.TokenLogprob | None:
        if made.logprobs is None or self._vocabulary.ends_generation(made.token):
            return None
        top = [
            inference_pb2.Candidate(token=self._token(token), logprob=logprob) for token, logprob in made.logprobs.top
        ]
        return inference_pb2.TokenLogprob(token=self._token(made.token), logprob=made.logprobs.token, top=top)

    def _token(self, token: int) -> inference_pb2.Token:
        return inference_pb2.Token(id=token, piece=self._vocabulary.piece(token, special=True))

    def _finished(self, ended: Ended) -> inference_pb2.Finished:
        work = self._work
        return inference_pb2.Finished(
            finish_reason=FINISH_REASONS[ended.ending],
            usage=inference_pb2.Usage(prompt_tokens=work.prompt_tokens, completion_tokens=self._made),
            seed=None if work.sampling.greedy else work.sampling.seed,
            matched_stop=ended.stop,
        )
