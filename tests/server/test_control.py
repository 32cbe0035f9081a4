"""Who may control a server, and whether a caller has reached the one it means."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from modelbackend.v1 import control_pb2, control_pb2_grpc
from modelbackend_client import AsyncClient, CallError
from tests.server.harness import GREEDY, LOOPBACK, running


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
