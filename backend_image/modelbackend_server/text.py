"""From the bytes of tokens to text of whole characters."""

from __future__ import annotations

import codecs


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
