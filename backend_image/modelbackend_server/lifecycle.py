"""The states of a server, apart from those of its requests. Pure: no clock, no thread, no I/O.

    LOADING ──loaded──▶ SERVING ──drain, terminate──▶ DRAINING ──stopped──▶ STOPPED
       │                   │                             ▲
       ├──drain, terminate─┼─────────────────────────────┘
       └──failed──▶ FAILED ◀── from any state but STOPPED

Draining has no way back: whoever asked for it has withdrawn the address already. `drain` alone ends no
process; `terminate` (SIGTERM) does, once nothing is in flight or its deadline has passed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


class State(enum.Enum):
    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


OPEN_STATES = frozenset({State.LOADING, State.SERVING, State.DRAINING})


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A state and the two deadlines that belong to draining, in seconds of one monotonic clock.

    Every transition that makes no sense in a state returns that state unchanged: signals and calls arrive when
    they like, and none of them is an error.
    """

    state: State = State.LOADING
    drain_deadline: float | None = None
    terminate_deadline: float | None = None
    failure: str = ""

    def loaded(self) -> Lifecycle:
        return replace(self, state=State.SERVING) if self.state is State.LOADING else self

    def failed(self, why: str) -> Lifecycle:
        return replace(self, state=State.FAILED, failure=why) if self.state in OPEN_STATES else self

    def drain(self, deadline: float) -> Lifecycle:
        """The last deadline counts: the caller knows better now than it did before, or is repeating itself."""
        if self.state not in OPEN_STATES:
            return self
        return replace(self, state=State.DRAINING, drain_deadline=deadline)

    def terminate(self, deadline: float) -> Lifecycle:
        """The nearest deadline counts: whoever sends a second signal is out of patience."""
        if self.state not in OPEN_STATES:
            return self
        nearest = deadline if self.terminate_deadline is None else min(deadline, self.terminate_deadline)
        return replace(self, state=State.DRAINING, terminate_deadline=nearest)

    def stopped(self) -> Lifecycle:
        return replace(self, state=State.STOPPED) if self.state is State.DRAINING else self

    @property
    def terminating(self) -> bool:
        return self.terminate_deadline is not None

    @property
    def cut_at(self) -> float | None:
        """When requests still in flight are cut; None while the process is not told to end.

        A Drain that gave less time than SIGTERM does is kept: its caller has promised the port to others.
        """
        if self.terminate_deadline is None:
            return None
        if self.drain_deadline is None:
            return self.terminate_deadline
        return min(self.drain_deadline, self.terminate_deadline)
