"""From bytes to whole characters."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from modelbackend_server.text import StopMatcher, TextDecoder


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


def let_out(pieces: list[bytes], stops: list[str]) -> tuple[bytes, str | None]:
    matcher = StopMatcher(stops)
    text = b""
    for piece in pieces:
        out, stop = matcher.feed(piece)
        text += out
        if stop is not None:
            return text, stop
    return text + matcher.flush(), None


@given(
    st.text("ab€", max_size=12),
    st.lists(st.text("ab€", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 40), max_size=8),
)
def test_a_text_ends_before_its_first_stop_string_however_it_is_cut_into_tokens(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    data = text.encode()
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(borders)]
    out, stop = let_out(pieces, stops)
    # A stop string that comes whole in an earlier piece counts, also where a longer one begins before it.
    if stop is None:
        assert out == data
        assert all(each not in text for each in stops)
    else:
        assert data.startswith(out + stop.encode())
        assert all(each.encode() not in out for each in stops)


def test_nothing_of_a_stop_string_is_let_out_before_it_is_known_to_be_none() -> None:
    matcher = StopMatcher(["\n\nUser"])
    assert matcher.feed(b"hello\n") == (b"hello", None)
    assert matcher.feed(b"\nUs") == (b"", None)
    assert matcher.feed(b"e") == (b"", None)
    assert matcher.feed(b" it") == (b"\n\nUse it", None)
    assert matcher.feed(b"\n\nUser:") == (b"", "\n\nUser")
