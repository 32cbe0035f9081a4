"""The watches, while kinds come and go; kopf is played by a coroutine that ends when it is told to."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from modelbackend_operator import watches
from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.kinds import Kind
from modelbackend_operator.settings import Settings

ALL = frozenset(Kind)
WITHOUT = ALL - {Kind.BACKEND}


class Kopf:
    """What was watched, run after run; each run hears one thing of each kind, and ends as `end` says."""

    def __init__(self) -> None:
        self.watched: list[frozenset[Kind]] = []
        self.broken: set[Kind] = set()
        self.suppressed_cancellations = 0
        self.left_behind: list[asyncio.Task[None]] = []
        self.stopped = 0

    async def watch(self, hear: Any, credentials: Any, _: Settings, kinds: frozenset[Kind], stop: Any) -> None:
        assert await credentials() == "who we are"
        self.watched.append(kinds)
        self.left_behind.append(asyncio.create_task(self._suppress(self.suppressed_cancellations)))
        for kind in kinds:
            hear(kind, {"metadata": {"name": kind.plural}}, False)
        while not stop.is_set():
            if self.broken & kinds:
                raise RuntimeError("404 page not found")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await stop.wait()
        self.stopped += 1

    async def _suppress(self, cancellations: int) -> None:
        """As kopf's watchers do, when they are cancelled while they end a task of their own."""
        for _ in range(cancellations):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.Event().wait()


@pytest.fixture
def kopf(monkeypatch: pytest.MonkeyPatch) -> Kopf:
    played = Kopf()
    monkeypatch.setattr(watches, "watch", played.watch)
    monkeypatch.setattr(watches, "LOOK_FOR_KINDS_SECONDS", 0.01)
    return played


class Pump:
    def __init__(self, installed: frozenset[Kind]) -> None:
        self.installed: frozenset[Kind] | None = installed
        self.heard: list[Kind] = []
        self.missed = 0
        self._task = asyncio.create_task(
            watches.pump_events(
                self._hear,
                self._credentials,
                Settings(),
                self._kinds,
                missed=self._missed,
            )
        )

    def _hear(self, kind: Kind, raw: Any, deleted: bool) -> None:
        assert raw["metadata"]["name"] == kind.plural
        assert not deleted
        self.heard.append(kind)

    async def _credentials(self) -> Any:
        return "who we are"

    async def _kinds(self) -> frozenset[Kind]:
        if self.installed is None:
            raise ClusterUnavailable("no answer")
        return self.installed

    def _missed(self) -> None:
        self.missed += 1

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - what is waited for happens on another thread
                await asyncio.sleep(0.01)

    async def end(self) -> BaseException | None:
        self._task.cancel()
        (result,) = await asyncio.gather(self._task, return_exceptions=True)
        return result

    async def result(self) -> None:
        await self._task


async def test_what_a_watch_tells_is_heard_on_the_loop_of_whoever_listens(kopf: Kopf) -> None:
    pump = Pump(ALL)
    await pump.until(lambda: len(pump.heard) == len(Kind))
    await pump.end()
    assert kopf.watched == [ALL]
    assert kopf.stopped == 1


async def test_a_kind_that_is_removed_breaks_its_watch_and_the_others_go_on(kopf: Kopf) -> None:
    pump = Pump(ALL)
    await pump.until(lambda: kopf.watched)
    pump.installed = WITHOUT
    kopf.broken = {Kind.BACKEND}
    await pump.until(lambda: len(kopf.watched) == 2)
    assert kopf.watched == [ALL, WITHOUT]
    await pump.until(lambda: pump.missed == 1)
    await pump.end()


@pytest.mark.parametrize("suppressed", [0, 1, 2, 1000])
async def test_a_broken_watch_is_told_also_when_others_of_its_loop_miss_their_cancellation(
    kopf: Kopf, monkeypatch: pytest.MonkeyPatch, suppressed: int
) -> None:
    monkeypatch.setattr(watches, "STOP_SECONDS", 0.5)
    kopf.suppressed_cancellations = suppressed
    pump = Pump(ALL)
    await pump.until(lambda: kopf.watched)
    pump.installed = WITHOUT
    kopf.broken = {Kind.BACKEND}
    await pump.until(lambda: len(kopf.watched) == 2)
    assert kopf.left_behind[0].cancelled() == (suppressed < watches.CANCELLATIONS)
    assert kopf.left_behind[0].get_loop().is_closed()
    await pump.end()


async def test_a_kind_that_is_installed_later_is_watched_then(kopf: Kopf) -> None:
    pump = Pump(WITHOUT)
    await pump.until(lambda: kopf.watched)
    pump.installed = None  # which is no news
    await asyncio.sleep(0.05)
    pump.installed = ALL
    await pump.until(lambda: len(kopf.watched) == 2)
    assert kopf.watched == [WITHOUT, ALL]
    assert kopf.stopped == 1
    await pump.end()


async def test_a_watch_that_breaks_although_its_kind_is_there_ends_the_pump(
    kopf: Kopf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "DISCOVERY_LAG_SECONDS", 1)
    pump = Pump(ALL)
    kopf.broken = {Kind.POD}
    with pytest.raises(RuntimeError, match="404 page not found"):
        await pump.result()
