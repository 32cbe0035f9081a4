"""How the next token is chosen."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelbackend_server.sampling import (
    BLOCK_TOKENS,
    Logits,
    NothingAllowedError,
    Sampler,
    SamplingParameters,
    candidates,
    logprobs,
    most_likely_tokens,
    penalised,
    token_logprobs,
)

# Probabilities 0.5, 0.3, 0.15 and 0.05 for the tokens 2, 0, 3 and 1.
LOGITS = np.log(np.array([0.3, 0.05, 0.5, 0.15], np.float32))
ALL = SamplingParameters(top_k=0, top_p=1, min_p=0, temperature=1)


def probabilities(logits: Logits = LOGITS, **changed: float) -> dict[int, object]:
    values = {name: getattr(ALL, name) for name in ("top_k", "top_p", "min_p", "temperature")} | changed
    tokens, likely = candidates(logits, SamplingParameters(**values))
    return {int(token): pytest.approx(float(p), abs=1e-6) for token, p in zip(tokens, likely, strict=True)}


def test_without_any_cut_the_models_own_probabilities_are_drawn_from() -> None:
    assert probabilities() == {2: 0.5, 0: 0.3, 3: 0.15, 1: 0.05}


def test_top_k_keeps_the_likeliest_and_shares_their_probability() -> None:
    assert probabilities(top_k=2) == {2: 0.625, 0: 0.375}


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    assert probabilities(top_p=0.8) == {2: 0.625, 0: 0.375}
    assert probabilities(top_p=0.81).keys() == {2, 0, 3}
    assert probabilities(top_p=1e-9) == {2: 1.0}


def test_min_p_is_relative_to_the_likeliest() -> None:
    assert probabilities(min_p=0.29).keys() == {2, 0, 3}
    assert probabilities(min_p=0.31).keys() == {2, 0}
    assert probabilities(min_p=1) == {2: 1.0}


def test_temperature_sharpens_or_flattens_after_the_cuts() -> None:
    assert probabilities(temperature=10).keys() == {0, 1, 2, 3}
    assert probabilities(temperature=0.01)[2] == 1.0
    assert probabilities(top_k=2, temperature=0.5) == {2: 25 / 34, 0: 9 / 34}


def test_temperature_0_takes_the_likeliest_whatever_else_is_set() -> None:
    sampler = Sampler(SamplingParameters(temperature=0, top_k=1000, seed=3), [])
    assert [sampler.choose(LOGITS) for _ in range(5)] == [2] * 5


def test_the_same_seed_draws_the_same_tokens() -> None:
    def draw(seed: int) -> list[int]:
        sampler = Sampler(SamplingParameters(top_k=0, top_p=1, min_p=0, temperature=1, seed=seed), [])
        return [sampler.choose(LOGITS) for _ in range(50)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    sampler = Sampler(ALL, [])
    counted = Counter(sampler.choose(LOGITS) for _ in range(20_000))
    for token, likely in ((2, 0.5), (0, 0.3), (3, 0.15), (1, 0.05)):
        assert counted[token] / 20_000 == pytest.approx(likely, abs=0.02)


def test_a_penalty_makes_seen_tokens_less_likely_whatever_their_sign() -> None:
    logits = np.array([4, -4, 2, 0], np.float32)
    assert penalised(logits, np.array([0, 1]), 2).tolist() == [2, -8, 2, 0]
    assert logits.tolist() == [4, -4, 2, 0]


def test_a_penalty_counts_the_prompt_and_what_was_generated_but_only_the_last_64() -> None:
    logits = np.array([4, 3, 2.5], np.float32)
    parameters = SamplingParameters(temperature=0, repeat_penalty=2)
    sampler = Sampler(parameters, [0])
    assert [sampler.choose(logits) for _ in range(3)] == [1, 2, 0]
    assert Sampler(parameters, [0] + [1] * 64).choose(logits) == 0


@pytest.mark.filterwarnings("error")
def test_the_smallest_of_what_is_more_than_0_leaves_numbers_and_a_choice() -> None:
    smallest = float(np.float32(1e-45))
    extreme = SamplingParameters(repeat_penalty=smallest, temperature=smallest, typical_p=smallest, top_p=smallest)
    chosen = {Sampler(extreme, [0, 2], enders=[]).choose(LOGITS - 1) for _ in range(3)}
    assert np.isfinite(penalised(LOGITS + 5, np.array([0, 2]), smallest)).all()
    # What was seen is penalised by almost nothing, which is to be drawn to it.
    assert chosen <= {0, 2}


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=200),
    st.builds(
        SamplingParameters,
        top_k=st.integers(0, 300),
        top_p=st.floats(0, 1, exclude_min=True),
        min_p=st.floats(0, 1),
        temperature=st.floats(0.01, 10),
        seed=st.integers(0, 2**64 - 1),
        repeat_penalty=st.floats(0.1, 10),
    ),
)
def test_some_token_is_always_left_and_probabilities_sum_to_1(values: list[float], given_: SamplingParameters) -> None:
    logits = np.array(values, np.float32)
    tokens, likely = candidates(logits, given_)
    assert logits[tokens].max() == logits.max(), "the likeliest is among them, in whatever order"
    assert likely.sum() == pytest.approx(1)
    assert len(set(tokens.tolist())) == len(tokens)
    assert 0 <= Sampler(given_, [0]).choose(logits) < len(values)


def test_typical_keeps_the_tokens_that_are_about_as_surprising_as_a_token_is() -> None:
    # The entropy is 1.14 nats; the tokens' surprises are 0.69 (2), 1.20 (0), 1.90 (3) and 3.00 (1).
    assert probabilities(typical_p=0.25) == {0: 1.0}
    assert probabilities(typical_p=0.5) == {2: 0.625, 0: 0.375}
    assert probabilities(typical_p=1.0) == probabilities()


@given(st.integers(1, 50 * BLOCK_TOKENS), st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_the_most_likely_tokens_are_those_that_sorting_finds(size: int, count: int, seed: int) -> None:
    logits = np.random.default_rng(seed).permutation(size).astype(np.float32)
    found = most_likely_tokens(logits, count)
    assert sorted(found) == sorted(np.argsort(logits)[max(0, size - count) :])


def chosen(parameters: SamplingParameters, prompt: list[int], times: int = 1) -> list[int]:
    sampler = Sampler(parameters, prompt)
    return [sampler.choose(LOGITS, int(LOGITS.argmax())) for _ in range(times)]


def test_a_bias_and_penalties_turn_a_greedy_choice() -> None:
    assert chosen(SamplingParameters(temperature=0), [2, 2]) == [2]
    assert chosen(SamplingParameters(temperature=0, logit_bias=((1, 5.0),)), []) == [1]
    assert chosen(SamplingParameters(temperature=0, presence_penalty=0.6), [2]) == [0]
    # Log-odds of 2 over 0: 0.51. Once is not enough, twice is.
    assert chosen(SamplingParameters(temperature=0, frequency_penalty=0.4), [2]) == [2]
    assert chosen(SamplingParameters(temperature=0, frequency_penalty=0.4), [2, 2]) == [0]
    assert chosen(SamplingParameters(temperature=0, presence_penalty=0.6), [], times=3) == [2, 0, 2]


class Only:
    """A grammar that allows some tokens, and remembers what it was given."""

    def __init__(self, *allowed: int) -> None:
        self._allowed = allowed
        self.accepted: list[int] = []

    def allows(self, tokens: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.bool_]:
        return np.isin(tokens, self._allowed)

    def accept(self, token: int) -> None:
        assert token in self._allowed, "llama.cpp would end the process"
        self.accepted.append(token)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_a_grammar_forbids_the_choice_the_best_of_the_allowed_is_taken(temperature: float) -> None:
    grammar = Only(1, 3)
    sampler = Sampler(SamplingParameters(temperature=temperature, top_k=1), [], grammar, enders=[3])
    assert [sampler.choose(LOGITS, 2) for _ in range(2)] == [3, 3]
    assert grammar.accepted == []  # 3 ends the text: nothing comes after it
    assert Sampler(SamplingParameters(temperature=temperature), [], Only(1)).choose(LOGITS, 2) == 1


def test_a_token_far_down_is_found_when_it_alone_is_allowed() -> None:
    logits = np.arange(5000, dtype=np.float32)
    assert Sampler(SamplingParameters(temperature=0), [], Only(3)).choose(logits, 4999) == 3
    with pytest.raises(NothingAllowedError):
        Sampler(SamplingParameters(temperature=0), [], Only()).choose(logits, 4999)


def test_log_probabilities_are_the_models_own() -> None:
    found = logprobs(LOGITS + 7, 3, 2)
    assert found.token == pytest.approx(np.log(0.15), abs=1e-6)
    assert [token for token, _ in found.top] == [2, 0]
    assert [logprob for _, logprob in found.top] == pytest.approx(np.log([0.5, 0.3]), abs=1e-6)
    assert logprobs(LOGITS, 0, 0).top == ()
    assert token_logprobs(np.stack([LOGITS, LOGITS + 3]), [0, 1]) == pytest.approx(np.log([0.3, 0.05]), abs=1e-6)
