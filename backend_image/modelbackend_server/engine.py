"""The one thread that owns the model: it loads, evaluates batch after batch, and frees.

It never waits for a caller. Requests come in by a deque; what comes out is put together per step and handed to
the event loop in one call. Everything a caller can do meanwhile (leave, pass its deadline) is looked at between
two steps. What a step is, is said in generating.py and, for models that embed, in embedding.py.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from . import loading
from .exits import Exit, ExitCode, UnservableError
from .generating import Counters
from .generation import Ended, Ending, Event, Generation
from .llama import DecodeAbortedError
from .loading import DEFAULT_CONTEXT_LENGTH, LoadCancelledError, Loaded, Work
from .log import logger
from .settings import Settings
from .watchdog import Watchdog

__all__ = ["DEFAULT_CONTEXT_LENGTH", "Engine", "Loaded", "Observer"]


class Observer(Protocol):
    """Told on the event loop what the engine does."""

    def on_progress(self, fraction: float, words: str) -> None: ...
    def on_loaded(self, loaded: Loaded) -> None: ...
    def on_events(self, events: Sequence[tuple[Generation, Event]]) -> None: ...
    def on_failed(self, failure: Exit) -> None: ...


@dataclass(slots=True)
class Engine:
    """`post` runs a function on the event loop (loop.call_soon_threadsafe)."""

    settings: Settings
    observer: Observer
    post: Callable[[Callable[[], None]], object]
    _arrivals: deque[Generation] = field(default_factory=deque)
    _wake: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _waiting: deque[Generation] = field(default_factory=deque)
    _events: list[tuple[Generation, Event]] = field(default_factory=list)
    _work: Work | None = None
    _told: tuple[int, str] = (0, "")

    # ---- from the event loop

    def start(self) -> None:
        # A daemon: a step that cannot be ended must not keep a process alive that was told to end.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, generation: Generation) -> None:
        self._arrivals.append(generation)
        self._wake.set()

    def notice(self) -> None:
        """Some caller has left: look now, if asleep."""
        self._wake.set()

    @property
    def counters(self) -> Counters:
        """Since the start; of a moment ago."""
        return Counters() if self._work is None else self._work.counters

    def stop(self) -> None:
        """Ends everything within milliseconds: loading, running (CUT) and waiting (NEVER_STARTED) generations."""
        self._stop.set()
        self._wake.set()
        if self._work is not None:
            self._work.context.abort()

    def join(self, timeout_seconds: float) -> bool:
        """Waits until the thread has ended, and says whether it has; after stop, and not on the event loop."""
        if self._thread is None:
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    # ---- the thread

    def _run(self) -> None:
        try:
            work, loaded = loading.load(self.settings, self._progress, self._emit)
            self._work = work
            try:
                work.context.warm_up()
                self.post(lambda: self.observer.on_loaded(loaded))
                self._serve(work)
            finally:
                self._work = None
                work.context.close()
        except LoadCancelledError:
            pass
        except UnservableError as refusal:
            self._fail(refusal.exit)
        except Exception as bug:
            logger().exception("the engine broke")
            self._fail(Exit(ExitCode.INTERNAL, f"the engine broke: {bug!r}. This is a bug: please report the log."))

    def _fail(self, failure: Exit) -> None:
        self.post(lambda: self.observer.on_failed(failure))

    def _progress(self, fraction: float, words: str) -> bool:
        percent = (int(fraction * 100), words)
        # llama.cpp says it of every tensor.
        if percent != self._told:
            self._told = percent
            self.post(lambda: self.observer.on_progress(fraction, words))
        return not self._stop.is_set()

    def _emit(self, generation: Generation, event: Event) -> None:
        self._events.append((generation, event))

    def _serve(self, work: Work) -> None:
        watchdog = Watchdog(self.settings.stuck_seconds, work.context.abort, self._fail)
        with watchdog.watching():
            while not self._stop.is_set():
                self._wake.clear()
                self._forget_those_who_left(work)
                self._admit(work)
                self._hand_over()
                if work.busy:
                    with watchdog.step():
                        self._step(work)
                else:
                    self._wake.wait()
        self._end_all(work)

    def _step(self, work: Work) -> None:
        try:
            work.step()
        except DecodeAbortedError:
            if self._stop.is_set():
                return
            logger().error("a step took too long and was aborted", limit_seconds=self.settings.stuck_seconds)
            work.context.resume()
            work.lose()

    def _forget_those_who_left(self, work: Work) -> None:
        if any(generation.left for generation in self._waiting):
            self._waiting = deque(generation for generation in self._waiting if not generation.left)
        for generation in work.generations:
            if generation.left:
                work.drop(generation)

    def _admit(self, work: Work) -> None:
        """Gives what room there is to those who wait, first come first served."""
        while self._arrivals:
            self._waiting.append(self._arrivals.popleft())
        while self._waiting and work.has_room:
            generation = self._waiting.popleft()
            # One that may not start any more has a caller who has left or whose timer is about to fire.
            if generation.start(time.monotonic()):
                work.admit(generation)

    def _end_all(self, work: Work) -> None:
        self._events.extend((generation, Ended(Ending.CUT)) for generation in work.generations)
        waiting = (*self._waiting, *self._arrivals)
        self._events.extend((generation, Ended(Ending.NEVER_STARTED)) for generation in waiting)
        self._hand_over()

    def _hand_over(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self.post(lambda: self.observer.on_events(events))
