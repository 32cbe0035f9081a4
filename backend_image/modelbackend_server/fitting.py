"""Whether a configuration fits the memory: what it takes part by part, refused with the numbers where it does not.

Said twice: before the KV cache is made, which is written at once, and after it, when llama.cpp has reserved what it
computes in, of which nothing is touched yet. A pod that is refused says why; one that is killed does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from . import memory
from .exits import ExitCode, UnservableError

MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes. `weights` are those mapped from the file: dropped under pressure, and then read from the disk again for
    every token, so they count."""

    shape: str
    weights: int
    cache: int
    kept_prompts: int = 0
    computing: int = 0

    def check(self, *, cache_is_made: bool = False) -> None:
        """Raises UnservableError where more is still to be written than there is memory left."""
        total = self.weights + self.cache + self.computing + self.kept_prompts
        # A cache that is made is no longer in what is left.
        available = memory.available_bytes() + (self.cache if cache_is_made else 0)
        if total <= available:
            return
        parts = {
            "the weights": self.weights,
            "the KV cache": self.cache,
            "computing": self.computing,
            "kept prompts": self.kept_prompts,
        }
        told = ", ".join(f"{_mebibytes(size)} MiB for {name}" for name, size in parts.items() if size)
        raise UnservableError(
            ExitCode.BAD_CONFIGURATION,
            f"{_mebibytes(total)} MiB of memory are needed for {self.shape} and {available // MEBIBYTE} MiB are there: "
            f"{told}. Set a smaller context length, fewer slots, fewer tokens in a batch or a smaller prompt cache, or "
            "give the pod more memory.",
        )


class Closable(Protocol):
    def close(self) -> None: ...


Made = TypeVar("Made", bound=Closable)


def fitting(needs: Needs, make: Callable[[], Made]) -> Made:
    """A context of llama.cpp that fits. Raises UnservableError."""
    needs.check()
    before = memory.allocated_bytes()
    made = make()
    computing = max(memory.allocated_bytes() - before - needs.cache, 0)
    try:
        replace(needs, computing=computing).check(cache_is_made=True)
    except UnservableError:
        made.close()
        raise
    return made


def _mebibytes(size: int) -> int:
    return -(-size // MEBIBYTE)
