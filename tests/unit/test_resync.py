"""The periodic reading of the cluster, its age, and the probes that look at it."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterable

from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.health import MOST_LAG_SECONDS, Health, serving
from modelbackend_operator.metrics import Metrics
from modelbackend_operator.queue import Backoff
from modelbackend_operator.resync import Resync

SHORT = Backoff(first_seconds=0.01, most_seconds=0.02)
PATIENCE_SECONDS = 5


class Readings:
    """A cluster that cannot be read so many times, and then can."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.enqueued: list[str] = []
        self.count = 0
        self.read = asyncio.Event()

    async def __call__(self) -> frozenset[str]:
        self.count += 1
        if self.failures:
            self.failures -= 1
            raise ClusterUnavailable("LIST /api/v1/pods: HTTP 500")
        self.read.set()
        return frozenset({"a", "b"})

    def take(self, keys: Iterable[str]) -> None:
        self.enqueued += sorted(keys)


def resync(readings: Readings, period_seconds: float = 3600) -> Resync:
    return Resync(readings, readings.take, period_seconds=period_seconds, backoff=SHORT)


async def test_the_first_reading_is_repeated_until_it_succeeds_and_nothing_is_enqueued_before() -> None:
    readings = Readings(failures=3)
    repeated = resync(readings)
    assert not repeated.complete
    async with asyncio.timeout(PATIENCE_SECONDS):
        await repeated.first()
    assert readings.count == 4
    assert repeated.complete
    assert readings.enqueued == ["a", "b"]


async def test_every_key_is_enqueued_again_each_period_and_a_failed_reading_does_not_end_it() -> None:
    readings = Readings(failures=1)
    task = asyncio.create_task(resync(readings, period_seconds=0.01).run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(2):
            await readings.read.wait()
            readings.read.clear()
    task.cancel()
    assert readings.enqueued[:4] == ["a", "b", "a", "b"]


async def test_its_age_starts_anew_at_each_success_only() -> None:
    loop, readings = asyncio.get_running_loop(), Readings(failures=1)
    aged = resync(readings)
    aged._done_at = loop.time() - 100
    try:
        await aged.once()
    except ClusterUnavailable:
        assert aged.age_seconds >= 100
    await aged.once()
    assert aged.age_seconds < 100


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


async def test_the_probes_answer_for_the_reading_of_the_cluster_and_for_the_event_loop() -> None:
    watched = resync(Readings())
    health = Health(resync_seconds=300)
    async with serving(health, Metrics(), "127.0.0.1", 0) as port:
        assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok")
        assert await asyncio.to_thread(get, port, "/readyz") == (503, "the cluster has not been read yet")
        health.resync = watched
        assert await asyncio.to_thread(get, port, "/readyz") == (503, "the cluster has not been read yet")
        await watched.once()
        assert await asyncio.to_thread(get, port, "/readyz") == (200, "ok")
        assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok")

        watched._done_at -= 3 * 300 + 1
        status, complaint = await asyncio.to_thread(get, port, "/healthz")
        assert (status, "last read completely 901 s ago" in complaint) == (503, True)

        await watched.once()
        health.loop_lag_seconds = MOST_LAG_SECONDS + 1
        assert await asyncio.to_thread(get, port, "/healthz") == (503, "the event loop was 11.0 s late")


async def test_a_blocked_event_loop_is_measured() -> None:
    health = Health(resync_seconds=300)
    task = asyncio.create_task(health.measure_lag(every_seconds=0.01))
    await asyncio.sleep(0)
    blocked = asyncio.get_running_loop().time() + 0.2
    while asyncio.get_running_loop().time() < blocked:
        pass
    for _ in range(5):  # turns of the loop: the sleep is over, the task runs
        await asyncio.sleep(0)
    task.cancel()
    assert health.loop_lag_seconds > 0.1
