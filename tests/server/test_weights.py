"""Who may read a model after the engine's thread has let it go."""

import gc
import weakref
from pathlib import Path

from modelbackend_server import variants
from modelbackend_server.llama import Model


def test_a_vocabulary_outlives_the_engine_for_whoever_still_reads_it(tiny: Path) -> None:
    variants.load()
    model = Model.load(tiny, gpu_layers=0, progress=lambda _: True)
    vocabulary, weights = model.vocabulary, weakref.ref(model._weights)
    del model
    gc.collect()
    assert vocabulary.piece(vocabulary.bos, special=True) == b"<s>"
    assert vocabulary.tokenize("the", add_special=False, parse_special=False)
    del vocabulary
    gc.collect()
    assert weights() is None, "the weights stay in memory although nobody can read them"
