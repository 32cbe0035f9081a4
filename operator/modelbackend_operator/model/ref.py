"""Which object is meant, and in which version."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ref:
    """Which object, in which version: the precondition that every update and delete carries."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""
