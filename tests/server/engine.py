"""An engine without a server: works go in, what came out of each can be waited for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from modelbackend_server.engine import Engine, Loaded
from modelbackend_server.exits import Exit
from modelbackend_server.generation import (
    AnyWork,
    Embedded,
    Ended,
    Ending,
    Event,
    Generation,
    Scored,
    Started,
    TokenMade,
    Work,
)
from modelbackend_server.llama import Grammar
from modelbackend_server.sampling import SamplingParameters
from modelbackend_server.settings import Settings

PATIENCE_SECONDS = 60
GREEDY = SamplingParameters(temperature=0)


class Request:
    """A work in the engine, and what has come of it."""

    def __init__(self, work: AnyWork) -> None:
        self.generation = Generation(work, accepted_at=time.monotonic(), deadline=float("inf"))
        self.events: list[Event] = []
        self.ended = threading.Event()

    def leave(self) -> None:
        self.generation.leave()

    def wait(self) -> Request:
        assert self.ended.wait(PATIENCE_SECONDS), f"no end after {len(self.events)} events"
        return self

    @property
    def ending(self) -> Ended:
        last = self.events[-1]
        assert isinstance(last, Ended)
        return last

    @property
    def made(self) -> list[TokenMade]:
        return [event for event in self.events if isinstance(event, TokenMade)]

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.made]

    @property
    def text(self) -> bytes:
        return b"".join(event.piece for event in self.made)

    @property
    def scores(self) -> tuple[tuple[float, ...], ...]:
        (scored,) = (event for event in self.events if isinstance(event, Scored))
        return scored.logprobs

    @property
    def vectors(self) -> npt.NDArray[np.float32]:
        parts = [event for event in self.events if isinstance(event, Embedded)]
        assert [part.first for part in parts] == list(np.cumsum([0, *(len(part.vectors) for part in parts)])[:-1])
        return np.concatenate([part.vectors for part in parts])


class EngineHarness:
    """Also the engine's observer; everything is told on the engine's own thread."""

    def __init__(self, settings: Settings) -> None:
        self.loaded: Loaded | None = None
        self.failure: Exit | None = None
        # In the order in which they got a slot.
        self.started: list[Request] = []
        self._told = threading.Event()
        self._requests: dict[Generation, Request] = {}
        self.engine = Engine(settings, self, lambda call: call())

    @property
    def model(self) -> Loaded:
        assert self.loaded is not None
        return self.loaded

    def submit(self, *works: AnyWork) -> list[Request]:
        """All at once, in this order."""
        requests = [Request(work) for work in works]
        self._requests |= {request.generation: request for request in requests}
        for request in requests:
            self.engine.submit(request.generation)
        return requests

    def run(self, *works: AnyWork) -> list[Request]:
        """All at once, and waits for all."""
        return [request.wait() for request in self.submit(*works)]

    def tokens(self, text: str) -> list[int]:
        return self.model.vocabulary.tokenize(text, add_special=True, parse_special=False)

    def work(self, prompt: str, max_tokens: int = 20, **parameters: Any) -> Work:
        """Greedy, unless told otherwise. `grammar` is its text."""
        if "grammar" in parameters:
            parameters["grammar"] = Grammar(self.model.vocabulary, parameters["grammar"])
        return Work(self.tokens(prompt), max_tokens, **({"sampling": GREEDY} | parameters))

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    # ---- the observer's side

    def on_progress(self, fraction: float, words: str) -> None: ...

    def on_loaded(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self._told.set()

    def on_failed(self, failure: Exit) -> None:
        self.failure = failure
        self._told.set()

    def on_events(self, events: Sequence[tuple[Generation, Event]]) -> None:
        for generation, event in events:
            request = self._requests[generation]
            request.events.append(event)
            if isinstance(event, Started):
                self.started.append(request)
            if isinstance(event, Ended):
                request.ended.set()

    def wait_until_told(self) -> None:
        assert self._told.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def engine_of(weights: Path, **settings: Any) -> Iterator[EngineHarness]:
    """A loaded engine, ended with the block."""
    harness = EngineHarness(Settings(model_path=weights, **({"threads": 1} | settings)))
    harness.engine.start()
    try:
        harness.wait_until_told()
        yield harness
    finally:
        harness.engine.stop()
        assert harness.engine.join(PATIENCE_SECONDS)


__all__ = ["GREEDY", "Ending", "EngineHarness", "Request", "Started", "engine_of"]
