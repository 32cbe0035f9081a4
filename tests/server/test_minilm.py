"""A real embedding model gives the similarities that its authors publish."""

from __future__ import annotations

import pytest

from images.embedding_model import embedding_model_file
from modelbackend_server.generation import EmbedWork
from tests.server.engine import engine_of

pytestmark = pytest.mark.real_model

# The quick start of Sentence Transformers (https://sbert.net/docs/quickstart.html).
SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
)
SIMILARITIES = {(0, 1): 0.6660, (0, 2): 0.1046, (1, 2): 0.1411}


def test_similarities_of_a_real_model_are_the_published_ones_to_three_digits() -> None:
    with engine_of(embedding_model_file(), mode="embed") as engine:
        texts = tuple(engine.tokens(sentence) for sentence in SENTENCES)
        (request,) = engine.run(EmbedWork(texts))
    vectors = request.vectors
    found = {(one, other): float(vectors[one] @ vectors[other]) for one, other in SIMILARITIES}
    assert found == pytest.approx(SIMILARITIES, abs=0.0005)
