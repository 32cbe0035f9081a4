"""Which slot a prompt goes to, and what of it need not be evaluated again. Pure: token ids only.

What a slot has evaluated stays in its part of the KV cache when its request ends, and also serves others while it
runs: a prompt that begins with the same tokens takes them over, in place or by a copy. A prompt whose beginning
another one is just evaluating waits for it rather than evaluate the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]
Holder = TypeVar("Holder")

LEAST_SHARED_TOKENS = 16
"""A shorter beginning (most prompts share their first token) is worth neither a copy nor a wait."""

LEAST_KEPT_TOKENS = 512
"""A shorter text is evaluated again rather than copied for the case that it is asked for: a copy moves a whole slot."""


@dataclass(slots=True, eq=False)
class Slot(Generic[Holder]):
    """One sequence: its first `known` tokens are given, the first `evaluated` of those are in the cache.

    The last `outputs` of the known tokens are asked what comes next.
    """

    index: int
    tokens: Tokens
    known: int = 0
    evaluated: int = 0
    outputs: int = 1
    holder: Holder | None = None
    # A counter; the lowest is the slot that was left alone for longest.
    used_at: int = 0
    awaits: Awaited[Holder] | None = None

    @property
    def pending(self) -> int:
        """Tokens to be evaluated."""
        return self.known - self.evaluated

    def put(self, tokens: Sequence[int] | Tokens, at: int) -> None:
        """Makes these the known tokens from `at` on."""
        self.tokens[at : at + len(tokens)] = tokens
        self.known = at + len(tokens)

    def append(self, token: int) -> None:
        self.tokens[self.known] = token
        self.known += 1


@dataclass(frozen=True, slots=True)
class Awaited(Generic[Holder]):
    """`length` tokens of the source are wanted; it is evaluating them for `holder`."""

    source: Slot[Holder]
    holder: Holder
    length: int

    @property
    def still_coming(self) -> bool:
        return self.source.holder is self.holder and self.source.evaluated < self.length


@dataclass(frozen=True, slots=True)
class Place(Generic[Holder]):
    """`slot` is free. The first `reused` tokens are taken from `source`, which may be the slot itself."""

    slot: Slot[Holder]
    source: Slot[Holder]
    reused: int
    awaits: Awaited[Holder] | None = None

    @property
    def goes_on(self) -> bool:
        """With what the slot has, which is not lost."""
        return self.source is self.slot and self.reused >= LEAST_SHARED_TOKENS


@dataclass(slots=True)
class Slots(Generic[Holder]):
    all: list[Slot[Holder]]
    _clock: int = field(default=0)

    @classmethod
    def make(cls, count: int, context_length: int) -> Slots[Holder]:
        return cls([Slot(index, np.zeros(context_length, np.int32)) for index in range(count)])

    @property
    def free(self) -> list[Slot[Holder]]:
        """Those first that keep busy ones side by side, where llama.cpp computes them together (see plan.py).

        Of those that do so alike, the ones left alone for longest: what is remembered is the newest.
        """
        busy = {slot.index for slot in self.all if slot.holder is not None}

        def key(slot: Slot[Holder]) -> tuple[int, int]:
            return -len(busy & {slot.index - 1, slot.index + 1}), slot.used_at

        return sorted((slot for slot in self.all if slot.holder is None), key=key)

    def release(self, slot: Slot[Holder]) -> None:
        """Free from now on, with what it has evaluated."""
        slot.holder = slot.awaits = None
        slot.known = slot.evaluated
        slot.outputs = 1
        self._clock += 1
        slot.used_at = self._clock

    def place(self, prompt: Tokens, *, worth_a_copy_tokens: int) -> Place[Holder]:
        """Where a prompt goes; some slot must be free."""
        # The last token is always evaluated, because it is asked what comes next.
        most = len(prompt) - 1
        have = {slot.index: min(common(prompt, slot.tokens[: slot.evaluated]), most) for slot in self.all}
        free = self.free
        own = max(free, key=lambda slot: have[slot.index])
        best = max(self.all, key=lambda slot: have[slot.index])
        least_copied = max(LEAST_SHARED_TOKENS, worth_a_copy_tokens)
        coming = self._coming(prompt[:most], have[best.index], least_copied)
        if coming is not None:
            return Place(free[0], free[0], 0, coming)
        others = [slot for slot in free if slot is not own]
        # In place costs nothing, unless it throws away more than it saves and another slot is free.
        loses_more = own.evaluated - have[own.index] > have[own.index]
        if others and loses_more and have[own.index] >= least_copied and have[own.index] >= have[best.index]:
            return Place(others[0], own, have[own.index])
        if have[best.index] - have[own.index] >= least_copied:
            target = next((slot for slot in free if slot is not best), own)
            return Place(target, best, have[best.index])
        if have[own.index] < LEAST_SHARED_TOKENS:
            own = free[0]
        return Place(own, own, have[own.index])

    def heir(self, taken: Slot[Holder], source: Slot[Holder], *, worth_a_copy_tokens: int) -> Slot[Holder] | None:
        """Where a copy of what `taken` has evaluated replaces what is older, if it is worth one.

        The free slot that was left alone for longest; not the source of what comes into the one that is taken.
        """
        if taken.evaluated < max(LEAST_KEPT_TOKENS, worth_a_copy_tokens):
            return None
        others = (slot for slot in self.free if slot is not taken and slot is not source)
        oldest = min(others, key=lambda slot: slot.used_at, default=taken)
        return oldest if oldest.used_at < taken.used_at else None

    def place_again(self, slot: Slot[Holder], source: Slot[Holder]) -> Place[Holder]:
        """For one that has waited for a source: what of its known tokens the source has by now."""
        have = min(common(slot.tokens[: slot.known], source.tokens[: source.evaluated]), slot.known - 1)
        return Place(slot, source, have) if have >= LEAST_SHARED_TOKENS else Place(slot, slot, 0)

    def _coming(self, prompt: Tokens, have: int, least: int) -> Awaited[Holder] | None:
        """A running slot that will have evaluated clearly more of the prompt than any has now."""
        found: Awaited[Holder] | None = None
        for slot in self.all:
            # One that itself waits is passed over: what it waits for is in another slot too.
            if slot.holder is None or slot.awaits is not None:
                continue
            length = common(prompt, slot.tokens[: slot.known])
            if length > slot.evaluated and length - have >= least:
                found, have = Awaited(slot, slot.holder, length), length
        return found


def common(one: Tokens, other: Tokens) -> int:
    """Length of the common beginning."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if different.size else length
