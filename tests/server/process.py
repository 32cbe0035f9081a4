"""The server as a process of its own, as a container runs it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.server.harness import LOOPBACK, PATIENCE_SECONDS

BACKEND_IMAGE = Path(__file__).parents[2] / "backend_image"
FREE_PORTS = (
    "--grpc-port=0",
    "--http-port=0",
    "--control-port=0",
    "--metrics-port=0",
    "--threads=1",
    f"--listen-address={LOOPBACK}",
)


def environment(**extra: str) -> dict[str, str]:
    """Ours without what would configure the server, and with the packages of this tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MODELBACKEND_")}
    return kept | {"PYTHONPATH": str(BACKEND_IMAGE)} | extra


class ServerProcess:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []

    async def log(self, event: str, **fields: object) -> dict[str, Any]:
        """The next log line of this event with these fields."""
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := await self.process.stderr.readline():
                self.events.append(json.loads(line))
                last = self.events[-1]
                if last["event"] == event and all(last[name] == value for name, value in fields.items()):
                    return last
        raise AssertionError(f"no {event} {fields} in {self.events}")

    async def end(self) -> int:
        """Waits for the end and reads the rest of the log; returns the exit code."""
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self.process.stderr:
                self.events.append(json.loads(line))
            return await self.process.wait()

    @property
    def words(self) -> str:
        """The last words: those of the event `ended`."""
        assert self.events[-1]["event"] == "ended", self.events[-1]
        return str(self.events[-1]["words"])


@contextlib.asynccontextmanager
async def started(*arguments: str, prefix: Sequence[str] = (), **extra: str) -> AsyncIterator[ServerProcess]:
    """A process with these flags and environment; killed at the end of the block if it is still there."""
    command = (*prefix, sys.executable, "-m", "modelbackend_server", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=environment(**extra))
    try:
        yield ServerProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
