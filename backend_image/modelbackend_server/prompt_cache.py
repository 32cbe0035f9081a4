"""What slots had evaluated when another prompt took their place: kept in the host's memory, up to a limit.

Pure: of a state it knows the tokens and the size. Least recently used first out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .slots import Tokens, common

State = npt.NDArray[np.uint8]

LEAST_KEPT_TOKENS = 64
"""A shorter beginning is evaluated again about as fast as it is copied."""


@dataclass(frozen=True, slots=True)
class Kept:
    tokens: Tokens
    state: State


@dataclass(slots=True)
class PromptCache:
    """`limit_bytes` of states; 0 keeps none."""

    limit_bytes: int
    held_bytes: int = 0
    # The least recently used first.
    _kept: list[Kept] = field(default_factory=list)

    def keep(self, tokens: Tokens, size_bytes: int, read: Callable[[], State], *, sparing: Kept | None = None) -> None:
        """Makes room first, but for `sparing`, and reads the state only then: never is more held than the limit."""
        spared_bytes = 0 if sparing is None else sparing.state.nbytes
        if len(tokens) < LEAST_KEPT_TOKENS or spared_bytes + size_bytes > self.limit_bytes:
            return
        for kept in list(self._kept):
            length = common(tokens, kept.tokens)
            if length == len(tokens):
                self.use(kept)
                return
            if length == len(kept.tokens) and kept is not sparing:
                self._forget(kept)
        while self.held_bytes + size_bytes > self.limit_bytes:
            self._forget(next(kept for kept in self._kept if kept is not sparing))
        kept = Kept(tokens.copy(), read())
        self._kept.append(kept)
        self.held_bytes += kept.state.nbytes

    def longest(self, prompt: Tokens) -> tuple[Kept | None, int]:
        """What begins with most of the prompt, and how much of it that is."""
        shared = [(common(prompt, kept.tokens), kept) for kept in self._kept]
        length, best = max(shared, key=lambda each: each[0], default=(0, None))
        return best, length

    def use(self, kept: Kept) -> None:
        """It was wanted just now."""
        self._kept = [each for each in self._kept if each is not kept] + [kept]

    def _forget(self, kept: Kept) -> None:
        self._kept = [each for each in self._kept if each is not kept]
        self.held_bytes -= kept.state.nbytes
