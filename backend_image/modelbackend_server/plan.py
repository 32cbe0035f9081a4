"""Which tokens of which sequences the model evaluates next. Pure: decided without a model, tested without one.

A sequence that lacks one token is about to give text (it is generating, or its prompt is nearly through), so
those come first and none waits for another's long prompt. What room is left goes to prompts, first come first
served. A prompt longer than the room is cut into chunks: between two of them a caller may cancel, and the other
sequences take their step.

In the batch they stand by slot, whoever came first: llama.cpp computes those together whose numbers follow each other
in it (llama_batch_allocr::split_equal), and each of the others by itself, at the price of all weights once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

FIRST_CHUNK_TOKENS = 64
"""While others stream, before a step with a prompt has been measured."""
LEAST_CHUNK_TOKENS = 16
SMOOTHING = 0.3
MEASURED_FROM_TOKENS = 16
"""Shorter pieces of a prompt say little about what a token of it costs."""


class Pending(Protocol):
    """A sequence in a slot: of its `known` tokens (prompt and generated), `evaluated` are in the KV cache.

    Its last `outputs` tokens are asked what comes next.
    """

    index: int
    evaluated: int
    known: int
    outputs: int


class Chunk(NamedTuple):
    """Tokens start..stop-1 of the sequence in `slot`; their indices are their positions."""

    slot: int
    start: int
    stop: int
    # So many of the last tokens of the chunk are asked what comes next.
    outputs: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    chunks: tuple[Chunk, ...]

    @property
    def token_count(self) -> int:
        return sum(chunk.stop - chunk.start for chunk in self.chunks)

    @property
    def output_count(self) -> int:
        return sum(chunk.outputs for chunk in self.chunks)

    @property
    def prompt_token_count(self) -> int:
        """Tokens of the sequences that take more than a step."""
        return sum(chunk.stop - chunk.start for chunk in self.chunks if chunk.stop - chunk.start > 1)


def plan(pending: Sequence[Pending], budget_tokens: int, prompt_tokens: int | None = None) -> BatchPlan:
    """The next batch, of at most budget_tokens, and of prompts at most prompt_tokens, for sequences given in the
    order in which they were admitted."""
    one_short = [sequence for sequence in pending if sequence.known - sequence.evaluated == 1]
    longer = [sequence for sequence in pending if sequence.known - sequence.evaluated > 1]
    chunks = [_chunk(sequence, 1) for sequence in one_short[:budget_tokens]]
    room = budget_tokens - len(chunks)
    if prompt_tokens is not None:
        room = min(room, prompt_tokens)
    for sequence in longer:
        if room == 0:
            break
        chunks.append(_chunk(sequence, room))
        room -= chunks[-1].stop - chunks[-1].start
    return BatchPlan(tuple(sorted(chunks)))


def _chunk(sequence: Pending, room: int) -> Chunk:
    stop = min(sequence.known, sequence.evaluated + room)
    first_output = max(sequence.evaluated, sequence.known - sequence.outputs)
    return Chunk(sequence.index, sequence.evaluated, stop, max(0, stop - first_output))


class Pace:
    """How much prompt fits a step that others wait for: what steps have cost so far, exponentially smoothed."""

    def __init__(self, target_step_seconds: float) -> None:
        self._target_step_seconds = target_step_seconds
        self._step_seconds = 0.0
        self.prompt_token_seconds = 0.0

    def observe(self, batch: BatchPlan, seconds: float) -> None:
        prompt_tokens = batch.prompt_token_count
        if prompt_tokens == 0:
            self._step_seconds = _smoothed(self._step_seconds, seconds)
        elif prompt_tokens >= MEASURED_FROM_TOKENS:
            # The others' step costs as much as it did by itself: each evaluates the weights once.
            others = self._step_seconds if len(batch.chunks) > 1 else 0.0
            cost_seconds = max(seconds - others, seconds / 2) / prompt_tokens
            self.prompt_token_seconds = _smoothed(self.prompt_token_seconds, cost_seconds)

    def prompt_tokens(self, *, streaming: bool, at_most: int) -> int:
        """Tokens of prompts for the next step. Nobody waits for it where nothing streams."""
        if not streaming:
            return at_most
        if self.prompt_token_seconds == 0:
            return min(at_most, FIRST_CHUNK_TOKENS)
        left_seconds = self._target_step_seconds - self._step_seconds
        return min(at_most, max(LEAST_CHUNK_TOKENS, int(left_seconds / self.prompt_token_seconds)))


def _smoothed(known: float, now: float) -> float:
    return now if known == 0 else known + SMOOTHING * (now - known)
