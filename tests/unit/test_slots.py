"""Where a prompt goes, and what of it is taken over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelbackend_server.slots import LEAST_SHARED_TOKENS, Slot, Slots, Tokens, common

FREE_COPIES = 0
BEGINNING = list(range(100))
LONG = [6] * 600


def made(*slots: tuple[Sequence[int], int, str | None]) -> Slots[str]:
    """(known tokens, how many are evaluated, who holds it) of each slot; used in this order."""
    all_slots: Slots[str] = Slots.make(len(slots), 1000)
    for at, (slot, (tokens, evaluated, holder)) in enumerate(zip(all_slots.all, slots, strict=True)):
        slot.put(tokens, 0)
        slot.evaluated, slot.holder, slot.used_at = evaluated, holder, at - len(slots)
    return all_slots


def prompt(*tokens: int) -> Tokens:
    return np.array([*BEGINNING, *tokens], np.int32)


@pytest.mark.parametrize(
    ("case", "slots", "slot", "source", "reused"),
    [
        ("nothing is known: the slot left alone for longest", [([], 0, None), ([], 0, None)], 0, 0, 0),
        ("a continued text stays where it is", [([5], 1, None), (BEGINNING, 100, None)], 1, 1, 100),
        ("its last token is always evaluated", [([5], 1, None), ([*BEGINNING, 7, 8], 102, None)], 1, 1, 101),
        ("a running text's beginning is copied", [([*BEGINNING, 9], 101, "a"), ([5], 1, None)], 1, 0, 100),
        ("only what is evaluated counts", [(BEGINNING, 40, None), (BEGINNING, 60, None)], 1, 1, 60),
        (
            "a long text is not thrown away for its beginning",
            [(BEGINNING + [9] * 500, 600, None), ([5], 1, None)],
            *(1, 0, 100),
        ),
        ("unless no other slot is free", [(BEGINNING + [9] * 500, 600, None), ([5], 1, "a")], 0, 0, 100),
        ("a first token in common is nothing", [([3], 1, None), ([0, 9], 2, None)], 0, 0, 0),
    ],
)
def test_where_a_prompt_goes(
    case: str, slots: list[tuple[list[int], int, str | None]], slot: int, source: int, reused: int
) -> None:
    place = made(*slots).place(prompt(7, 8), worth_a_copy_tokens=FREE_COPIES)
    assert (place.slot.index, place.source.index, place.reused, place.awaits) == (slot, source, reused, None), case


@pytest.mark.parametrize(
    ("holders", "first"),
    [
        ((None, None, None, None), 0),
        ((None, None, "a", None), 1),
        ((None, None, None, "a"), 2),
        ((None, "a", None, "a"), 2),
        (("a", "a", None, None), 2),
        ((None, "a", "a", None), 0),
    ],
)
def test_busy_slots_stay_side_by_side(holders: tuple[str | None, ...], first: int) -> None:
    """Of those that keep them so alike, the one left alone for longest is taken."""
    slots = made(*(([5], 1, holder) for holder in holders))
    assert slots.place(prompt(7), worth_a_copy_tokens=FREE_COPIES).slot.index == first


@pytest.mark.parametrize(
    ("case", "slots", "heir"),
    [
        ("it goes where it was left alone for longest", [([3], 1, None), ([4], 1, None), (LONG, 600, None)], 0),
        ("little is not worth a copy", [([3], 1, None), ([4], 1, None), (LONG, 511, None)], None),
        ("a first token in common uses nothing", [([3], 1, None), ([4], 1, None), ([0, *LONG], 601, None)], 0),
        ("what is used in place stays", [([3], 1, None), ([4], 1, None), (BEGINNING, 100, None)], None),
        (
            "not where the prompt's beginning comes from",
            [(BEGINNING + [9] * 500, 600, None), ([4], 1, "b"), (LONG, 600, None)],
            None,
        ),
    ],
)
def test_what_a_taken_slot_remembers_replaces_what_is_older(
    case: str, slots: list[tuple[list[int], int, str | None]], heir: int | None
) -> None:
    known = made(*slots, ([0], 1, "a"))
    place = known.place(prompt(7), worth_a_copy_tokens=FREE_COPIES)
    assert place.slot.index == 2, case
    found = None if place.goes_on else known.heir(place.slot, place.source, worth_a_copy_tokens=FREE_COPIES)
    assert (found.index if found is not None else None) == heir, case


def test_the_oldest_of_all_has_no_heir() -> None:
    slots = made((LONG, 600, None), (LONG, 600, None))
    oldest, newer = slots.all
    assert slots.heir(oldest, oldest, worth_a_copy_tokens=FREE_COPIES) is None
    assert slots.heir(newer, newer, worth_a_copy_tokens=FREE_COPIES) is oldest
    assert slots.heir(newer, newer, worth_a_copy_tokens=601) is None, "it costs more than to evaluate them again"


def test_a_copy_that_costs_more_than_it_saves_is_not_made() -> None:
    slots = made((BEGINNING, 100, "a"), ([5], 1, None))
    assert slots.place(prompt(7), worth_a_copy_tokens=101).reused == 0
    assert slots.place(prompt(7), worth_a_copy_tokens=100).reused == 100


def test_a_beginning_that_is_being_evaluated_is_waited_for() -> None:
    slots = made(([*BEGINNING, 1], 30, "a"), ([5], 1, None))
    place = slots.place(prompt(7), worth_a_copy_tokens=FREE_COPIES)
    assert place.awaits is not None
    assert (place.slot.index, place.awaits.length) == (1, 100)
    maker = slots.all[0]
    assert place.awaits.still_coming
    maker.evaluated = 100
    assert not place.awaits.still_coming


def test_the_wait_ends_when_the_maker_is_gone_and_takes_what_there_is() -> None:
    slots = made(([*BEGINNING, 1], 30, "a"), ([5], 1, None))
    place = slots.place(prompt(7), worth_a_copy_tokens=FREE_COPIES)
    assert place.awaits is not None
    slots.release(slots.all[0])
    assert not place.awaits.still_coming
    place.slot.put(prompt(7), 0)
    again = slots.place_again(place.slot, slots.all[0])
    assert (again.source.index, again.reused) == (0, 30)
    slots.all[0].evaluated = LEAST_SHARED_TOKENS - 1
    assert slots.place_again(place.slot, slots.all[0]).reused == 0


def test_nobody_waits_for_one_that_waits() -> None:
    slots = made(([*BEGINNING[:50], 1], 30, "a"), ([*BEGINNING, 7, 9], 0, "b"), ([], 0, None))
    first = slots.place(prompt(7, 8), worth_a_copy_tokens=FREE_COPIES)
    assert first.awaits is not None
    assert first.awaits.source.index == 1
    slots.all[1].awaits = first.awaits
    second = slots.place(prompt(7, 8), worth_a_copy_tokens=FREE_COPIES)
    assert second.awaits is not None
    assert second.awaits.source.index == 0


tokens = st.lists(st.integers(0, 2), max_size=60)


@given(
    st.lists(st.tuples(tokens, st.integers(0, 60), st.sampled_from([None, "a", "b"])), min_size=1, max_size=5),
    st.lists(st.integers(0, 2), min_size=1, max_size=60),
)
def test_what_is_taken_over_is_evaluated_and_the_prompts_own(
    slots: list[tuple[list[int], int, str | None]], wanted: list[int]
) -> None:
    known = made(*((given, min(evaluated, len(given)), holder) for given, evaluated, holder in slots), ([], 0, None))
    place = known.place(np.array(wanted, np.int32), worth_a_copy_tokens=FREE_COPIES)
    assert place.slot.holder is None
    assert place.reused < len(wanted)
    assert place.reused <= place.source.evaluated
    assert place.source.tokens[: place.reused].tolist() == wanted[: place.reused]


@given(tokens, tokens)
def test_the_common_beginning(one: list[int], other: list[int]) -> None:
    length = common(np.array(one, np.int32), np.array(other, np.int32))
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]


def test_a_released_slot_keeps_what_it_has_evaluated_and_is_the_last_to_be_taken() -> None:
    slots = made(([1, 2, 3], 2, "a"), ([], 0, None))
    slot: Slot[str] = slots.all[0]
    slots.release(slot)
    assert (slot.holder, slot.known, slot.evaluated, slot.pending) == (None, 2, 2, 0)
    assert [free.index for free in slots.free] == [1, 0]
