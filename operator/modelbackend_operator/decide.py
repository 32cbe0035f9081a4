"""The protocol: ordered rules, first match wins, at most one write; then the world is observed again.

`decide` is pure, total and deterministic: it awaits nothing, logs nothing, reads no clock, and has an answer for every
observation. So every crash falls between two decisions and needs no code of its own, and a stale cache is only an old
observation. The order of the rules is the protocol:

1. the finalizer, before anything of the backend exists            (here)
2. count what failed by itself; end what must end, also by the     (restarts.py, rollout.py, stopping.py,
   user's order, one instance of a model at a time                  ending.py, orders.py)
3. give the model's Lease back                                     (model_lease.py)
4. settle claims and Services that nothing stands behind           (settling.py, vanished.py)
5. start what is wanted                                            (starting.py)
6. take the finalizer off, last                                    (settling.py)
7. say in status what is true, when there is nothing else to write (conditions.py)
"""

from collections.abc import Iterator
from datetime import datetime

from modelbackend_operator.actions import AddFinalizer, RestoreMarks
from modelbackend_operator.conditions import answer_orders, publish, says_already
from modelbackend_operator.decision import Act, Decision, Done, Wait
from modelbackend_operator.deferrals import key_of, put_aside
from modelbackend_operator.instances import any_container_running, node_lost_at, status_advertises
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model_lease import release
from modelbackend_operator.orders import force_for
from modelbackend_operator.reasons import Reason
from modelbackend_operator.rollout import failures, in_order_of_ending
from modelbackend_operator.settling import keep_budget, remove_finalizer, settle_claim, sweep_services
from modelbackend_operator.starting import start
from modelbackend_operator.stopping import stop
from modelbackend_operator.vanished import await_vanished
from modelbackend_operator.volumes import await_volume


def decide(observation: Observation, now: datetime) -> Decision:
    """The one next step for this backend: a write, a wait, or nothing."""
    waits: list[Wait] = []
    for step in _steps(observation, now):
        if isinstance(step, Act):
            aside = put_aside(observation, key_of(step.action), now)
            if aside is None:
                return step
            waits.append(aside)
        elif step is not None:
            waits.append(step)
    status = _publish(observation, tuple(waits), now)
    if status is not None:
        aside = put_aside(observation, key_of(status.action), now)
        if aside is None:
            return status
        waits.append(aside)
    return _first_due(waits) or Done()


def servers_to_ask(observation: Observation) -> tuple[Pod, ...]:
    """Pods whose server's own word the next decision may need: those that drain, are limited, or are not yet told."""
    running = (pod for pod in observation.pods if any_container_running(pod) and not pod.gated)
    return tuple(pod for pod in running if _is_asked(observation, pod))


def _is_asked(observation: Observation, pod: Pod) -> bool:
    backend = observation.backend
    if pod.deleting:  # only whether there is still somebody to tell the user's order
        return force_for(backend, pod) is not None
    if pod.stop is not None or node_lost_at(observation, pod) is not None:
        return True
    limited = backend is not None and backend.busy_timeout_seconds is not None and pod.serving_condition
    return limited or pod.fetching or (pod.containers_ready and _is_news(observation, pod))


def _is_news(observation: Observation, pod: Pod) -> bool:
    backend = observation.backend
    if backend is None:
        return False
    facts_are_known = "architecture" in (backend.status.get("model") or {})
    return not (facts_are_known and status_advertises(backend, pod))


def _steps(observation: Observation, now: datetime) -> Iterator[Act | Wait | None]:
    backend = observation.backend
    if backend is not None and not backend.has_finalizer and backend.deleting_since is None:
        yield Act(AddFinalizer(backend))
    yield answer_orders(observation)
    yield from failures(observation, now)
    for pod in in_order_of_ending(observation):
        yield stop(observation, pod, now)
        yield await_volume(observation, pod, now)
    yield release(observation, now)
    for claim in observation.claims:
        yield settle_claim(observation, claim, now)
    yield from await_vanished(observation, now)
    yield sweep_services(observation)
    if backend is not None and backend.has_finalizer and backend.deleting_since is None:
        yield from _starts(observation, now)
        yield keep_budget(observation, backend)
    for pod in observation.pods:
        if not pod.labels_intact or not (pod.has_finalizer or pod.deleting):
            yield Act(RestoreMarks(pod, observation.backend_uid))
    yield remove_finalizer(observation)


def _starts(observation: Observation, now: datetime) -> Iterator[Act | Wait | None]:
    backend = observation.backend
    assert backend is not None
    if backend.refused:
        yield Wait(Reason.UNSUPPORTED_FIELD, "; ".join(backend.refused))
    elif observation.namespace_terminating:
        yield Wait(Reason.NAMESPACE_TERMINATING, f"namespace {backend.ref.namespace} is being deleted")
    else:
        for ordinal in backend.ordinals:
            yield start(observation, backend, ordinal, now)


def _publish(observation: Observation, waits: tuple[Wait, ...], now: datetime) -> Act | None:
    """None when status says it already, or when there is no object left to say it on."""
    if observation.backend is None:
        return None
    write = publish(observation, waits, now)
    return None if says_already(observation.backend.status, write.status) else Act(write)


def _first_due(waits: list[Wait]) -> Wait | None:
    """The wait to come back for first; one without a time waits for the world."""
    timed = [(wait.not_after, index) for index, wait in enumerate(waits) if wait.not_after is not None]
    return waits[min(timed)[1]] if timed else next(iter(waits), None)
