"""What is counted and timed, for Prometheus. One registry per server, so that a process may hold two (tests do)."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

# A second series per metric that tells when it was made: nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]

WAIT_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = Counter(
            "modelbackend_requests",
            "Requests that were accepted, by how they ended.",
            ["outcome"],
            registry=self.registry,
        )
        self.refusals = Counter(
            "modelbackend_refusals",
            "Requests that were not accepted, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.identity = Counter(
            "modelbackend_calls",
            "Calls at the exposed ports, by whether they named the backend they mean.",
            ["identity"],
            registry=self.registry,
        )
        self.queued = Gauge("modelbackend_requests_queued", "Requests that wait for a slot.", registry=self.registry)
        self.active = Gauge(
            "modelbackend_requests_active",
            "Requests that hold a slot or are being delivered.",
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "modelbackend_queue_seconds",
            "From acceptance to the slot.",
            buckets=WAIT_SECONDS,
            registry=self.registry,
        )
        self.first_token_seconds = Histogram(
            "modelbackend_first_token_seconds",
            "From acceptance to the first token.",
            buckets=WAIT_SECONDS,
            registry=self.registry,
        )
        self.prompt_tokens = Counter(
            "modelbackend_prompt_tokens", "Tokens of the prompts of requests that started.", registry=self.registry
        )
        self.generated_tokens = Counter("modelbackend_generated_tokens", "Tokens generated.", registry=self.registry)

    def count_call(self, names_whom_it_means: bool) -> None:
        self.identity.labels("given" if names_whom_it_means else "absent").inc()
