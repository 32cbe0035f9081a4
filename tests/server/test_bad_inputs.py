"""What ends llama.cpp's process is refused before it gets there. Tried in another process, which has to live on."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.process import environment

PROGRAM = """
import json
import sys
from pathlib import Path
from modelbackend_server import log, variants
from modelbackend_server.llama import Context, ContextShape, DecodeError, Embedder, Grammar, GrammarError, Model
from modelbackend_server.plan import BatchPlan, Chunk

log.configure("info")
variants.load()
model = Model.load(Path(sys.argv[1]), gpu_layers=0, progress=lambda _: True)

def decode(tokens, start=0, slot=0, outputs=1):
    plan = BatchPlan((Chunk(slot, start, start + len(tokens), outputs),))
    return context.decode(plan, {slot: [0] * start + list(tokens)})

for line in sys.stdin:
    context = Context(model, ContextShape(64, 2, 16, 16, 1))
    try:
        exec(json.loads(line))
    except Exception as error:
        outcome = type(error).__name__
    else:
        outcome = "taken"
    context.trim(0, 0)
    assert decode([5, 6]).shape == (1, model.vocabulary.size)
    context.close()
    print(outcome, flush=True)
"""


class Child:
    """Tries one piece of code after the other, with a context of its own for each."""

    def __init__(self, weights: Path, errors: Path) -> None:
        self._errors = errors
        command = (sys.executable, "-c", PROGRAM, str(weights))
        with errors.open("wb") as log:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, stderr=log)

    def outcome_of(self, code: str) -> str:
        """What came of it, after which an ordinary batch was evaluated; or how the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code).encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        outcome = self._process.stdout.readline().decode().strip() if ready else "no answer"
        return outcome or f"ended with {self._process.wait()}: {self._errors.read_text()[-500:]}"

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Children:
    """The one that lives; a new one where the last test ended it."""

    def __init__(self, weights: Path, errors: Path) -> None:
        self._given = (weights, errors)
        self._child: Child | None = None

    def outcome_of(self, code: str) -> str:
        if self._child is None or not self._child.lives:
            self._child = Child(*self._given)
        return self._child.outcome_of(code)

    def end(self) -> None:
        if self._child is not None:
            self._child.end()


@pytest.fixture(scope="module")
def children(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    children = Children(tiny, tmp_path_factory.mktemp("bad-inputs") / "errors")
    yield children
    children.end()


@pytest.mark.parametrize(
    ("case", "code", "outcome"),
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
        ("a grammar with a syntax error", "Grammar(model.vocabulary, 'root ::= |')", "taken"),
        ("a range of characters that ends nowhere", "Grammar(model.vocabulary, 'root ::= [a-')", "GrammarError"),
        ("a part of a sequence for another's cache", "decode([5] * 9); context.copy(0, 1, 4); decode([5], 4, 1)",
         "taken"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value and "(" not in value else "",
)  # fmt: skip
def test_the_process_lives(children: Children, case: str, code: str, outcome: str) -> None:
    assert children.outcome_of(code) == outcome, case


def test_a_process_that_ends_is_noticed(children: Children) -> None:
    assert children.outcome_of("import os; os.abort()").startswith("ended with -6")
    assert children.outcome_of("decode([5])") == "taken"
