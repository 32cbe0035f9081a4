"""From the bytes of tokens to text of whole characters."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextDecoder:
    """Holds back the beginning of a character until a later token completes it.

    Byte tokens and byte-level BPE split characters at will; what is not UTF-8 at all becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held_tokens = 0

    def feed(self, pieces: list[bytes], *, final: bool = False) -> tuple[str, int]:
        """The text that is complete now, and the number of tokens behind it: no text, no tokens.

        With `final`, half a character that is left becomes U+FFFD.
        """
        text = self._decoder.decode(b"".join(pieces), final)
        tokens = self._held_tokens + len(pieces)
        self._held_tokens = 0 if text else tokens
        return (text, tokens) if text else ("", 0)


class StopMatcher:
    """Holds back what may be the beginning of a stop string until a later token decides.

    Works on bytes, so a stop string may begin and end in the middle of tokens and its characters may be split.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop.encode() for stop in stops]
        self._held = b""

    def feed(self, piece: bytes) -> tuple[bytes, str | None]:
        """What can be let out now, and the stop string that has come, if one has: nothing from there on is let out."""
        if not self._stops:
            return piece, None
        text = self._held + piece
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, stop = min(found)
            self._held = b""
            return text[:at], stop.decode()
        held = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], None

    def flush(self) -> bytes:
        """What is still held, when no more will come: it was no stop string."""
        held, self._held = self._held, b""
        return held


def _overlap(text: bytes, stop: bytes) -> int:
    """Length of the longest end of text that is a beginning of stop, and not all of it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[len(text) - length :]):
            return length
    return 0
