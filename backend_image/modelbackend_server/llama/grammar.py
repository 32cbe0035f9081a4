"""A grammar in GBNF, held against tokens one generation at a time."""

from __future__ import annotations

import ctypes
import time
import weakref

import numpy as np
import numpy.typing as npt

from .. import gbnf
from ..sampling import TooCostlyError
from .bindings import llama_cpp
from .library import errors
from .model import Vocabulary

ROOT = b"root"
ACCEPT_SECONDS_MAX = 1.0
"""A grammar that can read a text in many ways has more of them with each token: what takes this long is stopped before
it takes for ever, and holds up everybody."""
# llama_token_data.
CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class GrammarError(ValueError):
    """The text is no grammar, or one that is too large to be safe; in words."""


class Grammar:
    """The state of one generation: which tokens may come next. Used by one thread at a time.

    Raises GrammarError. llama.cpp ends the process on a deeply nested grammar and on a token that was accepted
    though the grammar forbids it: the first is refused here, the second is the caller's promise.
    """

    def __init__(self, vocabulary: Vocabulary, text: str) -> None:
        if why := gbnf.why_not(text):
            raise GrammarError(why)
        errors.clear()
        self._vocabulary = vocabulary
        self._handle = llama_cpp.llama_sampler_init_grammar(vocabulary.handle, text.encode(), ROOT)
        if not self._handle:
            words = "; ".join(errors) or "a rule is undefined, is left-recursive, or has a syntax error"
            raise GrammarError(f"llama.cpp does not take the grammar: {words}")
        weakref.finalize(self, llama_cpp.llama_sampler_free, self._handle).atexit = False

    def allows(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these may come next: a mask."""
        candidates = np.zeros(len(tokens), CANDIDATE)
        candidates["id"] = tokens
        array = llama_cpp.llama_token_data_array(
            data=ctypes.cast(candidates.ctypes.data, ctypes.POINTER(llama_cpp.llama_token_data)),
            size=len(candidates),
            selected=-1,
            sorted=False,
        )
        llama_cpp.llama_sampler_apply(self._handle, ctypes.byref(array))
        mask: npt.NDArray[np.bool_] = candidates["logit"] > -np.inf
        return mask

    def accept(self, token: int) -> None:
        """Takes a token that `allows` has allowed just now. Raises TooCostlyError."""
        began_at = time.perf_counter()
        llama_cpp.llama_sampler_accept(self._handle, token)
        if (seconds := time.perf_counter() - began_at) > ACCEPT_SECONDS_MAX:
            raise TooCostlyError(f"the grammar reads its text in too many ways: {seconds:.1f} s for one token")
