"""observe -> decide -> act -> trace: how one backend is brought a step further, again and again.

A pass over a key ends when nothing is left to write, when the world must change first, or after so many steps that
other keys deserve a turn. Acts that destroy, release or take something shared are decided a second time, from a live
read; whatever that second look says is what happens.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, assert_never

from modelbackend_operator.actions import AbortServer, Action, DrainServer
from modelbackend_operator.cluster import Cluster, ClusterUnavailable
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Decision, Done, Wait
from modelbackend_operator.deferrals import Deferrals
from modelbackend_operator.events import events_of
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.outcome import Applied, Conflict, Denied, Exists, Gone, Outcome, Unknown
from modelbackend_operator.queue import Result, Retry, Settled, Unfinished
from modelbackend_operator.reasons import Reason
from modelbackend_operator.stopping import ABORTING, FINISHING, POLL_SECONDS

STEPS_PER_PASS = 25
"""More than the longest way from nothing to a running instance."""
STUMBLES_PER_PASS = 3
"""Writes in one pass that met another object than the one decided from, before the key backs off."""

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Who hears of every step, and of every look that finds nothing to write: the trace, the metrics."""

    def step(
        self, observation: Observation, action: Action, outcome: Outcome, decided_at: datetime | None = None, /
    ) -> None: ...

    def settled(self, observation: Observation) -> None: ...


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Controller:
    def __init__(
        self,
        cluster: Cluster,
        *,
        watchers: tuple[Watcher, ...] = (),
        may_act: Callable[[], bool] = lambda: True,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """`may_act` is asked before every act: a process that does not lead any more does nothing."""
        self._cluster = cluster
        self._may_act = may_act
        self._watchers = watchers
        self._deferrals = Deferrals()
        self._now = now

    async def reconcile(self, key: str) -> Result:
        """One pass over one backend, by its uid. An exception from here is a bug."""
        stumbles, done = 0, None
        try:
            for _ in range(STEPS_PER_PASS):
                observation, decision = await self._look(key)
                match decision:
                    case Done() | Wait():
                        return self._settled(observation, decision)
                    case Act(action) if action == done:
                        return Retry(f"{type(action).__name__} was applied and changed nothing")
                    case Act() if not self._may_act():
                        return Retry("another process leads")
                    case Act(action):
                        outcome = await self._act(observation, action)
                    case _:
                        assert_never(decision)
                end = self._end_of_pass(key, action, outcome)
                if end is not None:
                    return end
                if isinstance(outcome, Applied):
                    done = action
                if isinstance(outcome, Applied | Denied) or isinstance(action, DrainServer | AbortServer):
                    continue
                stumbles += 1
                if stumbles == STUMBLES_PER_PASS:
                    return Retry(f"{type(action).__name__}: {type(outcome).__name__}")
        except ClusterUnavailable as error:
            log.warning("the cluster cannot be read: %s", error, extra={"key": key})
            return Retry(str(error))
        return Unfinished()

    def _end_of_pass(self, key: str, action: Action, outcome: Outcome) -> Result | None:
        """What an answer makes of the pass; None: look again at once."""
        match outcome:
            case Applied() | Unknown() if isinstance(action, DrainServer | AbortServer):
                self._deferrals.called(key, action, self._after_call(action), self._now())
            case Applied():
                self._deferrals.done(key, action)
            case Denied(message):
                self._deferrals.refused(key, action, message, self._now())
            case Unknown(message):
                self._deferrals.done(key, action)
                return Retry(message)
            case Conflict() | Gone() | Exists():
                pass
            case _:
                assert_never(outcome)
        return None

    def _after_call(self, action: DrainServer | AbortServer) -> Wait:
        """Asked again in a moment, whatever it answered: no back-off may miss a deadline."""
        again = self._now() + timedelta(seconds=POLL_SECONDS)
        if isinstance(action, DrainServer):
            return Wait(Reason.DRAINING, FINISHING, again)
        return Wait(Reason.TERMINATING, ABORTING, again)

    async def _look(self, key: str) -> tuple[Observation, Decision]:
        observation, decision = await self._decide(key, live=False)
        if isinstance(decision, Act) and decision.action.LIVE:
            return await self._decide(key, live=True)
        return observation, decision

    async def _decide(self, key: str, *, live: bool) -> tuple[Observation, Decision]:
        seen = await self._cluster.snapshot(key, live=live)
        observation = replace(seen, deferred=self._deferrals.of(key))
        return observation, decide(observation, self._now())

    async def _act(self, observation: Observation, action: Action) -> Outcome:
        decided_at = self._now()
        outcome = await self._cluster.apply(action)
        for watcher in self._watchers:
            watcher.step(observation, action, outcome, decided_at)
        if isinstance(outcome, Applied):
            for event in events_of(action, observation):
                await self._cluster.post_event(event)
        return outcome

    def _settled(self, observation: Observation, decision: Wait | Done) -> Settled:
        for watcher in self._watchers:
            watcher.settled(observation)
        if isinstance(decision, Done) or decision.not_after is None:
            return Settled()
        return Settled(max(0.0, (decision.not_after - self._now()).total_seconds()))
