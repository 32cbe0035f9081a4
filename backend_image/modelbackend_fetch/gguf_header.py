"""The header of a GGUF file: enough of it to refuse a model before all of it has come.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Read from a file that is still growing and that anybody may
have written: every length is bounded before it is used, and of what is skipped nothing is kept.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"GGUF"
VERSIONS = (2, 3)
LONGEST_HEADER_BYTES = 512 * 2**20
MOST_ENTRIES = 2**20
"""Of key-value pairs, and of tensors."""
MOST_ELEMENTS = 2**26
"""Of an array; the largest vocabularies have less than a million."""
DEEPEST_ARRAY = 4
MOST_DIMENSIONS = 8
DEFAULT_ALIGNMENT = 32

_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_LONGEST_WORD_BYTES = 256
"""Of a string that is kept."""


class BadHeaderError(ValueError):
    """Says what is wrong, for people."""


class MoreNeededError(Exception):
    """So far all is well, and the header goes on."""


@dataclass(frozen=True, slots=True)
class Header:
    architecture: str
    trained_context_length: int | None
    least_bytes: int
    """The file has at least so many: its last tensor begins there."""


class _Reader:
    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self.position = 0

    def skip(self, count: int) -> None:
        self.position += count
        if self.position > LONGEST_HEADER_BYTES:
            raise BadHeaderError(f"its header is longer than {LONGEST_HEADER_BYTES // 2**20} MiB")
        if self.position > self._size_bytes:
            raise MoreNeededError

    def number(self, form: str) -> int | float | bool:
        begin = self.position
        self.skip(struct.calcsize(form))
        self._file.seek(begin)
        found: tuple[int | float | bool] = struct.unpack(form, self._file.read(self.position - begin))
        return found[0]

    def count(self, form: str, most: int, what: str) -> int:
        found = int(self.number(form))
        if found > most:
            raise BadHeaderError(f"it claims to have {found} {what}")
        return found

    def string(self) -> str:
        """Empty for one that is longer than what is looked for."""
        length = self.count("<Q", LONGEST_HEADER_BYTES, "bytes in a string")
        begin = self.position
        self.skip(length)
        if length > _LONGEST_WORD_BYTES:
            return ""
        self._file.seek(begin)
        return self._file.read(length).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> str | float | bool | None:
        """None for an array, which is skipped."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth >= DEEPEST_ARRAY:
            raise BadHeaderError(f"it has a value of the unknown kind {kind}")
        of_kind = self.count("<I", 2**32, "")
        length = self.count("<Q", MOST_ELEMENTS, "elements in an array")
        if of_kind in _NUMBERS:
            self.skip(length * struct.calcsize(_NUMBERS[of_kind]))
            return None
        for _ in range(length):
            self.value(of_kind, depth + 1)
        return None


def read_header(file: BinaryIO, size_bytes: int) -> Header:
    """Of a file of which `size_bytes` have come. Raises BadHeaderError and MoreNeededError."""
    reader = _Reader(file, size_bytes)
    reader.skip(len(MAGIC))
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        raise BadHeaderError("it does not begin with the letters GGUF")
    version = int(reader.number("<I"))
    if version not in VERSIONS:
        raise BadHeaderError(f"it is of version {version}, and only {VERSIONS} are known (or of another byte order)")
    tensors = reader.count("<Q", MOST_ENTRIES, "tensors")
    pairs = reader.count("<Q", MOST_ENTRIES, "key-value pairs")
    facts = {reader.string(): reader.value(reader.count("<I", 2**32, "")) for _ in range(pairs)}
    last_offset = -1
    for _ in range(tensors):
        reader.string()
        reader.skip(8 * reader.count("<I", MOST_DIMENSIONS, "dimensions in a tensor") + 4)
        last_offset = max(last_offset, int(reader.number("<Q")))
    return Header(
        architecture=str(facts.get("general.architecture") or ""),
        trained_context_length=_whole(facts.get(f"{facts.get('general.architecture')}.context_length")),
        least_bytes=_least_bytes(reader.position, last_offset, _whole(facts.get("general.alignment"))),
    )


def _least_bytes(header_bytes: int, last_offset: int, alignment: int | None) -> int:
    if last_offset < 0:
        return header_bytes
    step = alignment or DEFAULT_ALIGNMENT
    return -(-header_bytes // step) * step + last_offset + 1


def _whole(found: object) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None
