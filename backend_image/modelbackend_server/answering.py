"""How a request is answered, whichever door it came by: read, accepted, followed to its end, delivered.

The doors (grpc_service, openai_http) translate; what a caller is promised (its place in the queue, its deadline, a slot
that is freed when it goes, an answer that a drain does not cut) is kept here, once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from modelbackend.v1 import inference_pb2

from .admission import Admission
from .generation import Ended, Ending, Generation, Outcome, TokenMade, Work
from .refusals import Reason, Refusal
from .text import TextDecoder

FINISH_REASONS = {
    Ending.STOP: inference_pb2.FINISH_REASON_STOP,
    Ending.LENGTH: inference_pb2.FINISH_REASON_LENGTH,
    Ending.CUT: inference_pb2.FINISH_REASON_CANCELLED,
}
OUTCOMES = {Ending.STOP: Outcome.STOP, Ending.LENGTH: Outcome.LENGTH, Ending.CUT: Outcome.CUT}
CALLERS_HEAD_START_SECONDS = 0.1
"""A caller counts from when it sends, we from when we receive."""


class CallerGoneError(Exception):
    """The caller went while we wrote to it."""


class CallerStalledError(Exception):
    """The caller is there and has taken nothing for as long as the server lets one."""


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


async def generate(
    admission: Admission,
    request: inference_pb2.GenerateRequest,
    delivery: Delivery,
    *,
    request_id: str,
    callers_seconds: float | None,
) -> Refusal | None:
    """Answers a request to its end; returns the error that it shall end with, if any.

    `callers_seconds` is what is left of the caller's own deadline. A caller that goes cancels this coroutine.
    """
    limit_seconds = admission.settings.request_timeout_seconds
    seconds = limit_seconds if callers_seconds is None else min(callers_seconds, limit_seconds)
    generation = await _accept(admission, request, request_id, deadline=time.monotonic() + seconds)
    if isinstance(generation, Refusal):
        admission.count_refusal(generation.reason)
        return generation
    with admission.hosted(generation):
        return await answer(generation, delivery, admission.settings.stall_seconds)


async def _accept(
    admission: Admission, request: inference_pb2.GenerateRequest, request_id: str, deadline: float
) -> Generation | Refusal:
    # Asked before the work of reading, so that a flood is refused cheaply; `accept` asks again after it.
    reader = admission.ready()
    if isinstance(reader, Refusal):
        return reader
    work = await asyncio.to_thread(reader.work, request)
    return work if isinstance(work, Refusal) else admission.accept(work, deadline, request_id)


async def answer(generation: Generation, delivery: Delivery, stall_seconds: float) -> Refusal | None:
    """Delivers a generation to its end, and sets its outcome; returns the error that the call shall end with."""
    try:
        async with asyncio.timeout(generation.deadline - time.monotonic()):
            ending, token_count = await follow(generation, delivery, stall_seconds)
            if ending is Ending.NEVER_STARTED:
                generation.outcome = Outcome.CUT
                return Refusal(Reason.STOPPED, "the server stopped before the request could start")
            if ending is Ending.DECODE_FAILED:
                generation.outcome = Outcome.FAILED
                return Refusal(Reason.DECODE_FAILED, "llama.cpp could not evaluate this request; see the server's log")
            if ending is Ending.ORDERED:
                return Refusal(Reason.CANCELLED, "the request was cancelled by an order to the server")
            await delivery.finished(_finished(generation, ending, token_count))
            generation.outcome = OUTCOMES[ending]
    except TimeoutError:
        generation.outcome = Outcome.DEADLINE
        if generation.leave():
            return Refusal(Reason.DEADLINE_IN_QUEUE, "the deadline passed in the queue; the request never started")
        return Refusal(Reason.DEADLINE_RUNNING, "the deadline passed while the request was running")
    except CallerStalledError:
        generation.outcome = Outcome.STALLED
        return Refusal(Reason.STALLED, f"the caller took nothing of the answer for {stall_seconds:g} s")
    except (asyncio.CancelledError, CallerGoneError) as gone:
        # The caller's own deadline reaches us as a cancel, and its clock began before ours.
        if time.monotonic() >= generation.deadline - CALLERS_HEAD_START_SECONDS:
            generation.outcome = Outcome.DEADLINE
        if isinstance(gone, asyncio.CancelledError):
            raise
    return None


async def follow(generation: Generation, delivery: Delivery, stall_seconds: float) -> tuple[Ending, int]:
    """Delivers text as it comes; returns how it ended and the number of tokens made."""
    decoder = TextDecoder()
    made = 0
    while True:
        events = await generation.take()
        pieces = [event.piece for event in events if isinstance(event, TokenMade)]
        made += len(pieces)
        ended = events[-1] if isinstance(events[-1], Ended) else None
        text, token_count = decoder.feed(pieces, final=ended is not None)
        if text:
            try:
                async with asyncio.timeout(stall_seconds):
                    await delivery.delta(inference_pb2.TextDelta(text=text, token_count=token_count))
            except TimeoutError:
                raise CallerStalledError from None
        if ended is not None:
            return ended.ending, made


def _finished(generation: Generation, ending: Ending, token_count: int) -> inference_pb2.Finished:
    work = generation.work
    return inference_pb2.Finished(
        finish_reason=FINISH_REASONS[ending],
        usage=inference_pb2.Usage(prompt_tokens=work.prompt_tokens, completion_tokens=token_count),
        seed=work.sampling.seed if isinstance(work, Work) and not work.sampling.greedy else None,
    )
