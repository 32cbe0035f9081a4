"""Search the specification for counter-examples, and prove that each promise's check can fail.

python3 -m tests.model            every scope and every mutant (ten minutes on two cores)
python3 -m tests.model quick      the scopes of every test run, and the mutants
"""

import re
import sys
import time

from images.steps import StepError
from modelbackend_operator.model.backend import Exposure
from tests.model.check_trace import replay, traces_of
from tests.model.mutants import MUTANTS
from tests.model.scopes import FULL, PROMISES, QUICK, SPECIFICATION
from tests.model.tla_trace import RefusedError
from tests.model.tlc import Result, check
from tests.model.traced_simulation import simulated

RUNS = 3
"""Of the simulator, of each exposure, replayed when nobody is in a hurry."""
COUNTED = re.compile(r"^<(\w+) line (\d+), .*?(?:\((\d+) \d+ \d+ \d+\))?>: [\d,]+:([\d,]+)$", re.MULTILINE)
EVALUATED = re.compile(r"^ *\|*line (\d+), col (\d+) to .* of module ModelBackend: [1-9]", re.MULTILINE)


def actions_taken(result: Result) -> set[str]:
    """Names of the specification's actions that some step of the search was."""
    lines = SPECIFICATION.splitlines()
    taken = set()
    for name, at, called_at, count in COUNTED.findall(result.output):
        line = int(called_at or at) if name == "Write" else int(at)
        named = next(found for text in reversed(lines[:line]) if (found := re.match(r"(\w+)(?:\(.*?\))? ==", text)))
        if count != "0":
            taken.add(named[1])
    return taken | _taken_in_groups(result)


def _taken_in_groups(result: Result) -> set[str]:
    """Of actions that TLC counts together: those whose effect was computed, which is after their rule held."""
    computed = {(int(line), int(column)) for line, column in EVALUATED.findall(result.output)}
    taken = set()
    for body in re.finditer(r"^(\w+)\([^)]*\) == Write\(.*?(?=^\S|\Z)", SPECIFICATION, re.MULTILINE | re.DOTALL):
        effect = body.start() + body[0].rfind("[api EXCEPT")
        before = SPECIFICATION[:effect]
        if (before.count("\n") + 1, effect - before.rfind("\n")) in computed:
            taken.add(body[1])
    return taken


def actions_declared() -> set[str]:
    """Names of everything that is an action of the specification: what may be written, and what may happen."""
    bodies = re.split(r"^(?=\w+(?:\([^)]*\))? ==)", SPECIFICATION, flags=re.MULTILINE)
    steps = [body for body in bodies if re.search(r"==.*?\b(Write|Happens|Fault|Becomes)\(", body, re.DOTALL)]
    return {re.split(r"\W", body, maxsplit=1)[0] for body in steps} - {"Write", "Happens", "Fault"}


def search(quick: bool) -> tuple[list[str], set[str]]:
    """Check every scope; answers with failures and the actions taken."""
    failures, taken, states = [], set[str](), 0
    for scope in QUICK if quick else FULL:
        options = ("-deadlock", "-coverage", "9")
        result = check(
            {"ModelBackend": SPECIFICATION, "Promises": PROMISES}, "Promises", scope.configuration(), *options
        )
        taken |= actions_taken(result)
        states += result.distinct_states
        verdict = "holds" if result.completed else f"BROKEN: {result.broken or 'TLC failed'}"
        size = f"{result.distinct_states:>9,} states, depth {result.depth:>2}, {result.seconds:>4.0f} s"
        print(f"    {size}  {scope.name}: {verdict}", flush=True)
        if not result.completed:
            failures.append(f"{scope.name}: {result.broken}\n{result.output[-6000:]}")
    print(f"    {states:,} states in all")
    return failures, taken


def kill_mutants() -> list[str]:
    """Each mutant must break just its promise; answers with those that live."""
    failures = []
    for mutant in MUTANTS:
        scope = mutant.scope.only(mutant.promise)
        modules = {"ModelBackend": mutant.specification(), "Promises": PROMISES}
        result = check(modules, "Promises", scope.configuration(), "-deadlock")
        killed = result.broken == mutant.promise
        steps = len(re.findall(r"^State \d+:", result.output, re.MULTILINE))
        verdict = f"killed in {steps} steps" if killed else "LIVES"
        print(f"    {mutant.promise:<22}  {mutant.name:<55}  {verdict}", flush=True)
        if not killed:
            failures.append(f"mutant `{mutant.name}` lives:\n{result.output[-3000:]}")
    return failures


def replay_runs() -> list[str]:
    """Runs of the simulator must be behaviours of the specification; answers with one that is none."""
    runs = [(exposure, str(seed)) for exposure in Exposure for seed in range(RUNS)]
    try:
        taken = replay([trace for exposure, seed in runs for trace in traces_of(simulated(seed, exposure))])
    except RefusedError as refused:
        return [str(refused)]
    print(f"    {len(runs)} runs of the simulator, {taken.total()} writes of {len(taken)} kinds: followed", flush=True)
    return []


def main() -> None:
    quick = sys.argv[1:] == ["quick"]
    started = time.monotonic()
    try:
        failures, taken = search(quick)
        failures += kill_mutants()
        failures += [] if quick else replay_runs()
    except StepError as failure:
        sys.exit(str(failure))
    missing = set[str]() if quick else actions_declared() - taken
    if missing:
        failures.append(f"actions that no step was: {', '.join(sorted(missing))}")
    for told in failures:
        print(told, file=sys.stderr)
    verdict, seconds = "FAILED" if failures else "passed", time.monotonic() - started
    print(f"spec: {verdict}; {len(taken)} actions taken, {len(MUTANTS)} mutants, {seconds:.0f} s")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
