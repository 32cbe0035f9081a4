"""LoRA adapters: a text with one is the text of the weights that it stands for."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from modelbackend_server.exits import ExitCode
from tests.server.engine import engine_of
from tests.server.process import FREE_PORTS, started
from tests.server.tiny_gguf import WIDTH, tensors, vocabulary, write_tiny_gguf

CHANGED = "blk.0.attn_q.weight"
RANK, ALPHA, SCALE = 2, 4.0, 0.5
PROMPT = "the of and to in is"


@pytest.fixture(scope="module")
def factors() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return random.standard_normal((RANK, WIDTH), np.float32), random.standard_normal((WIDTH, RANK), np.float32)


@pytest.fixture
def adapter(tmp_path: Path, factors: tuple[np.ndarray, np.ndarray]) -> Path:
    """As llama.cpp's convert_lora_to_gguf.py writes one."""
    path = tmp_path / "adapter.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, ALPHA)
    for name, weights in zip(("lora_a", "lora_b"), factors, strict=True):
        writer.add_tensor(f"{CHANGED}.{name}", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def text(weights: Path, **settings: str) -> bytes:
    with engine_of(weights, **settings) as engine:
        return engine.run(engine.work(PROMPT, 40))[0].text


def test_a_text_with_an_adapter_is_that_of_the_merged_weights(
    tiny: Path, tmp_path: Path, adapter: Path, factors: tuple[np.ndarray, np.ndarray]
) -> None:
    down, up = factors
    named = tensors(len(vocabulary()))
    named[CHANGED] = named[CHANGED] + np.float32(SCALE * ALPHA / RANK) * (up @ down)
    merged = tmp_path / "merged.gguf"
    write_tiny_gguf(merged, weights=named)
    assert text(tiny, lora=f"{adapter}:{SCALE}") == text(merged) != text(tiny)
    assert text(tiny, lora=f"{adapter}:0") == text(tiny)


async def test_the_environment_that_the_operator_writes_loads_an_adapter(tiny: Path, adapter: Path) -> None:
    named = f"{adapter}:{SCALE}"
    async with started(*FREE_PORTS, MODELBACKEND_MODEL_PATH=str(tiny), MODELBACKEND_LORA=named) as server:
        await server.log("lifecycle", state="serving")
    async with started(*FREE_PORTS, MODELBACKEND_MODEL_PATH=str(tiny), MODELBACKEND_LORA=f"{tiny}:{SCALE}") as server:
        assert await server.end() == ExitCode.BAD_MODEL
        assert f"cannot load the LoRA adapter {tiny}" in server.words


def test_what_is_no_adapter_of_this_model_is_refused_with_its_name(tiny: Path, tmp_path: Path) -> None:
    with engine_of(tiny, lora=str(tiny)) as engine:
        assert engine.failure is not None
    assert engine.failure.code is ExitCode.BAD_MODEL
    assert f"cannot load the LoRA adapter {tiny}" in engine.failure.words
    with engine_of(tiny, lora=str(tmp_path / "none.gguf")) as engine:
        assert engine.failure is not None
    assert engine.failure.code is ExitCode.MODEL_MISSING
