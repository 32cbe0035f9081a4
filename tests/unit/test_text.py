"""From bytes to whole characters."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from modelbackend_server.text import TextDecoder


def test_half_a_character_is_held_back_and_counted_with_the_one_that_completes_it() -> None:
    decoder = TextDecoder()
    euro = "€".encode()
    assert decoder.feed([b"5 "]) == ("5 ", 1)
    assert decoder.feed([euro[:1]]) == ("", 0)
    assert decoder.feed([euro[1:2]]) == ("", 0)
    assert decoder.feed([euro[2:], b"!"]) == ("€!", 4)


def test_half_a_character_at_the_end_becomes_the_replacement_character() -> None:
    decoder = TextDecoder()
    assert decoder.feed([b"a", b"\xe2"]) == ("a", 2)
    assert decoder.feed([], final=True) == ("\ufffd", 0)


def test_bytes_that_are_no_text_do_not_stop_what_follows() -> None:
    decoder = TextDecoder()
    assert decoder.feed([b"\xff", b"a"]) == ("\ufffda", 2)


@given(st.text(), st.data())
def test_any_text_comes_out_whole_however_it_was_cut(text: str, data: st.DataObject) -> None:
    encoded = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(encoded)))))
    edges = [0, *cuts, len(encoded)]
    pieces = [encoded[start:stop] for start, stop in itertools.pairwise(edges)]
    decoder = TextDecoder()
    parts = [decoder.feed([piece]) for piece in pieces] + [decoder.feed([], final=True)]
    assert "".join(part for part, _ in parts) == text
    assert sum(count for _, count in parts) <= len(pieces)
    assert all(count >= 1 for part, count in parts[:-1] if part)
