"""What the engine makes of works: the same text however it is computed, and nothing computed twice."""

from __future__ import annotations

import json
import random
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelbackend_server import generating, slots, watchdog
from modelbackend_server.exits import ExitCode
from modelbackend_server.generation import Ended, Ending, ScoreWork, Started, Work
from modelbackend_server.json_schema import to_gbnf
from modelbackend_server.llama import Context, Grammar, GrammarError
from modelbackend_server.sampling import SamplingParameters
from modelbackend_server.scoring import split
from tests.server.engine import EngineHarness, Request, engine_of
from tests.server.harness import Gate

BEGINNING = "the time of the new " * 20
PROMPTS = [
    *(BEGINNING + ending for ending in ("and", "of his", "for two", "and more of the first")),
    "the",
    BEGINNING[: len(BEGINNING) // 2] + "who",
    "his time was not on the",
    BEGINNING,
]


def greedy_tokens(engine: EngineHarness, *, at_once: bool) -> list[list[int]]:
    works = [engine.work(prompt, 24) for prompt in PROMPTS]
    if at_once:
        return [request.tokens for request in engine.run(*works)]
    return [engine.run(work)[0].tokens for work in works]


@pytest.fixture(scope="module")
def expected(tiny: Path) -> list[list[int]]:
    """One after the other, each prompt whole and from its first token."""
    with engine_of(tiny, slots=1, batch_tokens=4096, share_prefixes=False) as engine:
        return greedy_tokens(engine, at_once=False)


@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("batch_tokens", [9, 64, 4096])
@pytest.mark.parametrize("share_prefixes", [False, True])
def test_the_greedy_text_is_the_same_with_and_without_batching_sharing_and_chunking(
    tiny: Path, expected: list[list[int]], slots: int, batch_tokens: int, share_prefixes: bool
) -> None:
    with engine_of(tiny, slots=slots, batch_tokens=batch_tokens, share_prefixes=share_prefixes) as engine:
        assert greedy_tokens(engine, at_once=True) == expected
        assert greedy_tokens(engine, at_once=False) == expected
        assert (engine.engine.counters.reused_prompt_tokens > 0) is share_prefixes


def test_a_prompt_that_several_send_at_once_is_evaluated_once(tiny: Path, expected: list[list[int]]) -> None:
    with engine_of(tiny, slots=4, batch_tokens=32) as engine:
        works = [engine.work(prompt, 24) for prompt in PROMPTS[:4]]
        requests = engine.run(*works)
        counters = engine.engine.counters
    assert [request.tokens for request in requests] == expected[:4]
    shared = len(works[0].prompt) - 3
    assert counters.reused_prompt_tokens >= 3 * shared
    assert counters.evaluated_prompt_tokens < 1.5 * shared


def test_a_running_texts_beginning_serves_another(tiny: Path, expected: list[list[int]]) -> None:
    with engine_of(tiny, slots=2, context_length=8192) as engine:
        (long,) = engine.submit(engine.work(PROMPTS[0], 7000))
        engine.until(lambda: len(long.events) > 20)
        (other,) = engine.run(engine.work(PROMPTS[1], 24))
        assert not long.ended.is_set()
        assert engine.engine.counters.reused_prompt_tokens > 100
        long.leave()
    assert other.tokens == expected[1]


def test_what_a_slot_remembers_outlives_those_that_take_it_to_be_beside_a_running_text(
    tiny: Path, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generating, "COPY_BYTES_PER_SECOND", 1e15)  # to evaluate so small a model again costs nothing
    monkeypatch.setattr(slots, "LEAST_KEPT_TOKENS", 100)
    with engine_of(tiny, slots=4, context_length=8192) as engine:
        (long,) = engine.submit(engine.work("his time was not", 7000))
        engine.until(lambda: len(long.events) > 5)
        first = engine.work(PROMPTS[0], 24)
        assert engine.run(first)[0].tokens == expected[0]
        for other in ("who is " * 9, "two of " * 9):
            engine.run(engine.work(other, 24))
        reused = engine.engine.counters.reused_prompt_tokens
        assert engine.run(first)[0].tokens == expected[0]
        assert not long.ended.is_set()
        assert engine.engine.counters.reused_prompt_tokens - reused == len(first.prompt) - 1
        long.leave()


def test_one_that_waits_for_a_prompt_goes_on_when_its_maker_leaves(tiny: Path, expected: list[list[int]]) -> None:
    with engine_of(tiny, slots=2, batch_tokens=8) as engine:
        maker, other = engine.submit(engine.work(PROMPTS[0], 24), engine.work(PROMPTS[1], 24))
        engine.until(lambda: len(other.events) > 0)
        maker.leave()
        assert other.wait().tokens == expected[1]


def test_who_came_first_starts_first(tiny: Path, gate: Gate) -> None:
    with engine_of(tiny, slots=1) as engine:
        gate.close()
        (first,) = engine.submit(engine.work("the", 3))
        engine.until(lambda: engine.started == [first])
        # The engine is in its step and looks at all of these at once.
        others = engine.submit(*(engine.work("the", 3) for _ in range(5)))
        gate.open()
        for request in others:
            request.wait()
    assert engine.started == [first, *others]


def test_a_seed_decides_alone_whoever_shares_the_batch(tiny: Path) -> None:
    sampling = [SamplingParameters(seed=seed, temperature=1.2, top_k=seed % 2 * 40, min_p=0) for seed in range(6)]
    with engine_of(tiny, slots=6) as engine:
        works = [engine.work(f"{'the time ' * seed}of", 30, sampling=each) for seed, each in enumerate(sampling)]
        together = [request.tokens for request in engine.run(*works)]
        alone = [engine.run(work)[0].tokens for work in reversed(works)][::-1]
    assert together == alone
    assert len({tuple(tokens) for tokens in alone}) == len(alone)


def test_a_stop_string_ends_the_text_before_it_wherever_tokens_end(tiny: Path) -> None:
    with engine_of(tiny, slots=4) as engine:
        (whole,) = engine.run(engine.work("the time", 60))
        text = whole.text.decode(errors="ignore")
        stops = {text[start : start + length] for start in range(5, len(text)) for length in (1, 4, 11)}
        # The text also has bytes that are no characters.
        found = sorted(stop for stop in stops if stop.encode() in whole.text)
        assert len(found) > 20
        for stop in found:
            (request,) = engine.run(engine.work("the time", 60, stop=("\0never", stop)))
            cut = whole.text.find(stop.encode())
            assert request.text == whole.text[:cut]
            assert request.ending == Ended(Ending.STOP, stop)


def test_what_only_begins_like_a_stop_string_comes_in_the_end(tiny: Path) -> None:
    with engine_of(tiny) as engine:
        (whole,) = engine.run(engine.work("the time", 30))
        last = whole.text.decode(errors="ignore")[-1]
        (request,) = engine.run(engine.work("the time", 30, stop=(last + "\0",)))
    assert request.text == whole.text
    assert request.ending == Ended(Ending.LENGTH)


def test_logprobs_are_the_models_own_and_the_greedy_token_is_the_first(tiny: Path) -> None:
    with engine_of(tiny) as engine:
        (request,) = engine.run(engine.work("the time", 10, logprobs=5))
        sampling = SamplingParameters(seed=1, repeat_penalty=2, logit_bias=((40, 50.0),))
        (drawn,) = engine.run(engine.work("the time", 1, logprobs=600, sampling=sampling))
    for event in request.made:
        assert event.logprobs is not None
        assert len(event.logprobs.top) == 5
        assert event.logprobs.top[0] == (event.token, event.logprobs.token)
        assert sorted((logprob for _, logprob in event.logprobs.top), reverse=True) == [
            logprob for _, logprob in event.logprobs.top
        ]
    (only,) = drawn.made
    assert only.token == 40
    assert only.logprobs is not None
    assert request.made[0].logprobs is not None
    first = request.made[0].logprobs.top
    assert [token for token, _ in only.logprobs.top[:5]] == [token for token, _ in first]
    assert [logprob for _, logprob in only.logprobs.top[:5]] == pytest.approx(
        [logprob for _, logprob in first], abs=1e-4
    )
    assert sum(np.exp(logprob) for _, logprob in only.logprobs.top) == pytest.approx(1)


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_grammar_is_kept_to_the_end(tiny: Path, temperature: float) -> None:
    with engine_of(tiny, slots=4) as engine:
        for seed in range(4):
            sampling = SamplingParameters(temperature=temperature, seed=seed)
            one, other, free = engine.run(
                engine.work("his", 40, grammar='root ::= "the time" | "of"', sampling=sampling),
                engine.work("her", 40, grammar='root ::= [0-9]{3} "-" [a-c]', sampling=sampling),
                engine.work("all", 40, sampling=sampling),
            )
            assert one.text in {b"the time", b"of"}
            assert re.fullmatch(rb"[0-9]{3}-[a-c]", other.text)
            assert one.ending == other.ending == Ended(Ending.STOP)
            assert free.ending == Ended(Ending.LENGTH)


def test_a_text_that_its_grammar_reads_in_ever_more_ways_fails_alone(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelbackend_server.llama.grammar.ACCEPT_SECONDS_MAX", 0.05)
    with engine_of(tiny, slots=2) as engine:
        vocabulary = engine.model.vocabulary
        letters = [token for token in range(vocabulary.size) if vocabulary.piece(token).strip() == b"a"]
        only_letters = SamplingParameters(temperature=0, logit_bias=tuple((letter, 100.0) for letter in letters))
        ways = 'root ::= " "? s\ns ::= "a" s s s | "a" | "a" s | "a" s s'
        costly, other = engine.run(engine.work("his", 40, grammar=ways, sampling=only_letters), engine.work("her", 40))
        assert costly.ending == Ended(Ending.DECODE_FAILED)
        assert 1 < len(costly.made) < 40
        assert other.ending == Ended(Ending.LENGTH)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'root ::= "a',
        "root ::= other",
        'start ::= "a"',
        'root ::= root "a"',
        'root ::= "a" | b\nb ::= root "x"',
        "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000,
        "root ::= " + "(" * 100 + '"a"' + ")" * 100,
        'root ::= "a"{1,100000}',
        "\n".join(f"a{index} ::= a{index + 1} | a{index + 1}" for index in range(30)) + '\na30 ::= "x"\nroot ::= a0',
        'root ::= "a" ::= "b"',
        "root ::= \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    ],
)
def test_what_is_no_safe_grammar_is_refused_in_words(tiny: Path, text: str) -> None:
    with engine_of(tiny) as engine, pytest.raises(GrammarError, match="grammar"):
        Grammar(engine.model.vocabulary, text)


def test_choices_get_the_same_scores_side_by_side_and_one_by_one(tiny: Path) -> None:
    texts = [" and", " of the time", " was not on the first", " who", " may into some", "'s"]
    with engine_of(tiny, slots=1, batch_tokens=16, context_length=512) as engine:
        prompt = engine.tokens(PROMPTS[0])
        works = split(prompt, [engine.tokens(PROMPTS[0] + text) for text in texts])
        (lone,) = engine.run(works)
        each = [engine.run(ScoreWork(works.prompt, (tail,)))[0].scores[0] for tail in works.tails]
    with engine_of(tiny, slots=4, context_length=512) as engine:
        (side,) = engine.run(works)
        steps_for_all = engine.engine.counters.steps
        generating, again = engine.run(engine.work("the", 50), works)
        assert generating.ending == Ended(Ending.LENGTH)
    assert [len(scores) for scores in lone.scores] == [len(tail) for tail in works.tails]
    assert steps_for_all <= 4
    for one, other in zip(lone.scores, each, strict=True):
        assert other == pytest.approx(one, abs=1e-4)
    for request in (side, again):
        for one, scores in zip(lone.scores, request.scores, strict=True):
            assert scores == pytest.approx(one, abs=1e-4)


def test_scores_are_the_log_probabilities_of_generating_it(tiny: Path) -> None:
    with engine_of(tiny, slots=2) as engine:
        (text,) = engine.run(engine.work("the time", 8, logprobs=0))
        (scored,) = engine.run(ScoreWork(engine.tokens("the time"), (tuple(text.tokens),)))
    known = [event.logprobs.token for event in text.made if event.logprobs is not None]
    assert scored.scores[0] == pytest.approx(known, abs=1e-4)


def mixed_works(engine: EngineHarness, count: int) -> list[Work | ScoreWork]:
    chance = random.Random(7)
    works: list[Work | ScoreWork] = []
    for index in range(count):
        prompt = chance.choice(PROMPTS)
        kind = chance.randrange(5)
        if kind == 0:
            tokens = engine.tokens(prompt)
            works.append(
                ScoreWork(tokens, tuple((chance.randrange(3, 460),) * chance.randrange(1, 4) for _ in range(5)))
            )
        else:
            kinds: dict[int, dict[str, Any]] = {
                1: {"stop": ("e", "zz")},
                2: {"sampling": SamplingParameters(seed=index)},
                3: {"grammar": 'root ::= ("the " | "of ")+ "."', "logprobs": 3},
                4: {},
            }
            works.append(engine.work(prompt, chance.randrange(1, 12), **kinds[kind]))
    return works


def test_after_a_thousand_mixed_works_some_of_them_left_nothing_is_held(tiny: Path) -> None:
    with engine_of(tiny, slots=5, batch_tokens=64, context_length=512) as engine:
        requests = engine.submit(*mixed_works(engine, 1000))
        left = requests[::7]
        for request in left:
            request.leave()
        stayed = [request.wait() for request in requests if request not in left]
        engine.run(engine.work("the", 1))
        work = engine.engine._work
        assert work is not None
        assert not work.busy
        assert work.generations == []
        assert not engine.engine._waiting
        assert not engine.engine._arrivals
    assert all(one_end(request) for request in stayed)


def one_end(request: Request) -> bool:
    """It started once and first, and ended once and last."""
    kinds = [type(event) for event in request.events]
    return kinds.count(Started) == kinds.count(Ended) == 1 and kinds[0] is Started and kinds[-1] is Ended


def test_a_step_that_lasts_too_long_is_aborted_and_the_engine_goes_on(tiny: Path) -> None:
    # The prompt is one step, which takes some hundred milliseconds.
    settings = {"slots": 2, "batch_tokens": 8192, "context_length": 8192, "stuck_seconds": 0.05}
    with engine_of(tiny, **settings) as engine:
        long = Work([5] * 8000, 3, SamplingParameters(temperature=0))
        (stuck,) = engine.run(long)
        assert stuck.ending == Ended(Ending.DECODE_FAILED)
        (after,) = engine.run(engine.work("the", 5))
        assert after.ending == Ended(Ending.LENGTH)
        assert engine.failure is None


def test_a_step_that_ignores_its_abort_ends_the_process_with_its_own_code(tiny: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(watchdog, "ABORT_SECONDS", 0.05)
    with engine_of(tiny, stuck_seconds=0.05) as engine:
        released = threading.Event()
        decode = Context.decode
        monkeypatch.setattr(Context, "decode", lambda *given: released.wait(30) and decode(*given))
        engine.submit(engine.work("the", 5))
        engine.until(lambda: engine.failure is not None)
        released.set()
    assert engine.failure is not None
    assert engine.failure.code is ExitCode.STUCK
    assert "does not let itself be aborted" in engine.failure.words


def test_stopping_cuts_a_long_step_short(tiny: Path) -> None:
    with engine_of(tiny, batch_tokens=8192, context_length=8192) as engine:
        (request,) = engine.submit(Work([5] * 8000, 3, SamplingParameters(temperature=0)))
        engine.until(lambda: len(request.events) > 0)
        engine.engine.stop()
        assert request.wait().ending == Ended(Ending.CUT)
        assert engine.engine.counters.steps == 0


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", None]}}, "required": ["b"]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
    {"anyOf": [{"type": "string", "maxLength": 6}, {"type": "null"}]},
]


def accepted(schema: dict[str, Any], value: Any) -> bool:
    if "properties" in schema:
        names = isinstance(value, dict) and {"b"} <= value.keys() <= {"a", "b"}
        return names and isinstance(value.get("a", 0), int) and value["b"] in ("x", None)
    if "items" in schema:
        return isinstance(value, list) and 2 <= len(value) <= 3 and all(isinstance(item, bool) for item in value)
    # llama.cpp takes any byte for a part of a character, so what was counted as one may be none.
    return value is None or isinstance(value, str)


@pytest.mark.parametrize("schema", SCHEMAS, ids=["object", "array", "union"])
def test_a_whole_text_is_a_value_that_the_schema_accepts(tiny: Path, schema: dict[str, Any]) -> None:
    grammar = to_gbnf(json.dumps(schema))
    with engine_of(tiny, slots=4) as engine:
        sampling = [SamplingParameters(temperature=1.5 * (seed > 0), seed=seed) for seed in range(8)]
        requests = engine.run(*(engine.work("of", 500, grammar=grammar, sampling=each) for each in sampling))
    for request in requests:
        assert request.ending == Ended(Ending.STOP)
        assert accepted(schema, json.loads(request.text.decode(errors="replace")))


def test_a_prompt_whose_slot_was_taken_meanwhile_is_restored_from_host_memory_and_reads_the_same(tiny: Path) -> None:
    prompts = [f"{word} " * 100 for word in ("the", "of", "and")]
    with engine_of(tiny, slots=1, share_prefixes=False) as engine:
        expected = [engine.run(engine.work(prompt, 20))[0].tokens for prompt in prompts * 2]
    with engine_of(tiny, slots=1, prompt_cache_bytes=2**26) as engine:
        found = [engine.run(engine.work(prompt, 20))[0].tokens for prompt in prompts]
        assert engine.engine.counters.reused_prompt_tokens < 3, "only what all of them begin with"
        found += [engine.run(engine.work(prompt, 20))[0].tokens for prompt in prompts]
        assert engine.engine.counters.reused_prompt_tokens > 3 * 99
    assert found == expected
