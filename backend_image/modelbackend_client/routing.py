"""To which instance a call goes, and whether it is sent again: decided without a connection, a clock or a wait.

A call is sent again only where the server itself has said that the model never saw it (`not_started`). An error that
merely looks like that (another program's, or one without the server's own details) ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc

from .errors import CallError

REROUTES_MAX = 4
OWNER_WAIT_SECONDS = 30.0
"""The longest that a call waits for an instance, over all its tries."""
POLL_SECONDS = 0.5
"""Between two looks where the view has not changed and nothing else says when to try again."""
# The instance itself says that it is not, or no longer, the one to ask.
ELSEWHERE = frozenset({"LOADING", "DRAINING", "STOPPED", "BACKEND_MISMATCH", "INSTANCE_MISMATCH"})
BUSY = "QUEUE_FULL"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, and who answers there as far as is known: uids of the ModelBackend and of its pod."""

    address: str
    backend_uid: str | None = None
    pod_uid: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Where a backend is served, as of some moment; two views are equal if they say the same."""

    endpoints: tuple[Endpoint, ...] = ()
    # In words, why there is no endpoint.
    why_none: str = "no instance is ready"


@dataclass(frozen=True, slots=True)
class Wait:
    """Until the view changes, or so many seconds have passed."""

    seconds: float


@dataclass(slots=True)
class Attempts:
    """The tries of one call. Times are seconds of one monotonic clock.

    `deadline` is the caller's, None without one. `owner_wait_seconds` 0 waits for nobody and sends once.
    """

    owner_wait_until: float
    deadline: float | None
    owner_wait_seconds: float = OWNER_WAIT_SECONDS
    reroutes: int = 0
    last_error: CallError | None = None
    # Until when an endpoint is left alone.
    _not_before: dict[Endpoint, float] = field(default_factory=dict)
    _asked: set[Endpoint] = field(default_factory=set)

    @classmethod
    def begin(cls, now: float, *, owner_wait_seconds: float, timeout_seconds: float | None) -> Attempts:
        deadline = None if timeout_seconds is None else now + timeout_seconds
        return cls(now + owner_wait_seconds, deadline, owner_wait_seconds)

    def next(self, view: View, now: float) -> Endpoint | Wait:
        """Whom to ask now. Raises CallError, the last one if there was one, where there is nothing left to wait for."""
        if self.deadline is not None and now >= self.deadline:
            message = "the deadline passed while the call waited for an instance; it was never started"
            raise CallError(grpc.StatusCode.DEADLINE_EXCEEDED, message, reason="DEADLINE_IN_QUEUE", not_started=True)
        free = [endpoint for endpoint in view.endpoints if self._not_before.get(endpoint, now) <= now]
        if free:
            # One that was not asked yet, before one that was.
            return min(free, key=lambda endpoint: (endpoint in self._asked, self._not_before.get(endpoint, 0.0)))
        if now >= self.owner_wait_until:
            raise self._nobody(view)
        moments = [self._not_before[endpoint] for endpoint in view.endpoints]
        until = min([*moments, now + POLL_SECONDS * 10, self.owner_wait_until])
        if self.deadline is not None:
            until = min(until, self.deadline)
        return Wait(max(until - now, 0.001))

    def failed(self, endpoint: Endpoint, error: CallError, now: float) -> None:
        """Takes note of a failed try. Raises the error where the call is not sent again."""
        again = error.not_started and (error.reason in ELSEWHERE or error.reason == BUSY or error.is_no_connection)
        if not again or self.owner_wait_seconds == 0 or self.reroutes == REROUTES_MAX or now >= self.owner_wait_until:
            raise error
        self.reroutes += 1
        self.last_error = error
        self._asked.add(endpoint)
        delay_seconds = error.retry_after_seconds if error.retry_after_seconds is not None else POLL_SECONDS
        self._not_before[endpoint] = now + delay_seconds

    def seconds_left(self, now: float) -> float | None:
        return None if self.deadline is None else max(self.deadline - now, 0.001)

    def _nobody(self, view: View) -> CallError:
        if self.last_error is not None:
            return self.last_error
        message = f"nobody serves it, waited {self.owner_wait_seconds:g} s: {view.why_none}"
        return CallError(grpc.StatusCode.UNAVAILABLE, message, reason="NO_INSTANCE", not_started=True)


def too_many(waiting: int) -> CallError:
    message = f"{waiting} calls of this client wait for an instance already, which is the limit"
    return CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, message, reason="CLIENT_BUSY", not_started=True)
