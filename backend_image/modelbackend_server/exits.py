"""How the process ends: a code for machines and a line for people.

The codes follow sysexits.h where it has a word for the case, and are outside its range where it has none. The
line also goes to the container's termination log, from where kubelet copies it into the pod's status.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


class ExitCode(enum.IntEnum):
    DRAINED = 0
    BAD_CONFIGURATION = 64
    BAD_MODEL = 65
    MODEL_MISSING = 66
    INTERNAL = 70
    PORT_TAKEN = 75
    HTTP_PORT_TAKEN = 76
    # By the order Abort.
    ABORTED = 80
    # A step of the model did not end, nor could it be ended.
    STUCK = 81


@dataclass(frozen=True, slots=True)
class Exit:
    code: ExitCode
    words: str


class UnservableError(Exception):
    """Raised where serving turns out to be impossible; carries the Exit that says why."""

    def __init__(self, code: ExitCode, words: str) -> None:
        super().__init__(words)
        self.exit = Exit(code, words)


def write_termination_log(path: Path, words: str) -> None:
    """Writes `words` for kubelet, which makes the file. Elsewhere there is none, and none is made."""
    if path.exists():
        path.write_text(words + "\n")
