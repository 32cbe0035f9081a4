"""How likely each of several tails is after one prefix: the prefix is evaluated once, the tails side by side.

A tail runs in the prefix's own slot or in a free one that gets a copy, so that a lone caller has all of them in one
batch, and one among many still pays for the prefix only once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .generation import Ending, Generation, Scored, ScoreWork
from .holding import Holder, Owner
from .sampling import Logits, log_sum, token_logprobs
from .slots import Slot


def split(prompt: Sequence[int], whole: Sequence[Sequence[int]]) -> ScoreWork:
    """The work for texts that begin alike: `prompt` is tokenised by itself, `whole` are prompt and choice together.

    Where the first characters of a choice merge with the last of the prompt, the shared prefix ends before them, and
    the merged token is the choice's. Raises ValueError where nothing is left to share, or to score.
    """
    shared = len(prompt)
    for tokens in whole:
        shared = next(
            (at for at, (one, other) in enumerate(zip(prompt[:shared], tokens, strict=False)) if one != other),
            min(shared, len(tokens)),
        )
    if shared == 0:
        raise ValueError("the prompt and its choices share no first token")
    if not all(len(tokens) > shared for tokens in whole):
        raise ValueError("a choice adds no token to the prompt")
    return ScoreWork(prompt[:shared], tuple(tuple(tokens[shared:]) for tokens in whole))


@dataclass(slots=True, eq=False)
class Scoring:
    """First the prefix runs in its slot; then tails run, each in one slot."""

    generation: Generation
    work: ScoreWork
    owner: Owner
    _found: list[list[float]] = field(default_factory=list)
    # Indices of tails that have not begun.
    _waiting: deque[int] = field(default_factory=deque)
    _tail_of: dict[int, int] = field(default_factory=dict)
    _home: Slot[Holder] | None = None

    def take(self, slot: Slot[Holder], rows: Logits, most_likely: list[int]) -> None:  # noqa: ARG002
        if self._home is None:
            self._home = slot
            total = log_sum(rows[-1])
            self._found = [[float(rows[-1][tail[0]]) - total] for tail in self.work.tails]
            self._waiting.extend(index for index, tail in enumerate(self.work.tails) if len(tail) > 1)
        else:
            index = self._tail_of[slot.index]
            found = self._found[index]
            found += token_logprobs(rows, self.work.tails[index][len(found) : len(found) + len(rows)])
            if slot.pending:
                return
            del self._tail_of[slot.index]
            if slot is not self._home:
                self.owner.release(slot)
        self._begin_tails(self._home)

    def _begin_tails(self, home: Slot[Holder]) -> None:
        prefix = len(self.work.prompt)
        for slot in self._rooms(home):
            if not self._waiting:
                break
            if slot is home:
                self._make_home_ready(home, prefix)
            else:
                self.owner.vacate(slot, home)
                self.owner.copy(home, slot, prefix)
                self.owner.occupy(slot, self)
            index = self._waiting.popleft()
            self._tail_of[slot.index] = index
            tail = self.work.tails[index]
            # Nothing is asked after the last token, so it need not be evaluated.
            slot.put(tail[:-1], prefix)
            slot.outputs = len(tail) - 1
        if not self._tail_of and not self._waiting:
            self.owner.emit(self.generation, Scored(tuple(tuple(found) for found in self._found)))
            self.owner.end(self.generation, Ending.STOP)

    def _rooms(self, home: Slot[Holder]) -> Iterator[Slot[Holder]]:
        """The home itself while no tail is in it, and free slots beside those that are taken meanwhile."""
        if home.index not in self._tail_of:
            yield home
        while self.owner.can_trim and (free := self.owner.slots.free):
            yield free[0]

    def _make_home_ready(self, home: Slot[Holder], prefix: int) -> None:
        if home.evaluated > prefix and not self.owner.can_trim:
            self.owner.trim(home, 0)
            home.put(self.work.prompt, 0)
            return
        self.owner.trim(home, prefix)
