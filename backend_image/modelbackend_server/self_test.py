"""A tiny model of every common weight type, evaluated with one CPU library. Runs as a child process:

    python3 -m modelbackend_server.self_test FOLDER [LIBRARY_NAME_TO_LEAVE_OUT ...]

Prints the name of the library it tries (nothing if none is left), and "passed" after it. Illegal instructions
and assertions end the process, which is why it is one of its own.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

import numpy as np

from . import log, variants
from .llama import Context, ContextShape, Model
from .plan import BatchPlan, Chunk

# Rows of 256 are the smallest that hold a block of the K quantisations.
WIDTH = 256
VOCABULARY_SIZE = 64
PROMPT_TOKENS = 33  # More than one tile of any kernel, and no multiple of one.
ALIGNMENT_BYTES = 32
LEAST_COSINE = 0.99

F32, Q4_0, Q4_1, Q5_0, Q8_0, Q4_K, Q5_K, Q6_K = 0, 2, 3, 6, 8, 12, 13, 14
MATRICES = {
    "token_embd.weight": (VOCABULARY_SIZE, Q8_0),
    "output.weight": (VOCABULARY_SIZE, Q6_K),
    "blk.0.attn_q.weight": (WIDTH, Q4_0),
    "blk.0.attn_k.weight": (WIDTH, Q4_1),
    "blk.0.attn_v.weight": (WIDTH, Q8_0),
    "blk.0.attn_output.weight": (WIDTH, Q4_K),
    "blk.0.ffn_gate.weight": (WIDTH, Q5_K),
    "blk.0.ffn_up.weight": (WIDTH, Q6_K),
    "blk.0.ffn_down.weight": (WIDTH, Q5_0),
}
NORMS = ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight")


def gguf() -> bytes:
    """A one-layer llama without vocabulary, in the GGUF 3 format (ggml-org/ggml, docs/gguf.md)."""
    settings: list[tuple[str, str | int | float]] = [
        ("general.architecture", "llama"),
        ("llama.context_length", 64),
        ("llama.embedding_length", WIDTH),
        ("llama.feed_forward_length", WIDTH),
        ("llama.block_count", 1),
        ("llama.attention.head_count", 4),
        ("llama.attention.layer_norm_rms_epsilon", 1e-5),
        ("llama.vocab_size", VOCABULARY_SIZE),
        ("tokenizer.ggml.model", "no_vocab"),
    ]
    random = np.random.default_rng(1)
    tensors: list[tuple[str, tuple[int, ...], int, bytes]] = [
        (name, (WIDTH,), F32, np.ones(WIDTH, np.float32).tobytes()) for name in NORMS
    ]
    for name, (rows, kind) in MATRICES.items():
        weights = random.standard_normal((rows, WIDTH), np.float32) / np.sqrt(np.float32(WIDTH))
        tensors.append((name, (WIDTH, rows), kind, quantised(weights, kind)))
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(settings))
    header += b"".join(_text(key) + _value(value) for key, value in settings)
    data = b""
    for name, shape, kind, content in tensors:
        header += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += content + bytes(-len(content) % ALIGNMENT_BYTES)
    return header + bytes(-len(header) % ALIGNMENT_BYTES) + data


def quantised(weights: np.typing.NDArray[np.float32], kind: int) -> bytes:
    rows, columns = weights.shape
    quantise = ctypes.CDLL("libggml-base.so.0").ggml_quantize_chunk
    quantise.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    quantise.restype = ctypes.c_size_t
    room = np.empty(weights.nbytes, np.uint8)
    size_bytes = quantise(kind, weights.ctypes.data, room.ctypes.data, 0, rows, columns, None)
    return room[:size_bytes].tobytes()


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: str | int | float) -> bytes:
    match value:
        case str():
            return struct.pack("<I", 8) + _text(value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)


def run() -> None:
    """Evaluates a prompt at once and token by token: different kernels, so the two must agree."""
    # Held in memory only: the container's file system is read-only.
    descriptor = os.memfd_create("self-test.gguf")
    with os.fdopen(descriptor, "wb") as file:
        file.write(gguf())
        file.flush()
        model = Model.load(Path(f"/proc/self/fd/{descriptor}"), gpu_layers=0, progress=lambda _: True)
        shape = ContextShape(
            context_length=64, slots=2, batch_tokens=PROMPT_TOKENS, micro_batch_tokens=PROMPT_TOKENS, threads=1
        )
        context = Context(model, shape)
    tokens = [(7 * index) % VOCABULARY_SIZE for index in range(PROMPT_TOKENS)]
    at_once = context.decode(BatchPlan((Chunk(0, 0, PROMPT_TOKENS, outputs=1),)), {0: tokens})[0].copy()
    for index in range(PROMPT_TOKENS):
        step = context.decode(BatchPlan((Chunk(1, index, index + 1, outputs=1),)), {1: tokens})
    cosine = _cosine(at_once, step[0])
    if not cosine >= LEAST_COSINE:
        sys.exit(f"a prompt evaluated at once and token by token differ: cosine {cosine}")


def _cosine(one: np.typing.NDArray[np.float32], other: np.typing.NDArray[np.float32]) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def main() -> None:
    log.configure("error")
    folder, *left_out = sys.argv[1:]
    for library in variants.ranked(Path(folder)):
        if library.name not in left_out:
            print(library.name, flush=True)
            if not variants.register(library):
                sys.exit("ggml refused it")
            run()
            print("passed", flush=True)
            return


if __name__ == "__main__":
    main()
