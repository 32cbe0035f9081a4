"""The watches, kept up while kinds of ours come and go.

kopf ends when a kind that it watches is not served any more, and does not notice one that is served again. So it is
run for the kinds that are installed, and run anew when those change.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.handlers import Hear, watch
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.kubernetes_api import Credentials
from modelbackend_operator.settings import Settings

LOOK_FOR_KINDS_SECONDS = 5
"""How soon a kind that was missing is watched."""
DISCOVERY_LAG_SECONDS = 10
"""So long may discovery still show a kind whose watch has ended with it."""
STOP_SECONDS = 5
CANCELLATIONS = 5
"""Of a task that stays, within STOP_SECONDS."""

log = logging.getLogger(__name__)


async def pump_events(
    hear: Hear,
    credentials: Callable[[], Awaitable[Credentials]],
    settings: Settings,
    kinds: Callable[[], Awaitable[frozenset[Kind]]],
    *,
    missed: Callable[[], None],
) -> None:
    """Until cancelled. Raises when a watch of an installed kind breaks for good: then the process must start anew.

    `kinds` tells which kinds can be watched now, or raises ClusterUnavailable. `missed` is called when watches have
    begun anew: what was deleted in between is told by none of them.
    """
    loop = asyncio.get_running_loop()

    def hear_here(kind: Kind, raw: Raw, deleted: bool) -> None:
        loop.call_soon_threadsafe(hear, kind, raw, deleted)

    async def credentials_there() -> Credentials:
        async def here() -> Credentials:
            return await credentials()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(here(), loop))

    watched = await _kinds_but_for(None, kinds)
    while True:
        watches = _Thread(partial(watch, hear_here, credentials_there, settings, watched))
        try:
            watched = await _other_kinds(watches, watched, kinds)
        finally:
            await watches.stop()
        log.warning("the installed kinds have changed; watching %s", ", ".join(sorted(k.plural for k in watched)))
        missed()


async def _other_kinds(
    watches: "_Thread", watched: frozenset[Kind], kinds: Callable[[], Awaitable[frozenset[Kind]]]
) -> frozenset[Kind]:
    """Waits until other kinds can be watched than these, and answers with those."""
    is_whole = all(kind in watched for kind in Kind if kind.custom)
    while not watches.ended.done():
        await asyncio.wait({watches.ended}, timeout=None if is_whole else LOOK_FOR_KINDS_SECONDS)
        if not watches.ended.done() and (now := await _kinds_but_for(watched, kinds)) != watched:
            return now
    log.info("the watches have ended: %r", watches.ended.exception())
    for _ in range(DISCOVERY_LAG_SECONDS):
        if (now := await _kinds_but_for(watched, kinds)) != watched:
            return now
        await asyncio.sleep(1)
    watches.ended.result()
    raise RuntimeError("the watches ended by themselves")


async def _kinds_but_for(
    otherwise: frozenset[Kind] | None, kinds: Callable[[], Awaitable[frozenset[Kind]]]
) -> frozenset[Kind]:
    """Those of before while the API server does not say; without any before, it is asked until it does."""
    while True:
        try:
            return await kinds()
        except ClusterUnavailable as error:
            if otherwise is not None:
                return otherwise
            log.warning("which kinds are installed is not known: %s", error)
        await asyncio.sleep(LOOK_FOR_KINDS_SECONDS)


class _Thread:
    """An event loop of its own for kopf, which leaves tasks of all kinds on its loop."""

    def __init__(self, run: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._run = run
        result: concurrent.futures.Future[None] = concurrent.futures.Future()
        result.set_running_or_notify_cancel()  # from now on nobody can cancel it
        self.ended = asyncio.wrap_future(result)
        threading.Thread(target=self._main, args=(result,), name="watches", daemon=True).start()

    def _main(self, result: concurrent.futures.Future[None]) -> None:
        try:
            self._loop.run_until_complete(self._run(self._stop))
        except BaseException as error:  # told to whoever waits for it
            outcome = partial(result.set_exception, error)
        else:
            outcome = partial(result.set_result, None)
        try:
            _end(self._loop)
        finally:
            outcome()

    async def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.wait({self.ended}, timeout=STOP_SECONDS)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Whatever is left on the loop is cancelled, more than once: a task may suppress a cancellation not meant for it.

    After that the loop is closed over what is left: nothing of it runs again, or hears anything.
    """
    for _ in range(CANCELLATIONS):
        for task in (left := asyncio.all_tasks(loop)):
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=STOP_SECONDS / CANCELLATIONS))
    if left := asyncio.all_tasks(loop):
        log.warning("watches that do not end are left behind: %s", ", ".join(sorted(task.get_name() for task in left)))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
