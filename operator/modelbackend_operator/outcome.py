"""What may come of a write: the API server's answer, as a value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Applied:
    """The write took effect; its result is already in the cache."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """409: the object is another one, or newer. Observe again."""


@dataclass(frozen=True, slots=True)
class Gone:
    """404: the target does not exist any more."""


@dataclass(frozen=True, slots=True)
class Exists:
    """409 on a create: the name is taken; its present owner is already in the cache."""


@dataclass(frozen=True, slots=True)
class Denied:
    """403 or 422: quota, policy, webhook or schema said no, in these words."""

    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A time-out, a broken connection, 429 or 5xx: it may have been applied."""

    message: str


Outcome = Applied | Conflict | Gone | Exists | Denied | Unknown
