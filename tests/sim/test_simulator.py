"""The simulator at the size of a test, and that it can fail. `make sim` takes many more steps."""

import pytest

from tests.sim.mutants import MUTANTS, applied
from tests.sim.simulate import shortened, simulate

NAMES = ("deleted before its address is taken back", "a missing pod object is proof", "the Lease is never given back")


def test_through_faults_every_promise_holds_and_then_all_ends_well() -> None:
    _, _, failure = simulate(4000, "test")
    assert failure is None, shortened(failure).story()


@pytest.mark.parametrize("name", NAMES)
def test_random_steps_find_a_broken_rule_too_and_tell_a_short_story(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with applied(mutant):
        _, _, failure = simulate(60_000, "broken")
        assert failure is not None
        short = shortened(failure, seconds=5)
    assert len(short.choices) <= len(failure.choices)
    assert short.breach
