"""Who waits, who is refused, and what happens to those who leave, are late, or read slowly."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from pathlib import Path

import grpc
import pytest

from modelbackend.v1 import inference_pb2, inference_pb2_grpc
from modelbackend_client import CallError
from modelbackend_client.errors import from_rpc
from modelbackend_server.llama import Context, DecodeError
from tests.server.harness import GREEDY, LONG, PATIENCE_SECONDS, DeafCaller, Gate, greedy, next_event, rest, running


async def error_of(call: grpc.aio.Call) -> CallError:
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call if isinstance(call, grpc.aio.UnaryUnaryCall) else await call.read()  # type: ignore[attr-defined]
    return from_rpc(refused.value)


async def test_a_full_queue_refuses_and_says_when_to_come_back(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1, max_pending=2) as server:
        gate.close()
        accepted = [server.stub.Generate(greedy("the", 5)) for _ in range(3)]
        await server.until(queued=2, active=1)
        refused = await error_of(server.stub.Generate(greedy("the", 5)))
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.reason == "QUEUE_FULL"
        assert refused.not_started
        assert refused.retry_after_seconds == 1
        assert "2 requests wait for 1 slots" in refused.message
        gate.open()
        texts = {(await call).text for call in accepted}
        status = await server.until(queued=0, active=0)
    assert len(texts) == 1
    assert (status.requests.accepted, status.requests.finished, status.requests.refused) == (3, 3, 1)


async def test_without_pending_places_only_the_slots_are_filled(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=2, max_pending=0) as server:
        gate.close()
        accepted = [server.stub.Generate(greedy("the", 5)) for _ in range(2)]
        # Whether the engine takes both up in one step, or is in it when the second comes, is chance.
        await server.until_inside(2)
        assert (await error_of(server.stub.Generate(greedy("the", 5)))).reason == "QUEUE_FULL"
        gate.open()
        await asyncio.gather(*accepted)


async def test_a_cancelled_request_in_the_queue_gives_its_place_up_and_never_starts(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1, max_pending=1) as server:
        gate.close()
        first = server.stub.Generate(greedy("the", 5))
        await server.until(active=1)
        waiting = server.stub.Generate(greedy("the", 5))
        await server.until(queued=1)
        waiting.cancel()
        # While the model is still in its step: the place does not wait for it.
        await server.until(queued=0)
        next_one = server.stub.Generate(greedy("the", 5))
        await server.until(queued=1)
        gate.open()
        assert (await next_one).text == (await first).text
        status = await server.until(active=0)
    assert status.requests.started == 2
    assert status.requests.cancelled == 1


async def test_a_cancelled_request_frees_its_slot_within_one_step(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server:
        gate.allow(3)
        stream = server.stub.GenerateStream(greedy("the", LONG))
        await next_event(stream)
        waiting = server.stub.GenerateStream(greedy("the", 1))
        await server.until(queued=1, active=1)
        stream.cancel()
        await server.until(queued=1, active=0)
        steps_before = gate.steps
        # At most the step that was waiting at the gate, and the one that answers the next request.
        gate.allow(2)
        _, finished = await rest(waiting)
        assert gate.steps - steps_before <= 2
    assert finished.finish_reason == inference_pb2.FINISH_REASON_LENGTH


async def test_a_cancel_takes_effect_between_two_chunks_of_a_long_prompt(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1, batch_tokens=16) as server:
        gate.allow(2)
        long_prompt = server.stub.Generate(greedy("x" * 2000, 1))
        await server.until(active=1)
        long_prompt.cancel()
        await server.until(active=0)
        gate.open()
        await server.client.generate("the", max_tokens=1, sampling=GREEDY)
        # 2000 tokens are 126 chunks.
        assert gate.steps < 10


async def test_a_deadline_that_passes_in_the_queue_is_told_and_the_request_never_starts(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1, request_timeout_seconds=0.3) as server:
        gate.close()
        running_one = asyncio.create_task(error_of(server.stub.Generate(greedy("the", 5))))
        await server.until(active=1)
        waiting = await error_of(server.stub.Generate(greedy("the", 5)))
        assert waiting.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (waiting.reason, waiting.not_started) == ("DEADLINE_IN_QUEUE", True)
        started = await running_one
        assert started.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (started.reason, started.not_started) == ("DEADLINE_RUNNING", False)
        gate.open()
        status = await server.until(queued=0, active=0)
    assert status.requests.started == 1
    assert status.requests.cancelled == 2


async def test_the_callers_own_deadline_ends_a_stream_and_frees_its_slot(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server:
        gate.allow(3)
        stream = server.stub.GenerateStream(greedy("the", LONG), timeout=0.3)
        with pytest.raises(grpc.aio.AioRpcError) as late:
            async for _ in stream:
                pass
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await server.until(active=0)
        gate.open()
        await server.client.generate("the", max_tokens=1, sampling=GREEDY)
        # On a busy machine the caller's clock may be far ahead of the server's, which then sees a cancel.
        outcomes = [
            server.server.metrics.registry.get_sample_value("modelbackend_requests_total", {"outcome": outcome}) or 0
            for outcome in ("deadline", "cancelled")
        ]
        assert sum(outcomes) == pytest.approx(1)


async def test_a_caller_that_vanishes_frees_its_slot(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server:
        gate.allow(3)
        async with grpc.aio.insecure_channel(server.address) as channel:
            stream = inference_pb2_grpc.InferenceStub(channel).GenerateStream(greedy("the", LONG))
            await stream.read()
            await server.until(active=1)
        await server.until(active=0)
        gate.open()
        await server.client.generate("the", max_tokens=1, sampling=GREEDY)


async def test_a_reader_that_does_not_read_holds_back_only_itself(tiny: Path) -> None:
    async with running(tiny, slots=1) as server:
        deaf = DeafCaller(server.ports.grpc, greedy("the", LONG))
        await server.until(active=1)
        # The one slot goes to others although the first answer is not read.
        answer = await server.client.generate("the", max_tokens=20, sampling=GREEDY)
        assert answer.finished.usage.completion_tokens == 20
        status = await server.status()
        assert (status.queued, status.active) == (0, 1)
        generated = server.server.metrics.registry.get_sample_value("modelbackend_generated_tokens_total")
        assert generated == LONG + 20
        # When it goes, in the middle of our writing to it, its place is free.
        deaf.close()
        status = await server.until(active=0)
    assert (status.requests.finished, status.requests.cancelled, status.requests.failed) == (1, 1, 0)


async def test_a_reader_that_does_not_read_for_long_is_cut_off(tiny: Path) -> None:
    async with running(tiny, stall_seconds=0.5) as server:
        deaf = DeafCaller(server.ports.grpc, greedy("the", 500))
        await server.until(active=1)
        status = await server.until(active=0)
        assert (status.requests.finished, status.requests.cancelled) == (0, 1)
        stalled = server.server.metrics.registry.get_sample_value("modelbackend_requests_total", {"outcome": "stalled"})
        assert stalled == 1
        deaf.close()


async def test_a_reader_that_does_not_read_is_ended_by_the_deadline(tiny: Path) -> None:
    async with running(tiny, request_timeout_seconds=0.5) as server:
        deaf = DeafCaller(server.ports.grpc, greedy("the", 500))
        await server.until(active=1)
        status = await server.until(active=0)
        deaf.close()
    assert status.requests.cancelled == 1


async def test_a_drain_waits_for_a_reader_that_does_not_read_and_a_signal_ends_it(tiny: Path) -> None:
    async with running(tiny, drain_seconds=0.5) as server:
        deaf = DeafCaller(server.ports.grpc, greedy("the", 100))
        await server.until(active=1)
        assert (await server.drain(60)).active == 1
        server.server.on_signal()
        ended = await asyncio.wait_for(server.ended, PATIENCE_SECONDS)
        deaf.close()
    assert ended.code == 0


async def test_a_batch_that_cannot_be_evaluated_fails_its_requests_and_no_others(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = Context.decode
    failures = iter([DecodeError("llama_decode returned 1")])

    def failing(context: Context, *arguments: object) -> object:
        for failure in failures:
            raise failure
        return decode(context, *arguments)  # type: ignore[arg-type]

    async with running(tiny) as server:
        expected = await server.client.generate("the", max_tokens=10, sampling=GREEDY)
        monkeypatch.setattr(Context, "decode", failing)
        failed = await error_of(server.stub.Generate(greedy("the", 10)))
        assert failed.code is grpc.StatusCode.INTERNAL
        assert (failed.reason, failed.not_started) == ("DECODE_FAILED", False)
        assert (await server.client.generate("the", max_tokens=10, sampling=GREEDY)).text == expected.text
        assert (await server.status()).requests.failed == 1


async def test_an_engine_that_breaks_ends_the_server_with_words(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tiny) as server:

        def broken(*_: object) -> object:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(Context, "decode", broken)
        failed = await error_of(server.stub.Generate(greedy("the", 10)))
        assert failed.code is grpc.StatusCode.INTERNAL
        ended = await server.ended
    assert ended.code == 70
    assert "a bug" in ended.words


async def test_what_happened_can_be_scraped(tiny: Path) -> None:
    async with running(tiny, max_pending=0) as server:
        await server.client.generate("the time", max_tokens=7, sampling=GREEDY)
        with pytest.raises(CallError):
            await server.client.generate("", max_tokens=0)

        def scrape() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.ports.metrics}/metrics") as answer:
                return bytes(answer.read()).decode()

        text = await asyncio.to_thread(scrape)
    for line in (
        'modelbackend_requests_total{outcome="length"} 1.0',
        'modelbackend_refusals_total{reason="BAD_REQUEST"} 1.0',
        "modelbackend_requests_queued 0.0",
        "modelbackend_requests_active 0.0",
        "modelbackend_queue_seconds_count 1.0",
        "gen_ai_server_time_to_first_token_seconds_count 1.0",
        "gen_ai_server_time_per_output_token_seconds_count 1.0",
        "gen_ai_server_request_duration_seconds_count 1.0",
        "modelbackend_inter_token_seconds_count 6.0",
        "modelbackend_generated_tokens_per_second_count 1.0",
        "modelbackend_prompt_tokens_per_second_count 1.0",
        "modelbackend_batch_sequences_count 7.0",
        "modelbackend_steps_total ",
        "modelbackend_reused_prompt_tokens_total ",
        "modelbackend_evaluated_prompt_tokens_total ",
        "modelbackend_cache_tokens ",
        "modelbackend_oldest_request_age_seconds 0.0",
        'modelbackend_calls_total{identity="absent"} ',
        "modelbackend_generated_tokens_total 7.0",
    ):
        assert any(found.startswith(line) for found in text.splitlines()), line


async def test_the_oldest_request_is_told_with_its_age(tiny: Path, gate: Gate) -> None:
    async with running(tiny) as server:
        assert (await server.status()).oldest_request_age_seconds == 0
        gate.close()
        before = time.monotonic()
        call = server.stub.Generate(greedy("the", 1))
        await server.until(active=1)
        age_seconds = (await server.status()).oldest_request_age_seconds
        assert 0 < age_seconds <= time.monotonic() - before
        gate.open()
        await call
