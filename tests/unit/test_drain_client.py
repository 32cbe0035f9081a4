"""The operator's calls to a control port, against a real gRPC server; straight, and through a port-forward."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp import web

from modelbackend.v1 import control_pb2, control_pb2_grpc
from modelbackend.v1.model_info_pb2 import Identity, ModelInfo
from modelbackend_operator import drain_client
from modelbackend_operator.drain_client import Address, DrainClient, control_token, pod_address, report_from
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerReport, ServerState, TokenRefused
from modelbackend_operator.outcome import Applied, Unknown
from modelbackend_operator.port_forward import PROTOCOL, forwarded
from tests.unit.builders import a_serving_pod

KEY = b"operator key"
BACKEND_UID = "backend-uid"


class ControlServer(control_pb2_grpc.ControlServicer):
    """Answers like a server that has one request in flight, to whoever has the backend's token."""

    def __init__(self) -> None:
        self.port = 0
        self.asked = 0
        self.drained_for_seconds: list[float] = []
        self.aborted_for: list[str] = []
        self.silent = False

    async def GetStatus(self, request: Any, context: Any) -> control_pb2.GetStatusResponse:  # noqa: ARG002, N802
        await self._admit(context)
        self.asked += 1
        state = control_pb2.STATE_DRAINING if self.drained_for_seconds else control_pb2.STATE_SERVING
        identity = Identity(backend_uid=BACKEND_UID, model="smollm2", pod_uid="pod-uid")
        model = ModelInfo(architecture="llama", context_length=4096, parameter_count=134_515_008)
        status = control_pb2.Status(identity=identity, state=state, queued=1, active=2, model=model)
        status.oldest_request_age_seconds = 1.5
        return control_pb2.GetStatusResponse(status=status)

    async def Drain(self, request: control_pb2.DrainRequest, context: Any) -> control_pb2.DrainResponse:  # noqa: N802
        await self._admit(context)
        self.drained_for_seconds.append(request.deadline_seconds)
        return control_pb2.DrainResponse()

    async def Abort(self, request: control_pb2.AbortRequest, context: Any) -> control_pb2.AbortResponse:  # noqa: N802
        await self._admit(context)
        self.aborted_for.append(request.reason)
        return control_pb2.AbortResponse()

    async def CancelRequest(  # noqa: N802
        self, request: control_pb2.CancelRequestRequest, context: Any
    ) -> control_pb2.CancelRequestResponse:
        raise NotImplementedError("the operator cancels no request by its name")

    def WatchStatus(self, request: control_pb2.WatchStatusRequest, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        raise NotImplementedError("the operator asks, it does not watch")

    async def _admit(self, context: Any) -> None:
        if self.silent:
            await asyncio.Event().wait()
        token = f"Bearer {control_token(KEY, BACKEND_UID)}"
        if dict(context.invocation_metadata()).get("authorization") != token:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "another token")


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControlServer]:
    control, listener = ControlServer(), grpc.aio.server()
    control_pb2_grpc.add_ControlServicer_to_server(control, listener)
    control.port = listener.add_insecure_port("127.0.0.1:0")
    monkeypatch.setattr(drain_client, "CONTROL_PORT", control.port)
    await listener.start()
    yield control
    await listener.stop(None)


def a_pod(ip: str = "127.0.0.1") -> Pod:
    return a_serving_pod(ip=ip)


async def test_a_server_tells_its_state_its_identity_and_what_is_in_flight(server: ControlServer) -> None:
    report = await DrainClient(KEY, timeout_seconds=5).status(BACKEND_UID, a_pod())
    assert isinstance(report, ServerReport)
    assert (report.state, report.in_flight, report.oldest_seconds) == (ServerState.SERVING, 3, 1.5)
    assert (report.backend_uid, report.model, report.pod_uid) == (BACKEND_UID, "smollm2", "pod-uid")
    assert report.facts == {"architecture": "llama", "contextLength": 4096, "parameterCount": 134_515_008}
    assert server.asked == 1


async def test_a_server_is_asked_at_most_once_a_second(server: ControlServer) -> None:
    client = DrainClient(KEY, timeout_seconds=5)
    reports = [await client.status(BACKEND_UID, a_pod()) for _ in range(5)]
    assert reports.count(reports[0]) == 5
    assert server.asked == 1


async def test_a_drain_tells_the_time_that_is_left_and_makes_the_next_answer_a_new_one(server: ControlServer) -> None:
    client = DrainClient(KEY, timeout_seconds=5)
    await client.status(BACKEND_UID, a_pod())
    deadline = datetime.now(UTC) + timedelta(seconds=30)
    assert await client.drain(BACKEND_UID, a_pod(), deadline) == Applied()
    assert server.drained_for_seconds[0] == pytest.approx(30, abs=3)
    report = await client.status(BACKEND_UID, a_pod())
    assert isinstance(report, ServerReport)
    assert report.state is ServerState.DRAINING


async def test_one_call_that_fails_is_no_silence_and_several_are(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_client, "REUSE_SECONDS", 0.0)
    client = DrainClient(KEY, timeout_seconds=0.3)
    report = await client.status(BACKEND_UID, a_pod())
    server.silent = True
    assert await client.status(BACKEND_UID, a_pod()) == report
    monkeypatch.setattr(drain_client, "SILENT_AFTER_SECONDS", 0.0)
    assert await client.status(BACKEND_UID, a_pod()) is None
    assert await client.status(BACKEND_UID, a_pod()) is None
    server.silent = False
    assert await client.status(BACKEND_UID, a_pod()) == report


async def test_an_abort_tells_why_and_makes_the_next_answer_a_new_one(server: ControlServer) -> None:
    client = DrainClient(KEY, timeout_seconds=5)
    await client.status(BACKEND_UID, a_pod())
    assert await client.abort(BACKEND_UID, a_pod(), "all maintenance") == Applied()
    assert server.aborted_for == ["all maintenance"]
    await client.status(BACKEND_UID, a_pod())
    assert server.asked == 2


async def test_a_deadline_that_has_passed_is_told_as_no_time(server: ControlServer) -> None:
    await DrainClient(KEY, timeout_seconds=5).drain(BACKEND_UID, a_pod(), datetime.now(UTC) - timedelta(seconds=9))
    assert server.drained_for_seconds == [0.0]


async def test_a_server_that_does_not_answer_is_unknown_and_not_idle(server: ControlServer) -> None:
    server.silent = True
    client = DrainClient(KEY, timeout_seconds=0.3)
    assert await client.status(BACKEND_UID, a_pod()) is None
    assert isinstance(await client.drain(BACKEND_UID, a_pod(), datetime.now(UTC)), Unknown)
    assert isinstance(await client.abort(BACKEND_UID, a_pod(), "why"), Unknown)


async def test_a_pod_without_an_address_is_unknown_and_one_that_refuses_us_is_told_apart(server: ControlServer) -> None:
    client = DrainClient(KEY, timeout_seconds=2)
    assert await client.status(BACKEND_UID, a_pod(ip="")) is None
    stranger = DrainClient(b"another key", timeout_seconds=2)
    assert await stranger.status(BACKEND_UID, a_pod()) is TokenRefused.ANSWER
    refusal = await stranger.drain(BACKEND_UID, a_pod(), datetime.now(UTC))
    assert refusal == Unknown("Drain of pod models/smollm2-0: PERMISSION_DENIED: another token")
    assert server.asked == 0


async def test_an_address_of_either_family_can_be_dialled() -> None:
    async with pod_address(a_pod(ip="10.1.2.3")) as four, pod_address(a_pod(ip="fd00::7")) as six:
        assert (four, six) == ("10.1.2.3:50052", "[fd00::7]:50052")


def test_a_state_that_this_operator_does_not_know_is_no_report() -> None:
    assert report_from(control_pb2.Status(state=control_pb2.STATE_UNSPECIFIED)) is None
    assert report_from(control_pb2.Status(state=99)) is None  # type: ignore[arg-type]


# -- through a port-forward ------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def port_forwarder(port: int, refuse: bool = False) -> AsyncIterator[str]:
    """What an API server and a kubelet do for one port, by the protocol of the kubelet's port-forward."""

    async def portforward(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=[PROTOCOL])
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        if refuse:
            await socket.send_bytes(b"\x01connection refused in the pod")
            return socket
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def upward() -> None:
            async for message in socket:
                assert message.data[0] == 0
                writer.write(message.data[1:])

        task = asyncio.create_task(upward())
        while chunk := await reader.read(4096):
            await socket.send_bytes(b"\x00" + chunk)
        task.cancel()
        writer.close()
        return socket

    app = web.Application()
    app.add_routes([web.get("/portforward", portforward)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}/portforward"
    finally:
        await runner.cleanup()


def through(session: aiohttp.ClientSession, url: str) -> Address:
    return lambda _: forwarded(lambda: session.ws_connect(url, protocols=[PROTOCOL]))


async def test_a_server_is_reached_through_a_port_forward(server: ControlServer) -> None:
    async with port_forwarder(server.port) as url, aiohttp.ClientSession() as session:
        report = await DrainClient(KEY, timeout_seconds=5, address=through(session, url)).status(BACKEND_UID, a_pod())
    assert isinstance(report, ServerReport)
    assert report.pod_uid == "pod-uid"
    assert server.asked == 1


async def test_a_port_forward_that_fails_is_unknown(server: ControlServer) -> None:
    async with port_forwarder(server.port, refuse=True) as url, aiohttp.ClientSession() as session:
        assert (
            await DrainClient(KEY, timeout_seconds=1, address=through(session, url)).status(BACKEND_UID, a_pod())
            is None
        )
    assert server.asked == 0
