"""The operator's own metrics, for Prometheus. No label names an object, so no series outlives one."""

from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from modelbackend_operator.actions import (
    AcquireLease,
    Action,
    DeletePod,
    HandOver,
    RecordReturn,
    RemoveFinalizer,
    RemovePodFinalizer,
    SetServing,
    WithholdClaim,
    WriteStopRecord,
)
from modelbackend_operator.freed_ports import FreedPorts
from modelbackend_operator.last_shutdown import outcome_of, requests_cut
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.outcome import Applied, Outcome
from modelbackend_operator.told_in_status import waiting_since

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CALL_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30)
LIFECYCLE_BUCKETS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """Counts and timings; hears of every step as a watcher of the controller."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reconciles = Histogram(
            "modelbackend_operator_reconcile_seconds",
            "Time of one pass over one backend, by how it ended (Settled, Unfinished, Retry or bug).",
            ("result",),
            buckets=CALL_BUCKETS,
            registry=self.registry,
        )
        self._steps = Counter(
            "modelbackend_operator_steps",
            "Writes decided and done, by action and outcome.",
            ("action", "outcome"),
            registry=self.registry,
        )
        self._calls = Histogram(
            "modelbackend_operator_api_call_seconds",
            "Time of one call to the API server, by verb, resource and HTTP code (0: no answer).",
            ("verb", "resource", "code"),
            buckets=CALL_BUCKETS,
            registry=self.registry,
        )
        self._starts = self._lifecycle("instance_start_seconds", "From the creation of an instance's pod to serving.")
        self._deletes = self._lifecycle(
            "backend_delete_seconds", "From the deletion of a ModelBackend to the end of all that was its."
        )
        self._ends = Histogram(
            "modelbackend_operator_instance_end_seconds",
            "From an instance's stop record to its proven end, by outcome.",
            ("outcome",),
            buckets=LIFECYCLE_BUCKETS,
            registry=self.registry,
        )
        self._freed = FreedPorts()
        self._frees = Histogram(
            "modelbackend_operator_port_free_seconds",
            "From when the end of a port's holder was asked for until the port was free for all, by what proved it.",
            ("evidence",),
            buckets=LIFECYCLE_BUCKETS,
            registry=self.registry,
        )
        self._drains = Histogram(
            "modelbackend_operator_drain_seconds",
            "From an instance's stop record to the DELETE of its pod, by outcome.",
            ("outcome",),
            buckets=LIFECYCLE_BUCKETS,
            registry=self.registry,
        )
        self._lease_waits = self._lifecycle(
            "model_lease_wait_seconds", "How long instances waited for their model's turn to be shut down."
        )
        self._cut = self._count("requests_cut", "Requests in flight in servers that were ended, as those counted them.")
        self._busy = self._count("instances_busy", "Instances that were left to finish past their drain deadline.")
        self._withheld = Counter(
            "modelbackend_operator_claims_withheld",
            "Ports kept because their last process was not proven to have ended, by reason.",
            ("reason",),
            registry=self.registry,
        )

        self._unconfirmed = Counter(
            "modelbackend_operator_instances_unconfirmed",
            "Instances handed over, or waited for, because the proof of their pod's end was overdue.",
            registry=self.registry,
        )
        self._returned = Counter(
            "modelbackend_operator_node_returned_alarms",
            "Machines that came back in the same boot after their removal had counted as proof.",
            registry=self.registry,
        )

    def _lifecycle(self, name: str, help_: str) -> Histogram:
        return Histogram(f"modelbackend_operator_{name}", help_, buckets=LIFECYCLE_BUCKETS, registry=self.registry)

    def _count(self, name: str, help_: str) -> Counter:
        return Counter(f"modelbackend_operator_{name}", help_, registry=self.registry)

    def watch(
        self,
        *,
        queue_depth: Callable[[], float],
        queue_oldest_seconds: Callable[[], float],
        resync_age_seconds: Callable[[], float],
        loop_lag_seconds: Callable[[], float],
        is_leader: Callable[[], bool],
        claims: Callable[[], Mapping[str, int]],
        ports_withheld: Callable[[], Mapping[str, int]],
        unconfirmed: Callable[[], int],
        stalled: Callable[[], Mapping[str, int]],
        oldest_deletion_seconds: Callable[[], float],
    ) -> None:
        """What is measured only when somebody looks: a series ends with the last object that it counts."""
        gauges = {
            "queue_depth": ("Backends that wait for a worker.", queue_depth),
            "queue_oldest_seconds": ("Longest present wait of a backend for a worker.", queue_oldest_seconds),
            "resync_age_seconds": ("Since the last complete reading of the cluster.", resync_age_seconds),
            "loop_lag_seconds": ("By how much the event loop was last late.", loop_lag_seconds),
            "is_leader": ("1 in the process that works, 0 in one that stands by.", is_leader),
            "unconfirmed": (
                "Instances that should have ended, and nothing proves it.",
                unconfirmed,
            ),
            "oldest_deletion_seconds": (
                "Since the deletion of the ModelBackend that has been waiting longest for its end; 0 while none waits.",
                oldest_deletion_seconds,
            ),
        }
        self.registry.register(_Now(gauges, claims, ports_withheld, stalled))

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    # -- what is heard ------------------------------------------------------------------------------------------------

    def reconciled(self, result: str, seconds: float) -> None:
        self._reconciles.labels(result).observe(seconds)

    def called(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self._calls.labels(verb, resource, str(code)).observe(seconds)

    def settled(self, observation: Observation) -> None:
        """A look that finds nothing to write is counted with its reconcile."""

    def step(
        self, observation: Observation, action: Action, outcome: Outcome, _decided_at: datetime | None = None
    ) -> None:
        self._steps.labels(type(action).__name__, type(outcome).__name__).inc()
        if not isinstance(outcome, Applied):
            return
        self._lifecycle_step(action)
        freed = self._freed.step(observation, action, datetime.now(UTC))
        if freed is not None:
            self._frees.labels(freed.evidence).observe(freed.seconds)

    def _lifecycle_step(self, action: Action) -> None:
        match action:
            case SetServing(pod=pod, serving=True):
                self._starts.observe(_seconds_since(pod.created_at))
            case AcquireLease(backend=backend, holder=holder):
                since = waiting_since(backend, holder.pod_uid)
                self._lease_waits.observe(_seconds_since(since) if since is not None else 0.0)
            case WriteStopRecord(pod=pod, record=record) if record.yielded_at is not None and not pod.deleting:
                self._busy.inc(pod.stop is None or pod.stop.yielded_at is None)
            case DeletePod(pod=pod) if pod.stop is not None and not pod.deleting:
                self._drains.labels(outcome_of(pod.stop)).observe(_seconds_since(pod.stop.since))
                self._cut.inc(requests_cut(pod.stop) or 0)
            case RemovePodFinalizer(pod=pod) if pod.stop is not None:
                self._ends.labels(outcome_of(pod.stop)).observe(_seconds_since(pod.stop.since))
            case WithholdClaim(reason=reason):
                self._withheld.labels(str(reason)).inc()
            case HandOver():
                self._unconfirmed.inc()
            case WriteStopRecord(pod=pod, record=record) if pod.deleting and record.yielded_at is not None:
                self._unconfirmed.inc()
            case RecordReturn():
                self._returned.inc()
            case RemoveFinalizer(backend=backend) if backend.deleting_since is not None:
                self._deletes.observe(_seconds_since(backend.deleting_since))


class _Now(Collector):
    def __init__(
        self,
        gauges: Mapping[str, tuple[str, Callable[[], float]]],
        claims: Callable[[], Mapping[str, int]],
        ports_withheld: Callable[[], Mapping[str, int]],
        stalled: Callable[[], Mapping[str, int]],
    ) -> None:
        self._gauges = gauges
        self._claims = claims
        self._by_reason = {
            "ports_withheld": ("Ports that are withheld now, by reason.", ports_withheld),
            "stalled": ("ModelBackends that wait for a person, by reason.", stalled),
        }

    def collect(self) -> Iterator[Metric]:
        for name, (help_, read) in self._gauges.items():
            yield GaugeMetricFamily(f"modelbackend_operator_{name}", help_, value=read())
        family = GaugeMetricFamily("modelbackend_operator_claims", "Ports in the ledger, by phase.", labels=("phase",))
        counts = Count(self._claims())
        for phase in ClaimPhase:
            family.add_metric((phase.value,), counts[phase.value])
        yield family
        for name, (help_, count) in self._by_reason.items():
            family = GaugeMetricFamily(f"modelbackend_operator_{name}", help_, labels=("reason",))
            for reason, number in sorted(count().items()):
                family.add_metric((reason,), number)
            yield family


def _seconds_since(moment: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())
