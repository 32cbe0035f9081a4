"""The memory and the buffers in which a model computes: a Context generates, an Embedder reads."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..exits import ExitCode, UnservableError
from ..plan import BatchPlan, Chunk
from ..sampling import Logits
from .bindings import llama_cpp
from .library import errors
from .model import Model

Tokens = npt.NDArray[np.int32]
Vectors = npt.NDArray[np.float32]
State = npt.NDArray[np.uint8]

FLASH_ATTENTION = {"auto": -1, "disabled": 0, "enabled": 1}
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
POOLING = {"model": -1, "mean": 1, "cls": 2, "last": 3, "rank": 4}
CELLS_PADDED_TO = 256
"""llama.cpp rounds the length of each sequence's part of the cache up to a multiple of it."""
EMBED_SEQUENCES_MAX = 64
NO_MEMORY, ABORTED = 1, 2
"""llama_decode's results that have a meaning of their own."""


class DecodeError(Exception):
    """llama_decode refused or broke; the sequences of its batch are undefined and must be forgotten."""


class DecodeAbortedError(DecodeError):
    """The step was ended from outside. What was computed of it is in the cache, and nobody knows how much."""


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
        self._batch = _Batch(shape.batch_tokens, shape.slots)
        self._handle = _context(model, parameters, f"{shape.slots} slots of {shape.context_length} tokens of context")
        _adapt(self._handle, model)
        self._abort = _AbortFlag(self._handle)
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
            raise _error(result, batch.token_count)
        rows = plan.output_count
        if rows == 0:
            return np.empty((0, self._vocabulary_size), np.float32)
        pointer = llama_cpp.llama_get_logits(self._handle)
        return np.ctypeslib.as_array(pointer, (rows, self._vocabulary_size))

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
        written = int(llama_cpp.llama_state_seq_get_data(self._handle, _bytes(room), room.nbytes, slot))
        return room[:written]

    def restore(self, slot: int, state: State) -> bool:
        """Puts a state of this context into a slot; False, with the slot empty, where llama.cpp does not take it."""
        self.trim(slot, 0)
        if llama_cpp.llama_state_seq_set_data(self._handle, _bytes(state), state.nbytes, slot) != 0:
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
        self._batch = _Batch(batch_tokens, sequences)
        self._handle = _context(model, parameters, f"texts of {batch_tokens} tokens")
        _adapt(self._handle, model)
        self._abort = _AbortFlag(self._handle)
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
            raise _error(result, batch.token_count)
        rows = np.empty((len(texts), self.width), np.float32)
        for index in range(len(texts)):
            pointer = llama_cpp.llama_get_embeddings_seq(self._handle, index)
            rows[index] = np.ctypeslib.as_array(pointer, (self.width,))
        return rows

    def abort(self) -> None:
        self._abort.set(True)

    def resume(self) -> None:
        self._abort.set(False)

    def close(self) -> None:
        llama_cpp.llama_free(self._handle)


def _context(model: Model, parameters: Any, asked: str) -> Any:
    handle = llama_cpp.llama_init_from_model(model.handle, parameters)
    if not handle:
        raise UnservableError(
            ExitCode.BAD_CONFIGURATION,
            f"llama.cpp makes no room for {asked}: {'; '.join(errors) or 'it gives no reason'}. "
            "Set a smaller context length or fewer slots, or give the pod more memory.",
        )
    return handle


def _adapt(handle: Any, model: Model) -> None:
    """They belong to the context: every text of every batch is computed with the same ones."""
    count = len(model.adapters)
    if count == 0:
        return
    adapters = (llama_cpp.llama_adapter_lora_p_ctypes * count)(*(adapter.handle for adapter in model.adapters))
    scales = (ctypes.c_float * count)(*(adapter.scale for adapter in model.adapters))
    if llama_cpp.llama_set_adapters_lora(handle, adapters, count, scales) != 0:
        raise UnservableError(
            ExitCode.BAD_MODEL,
            f"llama.cpp does not take the LoRA adapters: {'; '.join(errors) or 'it gives no reason'}.",
        )


def _error(result: int, token_count: int) -> DecodeError:
    if result == ABORTED:
        return DecodeAbortedError(f"a batch of {token_count} tokens was aborted")
    why = ", the cache is full" if result == NO_MEMORY else ""
    return DecodeError(f"llama_decode returned {result} for a batch of {token_count} tokens{why}")


class _AbortFlag:
    """Asked by ggml's threads between operations; a Python function there would wait for the interpreter's lock.

    The C library's strlen has the shape that is wanted, bool(void *): of "" it is 0, of one byte it is 1.
    """

    def __init__(self, context: Any) -> None:
        self._text = ctypes.create_string_buffer(2)
        address = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
        self._callback = llama_cpp.ggml_abort_callback(address)
        llama_cpp.llama_set_abort_callback(context, self._callback, ctypes.addressof(self._text))

    def set(self, aborts: bool) -> None:
        self._text[0] = b"\x01" if aborts else b"\0"


class _Batch:
    """A llama_batch over arrays that are made once: filling it is numpy, not one C call per token."""

    def __init__(self, room_tokens: int, sequences: int) -> None:
        self._room_tokens = room_tokens
        self._token = np.zeros(room_tokens, np.int32)
        self._position = np.zeros(room_tokens, np.int32)
        self._wanted = np.zeros(room_tokens, np.int8)
        self._one = np.ones(room_tokens, np.int32)
        # Per token a pointer to its list of sequences, which here is one entry of this table.
        self._sequences = np.arange(sequences, dtype=np.int32)
        first, size = self._sequences.ctypes.data, self._sequences.itemsize
        self._addresses = [first + sequence * size for sequence in range(sequences)]
        self._sequence = np.zeros(room_tokens, np.uint64)
        self.token_count = 0
        self.fields = llama_cpp.llama_batch(
            n_tokens=0,
            token=_pointer(self._token, ctypes.c_int32),
            embd=None,
            pos=_pointer(self._position, ctypes.c_int32),
            n_seq_id=_pointer(self._one, ctypes.c_int32),
            seq_id=_pointer(self._sequence, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )

    def clear(self) -> None:
        self.token_count = self.fields.n_tokens = 0

    def add(self, sequence: int, position: int, tokens: Sequence[int] | Tokens, *, outputs: int) -> None:
        """Appends tokens of one sequence; the last `outputs` of them are asked. Raises ValueError: more than fits
        would end the process."""
        count = len(tokens)
        at, end = self.token_count, self.token_count + count
        if end > self._room_tokens or not 0 <= sequence < len(self._addresses) or count == 0:
            raise ValueError(f"{count} tokens of sequence {sequence} at {at} of {self._room_tokens}")
        if count == 1:
            # The usual case, and a slice costs several times what an element does.
            self._token[at], self._position[at] = tokens[0], position
            self._sequence[at], self._wanted[at] = self._addresses[sequence], outputs
        else:
            self._token[at:end] = tokens
            self._position[at:end] = np.arange(position, position + count, dtype=np.int32)
            self._sequence[at:end] = self._addresses[sequence]
            self._wanted[at : end - outputs] = 0
            self._wanted[end - outputs : end] = 1
        self.token_count = self.fields.n_tokens = end


def _bytes(array: State) -> Any:
    return _pointer(array, ctypes.c_uint8)


def _pointer(array: npt.NDArray[Any], kind: type) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
