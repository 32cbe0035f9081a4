"""Writes that are put aside for a while."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class Key(NamedTuple):
    """Which write a decision asks for, whatever version of its object it was decided from."""

    kind: str
    uid: str
    """Of the object that is written; of the backend, for one that is created."""
    ordinal: int | None


@dataclass(frozen=True, slots=True)
class Deferral:
    """A write that is not to be tried again before `until`: refused by the API server, or a call just made."""

    reason: str
    message: str
    since: datetime
    """When it was put aside first; it was not possible ever since."""
    last: datetime
    until: datetime
