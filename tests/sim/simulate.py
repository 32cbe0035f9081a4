"""Seeded runs of the simulation: faults first, then quiet, in which everything must end well.

    python -m tests.sim.simulate --steps 100000 --seed 1

A run that breaks a promise is made shorter by leaving steps out, and printed as a story.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model.ref import Ref
from tests.sim.endings import what_is_wrong
from tests.sim.hands import FAULTS, HEALING, USERS, hands_of
from tests.sim.simulation import Choice, PromiseBroken, Simulation
from tests.sim.world import World
from tests.unit.builders import a_backend

FAULTY_STEPS = 120
UNLUCKY = ("crashes before", "crashes after", "misses the answer", "is answered late")
ENDS = frozenset({"delete", "delete in the foreground", "delete namespace", "strip backend"})
"""Acts after which little else can happen: rare, or most runs would be over before they began."""


@dataclass(frozen=True)
class Setup:
    """What a run begins with."""

    backends: tuple[Backend, ...]
    later: tuple[Backend, ...] = ()
    nodes: tuple[str, ...] = ("node-1", "node-2")
    serves_first: bool = False
    ends_with_deletion: bool = False

    def simulation(self) -> Simulation:
        simulation = Simulation(World(*self.backends, later=self.later, nodes=self.nodes, pool=(30000, 30004)))
        if self.serves_first:
            simulation.settle()
            simulation.story = ["(everything serves)"]
        return simulation


@dataclass(frozen=True)
class Mood:
    """What tends to happen in one run. Runs differ, because with every fault at once nothing ever gets far."""

    hands: frozenset[str]
    hand_rate: float
    lag_rate: float
    fates: tuple[str, ...]

    @classmethod
    def drawn(cls, random: Random) -> "Mood":
        kinds = sorted(USERS | FAULTS)
        hands = {kind for kind in kinds if random.random() < (0.15 if kind in ENDS else 0.35)}
        unlucky = random.choice((0, 1, 1, 3))
        return cls(
            frozenset(hands) | HEALING | {"request"},
            random.choice((0.02, 0.05, 0.1)),
            random.choice((0.0, 0.2, 0.6)),
            ("sees the answer",) * (9 - unlucky) + UNLUCKY * unlucky,
        )


@dataclass(frozen=True)
class Failure:
    seed: str
    setup: Setup
    choices: tuple[Choice, ...]
    breach: str

    def story(self) -> str:
        lines, _ = play(self.setup, self.choices)
        return "\n".join([f"seed {self.seed}, {len(self.choices)} steps:", *lines, f"=> {self.breach}"])


def a_setup(random: Random) -> Setup:
    exposure = random.choice((Exposure.NODE_PORT, Exposure.NODE_PORT, Exposure.HOST_PORT, Exposure.CLUSTER_IP))
    count = random.choice((1, 2, 2, 3))
    shared = random.random() < 0.6
    backends = [
        a_small_backend(
            f"b{n}",
            exposure=exposure,
            model="shared" if shared else f"model-{n}",
            ordinals=random.choice(((0,), (0,), (0, 1))),
            pinned_port=30000 if exposure.claims_port and random.random() < 0.15 else None,
            http=exposure.claims_port and random.random() < 0.3,
            pinned_http_port=30001 if random.random() < 0.1 else None,
        )
        for n in range(1, count + 1)
    ]
    again = a_small_backend(
        "b1-again", ref=Ref("b1", "b1-again", "", "models"), exposure=exposure, model=backends[0].model
    )
    pinned = [b for b in backends if any(b.pin(role) is not None for role in b.roles)]
    backends = [replace(b, ordinals=(0,)) if b in pinned else b for b in backends]
    nodes = random.choice((("node-1",), ("node-1", "node-2")))
    return Setup(tuple(backends), (again,), nodes, random.random() < 0.6, random.random() < 0.5)


def a_small_backend(uid: str, **special: Any) -> Backend:
    return a_backend(**{"ref": Ref(uid, uid, "", "models"), "has_finalizer": False, **special})


# -- one run ----------------------------------------------------------------------------------------------------------


def run(seed: str, coverage: Counter[str]) -> tuple[int, Failure | None]:
    """How many steps it took, and what broke, if anything."""
    random = Random(seed)
    setup, mood = a_setup(random), Mood.drawn(random)
    simulation = setup.simulation()
    choices: list[Choice] = []
    try:
        for _ in range(FAULTY_STEPS):
            choice = choose(simulation, mood, random)
            choices.append(choice)
            coverage[str(choice[0])] += 1
            simulation.take(choice)
        steps = len(choices) + _end(simulation, setup)
    except PromiseBroken as broken:
        return len(choices), Failure(seed, setup, tuple(choices), str(broken))
    return steps, None


def choose(simulation: Simulation, mood: Mood, random: Random) -> Choice:
    world, number = simulation.world, random.randrange(2)
    if simulation.operators[number].intent is not None and random.random() < 0.8:
        return ("act", number, random.choice(mood.fates))
    if random.random() < mood.hand_rate:
        hand = _a_hand(world, mood, random)
        if hand is not None:
            return hand
    if simulation.pending and random.random() < 0.1:
        return (random.choice(("land", "land", "lose")), random.randrange(len(simulation.pending)))
    dice = random.random()
    if dice < 0.04:
        return ("clock", random.choice((1, 2, 5, 10, 16, 31, 61, 400)))
    if dice < 0.5:
        moves = [name for name, _ in world.moves()]
        if moves:
            return ("cluster", random.choice(moves))
    lagging = random.random() < mood.lag_rate
    lags = tuple(random.choice((0, 0, 1, 2, 4, 8)) if lagging else 0 for _ in range(5))
    return ("look", number, random.choice(tuple(world.models)), lags)


def _a_hand(world: World, mood: Mood, random: Random) -> Choice | None:
    """Each kind is as likely as another, however many objects it could be done to."""
    hands = [hand for hand in hands_of(world) if hand.kind in mood.hands]
    if not hands:
        return None
    kind = random.choice(sorted({hand.kind for hand in hands}))
    return ("hand", random.choice([hand.what for hand in hands if hand.kind == kind]))


def _end(simulation: Simulation, setup: Setup) -> int:
    """Phase two; how many steps it took."""
    began = len(simulation.story)
    if setup.ends_with_deletion:
        for uid in list(simulation.world.models):
            simulation.take(("hand", f"delete {uid}"))
    simulation.settle()
    for wrong in what_is_wrong(simulation.world):
        raise PromiseBroken(f"eventually: {wrong}")
    return len(simulation.story) - began


# -- a failing run made short -----------------------------------------------------------------------------------------


def play(setup: Setup, choices: Sequence[Choice]) -> tuple[list[str], str | None]:
    """The story, and the breach, if there is one."""
    simulation = setup.simulation()
    try:
        for choice in choices:
            simulation.take(choice)
        _end(simulation, setup)
    except PromiseBroken as broken:
        return simulation.story, str(broken)
    return simulation.story, None


def shortened(failure: Failure, seconds: float = 20) -> Failure:
    """Leaves out as many steps as it can while the same promise breaks."""
    promise = failure.breach.partition(":")[0]
    until = time.monotonic() + seconds

    def still_fails(choices: Sequence[Choice]) -> bool:
        _, breach = play(failure.setup, choices)
        return breach is not None and breach.startswith(promise)

    choices = list(failure.choices)
    size = max(1, len(choices) // 2)
    while size and time.monotonic() < until:
        start = 0
        while start < len(choices) and time.monotonic() < until:
            fewer = choices[:start] + choices[start + size :]
            if still_fails(fewer):
                choices = fewer
            else:
                start += size
        size = size // 2 if size > 1 else 0
    _, breach = play(failure.setup, choices)
    return replace(failure, choices=tuple(choices), breach=breach or failure.breach)


# -- many runs --------------------------------------------------------------------------------------------------------


def simulate(
    steps: int, seed: str, until: Callable[[], bool] = lambda: False, progress: int = 0
) -> tuple[int, int, Failure | None]:
    """Runs until so many steps were taken: steps, runs, and the first failure."""
    taken, runs, coverage = 0, 0, Counter[str]()
    while taken < steps and not until():
        more, failure = run(f"{seed}/{runs}", coverage)
        taken, runs = taken + more, runs + 1
        if failure is not None:
            return taken, runs, failure
        if progress and taken // progress != (taken - more) // progress:
            print(f"    {taken} steps, {runs} runs", flush=True)
    return taken, runs, None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.simulate", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--run", help="one run, as its failure named it")
    asked = parser.parse_args(arguments)
    began = time.monotonic()
    if asked.run:
        taken, failure = run(asked.run, Counter())
        runs = 1
    else:
        taken, runs, failure = simulate(asked.steps, asked.seed, progress=1_000_000)
    seconds = time.monotonic() - began
    if failure is not None:
        print(shortened(failure).story())
    verdict = "FAILED" if failure else "every promise held"
    print(
        f"simulator: {taken} steps in {runs} runs, seed {asked.seed}, {seconds:.0f} s, "
        f"{taken / max(seconds, 0.001):.0f} steps/s: {verdict}"
    )
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
