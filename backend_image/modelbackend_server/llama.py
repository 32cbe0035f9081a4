"""llama.cpp's C API as far as the server uses it: the only importer of llama_cpp.

The C API ends the process on much bad input (a batch longer than n_batch is an assertion), so what is passed
down is checked here or made so that it cannot be wrong. Nothing here is asynchronous or knows of requests.

Thread rule: load a Model, make its Context and call `decode` on one and the same thread. ggml's threads (OpenMP)
belong to the thread that first used them; a second caller gets a second team, more threads than CPUs, and a third
less speed. The vocabulary may be used from any thread.
"""

from __future__ import annotations

import ctypes
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

# Before the library is loaded: on an assertion ggml would start a debugger inside the pod.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp

from .exits import ExitCode, UnservableError
from .log import logger
from .plan import BatchPlan, Chunk
from .sampling import Logits

PIECE_BYTES = 64
METADATA_BYTES = 256
ERROR_LINES_KEPT = 3
# ggml's levels and ours; its debugging, and continued lines, are dropped.
LOG_LEVELS = {2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}

_errors: list[str] = []


def _log(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    line = text.decode(errors="replace").strip()
    if not line or level not in LOG_LEVELS:
        return
    if LOG_LEVELS[level] == logging.ERROR:
        _errors.append(line)
        del _errors[:-ERROR_LINES_KEPT]
    logger(source="llama.cpp").log(LOG_LEVELS[level], line)


# Kept for as long as the library may call it.
_log_callback = llama_cpp.llama_log_callback(_log)
llama_cpp.llama_log_set(_log_callback, ctypes.c_void_p(0))


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the file says about itself; `size_bytes` of all tensors, lengths in tokens."""

    description: str
    architecture: str
    weights_name: str
    parameter_count: int
    size_bytes: int
    vocabulary_size: int
    layer_count: int
    embedding_length: int
    trained_context_length: int
    chat_template: str


class DecodeError(Exception):
    """llama_decode refused or broke; the sequences of its batch are undefined and must be forgotten."""


class Weights:
    """A loaded model, freed when nobody refers to it any more.

    Its vocabulary is read from other threads, also just after the engine's has ended: whoever may still read it keeps
    it. Not freed at the interpreter's exit, where a thread that was left behind may still compute with it.
    """

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        weakref.finalize(self, llama_cpp.llama_model_free, handle).atexit = False


class Vocabulary:
    """Text to tokens and back, from any thread: a loaded vocabulary does not change."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights  # the handle below points into them
        self.handle = llama_cpp.llama_model_get_vocab(weights.handle)
        self.size = int(llama_cpp.llama_vocab_n_tokens(self.handle))
        self.adds_bos = bool(llama_cpp.llama_vocab_get_add_bos(self.handle))
        self.bos = int(llama_cpp.llama_vocab_bos(self.handle))
        self.eos = int(llama_cpp.llama_vocab_eos(self.handle))
        self._pieces: dict[int, bytes] = {}

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Tokens of a text. parse_special reads "<|im_end|>" and the like as tokens rather than as text."""
        data = text.encode()
        # No token is made of nothing; the rest for what is put around a text: a space, a beginning, an end.
        room = (llama_cpp.llama_token * (len(data) + 4))()
        count = llama_cpp.llama_tokenize(self.handle, data, len(data), room, len(room), add_special, parse_special)
        if count < 0:
            raise RuntimeError(f"a text of {len(data)} bytes needs {-count} tokens, more than it has bytes")
        return list(room[:count])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token: possibly part of a character; b"" for a control token unless `special`."""
        key = -1 - token if special else token
        known = self._pieces.get(key)
        if known is None:
            known = self._pieces[key] = self._read_piece(token, special)
        return known

    def _read_piece(self, token: int, special: bool) -> bytes:
        size = PIECE_BYTES
        while True:
            room = ctypes.create_string_buffer(size)
            written = llama_cpp.llama_token_to_piece(self.handle, token, room, size, 0, special)
            if written >= 0:
                return room.raw[:written]
            size = -written

    def ends_generation(self, token: int) -> bool:
        return bool(llama_cpp.llama_vocab_is_eog(self.handle, token))


class Model:
    """Weights in memory, with their vocabulary and facts."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self.handle = weights.handle
        self.vocabulary = Vocabulary(weights)
        self.facts = _facts(weights.handle, self.vocabulary.size)

    @classmethod
    def load(cls, path: Path, *, gpu_layers: int, progress: Callable[[float], bool]) -> Model:
        """Loads a file; `progress` gets the fraction done and ends the loading by False.

        Raises UnservableError (65), with llama.cpp's own words, where the file cannot be loaded.
        """
        _errors.clear()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        callback = llama_cpp.llama_progress_callback(lambda fraction, _: progress(fraction))
        parameters.progress_callback = callback
        handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), parameters)
        if not handle:
            raise UnservableError(
                ExitCode.BAD_MODEL,
                f"llama.cpp cannot load {path}: {'; '.join(_errors) or 'it gives no reason'}. The file is damaged or "
                "of a kind this version does not know: fetch it again, or take another one.",
            )
        return cls(Weights(handle))

    def why_not_generative(self) -> str:
        """Why this model cannot continue a text; "" if it can. llama.cpp finds out too late, by an assertion."""
        if llama_cpp.llama_vocab_type(self.vocabulary.handle) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
            return "it has no vocabulary"
        if llama_cpp.llama_model_has_encoder(self.handle) or not llama_cpp.llama_model_has_decoder(self.handle):
            return "it has an encoder"
        if llama_cpp.llama_model_is_diffusion(self.handle):
            return "it is a diffusion model"
        if _metadata(self.handle, f"{self.facts.architecture}.attention.causal") == "false":
            return "it is an embedding model"
        return ""


def _facts(model: ctypes.c_void_p, vocabulary_size: int) -> ModelFacts:
    room = ctypes.create_string_buffer(METADATA_BYTES)
    llama_cpp.llama_model_desc(model, room, METADATA_BYTES)
    template = llama_cpp.llama_model_chat_template(model, None)
    return ModelFacts(
        description=room.value.decode(errors="replace"),
        architecture=_metadata(model, "general.architecture"),
        weights_name=_metadata(model, "general.name"),
        parameter_count=int(llama_cpp.llama_model_n_params(model)),
        size_bytes=int(llama_cpp.llama_model_size(model)),
        vocabulary_size=vocabulary_size,
        layer_count=int(llama_cpp.llama_model_n_layer(model)),
        embedding_length=int(llama_cpp.llama_model_n_embd(model)),
        trained_context_length=int(llama_cpp.llama_model_n_ctx_train(model)),
        chat_template=template.decode(errors="replace") if template else "",
    )


def _metadata(model: ctypes.c_void_p, key: str) -> str:
    room = ctypes.create_string_buffer(METADATA_BYTES)
    found = llama_cpp.llama_model_meta_val_str(model, key.encode(), room, METADATA_BYTES)
    return room.value.decode(errors="replace") if found >= 0 else ""


class Context:
    """The KV cache and the buffers of one model; `slots` sequences of `context_length` tokens each.

    Each sequence has its own part of the cache, and flash attention is off: on CPUs the other choices are slower.
    """

    def __init__(self, model: Model, *, context_length: int, slots: int, batch_tokens: int, threads: int) -> None:
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = context_length * slots
        parameters.n_seq_max = slots
        parameters.n_batch = parameters.n_ubatch = batch_tokens
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.kv_unified = False
        parameters.no_perf = True
        self._vocabulary_size = model.vocabulary.size
        self._room_tokens = batch_tokens
        self._fields = _BatchFields(batch_tokens, slots)
        self._handle = llama_cpp.llama_init_from_model(model.handle, parameters)
        if not self._handle:
            raise UnservableError(
                ExitCode.BAD_CONFIGURATION,
                f"no memory for {slots} slots of {context_length} tokens of context: {'; '.join(_errors)}. "
                "Set a smaller context length or fewer slots, or give the pod more memory.",
            )
        self._memory = llama_cpp.llama_get_memory(self._handle)

    def decode(self, plan: BatchPlan, tokens: Mapping[int, Sequence[int]]) -> dict[int, Logits]:
        """Evaluates a plan; `tokens` are each slot's, from position 0. Returns a row of logits per slot that
        wants one, float32 of the vocabulary's length, valid until the next call. Raises DecodeError."""
        if not 0 < plan.token_count <= self._room_tokens:
            raise ValueError(f"a batch of {plan.token_count} tokens, room for {self._room_tokens}")
        rows: dict[int, int] = {}
        filled = 0
        for chunk in plan.chunks:
            self._fields.fill(filled, chunk.slot, chunk.start, tokens[chunk.slot][chunk.start : chunk.stop])
            filled += chunk.stop - chunk.start
            if chunk.wants_logits:
                rows[chunk.slot] = filled - 1
        result = llama_cpp.llama_decode(self._handle, self._fields.batch(filled, rows.values()))
        if result != 0:
            raise DecodeError(f"llama_decode returned {result} for a batch of {filled} tokens")
        return {slot: self._row(index) for slot, index in rows.items()}

    def _row(self, index: int) -> Logits:
        pointer = llama_cpp.llama_get_logits_ith(self._handle, index)
        return np.ctypeslib.as_array(pointer, (self._vocabulary_size,))

    def warm_up(self) -> None:
        """Touches all weights once, so that the first caller does not wait for the disk. Raises DecodeError."""
        llama_cpp.llama_set_warmup(self._handle, True)
        self.decode(BatchPlan((Chunk(0, 0, 1, wants_logits=True),)), {0: [0]})
        llama_cpp.llama_set_warmup(self._handle, False)
        self.forget(0)

    def forget(self, slot: int) -> None:
        """Empties a slot."""
        llama_cpp.llama_memory_seq_rm(self._memory, slot, -1, -1)

    def close(self) -> None:
        llama_cpp.llama_free(self._handle)


class _BatchFields:
    """The arrays behind a llama_batch, made once: filling them is numpy, not one C call per token."""

    def __init__(self, room_tokens: int, slots: int) -> None:
        self._token = np.zeros(room_tokens, np.int32)
        self._position = np.zeros(room_tokens, np.int32)
        self._one = np.ones(room_tokens, np.int32)
        self._wanted = np.zeros(room_tokens, np.int8)
        # Per token a pointer to its list of sequences, which here is one entry of this table.
        self._slots = np.arange(slots, dtype=np.int32)
        self._sequence = np.zeros(room_tokens, np.uint64)

    def fill(self, at: int, slot: int, position: int, tokens: Sequence[int]) -> None:
        part = slice(at, at + len(tokens))
        self._token[part] = tokens
        self._position[part] = np.arange(position, position + len(tokens), dtype=np.int32)
        self._sequence[part] = self._slots.ctypes.data + slot * self._slots.itemsize

    def batch(self, token_count: int, wanted: Iterable[int]) -> object:
        self._wanted[:token_count] = 0
        self._wanted[list(wanted)] = 1
        return llama_cpp.llama_batch(
            n_tokens=token_count,
            token=_pointer(self._token, ctypes.c_int32),
            embd=None,
            pos=_pointer(self._position, ctypes.c_int32),
            n_seq_id=_pointer(self._one, ctypes.c_int32),
            seq_id=_pointer(self._sequence, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )


def _pointer(array: npt.NDArray[np.generic], kind: type) -> object:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


def build() -> str:
    """The versions behind this process, for Status and logs."""
    base = ctypes.CDLL("libggml-base.so.0")
    for function in (base.ggml_version, base.ggml_commit):
        function.restype = ctypes.c_char_p
    return (
        f"llama-cpp-python {llama_cpp.__version__}, ggml {base.ggml_version().decode()} ({base.ggml_commit().decode()})"
    )
