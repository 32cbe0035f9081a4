"""What `decide` answers: do this, wait for that, or nothing."""

from dataclasses import dataclass
from datetime import datetime

from modelbackend_operator.actions import Action


@dataclass(frozen=True, slots=True)
class Act:
    """Do this, then look again."""

    action: Action


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to write until the world changes, or until `not_after`."""

    reason: str
    message: str
    not_after: datetime | None = None
    ordinal: int | None = None
    """The instance that waits; None when it is the backend itself."""


@dataclass(frozen=True, slots=True)
class Done:
    """The world is as the spec asks."""


Decision = Act | Wait | Done
