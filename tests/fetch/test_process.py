"""The fetcher as a process: killed in the middle, beside another one, on a full disk; and its last words."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from modelbackend_fetch.cache import SYNC_BYTES
from modelbackend_fetch.failures import Failure
from tests.fetch.file_server import FileServer, refuses, serving
from tests.fetch.harness import (
    MEBIBYTE,
    PATIENCE_SECONDS,
    ended,
    http,
    left_in,
    model_bytes,
    process,
    sha256,
    until_logged,
)
from tests.server.process import Process

CONTENT = model_bytes(SYNC_BYTES + 8 * MEBIBYTE)
NAME = "m.gguf"
TAG = '"1"'


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "of-one-source" / NAME


class Held:
    """Sends most of the file to the first caller, and the rest when told; ranges of it to later ones."""

    def __init__(self, server: FileServer) -> None:
        self.server = server
        self.sent = asyncio.Event()
        self.go_on = asyncio.Event()
        server.faults.append(self.answer)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        begin = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        length = str(len(CONTENT) - begin)
        headers = {"ETag": TAG, "Content-Length": length}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}"
        response = web.StreamResponse(status=206 if begin else 200, headers=headers)
        await response.prepare(request)
        if not begin and not self.sent.is_set():
            begin = SYNC_BYTES + MEBIBYTE
            await response.write(CONTENT[:begin])
            self.sent.set()
            await self.go_on.wait()
        await response.write(CONTENT[begin:])
        return response


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FileServer]:
    async with serving(tmp_path) as server:
        yield server


async def until_synced(target: Path) -> None:
    """What the kernel has of it is on the disk, and marked as such."""
    mark = target.parent / f"{NAME}.partial.json"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (mark.exists() and json.loads(mark.read_text())["synced_bytes"] >= SYNC_BYTES):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_process_that_is_killed_in_the_middle_is_taken_up_by_the_next(server: FileServer, target: Path) -> None:
    Held(server)
    async with process(http(server.path(NAME)), target) as first:
        await until_synced(target)
        first.send_signal(signal.SIGKILL)
    async with process(http(server.path(NAME)), target) as second:
        code, log = await ended(second)
    assert code == 0, log
    assert target.read_bytes() == CONTENT
    begin = int((server.ranges[1] or "").removeprefix("bytes=").rstrip("-"))
    assert begin >= SYNC_BYTES


async def test_a_process_that_is_told_to_end_ends_at_once_and_keeps_all_that_came(
    server: FileServer, target: Path
) -> None:
    held = Held(server)
    async with process(http(server.path(NAME)), target) as first:
        await held.sent.wait()
        await until_synced(target)
        first.send_signal(signal.SIGTERM)
        code, log = await ended(first)
    assert code == 143, log
    assert {f"{NAME}.partial", f"{NAME}.partial.json"} <= left_in(target.parent)


@contextlib.asynccontextmanager
async def process_after(held: Held, url: dict[str, str], target: Path, pin: str) -> AsyncIterator[Process]:
    """One that begins while the other has the lock."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await held.sent.wait()
    async with process(url, target, sha256=pin) as started:
        yield started


async def test_of_two_that_want_one_file_the_second_waits_and_fetches_nothing(server: FileServer, target: Path) -> None:
    held = Held(server)
    url = http(server.path(NAME))
    pin = sha256(CONTENT)
    async with process(url, target, sha256=pin) as first, process_after(held, url, target, pin) as second:
        await until_logged(second, "waiting for another instance")
        held.go_on.set()
        assert (await ended(first))[0] == 0
        assert (await ended(second))[0] == 0
    assert len(server.asked) == 1


async def test_the_lock_of_a_process_that_was_killed_is_nobodys(server: FileServer, target: Path) -> None:
    held = Held(server)
    url = http(server.path(NAME))
    async with process(url, target) as first, process_after(held, url, target, "") as second:
        await until_logged(second, "waiting for another instance")
        first.send_signal(signal.SIGKILL)
        code, log = await ended(second)
    assert code == 0, log
    assert target.read_bytes() == CONTENT


async def test_a_full_disk_is_named_and_leaves_no_half_file(server: FileServer, target: Path) -> None:
    """A limit on the size of a file stands in for the disk: write(2) fails in the midst of it all the same."""
    Held(server)
    limit = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20)); "
    prefix = (sys.executable, "-c", limit + "os.execv(sys.argv[1], sys.argv[1:])")
    async with process(http(server.path(NAME)), target, prefix=prefix) as started:
        code, log = await ended(started)
    assert code == Failure.NO_SPACE, log
    assert NAME not in left_in(target.parent)


async def test_the_last_words_are_where_the_kubelet_reads_them(
    server: FileServer, target: Path, tmp_path: Path
) -> None:
    server.faults.append(refuses(404))
    last_words = tmp_path / "termination-log"
    last_words.touch()
    async with process(http(server.path(NAME)), target, termination_log=last_words) as started:
        code, _ = await ended(started)
    assert code == Failure.MISSING
    assert last_words.read_text() == (
        f"{server.path(NAME)} answers 404: there is no such file. Correct its name in model.source.\n"
    )


@pytest.mark.parametrize("status", [200, 302, 403])
async def test_nothing_secret_is_written_anywhere(
    server: FileServer, target: Path, tmp_path: Path, status: int
) -> None:
    """Not the token, not what comes after the question mark, not where a store's signed address leads."""
    headers = {"Location": f"http://127.0.0.1:1/{NAME}?X-Amz-Signature=hush-redirect"} if status == 302 else {}
    server.faults.append(refuses(status, **headers))
    last_words = tmp_path / "termination-log"
    last_words.touch()
    url = http(server.path(NAME) + "?key=hush-query")
    async with process(url, target, token="hush-token", termination_log=last_words) as started:
        code, log = await ended(started)
    assert code != 0
    written = [path.read_text() for path in target.parent.iterdir()] if target.parent.exists() else []
    assert server.asked[0].headers["Authorization"] == "Bearer hush-token"
    assert "hush" not in "".join([log, last_words.read_text(), *written])


async def test_settings_that_cannot_be_read_are_named_without_their_values(target: Path) -> None:
    async with process({"kind": "gopher", "url": "hush"}, target, stall_seconds="hush") as started:
        code, log = await ended(started)
    assert code == Failure.BAD_CONFIGURATION
    assert "MODELBACKEND_FETCH_STALL_SECONDS" in log
    assert "hush" not in log.replace("input_value", "")


async def test_a_cache_that_cannot_be_written_is_named(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with process(http(server.path(NAME)), tmp_path / "file" / "of-one-source" / NAME) as started:
        code, log = await ended(started)
    assert code == Failure.CACHE_UNUSABLE
    assert "user and group of this process may write" in log
