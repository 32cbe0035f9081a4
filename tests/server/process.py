"""The server as a process of its own, as a container runs it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import IO, Any

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


class Process:
    """A program of ours beside this process, its output read on the event loop.

    Started by subprocess, which uses vfork(2). asyncio on uvloop forks, and runs what Python and gRPC have registered
    for after a fork in the child: with threads about, one of their locks may be held there for ever, and the parent,
    which waits for the exec, hangs with it.
    """

    def __init__(self, *command: str, **extra: str) -> None:
        pipe = subprocess.PIPE
        self._popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment(**extra))
        self.pid = self._popen.pid

    async def __aenter__(self) -> Process:
        self.stdout = await _reader(self._popen.stdout)
        self.stderr = await _reader(self._popen.stderr)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Killed, if it is still there."""
        if self._popen.poll() is None:
            self._popen.kill()
        self.close_stdin()
        await self.wait()

    @property
    def lives(self) -> bool:
        return self._popen.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def close_stdin(self, given: str = "") -> None:
        """`given` goes in before: little enough for the pipe."""
        pipe = self._popen.stdin
        assert pipe is not None
        if not pipe.closed:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(given.encode())
                pipe.close()

    async def wait(self) -> int:
        return await asyncio.to_thread(self._popen.wait)


async def _reader(pipe: IO[bytes] | None) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


class ServerProcess:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []

    async def log(self, event: str, **fields: object) -> dict[str, Any]:
        """The next log line of this event with these fields."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := await self.process.stderr.readline():
                self.events.append(json.loads(line))
                last = self.events[-1]
                if last["event"] == event and all(last[name] == value for name, value in fields.items()):
                    return last
        raise AssertionError(f"no {event} {fields} in {self.events}")

    async def end(self) -> int:
        """Waits for the end and reads the rest of the log; returns the exit code."""
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
    """A server with these flags and environment, killed at the end of the block if it is still there."""
    async with Process(*prefix, sys.executable, "-m", "modelbackend_server", *arguments, **extra) as process:
        yield ServerProcess(process)
