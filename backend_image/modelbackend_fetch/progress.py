"""How far a download is, in words that change rarely: they end up in an object's status."""

from __future__ import annotations

import time

from .cache import megabytes
from .log import logger

STEPS = 10


class Meter:
    """Says something at each tenth of a file, and whenever something else happens than bytes that come."""

    def __init__(self, memory_limit_bytes: int | None = None) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self.told = ""
        """The last of it, once bytes have come: until then, what is known of the last run is news enough."""
        self._moved = False
        self._file = ""
        self._step = -1
        self._at, self._bytes = time.monotonic(), 0

    def says(self, words: str) -> None:
        if self._moved:
            self.told = words
        logger().info("progress", words=words)

    def begin(self, file: str) -> None:
        self._file, self._step = file, -1
        self._at, self._bytes = time.monotonic(), 0
        self.says(f"asking for {file}")

    def received(self, size_bytes: int, total_bytes: int | None) -> None:
        """The speed is that of the last tenth."""
        step = size_bytes * STEPS // max(total_bytes or size_bytes * STEPS, 1)
        if step == self._step or (self._step < 0 and step == 0 and size_bytes == 0):
            return
        now = time.monotonic()
        moved, seconds = max(size_bytes - self._bytes, 0), now - self._at
        known = self._step >= 0 and seconds > 0
        speed = f" at {megabytes(round(moved / seconds))} per second" if known else ""
        self._step, self._at, self._bytes, self._moved = step, now, size_bytes, True
        of = f"{step * 100 // STEPS} % of {megabytes(total_bytes)}" if total_bytes else "a file of unknown size"
        self.says(f"fetching {self._file}: {of}{speed}{self._warning(total_bytes)}")

    def _warning(self, total_bytes: int | None) -> str:
        """No refusal: layers on a GPU take none of it. Where none is asked for, the download is refused before."""
        limit = self._memory_limit_bytes
        if limit is None or total_bytes is None or total_bytes <= limit:
            return ""
        return (
            f"; that is more than the memory limit of {megabytes(limit)}: raise resources.limits.memory, unless a GPU "
            "takes its layers"
        )

    def pauses(self, words: str) -> None:
        self._step = -1
        self.says(words)
