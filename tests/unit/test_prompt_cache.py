"""What is kept of prompts, and what is given up for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelbackend_server.prompt_cache import LEAST_KEPT_TOKENS, PromptCache, State
from modelbackend_server.slots import Tokens

LONG = LEAST_KEPT_TOKENS


def tokens(first: int, count: int = LONG) -> Tokens:
    return np.arange(first, first + count, dtype=np.int32)


def keep(cache: PromptCache, prompt: Tokens, size_bytes: int = 10) -> bool:
    """Whether its state was read."""
    read = []

    def state() -> State:
        read.append(size_bytes)
        return np.zeros(size_bytes, np.uint8)

    cache.keep(prompt, size_bytes, state)
    return bool(read)


def test_a_prompt_finds_what_begins_with_most_of_it() -> None:
    cache = PromptCache(100)
    for first in (0, 1000):
        assert keep(cache, tokens(first))
    kept, length = cache.longest(np.concatenate((tokens(1000)[:40], tokens(5))))
    assert kept is not None
    assert (int(kept.tokens[0]), length) == (1000, 40)
    assert cache.longest(tokens(77_000))[1] == 0
    assert PromptCache(100).longest(tokens(0)) == (None, 0)


def test_the_one_that_was_used_least_recently_goes_first() -> None:
    cache = PromptCache(20)
    assert keep(cache, tokens(0))
    assert keep(cache, tokens(1000))
    oldest, _ = cache.longest(tokens(0))
    assert oldest is not None
    cache.use(oldest)
    assert keep(cache, tokens(2000))
    assert [cache.longest(tokens(first))[1] for first in (0, 1000, 2000)] == [LONG, 0, LONG]


def test_a_longer_text_takes_the_place_of_its_beginning_and_a_beginning_is_not_kept_beside_it() -> None:
    cache = PromptCache(100)
    assert keep(cache, tokens(0, LONG))
    assert keep(cache, tokens(0, LONG + 5))
    assert cache.held_bytes == 10
    assert not keep(cache, tokens(0, LONG + 2))
    assert cache.longest(tokens(0, 500))[1] == LONG + 5


@pytest.mark.parametrize(("count", "size_bytes"), [(LONG - 1, 10), (LONG, 101)], ids=["too short", "too large"])
def test_what_is_not_worth_it_or_cannot_fit_is_not_even_read(count: int, size_bytes: int) -> None:
    cache = PromptCache(100)
    assert not keep(cache, tokens(0, count), size_bytes)
    assert cache.held_bytes == 0


def test_what_is_about_to_be_used_is_spared() -> None:
    cache = PromptCache(20)
    keep(cache, tokens(0), 15)
    wanted, _ = cache.longest(tokens(0))
    cache.keep(tokens(1000), 10, lambda: np.zeros(10, np.uint8), sparing=wanted)
    assert cache.longest(tokens(0))[1] == LONG
    assert cache.longest(tokens(1000))[1] == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(LONG, LONG + 3), st.integers(1, 60))), st.integers(0, 100))
def test_never_is_more_held_than_the_limit(kept: list[tuple[int, int, int]], limit_bytes: int) -> None:
    cache = PromptCache(limit_bytes)
    for first, count, size_bytes in kept:

        def state(size_bytes: int = size_bytes) -> State:
            assert cache.held_bytes + size_bytes <= limit_bytes
            return np.zeros(size_bytes, np.uint8)

        cache.keep(tokens(first * 1000, count), size_bytes, state)
        assert 0 <= cache.held_bytes <= limit_bytes
