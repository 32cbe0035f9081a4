"""The HTTP listener. A module of its own because aiohttp and what speaks OpenAI's API are a third of all imports."""

from __future__ import annotations

import socket
import ssl

from aiohttp import web

from .admission import Admission
from .checks import Checks
from .openai_http import OpenAiHttp

CLOSE_SECONDS = 1.0


async def open_http(
    admission: Admission, checks: Checks, listener: socket.socket, tls: ssl.SSLContext | None, *, body_bytes_max: int
) -> web.AppRunner:
    """Answers at a socket that listens already, until `cleanup`."""
    http = OpenAiHttp(admission, checks, body_bytes_max=body_bytes_max)
    # A caller that goes cancels its handler, as it does in gRPC.
    runner = web.AppRunner(
        http.app, handler_cancellation=True, access_log=None, shutdown_timeout=CLOSE_SECONDS, tcp_keepalive=True
    )
    await runner.setup()
    await web.SockSite(runner, listener, ssl_context=tls).start()
    return runner
