"""Writes that are not tried again at once, so that one which cannot be made holds up nothing else.

The API server refused it, or a server was called and has to be given a moment. Such a write is put aside until a time;
`decide` sees that in the observation, says it where it matters, and goes on with its other rules. What is kept here is
a delay and no more: it is forgotten with the process, and the write is then tried once more.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

from modelbackend_operator.actions import Action
from modelbackend_operator.decision import Wait
from modelbackend_operator.model.deferral import Deferral, Key
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.reasons import Reason

FIRST_SECONDS = 1
MOST_SECONDS = 30
REMEMBERED_SECONDS = 60
"""So long after a refused write could have been tried again, it counts as refused ever since."""


def key_of(action: Action) -> Key:
    """Which write this is, whatever version of its object it was decided from."""
    names = ("pod", "claim", "service", "lease", "budget", "backend")
    target = next(getattr(action, name) for name in names if hasattr(action, name))
    return Key(type(action).__name__, target.ref.uid, _ordinal_of(action))


def _ordinal_of(action: Action) -> int | None:
    """Which instance it is for; None when it is for all of them."""
    for name in ("pod", "claim", "service", "holder"):
        part = getattr(action, name, None)
        if part is not None:
            ordinal: int | None = part.ordinal
            return ordinal
    return getattr(action, "ordinal", None)


def put_aside(observation: Observation, key: Key, now: datetime) -> Wait | None:
    """What this write waits for, if it cannot be made just now. A clock that was set back ends every delay."""
    deferral = observation.deferred.get(key)
    if deferral is None or not deferral.last <= now < deferral.until:
        return None
    return Wait(deferral.reason, deferral.message, deferral.until, key.ordinal)


def refused_since(observation: Observation, uid: str, now: datetime) -> datetime | None:
    """Since when a write to this object has been refused, the longest of them; None while none is."""
    refusals = (
        deferral.since
        for key, deferral in observation.deferred.items()
        if key.uid == uid and deferral.reason == Reason.DENIED and deferral.last <= now
    )
    return min(refusals, default=None)


class Deferrals:
    def __init__(self) -> None:
        self._of: dict[str, dict[Key, Deferral]] = defaultdict(dict)

    def of(self, backend_uid: str) -> Mapping[Key, Deferral]:
        return dict(self._of.get(backend_uid, {}))

    def refused(self, backend_uid: str, action: Action, message: str, now: datetime) -> None:
        """The delay doubles while the answer stays the same."""
        self._forget_old(now)
        before = self._of[backend_uid].get(key_of(action))
        since = before.since if before is not None else now
        seconds = 2 * (before.until - before.last).total_seconds() if before is not None else FIRST_SECONDS
        until = now + timedelta(seconds=min(seconds, MOST_SECONDS))
        said = f"{type(action).__name__} was refused: {message}"
        self._of[backend_uid][key_of(action)] = Deferral(Reason.DENIED, said, since, now, until)

    def called(self, backend_uid: str, action: Action, wait: Wait, now: datetime) -> None:
        """A server was told something, or could not be: meanwhile it is waited for like this."""
        self._forget_old(now)
        until = wait.not_after or now
        self._of[backend_uid][key_of(action)] = Deferral(wait.reason, wait.message, now, now, until)

    def done(self, backend_uid: str, action: Action) -> None:
        """It was applied, or its fate is not known: a refusal counts anew from the next one."""
        self._of.get(backend_uid, {}).pop(key_of(action), None)

    def _forget_old(self, now: datetime) -> None:
        oldest = now - timedelta(seconds=REMEMBERED_SECONDS)
        for uid in tuple(self._of):
            kept = {key: found for key, found in self._of[uid].items() if found.until >= oldest}
            self._of[uid] = kept
            if not kept:
                del self._of[uid]
