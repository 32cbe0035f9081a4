"""What a context that generates and one that reads have in common: how it is made, adapted, ended and how it fails."""

from __future__ import annotations

import ctypes
from typing import Any

from ..exits import ExitCode, UnservableError
from .bindings import llama_cpp
from .library import errors
from .model import Model

FLASH_ATTENTION = {"auto": -1, "disabled": 0, "enabled": 1}
NO_MEMORY, ABORTED = 1, 2
"""llama_decode's results that have a meaning of their own."""


class DecodeError(Exception):
    """llama_decode refused or broke; the sequences of its batch are undefined and must be forgotten."""


class DecodeAbortedError(DecodeError):
    """The step was ended from outside. What was computed of it is in the cache, and nobody knows how much."""


def make_context(model: Model, parameters: Any, asked: str) -> Any:
    handle = llama_cpp.llama_init_from_model(model.handle, parameters)
    if not handle:
        raise UnservableError(
            ExitCode.BAD_CONFIGURATION,
            f"llama.cpp makes no room for {asked}: {'; '.join(errors) or 'it gives no reason'}. "
            "Set a smaller context length or fewer slots, or give the pod more memory.",
        )
    return handle


def adapt(handle: Any, model: Model) -> None:
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


def decode_error(result: int, token_count: int) -> DecodeError:
    if result == ABORTED:
        return DecodeAbortedError(f"a batch of {token_count} tokens was aborted")
    why = ", the cache is full" if result == NO_MEMORY else ""
    return DecodeError(f"llama_decode returned {result} for a batch of {token_count} tokens{why}")


class AbortFlag:
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
