"""What was done, one line a step: the story of a backend, for people and for checkers that replay it.

A line holds what was seen before the step; what came of it is seen in the next line of the same key. So each chain of
steps ends with a line `settled`, and a chain without one is unfinished: the process was killed in the middle of it.
"""

import itertools
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import structlog

from modelbackend_operator.abstract import abstract, abstract_ports, abstract_status, abstract_stop
from modelbackend_operator.actions import Action, WriteStatus, WriteStopRecord
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.service import Service
from modelbackend_operator.outcome import Outcome


class Trace:
    """Numbers the steps of this process and writes each to the log, under the event `step`."""

    def __init__(self, log: Any = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._log = log or structlog.get_logger("modelbackend_operator.trace")
        self._numbers = itertools.count(1)
        self._now = now
        self._unsettled: set[str] = set()

    def step(
        self, observation: Observation, action: Action, outcome: Outcome, decided_at: datetime | None = None
    ) -> None:
        """`key` is the backend's uid; `target` the object written; `live` whether it was decided from a live read.

        What is due is told as of the decision: a deadline may pass while the write is under way.
        """
        backend, now = observation.backend, decided_at or self._now()
        self._unsettled.add(observation.backend_uid)
        self._log.info(
            "step",
            seq=next(self._numbers),
            key=observation.backend_uid,
            backend=f"{backend.ref.namespace}/{backend.ref.name}" if backend is not None else None,
            action=type(action).__name__,
            target=target_of(action),
            arguments=arguments_of(action),
            live=observation.live,
            outcome=type(outcome).__name__,
            message=getattr(outcome, "message", None),
            written=written_by(action, now),
            seen=abstract(observation, now),
        )

    def settled(self, observation: Observation) -> None:
        """Nothing is left to write for now; told once after steps, and not at every look that finds it so."""
        if observation.backend_uid in self._unsettled:
            self._unsettled.remove(observation.backend_uid)
            self.tell_settled(observation)

    def tell_settled(self, observation: Observation) -> None:
        seen = abstract(observation, self._now())
        self._log.info("settled", seq=next(self._numbers), key=observation.backend_uid, seen=seen)


def written_by(action: Action, now: datetime) -> dict[str, Any]:
    """Which objects the action is about, by uid or port, as the specification asks for them."""
    found: dict[str, Any] = {}
    for name in ("pod", "claim", "service"):
        thing = getattr(action, name, None)
        if isinstance(thing, Claim):
            found |= {"port": thing.port, "role": thing.role.value, "ordinal": thing.ordinal}
        elif isinstance(thing, Service):
            found |= {"ports": abstract_ports(thing.node_port, thing.http_node_port), "ordinal": thing.ordinal}
        elif isinstance(thing, Pod):
            found |= {"pod": thing.ref.uid, "ordinal": thing.ordinal}
    if isinstance(action, WriteStatus):
        found |= abstract_status(action.status)
    if isinstance(action, WriteStopRecord):
        found |= abstract_stop(action.record, now)
    lease, holder = getattr(action, "lease", None), getattr(action, "holder", None)
    if isinstance(lease, Lease):
        holder = lease.holder
    return found | ({"pod": holder.pod_uid} if holder is not None else {})


def target_of(action: Action) -> str:
    """`namespace/name@resourceVersion` of the object that the action names; the owner's for one that is created."""
    for field in fields(action):
        ref = getattr(getattr(action, field.name), "ref", None)
        if isinstance(ref, Ref) and (field.name != "backend" or len(fields(action)) == 1):
            return _named(ref)
    ref = action.backend.ref if hasattr(action, "backend") else None
    return _named(ref) if isinstance(ref, Ref) else ""


def arguments_of(action: Action) -> dict[str, Any]:
    """Everything else in the action that is short enough for a line; never a whole object."""
    found = ((field.name, getattr(action, field.name)) for field in fields(action))
    return {name: plain for name, value in found if (plain := _plain(value)) is not None}


def _named(ref: Ref) -> str:
    name = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
    return f"{name}@{ref.resource_version}"


def _plain(value: object) -> object:
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case str() | int() | float():
            return value
        case _ if is_dataclass(value) and not hasattr(value, "ref"):
            return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        case _:
            return None
