"""One request on its way through the server.

Two threads hold the same Generation: the event loop, where the caller is, and the engine, where the model is.
They share one decision, made under a lock: whether the request started or its caller left before that. Whoever
is told "not started" can rely on it.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from .sampling import Logprobs, SamplingParameters

if TYPE_CHECKING:
    from .llama import Grammar


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be generated; checked: 1 <= len(prompt), and prompt and max_tokens fit the context.

    `stop` are strings, none of them empty, that end the text and do not appear in it. `logprobs` asks for the
    log-probability of each token and of so many of the most likely ones. A grammar is for this work alone.
    """

    prompt: Sequence[int]
    max_tokens: int
    sampling: SamplingParameters
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    grammar: Grammar | None = None

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt)


@dataclass(frozen=True, slots=True)
class ScoreWork:
    """How likely each tail is after one prefix; checked: none is empty, and prefix and longest tail fit the context.

    `scoring.split` makes it from texts.
    """

    prompt: Sequence[int]
    tails: tuple[tuple[int, ...], ...]

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt) + sum(len(tail) for tail in self.tails)


@dataclass(frozen=True, slots=True)
class EmbedWork:
    """Texts to be turned into vectors; checked: none is empty, and each fits the context."""

    texts: tuple[Sequence[int], ...]
    # To length 1, so that the product of two is their cosine. Not for scores of a reranker.
    normalise: bool = True

    @property
    def prompt_tokens(self) -> int:
        return sum(len(text) for text in self.texts)


AnyWork = Work | ScoreWork | EmbedWork


class Ending(enum.Enum):
    """Why the engine is done with a generation."""

    # The model ended its text, or a stop string came, or scores or vectors are complete.
    STOP = "stop"
    LENGTH = "length"
    # The server stops: running generations are cut, waiting ones never start.
    CUT = "cut"
    NEVER_STARTED = "never_started"
    DECODE_FAILED = "decode_failed"
    # By an order to the server that named the request.
    ORDERED = "ordered"


@dataclass(frozen=True, slots=True)
class Started:
    """It has a slot."""


class TokenMade(NamedTuple):
    """A token, and the bytes of the text that it lets out: possibly part of a character, possibly nothing (a token
    without text, or the beginning of what may be a stop string), possibly more than its own."""

    piece: bytes
    token: int = -1
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """The log-probability of each token of each tail, in the order of the work."""

    logprobs: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of some of the work's texts: those from index `first` on, a row each (float32). Come in order."""

    first: int
    vectors: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event of every generation whose caller has not left. `stop` is the stop string that came, if one
    did."""

    ending: Ending
    stop: str | None = None


Event = Started | TokenMade | Scored | Embedded | Ended


class Phase(enum.Enum):
    QUEUED = "queued"
    RUNNING = "running"
    # The model is done with it, its slot is free; the caller has not got everything yet.
    DELIVERING = "delivering"


class Outcome(enum.Enum):
    """How an accepted request ended, seen from its caller."""

    STOP = "stop"
    LENGTH = "length"
    # By the caller, or because its connection went.
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    # Its caller took nothing of the answer for too long.
    STALLED = "stalled"
    # By the end of the process.
    CUT = "cut"
    FAILED = "failed"


class Generation:
    """Times are seconds of time.monotonic()."""

    def __init__(self, work: AnyWork, *, accepted_at: float, deadline: float, request_id: str = "") -> None:
        self.work = work
        self.request_id = request_id
        self.accepted_at = accepted_at
        self.deadline = deadline
        self.phase = Phase.QUEUED
        self.started_at: float | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None
        self.made = 0
        # What it is if its handler ends without saying anything else.
        self.outcome = Outcome.CANCELLED
        # Set where the answer is given whole: nobody is woken for a part of it.
        self.told_at_its_end = False
        self._inbox: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._lock = threading.Lock()
        self._started = False
        self._left = False

    # ---- the engine's side

    def start(self, now: float) -> bool:
        """True once, if the caller still waits and its deadline has not passed: from here on it has started."""
        with self._lock:
            if self._left or now >= self.deadline:
                return False
            self._started = True
            return True

    @property
    def left(self) -> bool:
        """The caller is gone. A state rather than a message: the engine looks at it before every step."""
        return self._left

    # ---- the event loop's side

    def leave(self) -> bool:
        """Gives the request up. True if it never started, and now never will."""
        with self._lock:
            self._left = True
            return not self._started

    def put(self, event: Event) -> None:
        if self.phase is Phase.DELIVERING:
            return  # it has ended; what the engine made of it meanwhile is for nobody
        match event:
            case Started():
                self.phase = Phase.RUNNING
            case Ended():
                self.phase = Phase.DELIVERING
        self._inbox.append(event)
        if not self.told_at_its_end or isinstance(event, Ended):
            self._arrived.set()

    async def take(self) -> list[Event]:
        """All events since the last call, at least one, in order: a slow caller gets longer lists, not a queue."""
        await self._arrived.wait()
        self._arrived.clear()
        events = list(self._inbox)
        self._inbox.clear()
        return events
