"""What is counted and timed, for Prometheus. One registry per server, so that a process may hold two (tests do).

Names follow Prometheus (https://prometheus.io/docs/practices/naming/) and, where it has one, OpenTelemetry's semantic
conventions for generative AI (https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/), with its buckets.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from .generation import Event, Generation, Outcome, Started, TokenMade

# A second series per metric that tells when it was made: nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]

WAIT_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
FIRST_TOKEN_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)
GAP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
REQUEST_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS_PER_SECOND = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
BATCH_SEQUENCES = (1, 2, 4, 8, 16, 32, 64)
SMOOTHING = 0.2


class _Kept(Collector):
    def __init__(self, name: str, words: str, read: Callable[[], float]) -> None:
        self._name, self._words, self._read = name, words, read

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._words, value=self._read())


class _Histogram(Collector):
    """Written by one thread only, so without the lock for each number that the library's own takes: these are
    written for each token."""

    def __init__(self, name: str, words: str, buckets: Sequence[float]) -> None:
        self._name, self._words, self._bounds = name, words, tuple(buckets)
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[Metric]:
        bounds = (*map(floatToGoString, self._bounds), "+Inf")
        buckets = list(zip(bounds, itertools.accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._words, buckets=buckets, sum_value=self._sum)


class Metrics:
    """Written on the event loop. Times are seconds of time.monotonic()."""

    def __init__(self) -> None:
        # Of the last requests, smoothed; 0 before there was one.
        self.prompt_tokens_per_second = self.generated_tokens_per_second = 0.0
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        counter, histogram = self._counter, self._histogram
        self.requests = counter("modelbackend_requests", "Requests that were accepted, by how they ended.", "outcome")
        self.refusals = counter("modelbackend_refusals", "Requests that were not accepted, by reason.", "reason")
        self.calls = counter(
            "modelbackend_calls", "Calls, by whether they named the backend that they mean.", "identity"
        )
        self.prompt_tokens = counter("modelbackend_prompt_tokens", "Tokens of the prompts of requests that started.")
        self.generated_tokens = counter("modelbackend_generated_tokens", "Tokens generated.")
        self.queue_seconds = histogram("modelbackend_queue_seconds", "From acceptance to the slot.", WAIT_SECONDS)
        self.first_token_seconds = histogram(
            "gen_ai_server_time_to_first_token_seconds", "From acceptance to the first token.", FIRST_TOKEN_SECONDS
        )
        self.token_seconds = histogram(
            "gen_ai_server_time_per_output_token_seconds",
            "After the first token of a text that was answered in full, for each of its tokens.",
            GAP_SECONDS,
        )
        self.request_seconds = histogram(
            "gen_ai_server_request_duration_seconds", "From acceptance to the end of the delivery.", REQUEST_SECONDS
        )
        self.gap_seconds = histogram(
            "modelbackend_inter_token_seconds", "Between two tokens of one text, each such gap.", GAP_SECONDS
        )
        self.prompt_rate = histogram(
            "modelbackend_prompt_tokens_per_second",
            "Of each request: tokens of its prompt, reused ones too, by the time from its slot to its first token.",
            TOKENS_PER_SECOND,
        )
        self.generation_rate = histogram(
            "modelbackend_generated_tokens_per_second",
            "Of each request: tokens after its first one, by the time that they took.",
            TOKENS_PER_SECOND,
        )
        self.batch_sequences = histogram(
            "modelbackend_batch_sequences", "Texts that got a token in one step, for each such step.", BATCH_SEQUENCES
        )

    def gauge(self, name: str, words: str, read: Callable[[], float]) -> None:
        """A number that is read when it is asked for."""
        Gauge(name, words, registry=self.registry).set_function(read)

    def count(self, name: str, words: str, read: Callable[[], float]) -> None:
        """A number that only grows and that someone else keeps; read when it is asked for."""
        self.registry.register(_Kept(name, words, read))

    # ---- what happens

    def called(self, names_whom_it_means: bool) -> None:
        self.calls.labels("given" if names_whom_it_means else "absent").inc()

    def happened(self, events: Sequence[tuple[Generation, Event]], now: float) -> None:
        """Events of one step of the engine."""
        made = 0
        for generation, event in events:
            match event:
                case Started():
                    generation.started_at = now
                    self.prompt_tokens.inc(generation.work.prompt_tokens)
                    self.queue_seconds.observe(now - generation.accepted_at)
                case TokenMade():
                    made += 1
                    self._token(generation, now)
        if made:
            self.generated_tokens.inc(made)
            self.batch_sequences.observe(made)

    def _token(self, generation: Generation, now: float) -> None:
        generation.made += 1
        if generation.first_token_at is None:
            generation.first_token_at = now
            self.first_token_seconds.observe(now - generation.accepted_at)
            if generation.started_at is not None and now > generation.started_at:
                speed = generation.work.prompt_tokens / (now - generation.started_at)
                self.prompt_rate.observe(speed)
                self.prompt_tokens_per_second = _smoothed(self.prompt_tokens_per_second, speed)
        elif generation.last_token_at is not None:
            self.gap_seconds.observe(now - generation.last_token_at)
        generation.last_token_at = now

    def ended(self, generation: Generation, now: float) -> None:
        """After its delivery, however that ended."""
        self.requests.labels(generation.outcome.value).inc()
        self.request_seconds.observe(now - generation.accepted_at)
        if generation.first_token_at is None or generation.last_token_at is None or generation.made < 2:
            return
        seconds, tokens = generation.last_token_at - generation.first_token_at, generation.made - 1
        if seconds > 0:
            self.generation_rate.observe(tokens / seconds)
            self.generated_tokens_per_second = _smoothed(self.generated_tokens_per_second, tokens / seconds)
        if generation.outcome in (Outcome.STOP, Outcome.LENGTH):
            self.token_seconds.observe(seconds / tokens)

    # ---- making them

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(name, words, labels, registry=self.registry)

    def _histogram(self, name: str, words: str, buckets: Sequence[float]) -> _Histogram:
        made = _Histogram(name, words, buckets)
        self.registry.register(made)
        return made


def _smoothed(known: float, now: float) -> float:
    return now if known == 0 else known + SMOOTHING * (now - known)
