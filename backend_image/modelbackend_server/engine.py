"""The one thread that owns the model: it loads, evaluates batch after batch, and frees.

It never waits for a caller. Requests come in by a deque; what comes out is put together per step and handed to
the event loop in one call. Everything a caller can do meanwhile (leave, pass its deadline) is looked at between
two steps.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from . import variants
from .exits import Exit, ExitCode, UnservableError
from .generation import Ended, Ending, Event, Generation, Started, TokenMade
from .llama import Context, DecodeError, Model, ModelFacts, Vocabulary
from .log import logger
from .model_file import verify
from .plan import Pending, plan
from .sampling import Logits, Sampler
from .settings import Settings

DEFAULT_CONTEXT_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the event loop may use of the model, from its own thread."""

    facts: ModelFacts
    vocabulary: Vocabulary
    context_length: int


class Observer(Protocol):
    """Told on the event loop what the engine does."""

    def on_progress(self, fraction: float, words: str) -> None: ...
    def on_loaded(self, loaded: Loaded) -> None: ...
    def on_events(self, events: Sequence[tuple[Generation, Event]]) -> None: ...
    def on_failed(self, failure: Exit) -> None: ...


@dataclass(slots=True)
class Running:
    """A generation in a slot. Of `tokens` (prompt and generated) the first `evaluated` are in the KV cache."""

    generation: Generation
    tokens: list[int]
    sampler: Sampler
    evaluated: int = 0
    made: int = 0


class _LoadCancelledError(Exception):
    """The process is to end before the model is loaded."""


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
    _running: dict[int, Running] = field(default_factory=dict)
    _events: list[tuple[Generation, Event]] = field(default_factory=list)

    # ---- from the event loop

    def start(self) -> None:
        # A daemon: a step that takes minutes must not keep a process alive that was told twice to end.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, generation: Generation) -> None:
        self._arrivals.append(generation)
        self._wake.set()

    def notice(self) -> None:
        """Some caller has left: look now, if asleep."""
        self._wake.set()

    def stop(self) -> None:
        """Ends everything within one step: loading, running (CUT) and waiting (NEVER_STARTED) generations."""
        self._stop.set()
        self._wake.set()

    def join(self, timeout_seconds: float) -> bool:
        """Waits until the thread has ended, and says whether it has; after stop, and not on the event loop."""
        if self._thread is None:
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    # ---- the thread

    def _run(self) -> None:
        try:
            model, context = self._load()
            try:
                self._serve(model.vocabulary, context)
            finally:
                context.close()
        except _LoadCancelledError:
            pass
        except UnservableError as refusal:
            self._fail(refusal.exit)
        except Exception as bug:
            logger().exception("the engine broke")
            self._fail(Exit(ExitCode.INTERNAL, f"the engine broke: {bug!r}. This is a bug: please report the log."))

    def _fail(self, failure: Exit) -> None:
        self.post(lambda: self.observer.on_failed(failure))

    def _load(self) -> tuple[Model, Context]:
        settings = self.settings
        verify(settings.model_path, settings.model_sha256, lambda done: self._progress(done, "checking the sha256"))
        if self._stop.is_set():
            raise _LoadCancelledError
        variants.load()
        try:
            model = Model.load(
                settings.model_path,
                gpu_layers=settings.gpu_layers,
                progress=lambda done: self._progress(done, "loading the weights"),
            )
        except UnservableError:
            if self._stop.is_set():
                raise _LoadCancelledError from None
            raise
        if why_not := model.why_not_generative():
            raise UnservableError(
                ExitCode.BAD_MODEL,
                f"{settings.model_path} ({model.facts.description}) cannot generate text: {why_not}. "
                "Take another model.",
            )
        context_length = _context_length(settings.context_length, model.facts.trained_context_length)
        context = Context(
            model,
            context_length=context_length,
            slots=settings.slots,
            batch_tokens=settings.batch_tokens,
            threads=settings.threads,
        )
        self._progress(1.0, "warming up")
        context.warm_up()
        loaded = Loaded(model.facts, model.vocabulary, context_length)
        self.post(lambda: self.observer.on_loaded(loaded))
        return model, context

    def _progress(self, fraction: float, words: str) -> bool:
        self.post(lambda: self.observer.on_progress(fraction, words))
        return not self._stop.is_set()

    def _serve(self, vocabulary: Vocabulary, context: Context) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self._forget_those_who_left(context)
            self._admit()
            self._hand_over()
            if self._running:
                self._step(vocabulary, context)
            else:
                self._wake.wait()
        self._end_all()

    def _forget_those_who_left(self, context: Context) -> None:
        self._waiting = deque(generation for generation in self._waiting if not generation.left)
        for slot in [slot for slot, running in self._running.items() if running.generation.left]:
            self._free(slot, context)

    def _admit(self) -> None:
        """Gives free slots to those who wait, first come first served."""
        while self._arrivals:
            self._waiting.append(self._arrivals.popleft())
        free = [slot for slot in range(self.settings.slots) if slot not in self._running]
        while free and self._waiting:
            generation = self._waiting.popleft()
            # One that may not start any more has a caller who has left or whose timer is about to fire.
            if generation.start(time.monotonic()):
                work = generation.work
                self._running[free.pop(0)] = Running(generation, list(work.prompt), Sampler(work.sampling, work.prompt))
                self._events.append((generation, Started()))

    def _step(self, vocabulary: Vocabulary, context: Context) -> None:
        pending = [Pending(slot, running.evaluated, len(running.tokens)) for slot, running in self._running.items()]
        batch = plan(pending, self.settings.batch_tokens)
        try:
            rows = context.decode(batch, {slot: running.tokens for slot, running in self._running.items()})
        except DecodeError as failure:
            logger().error("decode failed", words=str(failure), slots=[chunk.slot for chunk in batch.chunks])
            for chunk in batch.chunks:
                self._end(chunk.slot, Ending.DECODE_FAILED, context)
            return
        for chunk in batch.chunks:
            self._running[chunk.slot].evaluated = chunk.stop
        for slot, logits in rows.items():
            ending = self._take_token(self._running[slot], logits, vocabulary)
            if ending is not None:
                self._end(slot, ending, context)

    def _take_token(self, running: Running, logits: Logits, vocabulary: Vocabulary) -> Ending | None:
        token = running.sampler.choose(logits)
        running.tokens.append(token)
        running.made += 1
        ends = vocabulary.ends_generation(token)
        # An end-of-text token counts and has no text.
        self._events.append((running.generation, TokenMade(b"" if ends else vocabulary.piece(token))))
        if ends:
            return Ending.STOP
        return Ending.LENGTH if running.made >= running.generation.work.max_tokens else None

    def _end(self, slot: int, ending: Ending, context: Context) -> None:
        self._events.append((self._running[slot].generation, Ended(ending)))
        self._free(slot, context)

    def _free(self, slot: int, context: Context) -> None:
        del self._running[slot]
        context.forget(slot)

    def _end_all(self) -> None:
        self._events.extend((running.generation, Ended(Ending.CUT)) for running in self._running.values())
        waiting = (*self._waiting, *self._arrivals)
        self._events.extend((generation, Ended(Ending.NEVER_STARTED)) for generation in waiting)
        self._hand_over()

    def _hand_over(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self.post(lambda: self.observer.on_events(events))


def _context_length(wanted: int | None, trained: int) -> int:
    if wanted is None:
        return min(DEFAULT_CONTEXT_LENGTH, trained)
    if wanted > trained:
        raise UnservableError(
            ExitCode.BAD_CONFIGURATION,
            f"a context of {wanted} tokens is more than the {trained} this model was trained with. "
            "Set a smaller context length, or take another model.",
        )
    return wanted
