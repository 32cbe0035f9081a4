"""The door for the operator: Control. Answers from the event loop's own facts, never from the engine."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc.aio

from modelbackend.v1 import control_pb2, control_pb2_grpc, model_info_pb2

from .admission import Admission
from .generation import Outcome
from .lifecycle import State
from .llama import build
from .refusals import Reason, Refusal, abort
from .variants import mapped_library
from .wire import model_info

STATES = {
    State.LOADING: control_pb2.STATE_LOADING,
    State.SERVING: control_pb2.STATE_SERVING,
    State.DRAINING: control_pb2.STATE_DRAINING,
    State.STOPPED: control_pb2.STATE_STOPPED,
    State.FAILED: control_pb2.STATE_FAILED,
}
ENDS = frozenset({control_pb2.STATE_STOPPED, control_pb2.STATE_FAILED})
DRAIN_SECONDS_MAX = 604_800
WATCH_SECONDS = 0.1
CANCELLED_OUTCOMES = (Outcome.CANCELLED, Outcome.DEADLINE, Outcome.STALLED, Outcome.CUT)
ABORT_REASON_CHARACTERS_MAX = 256

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]


class ControlService(control_pb2_grpc.ControlServicer):
    def __init__(self, admission: Admission, identity: model_info_pb2.Identity) -> None:
        self._admission = admission
        self._identity = identity
        self._started_at = time.monotonic()

    async def GetStatus(  # noqa: N802
        self,
        request: control_pb2.GetStatusRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> control_pb2.GetStatusResponse:
        return control_pb2.GetStatusResponse(status=self._status())

    async def WatchStatus(  # noqa: N802
        self,
        request: control_pb2.WatchStatusRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[control_pb2.WatchStatusResponse]:
        told: tuple[object, ...] = ()
        while True:
            status = self._status()
            if told != (status.state, status.queued, status.active):
                told = (status.state, status.queued, status.active)
                yield control_pb2.WatchStatusResponse(status=status)
            if status.state in ENDS:
                return
            await asyncio.sleep(WATCH_SECONDS)

    async def Drain(  # noqa: N802
        self, request: control_pb2.DrainRequest, context: Context
    ) -> control_pb2.DrainResponse:
        given = request.HasField("deadline_seconds")
        seconds = request.deadline_seconds if given else self._admission.settings.drain_seconds
        if not (math.isfinite(seconds) and 0 <= seconds <= DRAIN_SECONDS_MAX):
            words = f"deadline_seconds is {seconds:g}, it must be 0 to {DRAIN_SECONDS_MAX}"
            await abort(context, Refusal(Reason.BAD_REQUEST, words, "deadline_seconds"))
        self._admission.drain(time.monotonic() + seconds)
        return control_pb2.DrainResponse(status=self._status())

    async def CancelRequest(  # noqa: N802
        self,
        request: control_pb2.CancelRequestRequest,
        context: Context,  # noqa: ARG002
    ) -> control_pb2.CancelRequestResponse:
        return control_pb2.CancelRequestResponse(cancelled=self._admission.cancel(request.request_id))

    async def Abort(  # noqa: N802
        self,
        request: control_pb2.AbortRequest,
        context: Context,  # noqa: ARG002
    ) -> control_pb2.AbortResponse:
        self._admission.abort(request.reason[:ABORT_REASON_CHARACTERS_MAX] or "no reason was given")
        return control_pb2.AbortResponse(status=self._status())

    def _status(self) -> control_pb2.Status:
        admission = self._admission
        lifecycle = admission.lifecycle
        reader = admission.reader
        deadline = lifecycle.cut_at if lifecycle.cut_at is not None else lifecycle.drain_deadline
        draining = lifecycle.state is State.DRAINING and deadline is not None
        return control_pb2.Status(
            identity=self._identity,
            state=STATES[lifecycle.state],
            message=self._words(),
            load_progress=admission.load_progress if reader is None else 1.0,
            queued=admission.queued,
            active=admission.active,
            oldest_request_age_seconds=admission.oldest_age_seconds,
            slots=admission.settings.slots,
            drain_remaining_seconds=deadline - time.monotonic() if draining and deadline is not None else None,
            cpu_library=mapped_library(),
            llama_cpp_build=build(),
            model=None if reader is None else model_info(reader.loaded, admission.settings.model_sha256),
            requests=self._counters(),
            uptime_seconds=time.monotonic() - self._started_at,
            cache_tokens=admission.engine.counters.cache_tokens,
            cache_tokens_max=0 if reader is None else admission.settings.slots * reader.cached_tokens_per_slot,
            prompt_tokens_per_second=admission.metrics.prompt_tokens_per_second,
            generated_tokens_per_second=admission.metrics.generated_tokens_per_second,
        )

    def _words(self) -> str:
        admission = self._admission
        match admission.lifecycle.state:
            case State.LOADING:
                return admission.load_words
            case State.SERVING:
                return "takes requests"
            case State.DRAINING if admission.inside:
                return f"{len(admission.inside)} requests in flight are being finished"
            case State.DRAINING:
                return "idle: nothing is in flight"
            case State.STOPPED:
                return "the process is about to end"
            case State.FAILED:
                return admission.lifecycle.failure

    def _counters(self) -> control_pb2.RequestCounters:
        outcomes = self._admission.outcomes
        return control_pb2.RequestCounters(
            accepted=self._admission.accepted,
            started=self._admission.started,
            finished=outcomes[Outcome.STOP] + outcomes[Outcome.LENGTH],
            cancelled=sum(outcomes[outcome] for outcome in CANCELLED_OUTCOMES),
            failed=outcomes[Outcome.FAILED],
            refused=self._admission.refused_count,
        )
