"""What was done, one line a step: the story of a backend, for people and for checkers that replay it."""

import itertools
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import structlog

from modelbackend_operator.actions import Action, Outcome
from modelbackend_operator.model import Observation, Ref


class Trace:
    """Numbers the steps of this process and writes each to the log, under the event `step`."""

    def __init__(self, log: Any = None) -> None:
        self._log = log or structlog.get_logger("modelbackend_operator.trace")
        self._numbers = itertools.count(1)

    def step(self, observation: Observation, action: Action, outcome: Outcome) -> None:
        """`key` is the backend's uid; `target` the object written; `live` whether it was decided from a live read."""
        backend = observation.backend
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
        )


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
