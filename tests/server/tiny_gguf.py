"""A model of 600 kB that says nothing sensible, but always the same: for everything except the text itself.

Architecture llama, with a real SentencePiece vocabulary: special tokens, all 256 byte tokens (so that generated
characters come in halves), ASCII, and some English words. Weights are drawn from one seed; those of the output are
enlarged, so that no CPU's rounding can turn the order of two tokens. A greedy generation never ends by itself,
because the tokens that would end it have the logit 0.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

WIDTH, FEED_FORWARD, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
CONTEXT_LENGTH = 8192
SEED = 1234
OUTPUT_SCALE = 4.0
SPACE = "\u2581"
SPECIAL = ("<unk>", "<s>", "</s>")
TEXT = """
the of and to in is was for on that with as it by at from his an were are which be this had has have not one also
their its new after they two her she all been other when there time may more than first who most some into
"""
WORDS = TEXT.split()
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'system' and not loop.first %}{{ raise_exception('system must come first') }}{% endif %}"
    "[{{ message.role }}]{{ message.content }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
# In the form of Hermes and Qwen, as far as calls are concerned.
TOOLS_TEMPLATE = """\
{% if tools %}{% for tool in tools %}{{ tool.function.name }} {% endfor %}call with <tool_call> {% endif %}
{%- for message in messages %}{{ message.role }} {{ message.content }}
{%- for call in message.tool_calls %} {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %} \
{% endfor %}"""


def vocabulary() -> list[tuple[str, float, gguf.TokenType]]:
    """Pieces with their scores and kinds. SentencePiece joins two by two, so every prefix of a word is a piece."""
    pieces: list[tuple[str, float, gguf.TokenType]] = [
        (SPECIAL[0], 0.0, gguf.TokenType.UNKNOWN),
        (SPECIAL[1], 0.0, gguf.TokenType.CONTROL),
        (SPECIAL[2], 0.0, gguf.TokenType.CONTROL),
    ]
    pieces += [(f"<0x{byte:02X}>", 0.0, gguf.TokenType.BYTE) for byte in range(256)]
    texts = [SPACE, *(chr(code) for code in range(0x21, 0x7F))]
    for word in WORDS:
        texts += [SPACE + word[:length] for length in range(1, len(word) + 1)]
    # A longer piece is better than its parts.
    pieces += [(text, float(len(text)), gguf.TokenType.NORMAL) for text in dict.fromkeys(texts)]
    return pieces


def write_tiny_gguf(
    path: Path, *, chat_template: str | None = CHAT_TEMPLATE, weights: dict[str, npt.NDArray[np.float32]] | None = None
) -> str:
    """Writes the file, with other weights than its own if they are given, and returns its sha256."""
    pieces = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    _write(writer, weights or tensors(len(pieces)))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_embedding_gguf(path: Path) -> None:
    """A model that llama.cpp loads like any other, and that has no next token to give: architecture bert.

    Random weights, so that different texts have different vectors, and what comes first in a text matters.
    """
    random = np.random.default_rng(SEED)
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    characters = [chr(code) for code in range(0x21, 0x7F)]
    # A word begins with a piece that has the space, and goes on with pieces that have none.
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(SPACE + character for character in characters), *characters]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(pieces)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(pieces))
    writer.add_token_type_count(1)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_sep_token_id(3)
    row = np.ones(WIDTH, np.float32)
    named: dict[str, npt.NDArray[np.float32]] = {
        "token_embd.weight": random.standard_normal((len(pieces), WIDTH), np.float32),
        "position_embd.weight": random.standard_normal((WIDTH, WIDTH), np.float32),
        "token_types.weight": np.ones((1, WIDTH), np.float32),
    }
    for matrix in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"):
        weights = random.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(np.sqrt(WIDTH))
        named |= {f"blk.0.{matrix}.weight": weights, f"blk.0.{matrix}.bias": row}
    for norm in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        named |= {f"{norm}.weight": row, f"{norm}.bias": row}
    _write(writer, named)


def _write(writer: gguf.GGUFWriter, named: dict[str, npt.NDArray[np.float32]]) -> None:
    for name, weights in named.items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(vocabulary_size: int) -> dict[str, npt.NDArray[np.float32]]:
    random = np.random.default_rng(SEED)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> npt.NDArray[np.float32]:
        drawn = random.standard_normal((rows, columns), dtype=np.float32)
        return drawn * np.float32(scale / np.sqrt(columns))

    ones = np.ones(WIDTH, np.float32)
    kv_width = WIDTH // HEADS * KV_HEADS
    output = matrix(vocabulary_size, WIDTH, OUTPUT_SCALE)
    output[: len(SPECIAL)] = 0
    named = {"token_embd.weight": matrix(vocabulary_size, WIDTH, 8.0), "output.weight": output}
    named["output_norm.weight"] = ones
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        named |= {
            block + "attn_norm.weight": ones,
            block + "attn_q.weight": matrix(WIDTH, WIDTH),
            block + "attn_k.weight": matrix(kv_width, WIDTH),
            block + "attn_v.weight": matrix(kv_width, WIDTH),
            block + "attn_output.weight": matrix(WIDTH, WIDTH),
            block + "ffn_norm.weight": ones,
            block + "ffn_gate.weight": matrix(FEED_FORWARD, WIDTH),
            block + "ffn_up.weight": matrix(FEED_FORWARD, WIDTH),
            block + "ffn_down.weight": matrix(WIDTH, FEED_FORWARD),
        }
    return named
