"""Stopping: what was accepted is finished, nothing new is taken, and everyone is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from modelbackend.v1 import control_pb2, inference_pb2
from modelbackend_client import CallError
from modelbackend_server.exits import ExitCode
from modelbackend_server.server import INFERENCE_SERVICE, LIVENESS_SERVICE
from tests.server.harness import PATIENCE_SECONDS, Gate, Running, greedy, next_event, rest, running
from tests.server.slow_load import slow_load
from tests.server.tiny_gguf import CONTEXT_LENGTH

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health(server: Running) -> dict[str, int]:
    stub = health_pb2_grpc.HealthStub(server.channel)
    names = ("", INFERENCE_SERVICE, LIVENESS_SERVICE)
    return {name: (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status for name in names}


async def refusal(server: Running) -> CallError:
    with pytest.raises(CallError) as refused:
        await server.client.generate("the", max_tokens=1)
    return refused.value


async def test_a_drain_finishes_what_runs_and_what_waits_and_takes_nothing_new(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server:
        gate.allow(3)
        stream = server.stub.GenerateStream(greedy("the", 200))
        await next_event(stream)
        waiting = server.stub.Generate(greedy("the", 200))
        await server.until(queued=1, active=1)

        status = await server.drain(60)
        assert status.state == control_pb2.STATE_DRAINING
        assert (status.queued, status.active) == (1, 1)
        assert status.message == "2 requests in flight are being finished"
        assert 59 < status.drain_remaining_seconds <= 60
        refused = await refusal(server)
        assert refused.code is grpc.StatusCode.UNAVAILABLE
        assert (refused.reason, refused.not_started, refused.retry_after_seconds) == ("DRAINING", True, 1)

        gate.open()
        text, finished = await rest(stream)
        assert finished.finish_reason == inference_pb2.FINISH_REASON_LENGTH
        assert finished.usage.completion_tokens == 200
        assert (await waiting).text.endswith(text)
        idle = await server.until(queued=0, active=0)
        assert idle.state == control_pb2.STATE_DRAINING
        assert idle.message == "idle: nothing is in flight"
        # A drain alone ends no process.
        assert not server.ended.done()


async def test_a_drain_can_be_repeated_and_its_last_deadline_counts(tiny: Path) -> None:
    async with running(tiny, drain_seconds=7) as server:
        assert 6 < (await server.drain()).drain_remaining_seconds <= 7
        assert 99 < (await server.drain(100)).drain_remaining_seconds <= 100
        assert (await server.drain(1)).drain_remaining_seconds <= 1


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 604_801])
async def test_a_drain_with_an_impossible_deadline_is_refused_and_changes_nothing(tiny: Path, seconds: float) -> None:
    async with running(tiny) as server:
        with pytest.raises(grpc.aio.AioRpcError, match="deadline_seconds is") as refused:
            await server.drain(seconds)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await server.status()).state == control_pb2.STATE_SERVING


async def test_the_deadline_of_a_drain_cuts_nothing_until_the_server_is_told_to_end(tiny: Path, gate: Gate) -> None:
    async with running(tiny) as server:
        gate.allow(3)
        stream = server.stub.GenerateStream(greedy("the", 50))
        await next_event(stream)
        assert (await server.drain(0)).drain_remaining_seconds <= 0
        assert (await server.status()).active == 1
        gate.open()
        _, finished = await rest(stream)
    assert finished.finish_reason == inference_pb2.FINISH_REASON_LENGTH


async def test_a_signal_ends_an_idle_server_at_once(tiny: Path) -> None:
    async with running(tiny, drain_seconds=1000) as server:
        server.server.on_signal()
        ended = await asyncio.wait_for(server.ended, 10)
    assert ended.code is ExitCode.DRAINED


async def test_at_the_deadline_after_a_signal_requests_are_cut_and_told_so(tiny: Path) -> None:
    async with running(tiny, slots=1, drain_seconds=0.1, context_length=CONTEXT_LENGTH) as server:
        # Seconds of work for the fastest machine.
        stream = server.stub.GenerateStream(greedy("the", CONTEXT_LENGTH - 10))
        await next_event(stream)
        waiting = server.stub.Generate(greedy("the", 5))
        await server.until(queued=1, active=1)
        server.server.on_signal()
        text, finished = await rest(stream)
        assert finished.finish_reason == inference_pb2.FINISH_REASON_CANCELLED
        assert text
        assert 10 < finished.usage.completion_tokens < CONTEXT_LENGTH - 10
        with pytest.raises(grpc.aio.AioRpcError) as never:
            await waiting
        assert never.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "before the request could start" in (never.value.details() or "")
        ended = await server.ended
    assert ended.code is ExitCode.DRAINED
    assert ended.words == "drained and stopped; 2 requests were cut"


async def test_health_names_tell_readiness_while_the_server_lives_on(
    tiny: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load = slow_load(monkeypatch)
    async with running(tiny, until_serving=False) as server:
        assert await health(server) == {"": NOT_SERVING, INFERENCE_SERVICE: NOT_SERVING, LIVENESS_SERVICE: SERVING}
        assert (await server.status()).state == control_pb2.STATE_LOADING
        refused = await refusal(server)
        assert refused.code is grpc.StatusCode.UNAVAILABLE
        assert (refused.reason, refused.not_started, refused.retry_after_seconds) == ("LOADING", True, 2)
        with pytest.raises(CallError, match="not loaded yet"):
            await server.client.model_info()

        may_load.set()
        loaded = await server.until(state=control_pb2.STATE_SERVING)
        assert await health(server) == {"": SERVING, INFERENCE_SERVICE: SERVING, LIVENESS_SERVICE: SERVING}
        assert loaded.load_progress == 1
        assert "libggml-cpu" in loaded.cpu_library
        assert loaded.llama_cpp_build.startswith("llama-cpp-python ")
        assert loaded.model.architecture == "llama"

        gate.close()
        watch = health_pb2_grpc.HealthStub(server.channel).Watch(health_pb2.HealthCheckRequest(service=""))
        stream = server.stub.GenerateStream(greedy("the", 5))
        await server.until(active=1)
        await server.drain(60)
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for change in watch:
                if change.status == NOT_SERVING:
                    break
        assert await health(server) == {"": NOT_SERVING, INFERENCE_SERVICE: NOT_SERVING, LIVENESS_SERVICE: SERVING}
        gate.open()
        await rest(stream)


async def test_a_server_drained_while_it_loads_never_serves(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_load = slow_load(monkeypatch)
    async with running(tiny, until_serving=False) as server:
        assert (await server.drain(60)).state == control_pb2.STATE_DRAINING
        may_load.set()
        await server.until(load_progress=1)
        assert (await server.status()).state == control_pb2.STATE_DRAINING
        assert (await refusal(server)).reason == "DRAINING"


async def test_an_abort_cuts_what_runs_refuses_what_waits_and_ends_the_process_with_its_own_code(tiny: Path) -> None:
    async with running(tiny, slots=1, drain_seconds=1000, context_length=CONTEXT_LENGTH) as server:
        stream = server.stub.GenerateStream(greedy("the", CONTEXT_LENGTH - 10))
        await next_event(stream)
        waiting = server.stub.Generate(greedy("the", 5))
        await server.until(queued=1, active=1)
        answer = await server.control.Abort(control_pb2.AbortRequest(reason="forced by a user"))
        assert (answer.status.state, answer.status.active) == (control_pb2.STATE_DRAINING, 1)
        _, finished = await rest(stream)
        assert finished.finish_reason == inference_pb2.FINISH_REASON_CANCELLED
        with pytest.raises(grpc.aio.AioRpcError, match="before the request could start"):
            await waiting
        ended = await server.ended
    assert ended.code is ExitCode.ABORTED
    assert ended.words == "aborted by order: forced by a user; 2 requests were cut"


async def test_an_abort_counts_also_while_the_model_loads_and_while_a_drain_has_time(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load = slow_load(monkeypatch)
    async with running(tiny, until_serving=False) as server:
        await server.drain(1000)
        await server.control.Abort(control_pb2.AbortRequest())
        await server.control.Abort(control_pb2.AbortRequest(reason="again"))
        may_load.set()
        ended = await server.ended
    assert ended.words == "aborted by order: no reason was given; 0 requests were cut"
