"""Weights in memory, what they say about themselves, and their vocabulary."""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..exits import ExitCode, UnservableError
from .bindings import llama_cpp
from .library import errors

PIECE_BYTES = 64
METADATA_BYTES = 256


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
        self.sep = int(llama_cpp.llama_vocab_sep(self.handle))
        self.adds_eos = bool(llama_cpp.llama_vocab_get_add_eos(self.handle))
        self.adds_sep = bool(llama_cpp.llama_vocab_get_add_sep(self.handle))
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}

    @functools.cached_property
    def enders(self) -> frozenset[int]:
        """The tokens that end a text. Asked of each token by itself, so a large vocabulary takes a tenth of a second:
        only a grammar has to know them all."""
        return frozenset(token for token in range(self.size) if llama_cpp.llama_vocab_is_eog(self.handle, token))

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Tokens of a text. parse_special reads "<|im_end|>" and the like as tokens rather than as text."""
        data = text.encode()
        # No token is made of nothing; the rest for what is put around a text: a space, a beginning, an end.
        room = (llama_cpp.llama_token * (len(data) + 4))()
        count = llama_cpp.llama_tokenize(self.handle, data, len(data), room, len(room), add_special, parse_special)
        if count < 0:
            raise RuntimeError(f"a text of {len(data)} bytes needs {-count} tokens, more than it has bytes")
        return list(room[:count])

    def pair(self, query: str, document: str) -> list[int]:
        """The tokens by which a reranker reads two texts: bos, query, eos, sep, document, eos, as it has them."""
        ending = self.eos if self.eos >= 0 else self.sep
        after = [ending] if self.adds_eos else []
        between = after + ([self.sep] if self.adds_sep else [])
        one, other = (self.tokenize(text, add_special=False, parse_special=False) for text in (query, document))
        return [*([self.bos] if self.adds_bos else []), *one, *between, *other, *after]

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
        known = self._ends.get(token)
        if known is None:
            known = self._ends[token] = bool(llama_cpp.llama_vocab_is_eog(self.handle, token))
        return known


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter in memory; freed with its model."""

    handle: Any
    scale: float


class Model:
    """Weights in memory, with their vocabulary and facts."""

    def __init__(self, weights: Weights) -> None:
        self.adapters: list[Adapter] = []
        self._weights = weights
        self.handle = weights.handle
        self.vocabulary = Vocabulary(weights)
        self.facts = _facts(weights.handle, self.vocabulary.size)

    @classmethod
    def load(cls, path: Path, *, gpu_layers: int, progress: Callable[[float], bool]) -> Model:
        """Loads a file; `progress` gets the fraction done and ends the loading by False.

        Raises UnservableError (65), with llama.cpp's own words, where the file cannot be loaded.
        """
        errors.clear()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        callback = llama_cpp.llama_progress_callback(lambda fraction, _: progress(fraction))
        parameters.progress_callback = callback
        handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), parameters)
        if not handle:
            raise UnservableError(
                ExitCode.BAD_MODEL,
                f"llama.cpp cannot load {path}: {'; '.join(errors) or 'it gives no reason'}. The file is damaged or "
                "of a kind this version does not know: fetch it again, or take another one.",
            )
        return cls(Weights(handle))

    def add_adapter(self, path: Path, scale: float) -> None:
        """Loads a LoRA adapter, for every context that is made afterwards. Raises UnservableError (65)."""
        errors.clear()
        handle = llama_cpp.llama_adapter_lora_init(self.handle, os.fsencode(path))
        if not handle:
            raise UnservableError(
                ExitCode.BAD_MODEL,
                f"llama.cpp cannot load the LoRA adapter {path}: {'; '.join(errors) or 'it gives no reason'}. It must "
                "be a GGUF adapter of this very model.",
            )
        self.adapters.append(Adapter(handle, scale))

    @property
    def can_trim(self) -> bool:
        """Whether a sequence can be shortened to its first tokens; a recurrent state only knows its end."""
        return not (llama_cpp.llama_model_is_recurrent(self.handle) or llama_cpp.llama_model_is_hybrid(self.handle))

    @property
    def can_offload(self) -> bool:
        return bool(llama_cpp.llama_supports_gpu_offload())

    @property
    def cache_values_per_token(self) -> int:
        """Numbers in the KV cache for each token, where all layers are alike."""
        architecture = self.facts.architecture
        heads = max(1, int(llama_cpp.llama_model_n_head(self.handle)))
        width = self.facts.embedding_length // heads
        key = _metadata(self.handle, f"{architecture}.attention.key_length")
        value = _metadata(self.handle, f"{architecture}.attention.value_length")
        per_head = int(key or width) + int(value or width)
        return self.facts.layer_count * int(llama_cpp.llama_model_n_head_kv(self.handle)) * per_head

    @property
    def embedding_width(self) -> int:
        return int(llama_cpp.llama_model_n_embd_out(self.handle))

    @property
    def class_count(self) -> int:
        return max(1, int(llama_cpp.llama_model_n_cls_out(self.handle)))

    def why_not_embedding(self) -> str:
        """Why this model cannot turn a text into a vector; "" if it can."""
        if llama_cpp.llama_vocab_type(self.vocabulary.handle) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
            return "it has no vocabulary"
        word_pieces = llama_cpp.llama_vocab_type(self.vocabulary.handle) == llama_cpp.LLAMA_VOCAB_TYPE_WPM
        if word_pieces and min(self.vocabulary.bos, self.vocabulary.sep) < 0:
            # llama.cpp puts them around every text, and finds out by an assertion that there are none.
            return "its vocabulary names no separator, or no beginning"
        if llama_cpp.llama_model_has_encoder(self.handle) and llama_cpp.llama_model_has_decoder(self.handle):
            return "it has an encoder and a decoder"
        return ""

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
