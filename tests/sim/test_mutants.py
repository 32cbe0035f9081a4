"""That the search can fail: it finds what is broken on purpose, and nothing in the same worlds without that."""

from collections import Counter

import pytest

from modelbackend_operator.invariants import ON_SNAPSHOT, ON_STEP
from tests.sim.explore import Search
from tests.sim.mutants import MUTANTS, Mutant, hunt, is_killed
from tests.sim.scenario import Scenario

QUICK = [mutant for mutant in MUTANTS if mutant.quick]
WORLDS = {mutant.scenario.name: mutant.scenario for mutant in QUICK if mutant.scenario is not None}


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_found(mutant: Mutant) -> None:
    found = hunt(mutant)
    assert is_killed(mutant, found), found.line()


@pytest.mark.parametrize("scenario", WORLDS.values(), ids=list(WORLDS))
def test_where_a_broken_rule_is_found_the_real_ones_keep_every_promise(scenario: Scenario) -> None:
    found = Search(scenario).run()
    assert found.closed, found.line()
    assert not found.breach, "\n".join([found.line(), *found.story])


def test_each_promise_has_two_mutants() -> None:
    of = Counter(mutant.promise for mutant in MUTANTS)
    assert {promise for promise in (*ON_SNAPSHOT, *ON_STEP, "eventually") if of[promise] < 2} == set()
