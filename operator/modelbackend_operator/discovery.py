"""Whether the API server serves a kind at all, by its discovery documents.

A 404 of a path proves nothing: a proxy in the way answers like that, too. What is told by discovery, for a while and
without a gap, counts: one of several API servers may learn of a new kind some seconds after the others did.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.kinds import Kind

ABSENT_SECONDS = 10
"""So long must discovery deny a kind before there are no objects of it."""


class Found(Protocol):
    """The answer to a GET."""

    @property
    def ok(self) -> bool: ...
    @property
    def code(self) -> int: ...
    @property
    def body(self) -> Mapping[str, Any]: ...
    @property
    def message(self) -> str: ...


class Discovery:
    """`get` asks the API server for a path."""

    def __init__(self, get: Callable[[str], Awaitable[Found]], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._get = get
        self._monotonic = monotonic
        self._denied_since: dict[Kind, float] = {}

    async def serves(self, kind: Kind) -> bool:
        """Just now. Raises ClusterUnavailable when the API server does not say."""
        found = await self._get(kind.api)
        if found.ok and "resources" in found.body:
            return any(resource.get("name") == kind.plural for resource in found.body["resources"])
        if found.code == 404 and not await self._has_version(kind):
            return False
        raise ClusterUnavailable(f"GET {kind.api}: {found.message}")

    async def _has_version(self, kind: Kind) -> bool:
        """A group goes with the last of its kinds; then its own document is a bare 404."""
        groups = await self._get("/apis")
        if not groups.ok or "groups" not in groups.body:
            raise ClusterUnavailable(f"GET /apis: {groups.message}")
        versions = (version for group in groups.body["groups"] for version in group.get("versions") or ())
        return kind.api.removeprefix("/apis/") in {version.get("groupVersion") for version in versions}

    async def denies(self, kind: Kind) -> bool:
        """A path of this kind was answered with a bare 404: is it so because there is no such kind, and no object?"""
        if not kind.custom or await self.serves(kind):
            self.seen(kind)
            return False
        return self._monotonic() - self._denied_since.setdefault(kind, self._monotonic()) >= ABSENT_SECONDS

    def seen(self, kind: Kind) -> None:
        """It was just read."""
        self._denied_since.pop(kind, None)
