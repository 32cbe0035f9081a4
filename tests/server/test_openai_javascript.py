"""The HTTP door as the official JavaScript client meets it. Skipped, and counted as such, without node and npm."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.server.harness import LOOPBACK, PATIENCE_SECONDS, Gate, Running, running
from tests.server.process import Process

SOURCES = [Path(__file__).parent / "javascript" / name for name in ("package.json", "package-lock.json", "client.mjs")]


@pytest.fixture(scope="session")
def script() -> Path:
    """Our script beside the client, which npm installs by its hash; kept for the next session."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("the JavaScript client is not tried: node and npm are not on this machine")
    cache = Path(os.environ.get("MODELBACKEND_CACHE", Path.home() / ".cache" / "modelbackend-operator"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:12]
    folder = cache / f"javascript-{digest}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as parent:
            made = Path(parent) / "made"
            made.mkdir()
            for source in SOURCES:
                shutil.copy(source, made)
            command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            subprocess.run(command, cwd=made, check=True, capture_output=True)
            # Whole at once; whoever was first, it is the same.
            with contextlib.suppress(FileExistsError):
                made.rename(folder)
    return folder / "client.mjs"


def command(script: Path, server: Running, task: str) -> Process:
    return Process("node", str(script), f"http://{LOOPBACK}:{server.ports.http}/v1", task)


async def outcome(script: Path, server: Running, task: str) -> Any:
    async with asyncio.timeout(PATIENCE_SECONDS), command(script, server, task) as process:
        output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
        assert await process.wait() == 0, errors.decode()
        return json.loads(output)


async def test_the_javascript_client_reads_answers_and_streams(tiny: Path, script: Path) -> None:
    async with running(tiny) as server:
        found = await outcome(script, server, "answers")
    assert found["models"] == ["tiny"]
    assert found["usage"]["completion_tokens"] == 5
    assert found["streamed"] == {"text": found["whole"], "finish_reason": "length", "usage": found["usage"]}
    assert found["completion"] == 3


async def test_the_javascript_client_raises_its_own_exceptions(tiny: Path, script: Path, gate: Gate) -> None:
    async with running(tiny, slots=1, max_pending=0) as server:
        gate.close()
        busy = asyncio.create_task(server.client.generate("the", max_tokens=1))
        await server.until_inside(1)
        model, number, full = await outcome(script, server, "errors")
        gate.open()
        await busy
        await server.drain(60)
        *_, draining = await outcome(script, server, "errors")
    told = [(error["kind"], error["status"], error["code"], error["param"]) for error in (model, number)]
    assert told == [("NotFoundError", 404, "model_not_found", "model"), ("BadRequestError", 400, "bad_request", "n")]
    assert (full["kind"], full["status"], full["code"], full["retryAfter"]) == (
        "RateLimitError",
        429,
        "queue_full",
        "1",
    )
    assert (draining["kind"], draining["status"], draining["code"]) == ("InternalServerError", 503, "draining")
    assert draining["retryAfter"] == "1"


async def test_a_stream_of_the_javascript_client_ends_whole_while_the_server_drains(
    tiny: Path, script: Path, gate: Gate
) -> None:
    async with running(tiny, slots=1) as server:
        gate.allow(3)
        async with asyncio.timeout(PATIENCE_SECONDS), command(script, server, "stream") as process:
            assert await process.stdout.readline() == b'"begun"\n'
            assert (await server.drain(60)).active == 1
            server.server.on_signal()
            gate.open()
            found = json.loads(await process.stdout.read())
        await server.ended
    assert (found["finish_reason"], found["usage"]["completion_tokens"]) == ("length", 200)
