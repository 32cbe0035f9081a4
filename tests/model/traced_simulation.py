"""Runs of the simulator that write the operator's own trace: two operators, people, lost machines and late writes.

Each look is of that moment; what comes between it and its write is the world's. So a write is told twice: when it was
decided, as one in flight, and when it reached the API server, with what came of it there.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from modelbackend_operator.actions import Action
from modelbackend_operator.model.backend import Exposure
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.outcome import Applied, Outcome, Unknown
from modelbackend_operator.trace import Trace
from tests.model.traced_walk import Told
from tests.sim.hands import HEALING
from tests.sim.simulate import Mood, Setup, a_small_backend, choose
from tests.sim.simulation import Operator, Simulation
from tests.sim.world import World

KNOWN = frozenset(
    {"delete", "suspend", "resume", "evict", "force", "tear out pod", "strip pod", "crash", "kubelet stops"}
    | {"machine dies", "delete claim", "delete Lease", "delete Service", "request"}
)
"""What people and machines may do of which the specification knows."""


@dataclass
class TracedSimulation(Simulation):
    lines: list[dict[str, Any]] = field(default_factory=list)

    def _look(self, operator: Operator, uid: str, lags: tuple[int, ...]) -> None:
        super()._look(operator, uid, (0,) * len(lags))
        if operator.intent is not None:
            self._tell(*operator.intent, Unknown("it is under way"))

    def _write(self, look: Observation, action: Action, who: str) -> Outcome:
        current = self.world.observe(look.backend_uid)
        number = len(self.lines)
        self._tell(current, action, Applied())
        outcome = super()._write(look, action, who)
        landing = "Landed" if isinstance(outcome, Applied) else "Void"
        came = {"landing": landing} if who else {"outcome": type(outcome).__name__}
        self.lines[number] |= came
        return outcome

    def finished(self) -> list[dict[str, Any]]:
        """The whole trace, once everybody has come to rest, numbered."""
        for uid in self.world.models:
            told: list[dict[str, Any]] = []
            Trace(Told(told), now=lambda: self.world.now).tell_settled(self.world.observe(uid))
            self.lines += told
        return [{**line, "seq": number} for number, line in enumerate(self.lines, 1)]

    def _tell(self, look: Observation, action: Action, outcome: Outcome) -> None:
        Trace(Told(self.lines), now=lambda: self.world.now).step(look, action, outcome)


def simulated(seed: str, exposure: Exposure, *, steps: int = 80) -> list[dict[str, Any]]:
    """The trace of one run: two backends of one model, faults, then quiet."""
    random = Random(f"traced/{seed}")
    backends = tuple(a_small_backend(uid, exposure=exposure, model="shared") for uid in ("b1", "b2"))
    setup = Setup(backends, nodes=("node-1", "node-2"))
    simulation = TracedSimulation(World(*setup.backends, nodes=setup.nodes, pool=(30000, 30002)))
    mood = replace(Mood.drawn(random), hands=KNOWN | HEALING, hand_rate=0.06)
    for _ in range(steps):
        simulation.take(choose(simulation, mood, random))
    simulation.settle()
    return simulation.finished()
