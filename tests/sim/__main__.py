"""Searches scenarios: `python -m tests.sim [--quick | --long] [--seconds N] [name ...]`.

Prints what each may do wrong (its bounds), and how far the search came.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim.explore import Found, Search
from tests.sim.scenario import Bounds
from tests.sim.scenarios import LARGER, SCENARIOS

LONG_STATES_MAX = 5_000_000
"""About as many as 16 GiB hold, for two at once."""


def searched(number: int, *, larger: bool, seconds: float) -> Found:
    """In a process of its own: a scenario is found by its number."""
    if not larger:
        return Search(SCENARIOS[number]).run(seconds_max=seconds)
    return Search(LARGER[number]).run(states_max=LONG_STATES_MAX, seconds_max=seconds)


def told(bounds: Bounds) -> str:
    hands = [f"{count} {kinds.replace('|', ' or ')}" for kinds, count in bounds.hands]
    others = (("late writes", bounds.late), ("old caches", bounds.stale), ("pauses", bounds.pauses))
    return ", ".join([*hands, *(f"{count} {what}" for what, count in others if count)]) or "nothing goes wrong"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios; all when none is named")
    parser.add_argument("--quick", action="store_true", help="those that every run of the tests searches")
    parser.add_argument("--long", action="store_true", help="with larger bounds; one that does not close is no failure")
    parser.add_argument("--seconds", type=float, default=math.inf, help="at most, for each scenario")
    asked = parser.parse_args(arguments)
    scenarios = LARGER if asked.long else SCENARIOS
    chosen = [
        number
        for number, scenario in enumerate(scenarios)
        if (not asked.names or scenario.name in asked.names) and (scenario.quick or not asked.quick)
    ]
    chosen.sort(key=lambda number: scenarios[number].quick)  # the long ones first, so that all cores end together
    began, results = time.monotonic(), []
    search = partial(searched, larger=asked.long, seconds=asked.seconds)
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        for number, found in zip(chosen, processes.map(search, chosen), strict=True):
            results.append(found)
            print(f"{found.line()}\n    ({told(scenarios[number].bounds)})", flush=True)
            if found.story:
                print("\n".join(f"    {line}" for line in [*found.story, f"=> {found.breach}"]), flush=True)
    states, edges = sum(f.states for f in results), sum(f.edges for f in results)
    seconds = time.monotonic() - began
    wrong = [f for f in results if f.breach or not (f.closed or asked.long)]
    goal = "" if asked.long else ", and the goal is reachable from every state"
    verdict = f"{len(wrong)} FAILED" if wrong else f"every promise held{goal}"
    closed = sum(f.closed for f in results)
    print(
        f"explorer: {closed} of {len(results)} scenarios closed, {states} states, {edges} edges, {seconds:.0f} s, "
        f"{sum(f.cpu_seconds for f in results):.0f} s of CPU: {verdict}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
