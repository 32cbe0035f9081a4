"""Vectors: each caller gets its own, in its order, whoever shares the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelbackend_server.embedding import MERGED_TOKENS_MAX
from modelbackend_server.exits import ExitCode
from modelbackend_server.generation import EmbedWork, Ended, Ending
from tests.server.engine import EngineHarness, engine_of
from tests.server.tiny_gguf import WIDTH, write_embedding_gguf

TEXTS = ["one", "three words here", "3/4", "a much longer text than all of the others", "~", "end"]


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "embedding.gguf"
    write_embedding_gguf(path)
    return path


def work(engine: EngineHarness, *texts: str, normalise: bool = True) -> EmbedWork:
    return EmbedWork(tuple(engine.tokens(text) for text in texts), normalise)


def test_merged_with_others_each_gets_the_vectors_it_gets_alone_in_its_order(embedding: Path) -> None:
    with engine_of(embedding, mode="embed") as engine:
        assert (engine.model.mode, engine.model.embedding_width, engine.model.ranks) == ("embed", WIDTH, False)
        alone = {text: engine.run(work(engine, text))[0].vectors[0] for text in TEXTS}
        steps = engine.engine.counters.steps
        orders = [TEXTS, TEXTS[::-1], TEXTS[2:3], TEXTS * 9]
        requests = engine.run(*(work(engine, *order) for order in orders))
        used = engine.engine.counters.steps - steps
    assert used < sum(len(order) for order in orders) / 4, "they were not merged"
    for order, request in zip(orders, requests, strict=True):
        assert request.ending == Ended(Ending.STOP)
        assert request.vectors.shape == (len(order), WIDTH)
        np.testing.assert_allclose(request.vectors, [alone[text] for text in order], atol=2e-3)
    assert len({tuple(np.round(vector, 3)) for vector in alone.values()}) == len(TEXTS)


def test_vectors_have_length_one_unless_they_are_wanted_as_they_are(embedding: Path) -> None:
    with engine_of(embedding, mode="embed") as engine:
        normal, raw = engine.run(work(engine, *TEXTS), work(engine, *TEXTS, normalise=False))
    lengths = np.linalg.norm(raw.vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(np.linalg.norm(normal.vectors, axis=1), 1, atol=1e-5)
    assert (lengths > 1.5).all()
    np.testing.assert_allclose(normal.vectors, raw.vectors / lengths, atol=2e-3)


def test_a_caller_with_many_texts_holds_up_nobody(embedding: Path) -> None:
    with engine_of(embedding, mode="embed") as engine:
        many, few = engine.submit(work(engine, *(TEXTS * 500)), work(engine, "one"))
        few.wait()
        assert not many.ended.is_set()
        many.leave()
        (after,) = engine.run(work(engine, "one"))
    np.testing.assert_allclose(after.vectors, few.vectors, atol=2e-3)


def test_a_text_as_long_as_the_context_is_read_whole(embedding: Path) -> None:
    with engine_of(embedding, mode="embed", batch_tokens=8) as engine:
        # Two tokens are the model's own marks of beginning and end.
        longest = engine.model.context_length - 2
        (request,) = engine.run(work(engine, "a" * longest, "b" * longest))
    assert request.vectors.shape == (2, WIDTH)
    assert longest <= MERGED_TOKENS_MAX


def test_a_model_that_does_not_say_how_to_pool_is_refused(tiny: Path) -> None:
    with engine_of(tiny, mode="embed") as engine:
        assert engine.failure is not None
        assert engine.failure.code is ExitCode.BAD_CONFIGURATION
        assert "set pooling to mean, cls or last" in engine.failure.words
    with engine_of(tiny, mode="embed", pooling="last") as engine:
        (request,) = engine.run(work(engine, "the time", "of"))
    assert request.vectors.shape == (2, WIDTH)
