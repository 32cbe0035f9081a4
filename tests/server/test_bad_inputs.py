"""What ends llama.cpp's process is refused before it gets there. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.process import environment

PREAMBLE = """
import sys
from pathlib import Path
from modelbackend_server import variants
from modelbackend_server.llama import Context, ContextShape, DecodeError, Embedder, Grammar, GrammarError, Model
from modelbackend_server.plan import BatchPlan, Chunk

variants.load()
model = Model.load(Path(sys.argv[1]), gpu_layers=0, progress=lambda _: True)
context = Context(model, ContextShape(64, 2, 16, 16, 1))

def decode(tokens, start=0, slot=0, outputs=1):
    plan = BatchPlan((Chunk(slot, start, start + len(tokens), outputs),))
    return context.decode(plan, {slot: [0] * start + list(tokens)})
"""
STILL_WORKS = """
context.trim(0, 0)
assert decode([5, 6]).shape == (1, model.vocabulary.size)
print("lives")
"""


@pytest.mark.parametrize(
    ("case", "code", "refused"),
    [
        ("a batch longer than n_batch", "decode([5] * 17)", "ValueError"),
        ("an empty batch", "decode([])", "ValueError"),
        ("a sequence out of range", "decode([5], slot=2)", "ValueError"),
        ("a token out of range", "decode([10 ** 6])", "DecodeError"),
        ("a position gap", "decode([5]); decode([5], start=9)", "DecodeError"),
        ("more tokens than the cache has", "[decode([5] * 16, start=at * 16) for at in range(17)]", "DecodeError"),
        ("a text longer than the batch", "Embedder(model, batch_tokens=8, threads=1, pooling='last').embed([[5] * 9])",
         "ValueError"),
        ("too many texts", "Embedder(model, batch_tokens=99, threads=1, pooling='last').embed([[5]] * 65)",
         "ValueError"),
        ("a grammar nested 60,000 deep", "Grammar(model.vocabulary, 'root ::= ' + '(' * 60000 + ')' * 60000)",
         "GrammarError"),
        ("a grammar with an undefined rule", "Grammar(model.vocabulary, 'root ::= a')", "GrammarError"),
        ("a grammar without root", "Grammar(model.vocabulary, 'a ::= \"a\"')", "GrammarError"),
        ("a left-recursive grammar", "Grammar(model.vocabulary, 'root ::= root \"a\"')", "GrammarError"),
        ("a grammar with a syntax error", "Grammar(model.vocabulary, 'root ::= |')", ""),
        ("a range of characters that ends nowhere", "Grammar(model.vocabulary, 'root ::= [a-')", "GrammarError"),
        ("a part of a sequence for another's cache", "decode([5] * 9); context.copy(0, 1, 4); decode([5], 4, 1)", ""),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value and "(" not in value else "",
)  # fmt: skip
def test_the_process_lives(tiny: Path, case: str, code: str, refused: str) -> None:
    program = PREAMBLE + code + "\n" + STILL_WORKS
    if refused:
        program = (
            f"{PREAMBLE}\ntry:\n    {code}\nexcept {refused}:\n    pass\nelse:\n    sys.exit('taken')\n{STILL_WORKS}"
        )
    child = subprocess.run(
        [sys.executable, "-c", program, str(tiny)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, f"{case}: {child.returncode} {child.stderr[-500:]}"
    assert child.stdout.endswith("lives\n")
