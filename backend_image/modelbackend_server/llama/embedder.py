"""Reads texts: a vector or a score for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..exits import ExitCode, UnservableError
from .batch import Batch, Tokens
from .bindings import llama_cpp
from .evaluating import FLASH_ATTENTION, AbortFlag, adapt, decode_error, make_context
from .model import Model

Vectors = npt.NDArray[np.float32]

POOLING = {"model": -1, "mean": 1, "cls": 2, "last": 3, "rank": 4}
EMBED_SEQUENCES_MAX = 64


class Embedder:
    """Reads whole texts at once and gives a vector, or for a reranker a score, per text."""

    def __init__(self, model: Model, *, batch_tokens: int, threads: int, pooling: str) -> None:
        parameters = llama_cpp.llama_context_default_params()
        # A text is never split, so the longest one must fit what is computed at a time.
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = batch_tokens
        sequences = min(EMBED_SEQUENCES_MAX, batch_tokens)
        parameters.n_seq_max = sequences
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.flash_attn_type = FLASH_ATTENTION["disabled"]
        parameters.embeddings = True
        parameters.pooling_type = POOLING[pooling]
        parameters.kv_unified = True
        parameters.no_perf = True
        self._batch = Batch(batch_tokens, sequences)
        self._handle = make_context(model, parameters, f"texts of {batch_tokens} tokens")
        adapt(self._handle, model)
        self._abort = AbortFlag(self._handle)
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self.pooling = int(llama_cpp.llama_pooling_type(self._handle))
        if self.pooling == llama_cpp.LLAMA_POOLING_TYPE_NONE:
            raise UnservableError(
                ExitCode.BAD_CONFIGURATION,
                "this model does not say how the vectors of a text's tokens become one: set pooling to mean, cls or "
                "last, as the model's authors intend",
            )
        self.ranks = self.pooling == llama_cpp.LLAMA_POOLING_TYPE_RANK
        self.width = model.class_count if self.ranks else model.embedding_width

    def warm_up(self) -> None:
        """As Context's."""
        self.embed([[0]])

    def embed(self, texts: Sequence[Sequence[int] | Tokens]) -> Vectors:
        """One row per text, in their order. At most EMBED_SEQUENCES_MAX texts, and batch_tokens tokens, none of them
        empty. Raises DecodeError."""
        batch = self._batch
        batch.clear()
        for index, text in enumerate(texts):
            batch.add(index, 0, text, outputs=len(text))
        if self._memory:
            llama_cpp.llama_memory_clear(self._memory, True)
        result = llama_cpp.llama_decode(self._handle, batch.fields)
        if result != 0:
            raise decode_error(result, batch.token_count)
        rows = np.empty((len(texts), self.width), np.float32)
        for index in range(len(texts)):
            vector = llama_cpp.llama_get_embeddings_seq(self._handle, index)
            rows[index] = np.ctypeslib.as_array(vector, (self.width,))
        return rows

    def abort(self) -> None:
        self._abort.set(True)

    def resume(self) -> None:
        self._abort.set(False)

    def close(self) -> None:
        llama_cpp.llama_free(self._handle)
