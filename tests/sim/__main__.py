"""Searches scenarios: `python -m tests.sim [--seconds N] [name ...]`."""

import argparse
import sys
from collections.abc import Sequence

from tests.sim.explore import Found, Search
from tests.sim.scenarios import SCENARIOS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios; all when none is named")
    parser.add_argument("--seconds", type=float, default=300, help="for each scenario")
    asked = parser.parse_args(arguments)
    chosen = [s for s in SCENARIOS if not asked.names or s.name in asked.names]
    results: list[Found] = []
    for scenario in chosen:
        found = Search(scenario).run(seconds_max=asked.seconds)
        results.append(found)
        print(found.line(), flush=True)
        if found.story:
            print("\n".join(f"    {line}" for line in found.story), flush=True)
    states, edges = sum(f.states for f in results), sum(f.edges for f in results)
    seconds = sum(f.seconds for f in results)
    wrong = [f for f in results if f.breach or not f.closed]
    verdict = f"{len(wrong)} FAILED" if wrong else "every promise held, the goal is reachable from every state"
    print(f"explorer: {len(results)} scenarios, {states} states, {edges} edges, {seconds:.0f} s: {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
