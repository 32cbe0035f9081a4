"""Serves the status page on loopback alone: whoever sees it comes through `kubectl port-forward`.

So it is the API server that knows who looks, and its RBAC that permits it (`pods/portforward` in the operator's
namespace). What remains is the looker's own browser: the Host header is checked, or a page of another site could have
its name resolve to 127.0.0.1 and read this one (DNS rebinding).
"""

import contextlib
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from aiohttp.typedefs import Handler

LOOPBACK = "127.0.0.1"
_OWN_NAMES = frozenset({LOOPBACK, "localhost", "[::1]"})
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@web.middleware
async def _for_own_names_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    name, _, port = request.host.rpartition(":")
    if (name if port.isdigit() else request.host) not in _OWN_NAMES:
        raise web.HTTPForbidden(text="this page answers to 127.0.0.1 and localhost only: use kubectl port-forward\n")
    return await handler(request)


@contextlib.asynccontextmanager
async def status_page_served(page: Callable[[], str], port: int) -> AsyncIterator[int]:
    """Serves what `page` returns at `/` while the context is open; yields the port."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=page(), content_type="text/html", headers=_HEADERS)

    app = web.Application(middlewares=[_for_own_names_only])
    app.add_routes([web.get("/", answer)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
