"""An HTTP server on the loopback address that serves files well, or as badly as a test wants.

What is asked of a good server (ranges, tags, conditions) is aiohttp's own; `faults` are handlers that answer first.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

LOOPBACK = "127.0.0.1"
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""An answer of its own, or None where the request is to be served as usual."""


@dataclass
class FileServer:
    """`asked` holds every request that came, oldest first."""

    files: Path
    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    asked: list[web.BaseRequest] = field(default_factory=list)

    def path(self, name: str) -> str:
        return f"{self.url}/{name}"

    @property
    def ranges(self) -> list[str | None]:
        return [request.headers.get("Range") for request in self.asked]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        for fault in self.faults:
            answer = await fault(request)
            if answer is not None:
                return answer
        file = self.files / request.path.lstrip("/")
        return web.FileResponse(file) if file.is_file() else web.Response(status=404)


@contextlib.asynccontextmanager
async def serving(files: Path, context: ssl.SSLContext | None = None) -> AsyncIterator[FileServer]:
    """On a free port of the kernel's choice."""
    server = FileServer(files)
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, 0, ssl_context=context)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"{'https' if context else 'http'}://{host}:{port}"
        yield server
    finally:
        await runner.cleanup()


def once(fault: Fault) -> Fault:
    """The first time only."""
    done = False

    async def first(request: web.Request) -> web.StreamResponse | None:
        nonlocal done
        if done:
            return None
        done = True
        return await fault(request)

    return first


def refuses(status: int, **headers: str) -> Fault:
    async def fault(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return fault


def breaks_off(content: bytes, *, after: int, etag: str = "", silent: bool = False) -> Fault:
    """Promises the whole and sends `after` bytes of it; then the connection ends, or nothing comes any more."""

    async def fault(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(content))} | ({"ETag": etag} if etag else {}))
        await response.prepare(request)
        await response.write(content[:after])
        if silent:
            await asyncio.Event().wait()  # until the caller goes, which cancels this
        assert request.transport is not None
        request.transport.close()
        return response

    return fault
