"""/healthz, /readyz and /metrics on one port.

Alive means that the cluster was read completely not long ago and that the event loop is not blocked: an operator whose
watches have gone deaf answers HTTP happily. Ready means that the cluster was read at all.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from modelbackend_operator.metrics import CONTENT_TYPE, Metrics
from modelbackend_operator.resync import Resync

LAG_PROBE_SECONDS = 1.0
MOST_LAG_SECONDS = 10.0
MOST_MISSED_RESYNCS = 3


class Health:
    """`resync` is None until the parts are together, which waits for the API server: that is no reason to restart."""

    def __init__(self, *, resync_seconds: float) -> None:
        self.resync: Resync | None = None
        self._oldest_resync_seconds = MOST_MISSED_RESYNCS * resync_seconds
        self.loop_lag_seconds = 0.0

    def complaint(self) -> str | None:
        """Why this process should be restarted, or None."""
        age = self.resync.age_seconds if self.resync is not None else 0.0
        if age > self._oldest_resync_seconds:
            return f"the cluster was last read completely {age:.0f} s ago; see the log for what the API server says"
        if self.loop_lag_seconds > MOST_LAG_SECONDS:
            return f"the event loop was {self.loop_lag_seconds:.1f} s late"
        return None

    async def measure_lag(self, every_seconds: float = LAG_PROBE_SECONDS) -> None:
        """For ever: by how much a sleep comes late."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            await asyncio.sleep(every_seconds)
            self.loop_lag_seconds = loop.time() - started - every_seconds

    @property
    def ready(self) -> bool:
        return self.resync is not None and self.resync.complete


@contextlib.asynccontextmanager
async def serving(health: Health, metrics: Metrics, host: str, port: int) -> AsyncIterator[int]:
    """Serves while the context is open; yields the port."""

    async def healthz(_: web.Request) -> web.Response:
        complaint = health.complaint()
        return web.Response(text=complaint or "ok", status=200 if complaint is None else 503)

    async def readyz(_: web.Request) -> web.Response:
        if health.ready:
            return web.Response(text="ok")
        return web.Response(text="the cluster has not been read yet", status=503)

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", exposition)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
