"""Who may control a server, and whether a caller has reached the one it means."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from modelbackend.v1 import control_pb2, control_pb2_grpc
from modelbackend_client import AsyncClient, CallError
from tests.server.harness import GREEDY, LOOPBACK, PATIENCE_SECONDS, Gate, running


async def code_of(address: str, metadata: tuple[tuple[str, str], ...]) -> tuple[grpc.StatusCode, str]:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        try:
            await stub.GetStatus(control_pb2.GetStatusRequest(), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        return grpc.StatusCode.OK, ""


async def test_control_asks_for_the_token_in_the_file_as_it_is_now(tiny: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with running(tiny, until_serving=False, control_token_file=token) as server:
        address = f"{LOOPBACK}:{server.ports.control}"
        code, words = await code_of(address, ())
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert "authorization: Bearer <token>" in words
        code, words = await code_of(address, (("authorization", "Bearer second"),))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "not the token of this backend" in words
        assert (await code_of(address, (("authorization", "Bearer first"),)))[0] is grpc.StatusCode.OK
        # A Secret that was deleted and made anew.
        token.write_text("second\n")
        assert (await code_of(address, (("authorization", "Bearer second"),)))[0] is grpc.StatusCode.OK
        assert (await code_of(address, (("authorization", "Bearer first"),)))[0] is grpc.StatusCode.PERMISSION_DENIED
        token.write_text("")
        assert (await code_of(address, (("authorization", "Bearer "),)))[0] is grpc.StatusCode.PERMISSION_DENIED
        token.unlink()
        assert (await code_of(address, (("authorization", "Bearer "),)))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_a_call_for_another_backend_is_refused_and_names_both(tiny: Path) -> None:
    async with running(tiny, uid="uid-1", model="small") as server:
        async with AsyncClient(server.address, uid="uid-1", model="small") as right:
            await right.generate("the", max_tokens=1, sampling=GREEDY)
        async with AsyncClient(server.address, uid="uid-2") as stranger:
            with pytest.raises(CallError) as refused:
                await stranger.generate("the", max_tokens=1)
            with pytest.raises(CallError, match="uid-2"):
                async for _ in stranger.stream("the", max_tokens=1):
                    pass
        assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
        assert (refused.value.reason, refused.value.not_started) == ("BACKEND_MISMATCH", True)
        assert "ModelBackend uid-1" in refused.value.message
        assert "uid-2" in refused.value.message
        async with AsyncClient(server.address, uid="uid-1", model="large") as wrong_model:
            with pytest.raises(CallError, match="has the model 'small', not 'large'") as refused:
                await wrong_model.generate("the", max_tokens=1)
        assert refused.value.code is grpc.StatusCode.NOT_FOUND
        status = await server.status()
        assert (status.identity.backend_uid, status.identity.model) == ("uid-1", "small")
        assert status.requests.accepted == 1


async def test_even_a_health_check_tells_a_stranger_that_it_is_elsewhere(tiny: Path) -> None:
    async with running(tiny, uid="uid-1") as server:
        stub = health_pb2_grpc.HealthStub(server.channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Check(health_pb2.HealthCheckRequest(), metadata=(("x-modelbackend-uid", "uid-2"),))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_protos_can_be_asked_for_only_where_reflection_is_switched_on(tiny: Path) -> None:
    async def services(channel: grpc.aio.Channel) -> set[str]:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        requests = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        async for response in stub.ServerReflectionInfo(requests):
            return {service.name for service in response.list_services_response.service}
        return set()

    async with running(tiny, until_serving=False, reflection=True) as server:
        assert "modelbackend.v1.Inference" in await services(server.channel)
    async with running(tiny, until_serving=False) as server:
        # Nothing is sent: where the refusal comes before a message has gone, grpc.aio tells an error of its own.
        call = reflection_pb2_grpc.ServerReflectionStub(server.channel).ServerReflectionInfo()
        assert await call.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_status_tells_what_the_server_does_and_how_fast(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=2, context_length=1024, uid="uid-1", model="small", pod_uid="pod-1") as server:
        before = await server.status()
        assert (before.prompt_tokens_per_second, before.cache_tokens, before.cache_tokens_max) == (0, 0, 2048)
        await server.client.generate("x" * 40, max_tokens=20, sampling=GREEDY)
        gate.allow(3)
        calls = [asyncio.create_task(server.client.generate("the", max_tokens=9, sampling=GREEDY)) for _ in range(3)]
        status = await server.until_inside(3)
        gate.open()
        await asyncio.gather(*calls)
        after = await server.until(active=0)
    assert (status.identity.backend_uid, status.identity.model, status.identity.pod_uid) == ("uid-1", "small", "pod-1")
    assert (status.state, status.slots, status.load_progress) == (control_pb2.STATE_SERVING, 2, 1)
    assert status.oldest_request_age_seconds > 0 == after.oldest_request_age_seconds
    assert status.prompt_tokens_per_second > 0
    assert status.generated_tokens_per_second > 0
    # What the last requests left is kept for others that begin alike.
    assert 0 < after.cache_tokens <= 2048
    assert "libggml-cpu" in status.cpu_library
    assert status.llama_cpp_build.startswith("llama-cpp-python ")
    assert status.model.vocabulary_size > 0
    assert status.uptime_seconds > 0


async def test_a_watched_status_shows_a_drain_move_to_its_end(tiny: Path, gate: Gate) -> None:
    async with running(tiny, slots=1) as server:
        watch = server.control.WatchStatus(control_pb2.WatchStatusRequest())

        async def following(state: control_pb2.State.ValueType, queued: int, active: int) -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while isinstance(response := await watch.read(), control_pb2.WatchStatusResponse):
                    status = response.status
                    if (status.state, status.queued, status.active) == (state, queued, active):
                        return
            raise AssertionError("it ended before")

        await following(control_pb2.STATE_SERVING, 0, 0)
        gate.allow(3)
        calls = [asyncio.create_task(server.client.generate("the", max_tokens=99, sampling=GREEDY)) for _ in range(2)]
        await following(control_pb2.STATE_SERVING, 1, 1)
        await server.drain(60)
        await following(control_pb2.STATE_DRAINING, 1, 1)
        gate.open()
        await following(control_pb2.STATE_DRAINING, 0, 0)
        await asyncio.gather(*calls)
        server.server.on_signal()
        await following(control_pb2.STATE_STOPPED, 0, 0)
        assert await watch.read() is grpc.aio.EOF
        await server.ended


async def test_a_message_longer_than_the_context_can_be_is_no_full_queue_and_is_not_sent_again(tiny: Path) -> None:
    async with running(tiny, context_length=1024) as server:
        with pytest.raises(CallError, match="larger than max") as refused:
            await server.client.generate("x" * 5 * 2**20)
        # gRPC itself refuses it, with the code of a full queue: only that one says when to come back.
        assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (refused.value.reason, refused.value.retry_after_seconds) == ("", None)
        assert (await server.status()).requests.accepted == 0
