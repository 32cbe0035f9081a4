"""What our loop costs in a step beside llama.cpp: CPU time of the engine's thread outside llama_decode.

With the tests' tiny model, whose own part is small, and by CPU time, which other work on the machine does not change.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.serving.rows import Goal, Row
from modelbackend_server import log
from modelbackend_server.llama import bindings
from tests.server.engine import engine_of
from tests.server.tiny_gguf import write_tiny_gguf

NAME = "loop x16"
SEQUENCES, TOKENS = 16, 60
# The first steps have prompts in them, and in the last ones texts end.
LEFT_OUT_STEPS = 5


def rows(repeats: int) -> list[Row]:
    log.configure("error")
    decode, spans = bindings.llama_cpp.llama_decode, list[tuple[int, int]]()

    def timed(*arguments: Any) -> Any:
        began = time.thread_time_ns()
        result = decode(*arguments)
        spans.append((began, time.thread_time_ns()))
        return result

    found: list[float] = []
    llama_us: list[float] = []
    bindings.llama_cpp.llama_decode = timed
    try:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "tiny.gguf"
            write_tiny_gguf(model)
            with engine_of(model, threads=1, slots=SEQUENCES, context_length=256) as engine:
                for run in range(repeats):
                    spans.clear()
                    engine.run(*(engine.work(f"{run} {index} of the", TOKENS) for index in range(SEQUENCES)))
                    kept = spans[LEFT_OUT_STEPS:-LEFT_OUT_STEPS]
                    gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(kept)]
                    found.append(statistics.median(gaps) / 1000)
                    llama_us.append(statistics.median(end - start for start, end in kept) / 1000)
    finally:
        bindings.llama_cpp.llama_decode = decode
    goal = Goal(150, lower=True, of_ours_alone=True)
    return [Row(NAME, "us a step", min(found), statistics.median(llama_us), goal, against="llama_decode itself")]
