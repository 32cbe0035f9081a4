"""Encrypted, and asking who calls: certificates of both sides, their change, and bearer tokens."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import openai
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from modelbackend_client import AsyncClient, CallError, Tls
from modelbackend_server import server as server_module
from modelbackend_server.exits import ExitCode, UnservableError
from modelbackend_server.server import Server
from modelbackend_server.settings import Settings
from tests.server.harness import GREEDY, LOOPBACK, Running, running

NAME = "models.example"


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def authority(folder: Path) -> Path:
    """A new one; its certificate and key lie beside each other."""
    folder.mkdir()
    subject = ("-subj", "/CN=authority", "-days", "2", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    openssl("req", "-x509", *subject, "-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.crt"))
    return folder


def certificate(signer: Path, folder: Path, name: str = NAME) -> None:
    """Writes tls.crt and tls.key into the folder, the way a Secret of type kubernetes.io/tls has them."""
    folder.mkdir(exist_ok=True)
    request, extensions = folder / "request", folder / "extensions"
    extensions.write_text(f"subjectAltName=DNS:{name}\n")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-new", *curve, "-subj", f"/CN={name}", "-keyout", str(folder / "tls.key"), "-out", str(request))
    signed = ("-CA", str(signer / "ca.crt"), "-CAkey", str(signer / "ca.key"), "-days", "2")
    out = ("-out", str(folder / "tls.crt"), "-extfile", str(extensions))
    openssl("x509", "-req", "-in", str(request), *signed, *out)


@pytest.fixture
def signer(tmp_path: Path) -> Path:
    return authority(tmp_path / "authority")


@pytest.fixture
def folder(signer: Path, tmp_path: Path) -> Path:
    certificate(signer, tmp_path / "served")
    return tmp_path / "served"


async def answered_over_grpc(server: Running, tls: Tls | None, **given: Any) -> bool:
    async with AsyncClient(server.address, tls=tls, **given) as client:
        return bool((await client.generate("the", max_tokens=1, sampling=GREEDY)).text)


async def answered_over_http(server: Running, context: ssl.SSLContext) -> int:
    url = f"https://{LOOPBACK}:{server.ports.http}/v1/models"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context, server_hostname=NAME) as response:
        return response.status


def trusting(signer: Path, own: Path | None = None) -> tuple[Tls, ssl.SSLContext]:
    """A caller of each door that trusts a signer, and shows its own certificate if it has one."""
    context = ssl.create_default_context(cafile=str(signer / "ca.crt"))
    if own is None:
        return Tls((signer / "ca.crt").read_bytes(), NAME), context
    context.load_cert_chain(own / "tls.crt", own / "tls.key")
    mine = (own / "tls.crt").read_bytes(), (own / "tls.key").read_bytes()
    return Tls((signer / "ca.crt").read_bytes(), NAME, *mine), context


async def test_both_doors_speak_tls_and_nothing_else(tiny: Path, signer: Path, folder: Path) -> None:
    async with running(tiny, tls_folder=folder) as server:
        tls, context = trusting(signer)
        assert await answered_over_grpc(server, tls)
        assert await answered_over_http(server, context) == 200
        with pytest.raises(CallError, match="no connection"):
            await answered_over_grpc(server, None)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answered_over_http(server, ssl.create_default_context())
        # The kubelet speaks no TLS: it asks at the control port, which is never exposed.
        async with grpc.aio.insecure_channel(f"{LOOPBACK}:{server.ports.control}") as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_caller_without_a_certificate_is_refused_where_one_is_asked_for(
    tiny: Path, signer: Path, folder: Path, tmp_path: Path
) -> None:
    callers = authority(tmp_path / "callers")
    certificate(callers, tmp_path / "caller", "caller")
    (folder / "ca.crt").write_bytes((callers / "ca.crt").read_bytes())
    async with running(tiny, tls_folder=folder) as server:
        tls, context = trusting(signer, tmp_path / "caller")
        assert await answered_over_grpc(server, tls)
        assert await answered_over_http(server, context) == 200
        tls, context = trusting(signer)
        with pytest.raises(CallError, match="no connection"):
            await answered_over_grpc(server, tls)
        with pytest.raises(aiohttp.ClientError):
            await answered_over_http(server, context)


async def test_a_certificate_that_changes_is_taken_on_by_new_connections(
    tiny: Path, signer: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "TLS_REFRESH_SECONDS", 0.05)
    other = authority(tmp_path / "other")
    async with running(tiny, tls_folder=folder) as server:
        old, old_context = trusting(signer)
        async with AsyncClient(server.address, tls=old) as kept:
            await kept.generate("the", max_tokens=1, sampling=GREEDY)
            certificate(other, folder)
            new, new_context = trusting(other)
            assert await answered_over_grpc(server, new)
            async with asyncio.timeout(10):
                while True:
                    try:
                        assert await answered_over_http(server, new_context) == 200
                        break
                    except aiohttp.ClientConnectorCertificateError:
                        await asyncio.sleep(0.05)
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await answered_over_http(server, old_context)
            # Half a change: the key of one certificate beside another.
            (folder / "tls.crt").write_text("nothing")
            assert await answered_over_grpc(server, new)
            # A connection lives on with what it began with.
            await kept.generate("the", max_tokens=1, sampling=GREEDY)


async def test_a_folder_without_a_certificate_is_said_at_the_start(tiny: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model_path": tiny, "tls_folder": tmp_path}
    with pytest.raises(UnservableError, match=r"must hold tls\.crt and tls\.key") as refused:
        Server(Settings(**settings))
    assert refused.value.exit.code is ExitCode.BAD_CONFIGURATION


async def test_inference_asks_for_its_token_at_both_doors_and_health_for_none(tiny: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    async with running(tiny, token_file=token) as server:
        assert await answered_over_grpc(server, None, token="secret")
        for given, reason in (({}, "NO_TOKEN"), ({"token": "guess"}, "WRONG_TOKEN")):
            with pytest.raises(CallError) as refused:
                await answered_over_grpc(server, None, **given)
            assert (refused.value.reason, refused.value.not_started) == (reason, True)
        # The official client sends its API key as the token.
        async with server.openai() as stranger, server.openai().with_options(api_key="secret") as caller:
            with pytest.raises(openai.AuthenticationError) as unknown:
                await stranger.models.list()
            assert unknown.value.code == "invalid_api_key"
            assert (await caller.models.list()).data[0].id == "tiny"
        async with aiohttp.ClientSession(server.url) as session:
            async with session.get("/health") as response:
                assert response.status == 200
            async with session.get("/metrics") as response:
                assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
        reader, writer = await asyncio.open_connection(LOOPBACK, server.ports.http)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()
        health = health_pb2_grpc.HealthStub(server.channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
