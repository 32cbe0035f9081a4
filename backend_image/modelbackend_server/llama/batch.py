"""A llama_batch over numpy arrays, and numpy arrays as C pointers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .bindings import llama_cpp

Tokens = npt.NDArray[np.int32]


class Batch:
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
            token=pointer(self._token, ctypes.c_int32),
            embd=None,
            pos=pointer(self._position, ctypes.c_int32),
            n_seq_id=pointer(self._one, ctypes.c_int32),
            seq_id=pointer(self._sequence, ctypes.POINTER(ctypes.c_int32)),
            logits=pointer(self._wanted, ctypes.c_int8),
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


def pointer(array: npt.NDArray[Any], kind: type) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


def as_bytes(array: npt.NDArray[np.uint8]) -> Any:
    return pointer(array, ctypes.c_uint8)
