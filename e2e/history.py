"""Every version of every object that the operator reads, as the API server's watches tell it.

A single etcd numbers its writes across all kinds, so the versions of several watches have one order: the true one.
"""

import http.client
import json
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from e2e.api import WATCH_SECONDS, Api
from e2e.kubectl import until
from modelbackend_operator.kinds import Kind

UNNARROWED = (Kind.POD, Kind.SERVICE)
"""Watched without the operator's label too: a test may strip it, and the object is still there."""
TOLD = (Kind.BACKEND, Kind.CLAIM, Kind.POD)


@dataclass(frozen=True, slots=True)
class Version:
    seen_at: float
    """time.monotonic() of its arrival here, which is some milliseconds after the write."""
    kind: Kind
    raw: dict[str, Any]
    deleted: bool

    @property
    def number(self) -> int:
        return int(self.raw["metadata"]["resourceVersion"])


class History:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._versions: list[Version] = []
        self._latest: dict[tuple[Kind, str], Version] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    @property
    def versions(self) -> Sequence[Version]:
        """In the order of their arrival."""
        with self._lock:
            return tuple(self._versions)

    def latest(self, kind: Kind) -> Sequence[dict[str, Any]]:
        """The objects of a kind that exist, as far as has arrived."""
        with self._lock:
            return [v.raw for (of, _), v in self._latest.items() if of is kind and not v.deleted]

    def start(self) -> None:
        """Returns once every kind was listed: from then on nothing is missed."""
        for kind in Kind:
            threading.Thread(target=self._follow, args=(kind, self._list(kind)), daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def catch_up(self) -> None:
        """Wait until everything that is true now has arrived."""
        for kind in TOLD:
            listed = self._api.get(self._path(kind, ""))["items"]
            wanted = {item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"]) for item in listed}
            until(f"the watch of {kind.plural} has told all", lambda k=kind, w=wanted: self._has(k, w))  # type: ignore[misc]

    def _has(self, kind: Kind, wanted: dict[str, int]) -> bool:
        with self._lock:
            known = {uid: v for (of, uid), v in self._latest.items() if of is kind}
        present = {uid for uid, v in known.items() if not v.deleted}
        newer = all(uid in known and known[uid].number >= number for uid, number in wanted.items())
        return newer and present <= wanted.keys()

    # -- the watches --------------------------------------------------------------------------------------------------

    def _path(self, kind: Kind, query: str) -> str:
        selector = "" if kind in UNNARROWED else kind.selector
        return f"{kind.path()}?labelSelector={selector.replace('=', '%3D')}{query}"

    def _list(self, kind: Kind) -> int:
        """What has gone since the last word of its watch is told, too."""
        listed = self._api.get(self._path(kind, ""))
        number = listed["metadata"]["resourceVersion"]
        there = {item["metadata"]["uid"] for item in listed["items"]}
        for item in listed["items"]:
            self._add(Version(time.monotonic(), kind, item, deleted=False))
        for raw in self.latest(kind):
            if raw["metadata"]["uid"] not in there:
                last = {**raw, "metadata": {**raw["metadata"], "resourceVersion": number}}
                self._add(Version(time.monotonic(), kind, last, deleted=True))
        return int(number)

    def _follow(self, kind: Kind, version: int) -> None:
        while not self._stopping.is_set():
            with suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                version = self._watch(kind, version)
            self._stopping.wait(0.5)

    def _watch(self, kind: Kind, version: int) -> int:
        """Until the stream ends; the version to go on from."""
        query = f"&watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
        for line in self._api.lines(self._path(kind, query)):
            event = json.loads(line)
            if event["type"] == "ERROR":  # too old a version: what lies between is not known any more
                return self._list(kind)
            if event["type"] != "BOOKMARK":
                self._add(Version(time.monotonic(), kind, event["object"], event["type"] == "DELETED"))
            version = int(event["object"]["metadata"]["resourceVersion"])
            if self._stopping.is_set():
                break
        return version

    def _add(self, version: Version) -> None:
        key = version.kind, version.raw["metadata"]["uid"]
        with self._lock:
            known = self._latest.get(key)
            if known is None or known.number < version.number:
                self._latest[key] = version
                self._versions.append(version)


def number_at(versions: Sequence[Version], moment: float) -> int:
    """The newest number that had arrived by then: the cluster was at least that far. `versions` as they arrived."""
    seen = bisect_right(versions, moment, key=lambda version: version.seen_at)
    return max((version.number for version in versions[:seen]), default=0)
