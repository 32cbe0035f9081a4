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
from dataclasses import dataclass

from .sampling import SamplingParameters


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be generated; checked: 1 <= len(prompt), and prompt and max_tokens fit the context."""

    prompt: list[int]
    max_tokens: int
    sampling: SamplingParameters


class Ending(enum.Enum):
    """Why the engine is done with a generation."""

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


@dataclass(frozen=True, slots=True)
class TokenMade:
    """The bytes of one token: possibly part of a character, and b"" for a token without text."""

    piece: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event of every generation whose caller has not left."""

    ending: Ending


Event = Started | TokenMade | Ended


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

    def __init__(self, work: Work, *, accepted_at: float, deadline: float, request_id: str = "") -> None:
        self.work = work
        self.request_id = request_id
        self.accepted_at = accepted_at
        self.deadline = deadline
        self.phase = Phase.QUEUED
        self.has_token = False
        # What it is if its handler ends without saying anything else.
        self.outcome = Outcome.CANCELLED
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
            case TokenMade():
                self.has_token = True
            case Ended():
                self.phase = Phase.DELIVERING
        self._inbox.append(event)
        self._arrived.set()

    async def take(self) -> list[Event]:
        """All events since the last call, at least one, in order: a slow caller gets longer lists, not a queue."""
        await self._arrived.wait()
        self._arrived.clear()
        events = list(self._inbox)
        self._inbox.clear()
        return events
