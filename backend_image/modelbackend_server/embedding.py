"""Texts of many callers in one batch, and each caller's vectors in its own order."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from .generating import Counters, Emit
from .generation import Embedded, EmbedWork, Ended, Ending, Generation, Started
from .llama import EMBED_SEQUENCES_MAX, DecodeAbortedError, DecodeError, Embedder
from .log import logger

MERGED_TOKENS_MAX = 128
"""Texts are merged up to here: every token of a batch meets every other one, of other texts too, and of a small model a
text of 14 tokens costs 30 % more in a batch of 448 tokens than in one of 112."""


@dataclass(slots=True)
class _Reading:
    work: EmbedWork
    next: int = 0


@dataclass(slots=True)
class Embedding:
    """The works of an embedding model. Owned by the engine's thread.

    Each step takes the next text of every caller in turn, so that a caller with a thousand texts holds up nobody.
    """

    context: Embedder
    emit: Emit
    batch_tokens: int
    counters: Counters = field(default_factory=Counters)
    # In the order of admission, and the one whose turn it is first.
    _readings: dict[Generation, _Reading] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        return bool(self._readings)

    @property
    def has_room(self) -> bool:
        """Whatever is not in the next batch may as well wait in the queue, where its caller can be told to retry."""
        return len(self._readings) < EMBED_SEQUENCES_MAX

    @property
    def generations(self) -> list[Generation]:
        return list(self._readings)

    def admit(self, generation: Generation) -> None:
        if not isinstance(generation.work, EmbedWork):
            raise TypeError(f"this model embeds, it does not {generation.work}")
        self._readings[generation] = _Reading(generation.work)
        self.emit(generation, Started())

    def drop(self, generation: Generation) -> None:
        self._readings.pop(generation, None)

    def end(self, generation: Generation, ending: Ending) -> None:
        self.emit(generation, Ended(ending))
        self.drop(generation)

    def lose(self) -> None:
        for generation in self.generations:
            self.end(generation, Ending.DECODE_FAILED)

    def step(self) -> None:
        """Evaluates one batch. Raises DecodeAbortedError, with all as it was."""
        batch = self._batch()
        texts = [self._readings[generation].work.texts[index] for generation, index in batch]
        started = time.perf_counter()
        try:
            vectors = self.context.embed(texts)
        except DecodeAbortedError:
            raise
        except DecodeError as failure:
            logger().error("decode failed", words=str(failure), texts=len(texts))
            for generation in dict.fromkeys(generation for generation, _ in batch):
                self.end(generation, Ending.DECODE_FAILED)
            return
        self.counters.steps += 1
        self.counters.step_seconds += time.perf_counter() - started
        self.counters.evaluated_prompt_tokens += sum(len(text) for text in texts)
        for generation in dict.fromkeys(generation for generation, _ in batch):
            rows = [row for row, (owner, _) in enumerate(batch) if owner is generation]
            self._deliver(generation, batch[rows[0]][1], vectors[rows])

    def _batch(self) -> list[tuple[Generation, int]]:
        """(whose, which text), each caller's in order; at least one."""
        turn = {generation: reading.next for generation, reading in self._readings.items()}
        batch: list[tuple[Generation, int]] = []
        tokens = 0
        while turn and len(batch) < EMBED_SEQUENCES_MAX:
            for generation in list(turn):
                texts = self._readings[generation].work.texts
                length = len(texts[turn[generation]])
                full = tokens + length > min(self.batch_tokens, MERGED_TOKENS_MAX)
                if batch and (full or len(batch) == EMBED_SEQUENCES_MAX):
                    return batch
                batch.append((generation, turn[generation]))
                tokens += length
                turn[generation] += 1
                if turn[generation] == len(texts):
                    del turn[generation]
        return batch

    def _deliver(self, generation: Generation, first: int, vectors: np.typing.NDArray[np.float32]) -> None:
        reading = self._readings[generation]
        if reading.work.normalise:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
        self.emit(generation, Embedded(first, vectors))
        reading.next = first + len(vectors)
        if reading.next == len(reading.work.texts):
            self.end(generation, Ending.STOP)
        else:
            # To the end of the line: whoever was not in this batch is in the next.
            del self._readings[generation]
            self._readings[generation] = reading
