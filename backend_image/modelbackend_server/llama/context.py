"""The KV cache of one model and the buffers in which it generates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..plan import BatchPlan, Chunk
from ..sampling import Logits
from .batch import Batch, Tokens, as_bytes
from .bindings import llama_cpp
from .evaluating import FLASH_ATTENTION, AbortFlag, adapt, decode_error, make_context
from .model import Model

State = npt.NDArray[np.uint8]

KV_CACHE_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q5_1": 7, "q5_0": 6, "q4_1": 3, "q4_0": 2}
KV_BYTES_PER_VALUE = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}
CELLS_PADDED_TO = 256
"""llama.cpp rounds the length of each sequence's part of the cache up to a multiple of it."""


@dataclass(frozen=True, slots=True)
class ContextShape:
    """`context_length` tokens in each of `slots` sequences; at most `batch_tokens` in a call, computed
    `micro_batch_tokens` at a time."""

    context_length: int
    slots: int
    batch_tokens: int
    micro_batch_tokens: int
    threads: int
    flash_attention: str = "disabled"
    kv_cache_type: str = "f16"

    def cache_bytes(self, model: Model) -> int:
        """What the KV cache will take. Exact where all layers are alike."""
        cells = -(-self.context_length // CELLS_PADDED_TO) * CELLS_PADDED_TO * self.slots
        return int(cells * model.cache_values_per_token * KV_BYTES_PER_VALUE[self.kv_cache_type])


class Context:
    """The KV cache and the buffers of one model. Each sequence has its own part of the cache: a shared one is
    slower, because each sequence's attention then walks over all of it."""

    def __init__(self, model: Model, shape: ContextShape) -> None:
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = shape.context_length * shape.slots
        parameters.n_seq_max = shape.slots
        parameters.n_batch = shape.batch_tokens
        parameters.n_ubatch = min(shape.micro_batch_tokens, shape.batch_tokens)
        parameters.n_threads = parameters.n_threads_batch = shape.threads
        parameters.flash_attn_type = FLASH_ATTENTION[shape.flash_attention]
        parameters.type_k = parameters.type_v = KV_CACHE_TYPES[shape.kv_cache_type]
        parameters.kv_unified = False
        parameters.no_perf = True
        self._vocabulary_size = model.vocabulary.size
        self._batch = Batch(shape.batch_tokens, shape.slots)
        self._handle = make_context(
            model, parameters, f"{shape.slots} slots of {shape.context_length} tokens of context"
        )
        adapt(self._handle, model)
        self._abort = AbortFlag(self._handle)
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self.can_trim = model.can_trim

    def decode(self, plan: BatchPlan, tokens: Mapping[int, Sequence[int] | Tokens]) -> Logits:
        """Evaluates a plan; `tokens` are each slot's, from position 0.

        Returns the logits that the plan asks for, in its order: float32, a row per output, a column per token of
        the vocabulary, valid until the next call. Raises DecodeError.
        """
        batch = self._batch
        batch.clear()
        for chunk in plan.chunks:
            batch.add(chunk.slot, chunk.start, tokens[chunk.slot][chunk.start : chunk.stop], outputs=chunk.outputs)
        result = llama_cpp.llama_decode(self._handle, batch.fields)
        if result != 0:
            raise decode_error(result, batch.token_count)
        rows = plan.output_count
        if rows == 0:
            return np.empty((0, self._vocabulary_size), np.float32)
        logits = llama_cpp.llama_get_logits(self._handle)
        return np.ctypeslib.as_array(logits, (rows, self._vocabulary_size))

    def warm_up(self) -> None:
        """Touches all weights once, so that the first caller does not wait for the disk. Raises DecodeError."""
        llama_cpp.llama_set_warmup(self._handle, True)
        self.decode(BatchPlan((Chunk(0, 0, 1, outputs=1),)), {0: [0]})
        llama_cpp.llama_set_warmup(self._handle, False)
        self.trim(0, 0)

    def trim(self, slot: int, length: int) -> None:
        """Keeps the first tokens of a slot. Only 0 where not can_trim."""
        llama_cpp.llama_memory_seq_rm(self._memory, slot, length, -1)

    def copy(self, source: int, target: int, length: int) -> None:
        """Makes target hold the first tokens of source. Between two parts of the cache llama.cpp copies all or,
        by an assertion, nothing: all is copied, at the next decode, and trimmed."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)
        self.trim(target, length)

    def state_bytes(self, slot: int) -> int:
        """What `state` would take."""
        return int(llama_cpp.llama_state_seq_get_size(self._handle, slot))

    def state(self, slot: int) -> State:
        """What is in the cache of a slot; only the cells that are used."""
        room = np.empty(self.state_bytes(slot), np.uint8)
        written = int(llama_cpp.llama_state_seq_get_data(self._handle, as_bytes(room), room.nbytes, slot))
        return room[:written]

    def restore(self, slot: int, state: State) -> bool:
        """Puts a state of this context into a slot; False, with the slot empty, where llama.cpp does not take it."""
        self.trim(slot, 0)
        if llama_cpp.llama_state_seq_set_data(self._handle, as_bytes(state), state.nbytes, slot) != 0:
            return True
        self.trim(slot, 0)
        return False

    def abort(self) -> None:
        """From any thread: the step under way, and every later one, ends with DecodeAbortedError within ms."""
        self._abort.set(True)

    def resume(self) -> None:
        """Steps are evaluated again."""
        self._abort.set(False)

    def close(self) -> None:
        llama_cpp.llama_free(self._handle)
