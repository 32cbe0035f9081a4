"""What a server and its client promise, each broken in one place, and the test that must then fail.

`python3 -m tests.server.mutants FILE` runs those tests in this process, and writes a line of JSON for each mutant.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from modelbackend_client import errors, routing
from modelbackend_server import admission, checks, generation, refusals, sampling, server, text
from modelbackend_server.engine import Engine
from modelbackend_server.lifecycle import Lifecycle, State
from modelbackend_server.llama import Context, Embedder
from modelbackend_server.slots import Slots
from tests.server import harness

SERVER, UNIT = "tests/server", "tests/unit"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`broken` stands in for `owner`'s attribute `name`; `tests` has one that must fail then."""

    promise: str
    owner: Any
    name: str
    broken: Any
    test: str


def _sent_again(attempts: routing.Attempts, endpoint: routing.Endpoint, error: errors.CallError, now: float) -> None:
    error.not_started, error.reason = True, routing.BUSY
    _failed(attempts, endpoint, error, now)


def _never_started(error: errors.CallError, *arguments: Any, **details: Any) -> None:
    _call_error(error, *arguments, **details | {"not_started": True})


def _never_began(left: generation.Generation) -> bool:
    _leave(left)
    return True


def _no_bound(waiting: admission.Admission) -> Any:
    return waiting.reader if waiting.lifecycle.state is State.SERVING else _ready(waiting)


def _cut_by_a_drain(lifecycle: Lifecycle) -> float | None:
    return lifecycle.drain_deadline if lifecycle.terminate_deadline is None else lifecycle.terminate_deadline


def _last_come_first_served(engine: Engine, work: Any) -> None:
    engine._arrivals = type(engine._arrivals)(reversed(engine._arrivals))
    _admit(engine, work)


def _half_characters(_: text.TextDecoder, pieces: list[bytes], *, final: bool = False) -> tuple[str, int]:  # noqa: ARG001
    return b"".join(pieces).decode(errors="replace"), len(pieces)


def _without_grammar(sampler: sampling.Sampler, parameters: Any, prompt: Any, _: Any, enders: Any) -> None:
    _sampler(sampler, parameters, prompt, None, enders)


def _to_the_neighbour(embedder: Embedder, texts: Any) -> Any:
    return np.roll(_embed(embedder, texts), 1, axis=0)


def _one_more(slots: Slots[Any], *arguments: Any, **options: Any) -> Any:
    """The slot of a prompt that begins alike: one token more of it than the two have in common."""
    place = _place(slots, *arguments, **options)
    return type(place)(place.slot, place.source, place.reused + (place.reused > 0), place.awaits)


_failed = routing.Attempts.failed
_call_error = errors.CallError.__init__
_leave = generation.Generation.leave
_ready = admission.Admission.ready
_admit = Engine._admit
_sampler = sampling.Sampler.__init__
_embed = Embedder.embed
_place = Slots.place

MUTANTS = (
    Mutant(
        "a request that may have started is not sent again",
        *(routing.Attempts, "failed", _sent_again),
        f"{UNIT}/test_client_routing.py::test_an_error_ends_the_call_where_sending_it_again_is_unsafe_or_no_use",
    ),
    Mutant(
        "a broken connection does not mean that nothing started",
        *(errors.CallError, "__init__", _never_started),
        f"{SERVER}/test_routing.py::test_a_call_in_flight_when_its_instance_dies_fails_and_is_not_sent_again",
    ),
    Mutant(
        "not_started is said only where it is true",
        *(refusals, "MAY_HAVE_STARTED", frozenset()),
        f"{SERVER}/test_queue.py::test_a_batch_that_cannot_be_evaluated_fails_its_requests_and_no_others",
    ),
    Mutant(
        "whoever has started is not told that it never did",
        *(generation.Generation, "leave", _never_began),
        f"{SERVER}/test_queue.py::test_a_deadline_that_passes_in_the_queue_is_told_and_the_request_never_starts",
    ),
    Mutant(
        "a call that means another backend is refused",
        *(checks.Checks, "refusal", lambda *_, **__: None),
        f"{SERVER}/test_control.py::test_a_call_for_another_backend_is_refused_and_names_both",
    ),
    Mutant(
        "control is for those who have its token",
        *(checks.TokenFile, "refusal", lambda *_: None),
        f"{SERVER}/test_control.py::test_control_asks_for_the_token_in_the_file_as_it_is_now",
    ),
    Mutant(
        "a drain alone cuts nothing",
        *(Lifecycle, "cut_at", property(_cut_by_a_drain)),
        f"{UNIT}/test_lifecycle.py::test_nothing_is_cut_before_a_signal",
    ),
    Mutant(
        "what was accepted has its time after SIGTERM",
        *(Lifecycle, "terminate", lambda told, _: replace(told, state=State.DRAINING, terminate_deadline=0.0)),
        f"{UNIT}/test_lifecycle.py::test_after_a_signal_the_nearer_deadline_cuts",
    ),
    Mutant(
        "no more wait than may",
        *(admission.Admission, "ready", _no_bound),
        f"{SERVER}/test_queue.py::test_a_full_queue_refuses_and_says_when_to_come_back",
    ),
    Mutant(
        "first come, first served",
        *(Engine, "_admit", _last_come_first_served),
        f"{SERVER}/test_engine.py::test_who_came_first_starts_first",
    ),
    Mutant(
        "a cancelled request frees its slot",
        *(Engine, "_forget_those_who_left", lambda *_: None),
        f"{SERVER}/test_queue.py::test_a_cancel_takes_effect_between_two_chunks_of_a_long_prompt",
    ),
    Mutant(
        "half a stop string is not let out",
        *(text, "_overlap", lambda *_: 0),
        f"{UNIT}/test_text.py::test_nothing_of_a_stop_string_is_let_out_before_it_is_known_to_be_none",
    ),
    Mutant(
        "half a character is not let out",
        *(text.TextDecoder, "feed", _half_characters),
        f"{SERVER}/test_generate.py::test_a_stream_never_shows_half_a_character",
    ),
    Mutant(
        "each text of a batch gets its own vector",
        *(Embedder, "embed", _to_the_neighbour),
        f"{SERVER}/test_embedding.py::test_merged_with_others_each_gets_the_vectors_it_gets_alone_in_its_order",
    ),
    Mutant(
        "who shares a beginning gets the text it gets alone",
        *(Slots, "place", _one_more),
        f"{SERVER}/test_engine.py::test_a_running_texts_beginning_serves_another",
    ),
    Mutant(
        "what a slot held before is gone",
        *(Context, "trim", lambda *_: None),
        f"{SERVER}/test_engine.py::test_a_seed_decides_alone_whoever_shares_the_batch",
    ),
    Mutant(
        "a grammar is kept",
        *(sampling.Sampler, "__init__", _without_grammar),
        f"{SERVER}/test_engine.py::test_a_grammar_is_kept_to_the_end",
    ),
)


class Failures:
    """A plugin: what failed in the tests themselves, and not around them."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.count += 1
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                self.words.append(str(getattr(crash, "message", report.longrepr)).splitlines()[0])


def hunt(mutant: Mutant) -> dict[str, Any]:
    failures = Failures()
    said = io.StringIO()
    with mock.patch.object(mutant.owner, mutant.name, mutant.broken), contextlib.redirect_stdout(said):
        pytest.main(["-x", "-q", "--tb=short", "-p", "no:cacheprovider", mutant.test], plugins=[failures])
    if failures.count == 0:
        raise RuntimeError(f"{mutant.test} did not run: {said.getvalue()[-2000:]}")
    return {"promise": mutant.promise, "killed": bool(failures.words), "by": mutant.test, "words": failures.words}


def main() -> None:
    # What is broken is often waited for in vain, and the engine left in its step.
    harness.PATIENCE_SECONDS = 10
    server.ENGINE_STOP_SECONDS = 0.5
    with Path(sys.argv[1]).open("w", buffering=1) as file:
        for mutant in MUTANTS:
            file.write(json.dumps(hunt(mutant)) + "\n")


if __name__ == "__main__":
    main()
