"""Notices a step of the model that does not end: first it is aborted, then the process is given up.

A thread of its own, because the engine's is in the step and the event loop must never wait for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .exits import Exit, ExitCode
from .log import logger

LOOKS_PER_LIMIT = 10
LONGEST_SLEEP_SECONDS = 1.0
ABORT_SECONDS = 10.0
"""An abort that is looked at between two operations takes milliseconds; a step that ignores it is stuck in one."""


@dataclass(slots=True)
class Watchdog:
    limit_seconds: float
    abort: Callable[[], None]
    give_up: Callable[[Exit], None]
    _began_at: float | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        self._began_at = time.monotonic()
        try:
            yield
        finally:
            self._began_at = None

    def _watch(self) -> None:
        aborted: float | None = None
        while not self._ended.wait(min(LONGEST_SLEEP_SECONDS, self.limit_seconds / LOOKS_PER_LIMIT)):
            began_at = self._began_at
            if began_at is None:
                continue
            lasts_seconds = time.monotonic() - began_at
            if lasts_seconds > self.limit_seconds and aborted != began_at:
                logger().error("a step of the model does not end; it is aborted", seconds=round(lasts_seconds, 1))
                aborted = began_at
                self.abort()
            elif lasts_seconds > self.limit_seconds + ABORT_SECONDS:
                words = f"a step of the model has lasted {lasts_seconds:.0f} s and does not let itself be aborted"
                self.give_up(Exit(ExitCode.STUCK, f"{words}; the process ends, so that it is started again."))
                return
