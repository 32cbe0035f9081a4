"""What the tests of the fetcher share: a model's bytes, settings without patience, and the fetcher as a process."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import struct
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from modelbackend_fetch.failures import FetchError
from modelbackend_fetch.fetching import fetch
from modelbackend_fetch.progress import Meter
from modelbackend_fetch.settings import read_settings
from tests.server.process import Process

PATIENCE_SECONDS = 170.0
NO_PATIENCE: dict[str, Any] = {"first_pause_seconds": 0.001, "longest_pause_seconds": 0.002, "tries": 2}
MEBIBYTE = 2**20
NO_TENSORS = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)


def model_bytes(size: int = 100_000, seed: int = 0) -> bytes:
    """A GGUF file that says that it holds nothing; what follows differs with each seed and at each place."""
    block = hashlib.shake_256(str(seed).encode()).digest(min(size, MEBIBYTE))
    return (NO_TENSORS + block * (size // len(block) + 1))[:size]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def http(url: str) -> dict[str, str]:
    return {"kind": "http", "url": url}


async def fetched(source: Mapping[str, str], target: Path, **given: Any) -> str:
    """What it says it did. The address of nothing of ours goes through a proxy."""
    most_bytes = given.pop("most_bytes", None)
    settings = read_settings(source=source, target=target, **{**NO_PATIENCE, **given})
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await fetch(settings, Meter(), most_bytes)


async def failure(source: Mapping[str, str], target: Path, **given: Any) -> FetchError:
    try:
        done = await fetched(source, target, **given)
    except FetchError as error:
        return error
    raise AssertionError(f"it should have failed, and {done}")


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@contextlib.asynccontextmanager
async def process(
    source: Mapping[str, str], target: Path, prefix: Sequence[str] = (), **given: object
) -> AsyncIterator[Process]:
    """The fetcher as a container runs it; killed at the end of the block if it is still there."""
    named = {"source": json.dumps(source), "target": target, **NO_PATIENCE, **given}
    environ = {f"MODELBACKEND_FETCH_{name.upper()}": str(value) for name, value in named.items()}
    async with Process(*prefix, sys.executable, "-m", "modelbackend_fetch", **environ) as started:
        yield started


async def ended(started: Process) -> tuple[int, str]:
    """Exit code, and all that it wrote that nobody has read yet."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        log = await started.stderr.read()
        return await started.wait(), log.decode()


async def until_logged(started: Process, words: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while words.encode() not in await started.stderr.readline():
            assert not started.stderr.at_eof(), f"it ended without: {words}"
