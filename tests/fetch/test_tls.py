"""Whose certificate is trusted, and what is said of one that is not."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from modelbackend_fetch.failures import Failure
from tests.fetch.file_server import LOOPBACK, FileServer, refuses, serving
from tests.fetch.harness import failure, fetched, http, model_bytes
from tests.server.test_tls import authority, certificate

NAME = "m.gguf"
CONTENT = model_bytes(1000)


@pytest.fixture
def signer(tmp_path: Path) -> Path:
    return authority(tmp_path / "authority")


@pytest.fixture
async def server(tmp_path: Path, signer: Path) -> AsyncIterator[FileServer]:
    (tmp_path / NAME).write_bytes(CONTENT)
    certificate(signer, tmp_path / "served", "localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "served" / "tls.crt", tmp_path / "served" / "tls.key")
    async with serving(tmp_path, context) as server:
        server.url = server.url.replace(LOOPBACK, "localhost")
        yield server


async def test_a_certificate_of_the_given_authority_is_trusted(
    server: FileServer, signer: Path, tmp_path: Path
) -> None:
    await fetched(http(server.path(NAME)), tmp_path / "cache" / NAME, ca_file=signer / "ca.crt")
    assert (tmp_path / "cache" / NAME).read_bytes() == CONTENT


async def test_a_certificate_of_nobody_we_know_is_refused_at_once(server: FileServer, tmp_path: Path) -> None:
    found = await failure(http(server.path(NAME)), tmp_path / "cache" / NAME)
    assert found.code is Failure.UNTRUSTED_CERTIFICATE
    assert "localhost" in found.words
    assert "caBundleRef" in found.words
    assert server.asked == []


async def test_a_certificate_for_another_name_is_refused(server: FileServer, signer: Path, tmp_path: Path) -> None:
    url = http(server.path(NAME).replace("localhost", LOOPBACK))
    found = await failure(url, tmp_path / "cache" / NAME, ca_file=signer / "ca.crt")
    assert found.code is Failure.UNTRUSTED_CERTIFICATE


async def test_a_bundle_that_holds_no_certificate_is_named(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("hello")
    found = await failure(http(server.path(NAME)), tmp_path / "cache" / NAME, ca_file=tmp_path / "ca.crt")
    assert found.code is Failure.BAD_CONFIGURATION


async def test_a_redirect_from_https_to_http_is_refused(server: FileServer, signer: Path, tmp_path: Path) -> None:
    server.faults.append(refuses(302, Location=f"http://localhost/{NAME}"))
    found = await failure(http(server.path(NAME)), tmp_path / "cache" / NAME, ca_file=signer / "ca.crt")
    assert found.code is Failure.UNEXPECTED_ANSWER
    assert "from https to http" in found.words
