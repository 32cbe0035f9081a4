"""The operator as a process: its parts, put together, run, and stopped in order."""

import asyncio
import contextlib
import logging
import signal
import socket
import time
import uuid
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from modelbackend_operator.census import Census
from modelbackend_operator.control_key import control_key
from modelbackend_operator.controller import Controller
from modelbackend_operator.drain_client import Address, DrainClient, pod_address
from modelbackend_operator.election import Alone, Election, Leadership, Timing
from modelbackend_operator.health import Health, serving
from modelbackend_operator.kinds import Kind
from modelbackend_operator.kubernetes_api import KubernetesApi
from modelbackend_operator.kubernetes_cluster import KubernetesCluster
from modelbackend_operator.metrics import Metrics
from modelbackend_operator.port_forward import pod_forwarded_by
from modelbackend_operator.queue import Backoff, KeyedQueue, Reconcile, Result
from modelbackend_operator.resync import Resync, persist
from modelbackend_operator.settings import ControlPath, Settings
from modelbackend_operator.status_page import page
from modelbackend_operator.status_server import status_page_served
from modelbackend_operator.trace import Trace
from modelbackend_operator.watches import pump_events

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs: events into the cache, keys into the queue, the clock into the resync."""

    api: KubernetesApi
    cluster: KubernetesCluster
    queue: KeyedQueue
    reconcile: Reconcile
    resync: Resync
    health: Health
    leadership: Leadership


async def run(settings: Settings, kubeconfig: str | None) -> int:
    """Until SIGTERM or SIGINT (0), or until a part ends by itself (1), after which the pod is to be started anew."""
    stopping = asyncio.Event()
    _stop_on_signals(stopping)
    metrics = Metrics()
    api = await KubernetesApi.connect(kubeconfig, timeout_seconds=settings.call_seconds, observe=metrics.called)
    health = Health(resync_seconds=settings.resync_seconds)
    async with contextlib.aclosing(api), contextlib.AsyncExitStack() as http:
        port = await http.enter_async_context(serving(health, metrics, settings.http_host, settings.http_port))
        log.info("reading the cluster; /healthz, /readyz and /metrics are on port %d", port)
        parts = await _unless(stopping, _assemble(api, settings, metrics, health, outside=kubeconfig is not None))
        if parts is None:
            return 0
        await _unless(stopping, parts.resync.first())
        if stopping.is_set():
            return 0
        if settings.status_page_port is not None:
            served = status_page_served(partial(_page, parts.cluster), settings.status_page_port)
            log.info("the status page is on 127.0.0.1:%d", await http.enter_async_context(served))
        return await _operate(parts, settings, stopping, http)


def _page(cluster: KubernetesCluster) -> str:
    return page(cluster.known(Kind.BACKEND), cluster.known(Kind.CLAIM), datetime.now(UTC))


async def _assemble(
    api: KubernetesApi, settings: Settings, metrics: Metrics, health: Health, *, outside: bool
) -> Parts:
    backoff = Backoff(settings.backoff_seconds, settings.max_backoff_seconds)
    key = await persist(partial(control_key, api, settings.namespace), backoff)
    servers = DrainClient(
        key, timeout_seconds=settings.control_timeout_seconds, address=_address(settings, api, outside)
    )
    queue = KeyedQueue(workers=settings.workers, backoff=backoff)
    leadership = _leadership(settings, api)

    def enqueue(keys: Iterable[str]) -> None:
        """Whoever does not lead has no work; on taking over it begins with all there is."""
        if leadership.is_leader:
            queue.add(*keys)

    cluster = KubernetesCluster(api, servers, settings, operator_key=key, on_change=enqueue)
    controller = Controller(cluster, watchers=(Trace(), metrics), may_act=lambda: leadership.is_leader)
    resync = Resync(cluster.read_all, enqueue, period_seconds=settings.resync_seconds, backoff=backoff)
    health.resync = resync
    census = Census(cluster.known)
    metrics.watch(
        queue_depth=lambda: queue.depth,
        queue_oldest_seconds=lambda: queue.oldest_seconds,
        resync_age_seconds=lambda: resync.age_seconds,
        loop_lag_seconds=lambda: health.loop_lag_seconds,
        is_leader=lambda: leadership.is_leader,
        claims=census.claim_phases,
        ports_withheld=census.ports_withheld,
        unconfirmed=census.unconfirmed,
        stalled=census.stalled,
        oldest_deletion_seconds=lambda: census.oldest_deletion_seconds(datetime.now(UTC)),
    )
    return Parts(api, cluster, queue, partial(_timed, controller, metrics), resync, health, leadership)


def _leadership(settings: Settings, api: KubernetesApi) -> Leadership:
    if not settings.leader_election:
        return Alone()
    timing = Timing(
        settings.leader_lease_seconds, settings.leader_renew_deadline_seconds, settings.leader_retry_seconds
    )
    return Election(api.call, settings.namespace, f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}", timing)


def _address(settings: Settings, api: KubernetesApi, outside: bool) -> Address:
    default = ControlPath.PORT_FORWARD if outside else ControlPath.POD_ADDRESS
    if (settings.control_path or default) is ControlPath.PORT_FORWARD:
        return pod_forwarded_by(api)
    return pod_address


async def _timed(controller: Controller, metrics: Metrics, key: str) -> Result:
    started, ended = time.monotonic(), "bug"
    try:
        result = await controller.reconcile(key)
        ended = type(result).__name__
        return result
    finally:
        metrics.reconciled(ended, time.monotonic() - started)


# -- running and stopping ---------------------------------------------------------------------------------------------


async def _operate(parts: Parts, settings: Settings, stopping: asyncio.Event, http: contextlib.AsyncExitStack) -> int:
    work = {
        asyncio.create_task(_work_while_leading(parts), name="queue"),
        asyncio.create_task(parts.resync.run(), name="resync"),
        asyncio.create_task(parts.health.measure_lag(), name="loop lag"),
    }
    pump = asyncio.create_task(
        pump_events(
            parts.cluster.hear,
            parts.api.credentials,
            settings,
            parts.cluster.kinds,
            missed=parts.resync.soon,
        ),
        name="watches",
    )
    await _first({pump, *work}, stopping)
    told = stopping.is_set()  # else a part has ended
    for task in (task for task in (pump, *work) if task.done()):
        log.error("ended by itself: %s", task.get_name(), exc_info=task.exception())

    parts.queue.stop()
    if parts.leadership.is_leader:
        await asyncio.wait(work, timeout=settings.stop_seconds, return_when=asyncio.FIRST_COMPLETED)
        await parts.leadership.release()
    await http.aclose()
    for task in (pump, *work):
        task.cancel()
    await asyncio.gather(pump, *work, return_exceptions=True)
    log.info("stopped")
    return 0 if told else 1


async def _work_while_leading(parts: Parts) -> None:
    """Ends when the process does not lead any more: it is then started anew, as a candidate with nothing in memory."""
    await parts.leadership.lead()
    parts.queue.add(*parts.cluster.keys())
    queue = asyncio.create_task(parts.queue.run(parts.reconcile))
    leading = asyncio.create_task(parts.leadership.hold())
    try:
        await asyncio.wait({queue, leading}, return_when=asyncio.FIRST_COMPLETED)
        parts.queue.stop()
        if queue.done():
            queue.result()  # a bug in it is told
    finally:
        for task in (queue, leading):
            task.cancel()
        await asyncio.gather(queue, leading, return_exceptions=True)


def _stop_on_signals(stopping: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)


async def _first(tasks: set[asyncio.Task[None]], event: asyncio.Event) -> None:
    """Until one of the tasks has ended or the event is set."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({*tasks, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work, or None when it was cancelled because the process is told to stop."""
    task = asyncio.create_task(work)
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None
