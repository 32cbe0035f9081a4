"""The header of a GGUF file, of sound ones, of hostile ones, and of those that have come in part."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelbackend_fetch import gguf_header
from modelbackend_fetch.failures import Failure
from modelbackend_fetch.gguf_header import BadHeaderError, Header, MoreNeededError, read_header
from tests.fetch.file_server import breaks_off, serving
from tests.fetch.harness import failure, fetched, http, left_in
from tests.server.tiny_gguf import CONTEXT_LENGTH, write_tiny_gguf


def header_of(content: bytes, size_bytes: int | None = None) -> Header:
    return read_header(io.BytesIO(content), len(content) if size_bytes is None else size_bytes)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_gguf(path)
    return path.read_bytes()


def test_a_sound_header_tells_what_the_model_is(tiny: bytes) -> None:
    found = header_of(tiny)
    assert (found.architecture, found.trained_context_length) == ("llama", CONTEXT_LENGTH)
    assert len(tiny) * 0.8 < found.least_bytes <= len(tiny)


def test_of_every_beginning_it_is_known_that_more_is_needed(tiny: bytes) -> None:
    whole = header_of(tiny)
    needed = [size for size in range(0, len(tiny), 997) if not _is_whole(tiny[:size], whole)]
    assert needed == list(range(0, needed[-1] + 1, 997))
    assert needed[-1] < len(tiny) // 2


def _is_whole(content: bytes, whole: Header) -> bool:
    try:
        assert header_of(content) == whole
    except MoreNeededError:
        return False
    return True


def number(form: str, value: float) -> bytes:
    return struct.pack(f"<{form}", value)


def text(value: bytes) -> bytes:
    return number("Q", len(value)) + value


BEGIN = b"GGUF" + number("I", 3)
ONE_PAIR = BEGIN + number("Q", 0) + number("Q", 1) + text(b"k")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUG" + bytes(20), "letters GGUF"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), "another byte order"),
        (b"GGUF" + number("I", 1) + bytes(16), "version 1"),
        (BEGIN + number("Q", 2**63) + number("Q", 0), "tensors"),
        (BEGIN + number("Q", 0) + number("Q", 2**63), "key-value pairs"),
        (BEGIN + number("Q", 0) + number("Q", 1) + number("Q", 2**62), "bytes in a string"),
        (ONE_PAIR + number("I", 77), "unknown kind 77"),
        (ONE_PAIR + number("I", 9) + number("I", 4) + number("Q", 2**60), "elements in an array"),
        (ONE_PAIR + (number("I", 9) + number("Q", 1)) * 9, "elements|unknown kind|in an array"),
        (BEGIN + number("Q", 1) + number("Q", 0) + text(b"t") + number("I", 2**31), "dimensions"),
    ],
)
def test_what_cannot_be_is_named_and_never_followed(content: bytes, words: str) -> None:
    with pytest.raises(BadHeaderError, match=words):
        header_of(content)


def test_arrays_in_arrays_end() -> None:
    nested = ONE_PAIR + number("I", 9)
    for _ in range(gguf_header.DEEPEST_ARRAY):
        nested += number("I", 9) + number("Q", 1)
    with pytest.raises(BadHeaderError, match="unknown kind 9"):
        header_of(nested + bytes(100))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_no_bytes_do_more_than_be_refused(data: st.DataObject) -> None:
    content = BEGIN + number("Q", data.draw(st.integers(0, 3))) + number("Q", data.draw(st.integers(0, 3)))
    content += data.draw(st.binary(max_size=200))
    try:
        found = header_of(content)
    except (BadHeaderError, MoreNeededError):
        return
    assert found.least_bytes >= 24


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_a_sound_header_that_was_damaged_does_no_more_either(tiny: bytes, data: st.DataObject) -> None:
    damaged = bytearray(tiny[:20_000])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        header_of(bytes(damaged) + tiny[20_000:])
    except (BadHeaderError, MoreNeededError):
        return


async def test_a_model_that_was_cut_off_at_its_source_is_refused(tiny: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(tiny[: len(tiny) // 2])
    (tmp_path / "n.gguf").write_bytes(tiny[:1000])
    async with serving(tmp_path) as server:
        half = await failure(http(server.path("m.gguf")), tmp_path / "cache" / "m.gguf")
        less = await failure(http(server.path("n.gguf")), tmp_path / "cache" / "n.gguf")
    assert half.code is less.code is Failure.NOT_A_MODEL
    assert "cut off before it came to its source" in half.words
    assert "ends within its header" in less.words


async def test_a_context_that_the_model_was_not_trained_for_is_refused_by_the_fetcher(
    tiny: bytes, tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").write_bytes(tiny)
    async with serving(tmp_path) as server:
        url, target = http(server.path("m.gguf")), tmp_path / "cache" / "m.gguf"
        found = await failure(url, target, context_length=CONTEXT_LENGTH + 1)
        assert found.code is Failure.BAD_CONFIGURATION
        assert str(CONTEXT_LENGTH) in found.words
        await fetched(url, target, context_length=CONTEXT_LENGTH)


async def test_a_large_model_is_refused_by_its_header_long_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelbackend_fetch.download.FIRST_LOOK_BYTES", 4096)
    endless = BEGIN + number("Q", 2**63) + bytes(2**20)
    async with serving(tmp_path) as server:
        server.faults.append(breaks_off(endless, after=8192, silent=True))
        found = await failure(http(server.path("m.gguf")), tmp_path / "cache" / "m.gguf")
    assert found.code is Failure.NOT_A_MODEL
    assert left_in(tmp_path / "cache") == {".lock"}
