"""llama.cpp's C API as far as the server uses it: the only importer of llama_cpp.

The C API ends the process on much bad input (a batch longer than n_batch is an assertion), so what is passed
down is checked here or made so that it cannot be wrong. Nothing here is asynchronous or knows of requests.

Thread rule: load a Model, make its Context and call `decode` on one and the same thread. ggml's threads (OpenMP)
belong to the thread that first used them; a second caller gets a second team, more threads than CPUs, and a third
less speed. The vocabulary may be used from any thread.
"""

from __future__ import annotations

from .context import Context, ContextShape
from .embedder import EMBED_SEQUENCES_MAX, Embedder
from .evaluating import DecodeAbortedError, DecodeError
from .grammar import Grammar, GrammarError
from .library import build
from .model import Model, ModelFacts, Vocabulary

__all__ = [
    "EMBED_SEQUENCES_MAX",
    "Context",
    "ContextShape",
    "DecodeAbortedError",
    "DecodeError",
    "Embedder",
    "Grammar",
    "GrammarError",
    "Model",
    "ModelFacts",
    "Vocabulary",
    "build",
]
