"""Which tokens of which sequences the model evaluates next. Pure: decided without a model, tested without one.

A sequence that lacks one token is about to give text (it is generating, or its prompt is nearly through), so
those come first and none waits for another's long prompt. What room is left goes to prompts, first come first
served. A prompt longer than the room is cut into chunks: between two of them a caller may cancel, and the other
sequences take their step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pending:
    """A sequence in a slot: of its `known` tokens (prompt and generated), `evaluated` are in the KV cache."""

    slot: int
    evaluated: int
    known: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens start..stop-1 of the sequence in `slot`; their indices are their positions."""

    slot: int
    start: int
    stop: int
    # Only the last known token of a sequence is asked what comes next.
    wants_logits: bool


@dataclass(frozen=True, slots=True)
class BatchPlan:
    chunks: tuple[Chunk, ...]

    @property
    def token_count(self) -> int:
        return sum(chunk.stop - chunk.start for chunk in self.chunks)


def plan(pending: Sequence[Pending], budget_tokens: int) -> BatchPlan:
    """The next batch, of at most budget_tokens, for sequences given in the order in which they were admitted."""
    one_short = [sequence for sequence in pending if sequence.known - sequence.evaluated == 1]
    longer = [sequence for sequence in pending if sequence.known - sequence.evaluated > 1]
    chunks: list[Chunk] = []
    room = budget_tokens
    for sequence in (*one_short, *longer):
        if room == 0:
            break
        stop = min(sequence.known, sequence.evaluated + room)
        chunks.append(Chunk(sequence.slot, sequence.evaluated, stop, wants_logits=stop == sequence.known))
        room -= stop - sequence.evaluated
    return BatchPlan(tuple(chunks))
