"""Who is let in, who is inside, and when the house is empty. Lives on the event loop.

The lifecycle says whether anyone is let in at all; the queue's bound says how many. A request is inside from its
acceptance until its handler has delivered the answer or given up, so a draining server waits for slow readers
too. Both doors (grpc_service, control_service) ask here; neither needs the engine to answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from .engine import Engine, Loaded
from .exits import Exit
from .generation import AnyWork, Ended, Ending, Event, Generation, Outcome, Phase, Started
from .lifecycle import Lifecycle, State
from .log import logger
from .metrics import Metrics
from .refusals import Reason, Refusal
from .settings import Settings
from .variants import mapped_library
from .wire import Reader


class Admission:
    """Also the engine's observer. Times are seconds of time.monotonic()."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.engine = Engine(settings, self, _poster(asyncio.get_running_loop()))
        self.lifecycle = Lifecycle()
        self.reader: Reader | None = None
        self.failure: Exit | None = None
        self.abort_reason: str | None = None
        self.load_progress = 0.0
        self.load_words = "starting"
        self.inside: set[Generation] = set()
        self.outcomes: Counter[Outcome] = Counter()
        self.accepted = 0
        self.started = 0
        self.refused_count = 0
        # Set on every change that a supervisor may care about: of the lifecycle, or the house becoming empty.
        self.changed = asyncio.Event()
        self._tell(metrics)

    def _tell(self, metrics: Metrics) -> None:
        """What is read when metrics are, of us and of the engine."""
        gauge, count = metrics.gauge, metrics.count
        gauge("modelbackend_requests_queued", "Requests that wait for a slot.", lambda: self.queued)
        gauge("modelbackend_requests_active", "Requests that hold a slot or are being delivered.", lambda: self.active)
        gauge("modelbackend_waiting_prompt_tokens", "Tokens of the prompts that wait.", lambda: self.waiting_tokens)
        gauge("modelbackend_oldest_request_age_seconds", "Of those queued or active.", lambda: self.oldest_age_seconds)
        engine = self.engine
        gauge("modelbackend_cache_tokens", "Tokens in the KV cache.", lambda: engine.counters.cache_tokens)
        count("modelbackend_steps", "Batches evaluated.", lambda: engine.counters.steps)
        count("modelbackend_step_seconds", "Time they took.", lambda: engine.counters.step_seconds)
        count(
            "modelbackend_evaluated_prompt_tokens",
            "Tokens of prompts that the model evaluated.",
            lambda: engine.counters.evaluated_prompt_tokens,
        )
        count(
            "modelbackend_reused_prompt_tokens",
            "Tokens of prompts that were taken over from another request's.",
            lambda: engine.counters.reused_prompt_tokens,
        )

    # ---- for requests

    def not_loaded(self) -> Refusal:
        return Refusal(Reason.LOADING, f"the model is not loaded yet: {self.load_words}")

    def ready(self) -> Reader | Refusal:
        """The loaded model's reader, if one more request would be taken now; else why not."""
        match self.lifecycle.state:
            case State.SERVING if self.reader is not None:
                # Counted over queue and slots: the engine fills a free slot by itself, and tells a moment later.
                with_the_model = sum(1 for generation in self.inside if generation.phase is not Phase.DELIVERING)
                if with_the_model < self.settings.slots + self.settings.max_pending:
                    return self.reader
                words = f"{self.settings.max_pending} requests wait for {self.settings.slots} slots, which is the limit"
                return Refusal(Reason.QUEUE_FULL, f"the queue is full: {words}")
            case State.LOADING:
                return self.not_loaded()
            case State.DRAINING:
                return Refusal(Reason.DRAINING, "the server takes nothing new, because it is about to stop")
            case _:
                return Refusal(Reason.STOPPED, "the server has stopped")

    def accept(self, work: AnyWork, deadline: float, request_id: str) -> Generation | Refusal:
        """Takes a request in, to be held with `hosted`."""
        ready = self.ready()
        if isinstance(ready, Refusal):
            return ready
        if self._overfull(work.prompt_tokens):
            words = f"{self.waiting_tokens} tokens of prompts wait, and {self.settings.max_pending_tokens} is the limit"
            return Refusal(Reason.QUEUE_FULL, f"the queue has no room for {work.prompt_tokens} more: {words}")
        generation = Generation(work, accepted_at=time.monotonic(), deadline=deadline, request_id=request_id)
        self.inside.add(generation)
        self.accepted += 1
        self.engine.submit(generation)
        return generation

    def _overfull(self, prompt_tokens: int) -> bool:
        """Whether a prompt would wait behind more tokens than may wait. One that waits alone is never too long."""
        limit = self.settings.max_pending_tokens
        if limit is None:
            return False
        waiting = self.waiting_tokens
        return waiting > 0 and waiting + prompt_tokens > limit

    @contextmanager
    def hosted(self, generation: Generation) -> Iterator[None]:
        """Whatever happens to the handler, afterwards the request holds no place and no slot, and is counted."""
        try:
            yield
        finally:
            generation.leave()
            self.inside.discard(generation)
            self.engine.notice()
            self.outcomes[generation.outcome] += 1
            self.metrics.ended(generation, time.monotonic())
            if not self.inside:
                self.changed.set()

    def refused(self, refusal: Refusal) -> Refusal:
        """Counts it, and gives it back."""
        self.refused_count += 1
        self.metrics.refusals.labels(refusal.reason.name).inc()
        return refusal

    # ---- for whoever asks and decides

    @property
    def queued(self) -> int:
        return sum(1 for generation in self.inside if generation.phase is Phase.QUEUED)

    @property
    def waiting_tokens(self) -> int:
        """Tokens of the prompts that wait, but for those that a free slot is about to take up."""
        queued = [generation for generation in self.inside if generation.phase is Phase.QUEUED]
        running = sum(1 for generation in self.inside if generation.phase is Phase.RUNNING)
        queued.sort(key=lambda generation: generation.accepted_at)
        return sum(generation.work.prompt_tokens for generation in queued[self.settings.slots - running :])

    @property
    def active(self) -> int:
        return len(self.inside) - self.queued

    @property
    def oldest_age_seconds(self) -> float:
        now = time.monotonic()
        return max((now - generation.accepted_at for generation in self.inside), default=0.0)

    def cancel(self, request_id: str) -> int:
        """Ends the requests of this name that are not being delivered yet; returns how many there were."""
        named = [
            generation
            for generation in self.inside
            if generation.request_id == request_id and generation.phase is not Phase.DELIVERING
        ]
        for generation in named:
            generation.leave()
            generation.put(Ended(Ending.ORDERED))
        self.engine.notice()
        return len(named)

    def drain(self, deadline: float) -> None:
        self._become(self.lifecycle.drain(deadline))

    def terminate(self, deadline: float) -> None:
        self._become(self.lifecycle.terminate(deadline))

    def abort(self, reason: str) -> None:
        """Ends the process now; the first reason counts."""
        if self.abort_reason is None:
            self.abort_reason = reason
            logger().warning("abort", reason=reason, inside=len(self.inside))
        self.terminate(time.monotonic())

    def stopped(self) -> None:
        self._become(self.lifecycle.stopped())

    def _become(self, lifecycle: Lifecycle) -> None:
        if lifecycle.state is not self.lifecycle.state:
            logger().info(
                "lifecycle", state=lifecycle.state.value, before=self.lifecycle.state.value, inside=len(self.inside)
            )
        self.lifecycle = lifecycle
        self.changed.set()

    # ---- from the engine

    def on_progress(self, fraction: float, words: str) -> None:
        self.load_progress, self.load_words = fraction, words

    def on_loaded(self, loaded: Loaded) -> None:
        self.reader = Reader.of(loaded)
        self.load_progress, self.load_words = 1.0, "loaded"
        logger().info(
            "loaded",
            model=loaded.facts.description,
            context_length=loaded.context_length,
            cpu_library=mapped_library(),
        )
        self._become(self.lifecycle.loaded())

    def on_failed(self, failure: Exit) -> None:
        self.failure = failure
        for generation in self.inside:
            if generation.phase is not Phase.DELIVERING:
                generation.put(Ended(Ending.NEVER_STARTED if generation.leave() else Ending.DECODE_FAILED))
        self._become(self.lifecycle.failed(failure.words))

    def on_events(self, events: Sequence[tuple[Generation, Event]]) -> None:
        self.metrics.happened(events, time.monotonic())
        for generation, event in events:
            if isinstance(event, Started):
                self.started += 1
            generation.put(event)


def _poster(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], None]], None]:
    def post(call: Callable[[], None]) -> None:
        # The loop is closed where the engine was left behind in the middle of a long step: nobody listens then.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(call)

    return post
