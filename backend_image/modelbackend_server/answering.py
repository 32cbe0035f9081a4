"""How a request is answered, whichever door it came by: read, accepted, followed to its end, delivered.

The doors (grpc_service, openai_http) translate; what a caller is promised (its place in the queue, its deadline, a slot
that is freed when it goes, an answer that a drain does not cut) is kept here, once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from modelbackend.v1 import inference_pb2

from .admission import Admission
from .delivery import CallerGoneError, Delivery, Texts, Whole
from .generation import AnyWork, Embedded, Ended, Ending, Event, Generation, Outcome, Scored
from .refusals import Reason, Refusal
from .wire import Reader

OUTCOMES = {Ending.STOP: Outcome.STOP, Ending.LENGTH: Outcome.LENGTH, Ending.CUT: Outcome.CUT}
CALLERS_HEAD_START_SECONDS = 0.1
"""A caller counts from when it sends, we from when we receive."""
CUT = Refusal(Reason.CUT, "the server had to stop while this request was running")

AWork = TypeVar("AWork", bound=AnyWork)


@dataclass(frozen=True, slots=True)
class Call:
    """What the doors know of a call beside its content. `seconds` are left of the caller's own deadline."""

    request_id: str
    seconds: float | None


class CallerStalledError(Exception):
    """The caller is there and has taken nothing for as long as the server lets one."""


class Receiver(Protocol):
    async def take(self, events: Sequence[Event]) -> None:
        """Events in order; the last call ends with Ended, if the engine has said all. May raise CallerGoneError."""
        ...


async def generate(
    admission: Admission, request: inference_pb2.GenerateRequest, delivery: Delivery, call: Call
) -> Refusal | None:
    """Answers a request to its end; returns the error that it shall end with, if any.

    A caller that goes cancels this coroutine.
    """
    return await _host(
        admission,
        lambda reader: reader.work(request),
        lambda reader, work: Texts(work, reader.loaded.vocabulary, delivery),
        call,
        told_at_its_end=isinstance(delivery, Whole),
    )


class Results:
    """What the engine made of a request that is answered once: scores or vectors."""

    def __init__(self) -> None:
        self.scored: list[Scored] = []
        self.embedded: list[Embedded] = []
        self.cut = False

    async def take(self, events: Sequence[Event]) -> None:
        self.cut = events[-1] == Ended(Ending.CUT)
        self.scored += [event for event in events if isinstance(event, Scored)]
        self.embedded += [event for event in events if isinstance(event, Embedded)]


async def results(
    admission: Admission, read: Callable[[Reader], AWork | Refusal], call: Call
) -> tuple[AWork, Results] | Refusal:
    """Has scores or vectors made, whole or not at all."""
    collected = Results()
    works: list[AWork] = []

    def receive(_: Reader, work: AWork) -> Results:
        works.append(work)
        return collected

    refusal = await _host(admission, read, receive, call, told_at_its_end=True)
    if refusal is None and collected.cut:
        refusal = CUT
    return (works[0], collected) if refusal is None else refusal


async def _host(
    admission: Admission,
    read: Callable[[Reader], AWork | Refusal],
    receive: Callable[[Reader, AWork], Receiver],
    call: Call,
    *,
    told_at_its_end: bool,
) -> Refusal | None:
    limit_seconds = admission.settings.request_timeout_seconds
    deadline = time.monotonic() + (limit_seconds if call.seconds is None else min(call.seconds, limit_seconds))
    # Asked before the work of reading, so that a flood is refused cheaply; `accept` asks again after it.
    reader = admission.ready()
    if isinstance(reader, Refusal):
        return admission.refused(reader)
    work = await asyncio.to_thread(read, reader)
    if isinstance(work, Refusal):
        return admission.refused(work)
    generation = admission.accept(work, deadline, call.request_id)
    if isinstance(generation, Refusal):
        return admission.refused(generation)
    generation.told_at_its_end = told_at_its_end
    with admission.hosted(generation):
        return await answer(generation, receive(reader, work), admission.settings.stall_seconds)


async def answer(generation: Generation, receiver: Receiver, stall_seconds: float) -> Refusal | None:
    """Delivers a generation to its end, and sets its outcome; returns the error that the call shall end with."""
    try:
        async with asyncio.timeout(generation.deadline - time.monotonic()):
            ending = await follow(generation, receiver, stall_seconds)
            match ending:
                case Ending.NEVER_STARTED:
                    generation.outcome = Outcome.CUT
                    return Refusal(Reason.STOPPED, "the server stopped before the request could start")
                case Ending.DECODE_FAILED:
                    generation.outcome = Outcome.FAILED
                    words = "llama.cpp could not evaluate this request; see the server's log"
                    return Refusal(Reason.DECODE_FAILED, words)
                case Ending.ORDERED:
                    return Refusal(Reason.CANCELLED, "the request was cancelled by an order to the server")
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


async def follow(generation: Generation, receiver: Receiver, stall_seconds: float) -> Ending:
    """Hands events on as they come, to their end."""
    try:
        async with asyncio.timeout(None) as timeout:
            with _Patience(timeout, stall_seconds) as patience:
                while True:
                    events = await generation.take()
                    patience.begin()
                    await receiver.take(events)
                    patience.end()
                    if isinstance(events[-1], Ended):
                        return events[-1].ending
    except TimeoutError:
        raise CallerStalledError from None


class _Patience:
    """Lets a time-out expire when one wait for the caller takes longer than `seconds`.

    One timer looks at all the waits of an answer: one for each piece of it costs more than all else that is done for
    the piece.
    """

    def __init__(self, timeout: asyncio.Timeout, seconds: float) -> None:
        self._timeout = timeout
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None

    def __enter__(self) -> _Patience:
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def begin(self) -> None:
        self._since = self._loop.time()

    def end(self) -> None:
        self._since = None

    def _look(self) -> None:
        now = self._loop.time()
        ends = (now if self._since is None else self._since) + self._seconds
        if ends <= now:
            self._timeout.reschedule(now)
        else:
            self._timer = self._loop.call_at(ends, self._look)
