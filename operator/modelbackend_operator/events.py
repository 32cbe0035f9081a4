"""Kubernetes Events: which applied action a person hears about, and in which words."""

from dataclasses import dataclass
from enum import StrEnum


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One Event about a ModelBackend (`kubectl describe mb` shows it)."""

    namespace: str
    name: str
    uid: str
    type: EventType
    reason: str
    """UpperCamelCase, of a small fixed set."""
    message: str
