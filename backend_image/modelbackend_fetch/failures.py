"""How fetching a model can fail: a code for machines, and a sentence that says what to do.

The codes are the process's exit codes. 64 to 66 mean what they mean for the server (sysexits.h); the others are apart
from the server's, because both run in one pod and one table reads them.
"""

from __future__ import annotations

import enum


class Failure(enum.IntEnum):
    BAD_CONFIGURATION = 64
    NOT_A_MODEL = 65
    MISSING = 66
    INTERNAL = 70
    ACCESS_DENIED = 90
    WRONG_CHECKSUM = 91
    NO_SPACE = 92
    UNKNOWN_HOST = 93
    UNTRUSTED_CERTIFICATE = 94
    UNREACHABLE = 95
    STALLED = 96
    UNEXPECTED_ANSWER = 97
    NOT_CACHED = 98
    CACHE_UNUSABLE = 99


PASSING = frozenset({Failure.UNKNOWN_HOST, Failure.UNREACHABLE, Failure.STALLED})
"""What may be over in a moment: tried again, after a pause."""


class FetchError(Exception):
    """`retry_after_seconds` is what the other side asked to be given; it never shortens a pause."""

    def __init__(self, code: Failure, words: str, *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(words)
        self.code = code
        self.words = words
        self.retry_after_seconds = retry_after_seconds
