"""The specification, its table and its promises speak of the same things as the code."""

import re
from pathlib import Path
from typing import get_args

import pytest

from modelbackend_operator.actions import Action
from modelbackend_operator.invariants import ON_SNAPSHOT, ON_STEP
from tests.model import lifecycle
from tests.model.__main__ import actions_declared
from tests.model.mutants import MUTANTS, Mutant
from tests.model.scopes import LIVENESS, SAFETY, SPECIFICATION
from tests.model.tla_trace import LEFT_OUT

README = (Path(__file__).parent / "README.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("| ").split("|")]
    for line in README.splitlines()
    if re.match(r"\| [A-Z]\w+ \|", line)
]
CLASSES = {kind.__name__ for kind in get_args(Action)}


def test_every_action_of_the_rules_is_in_the_table() -> None:
    assert sorted(CLASSES - {row[0] for row in ROWS}) == []


def test_every_write_of_the_specification_is_in_the_table_and_every_row_is_of_one() -> None:
    table = README.partition("Left out")[0]
    named = set(re.findall(r"^\| ([A-Z]\w+) \|", table, re.MULTILINE))
    happenings = set(
        re.findall(r"^(\w+)(?:\([^)]*\))? ==", SPECIFICATION.partition("(* --- the cluster")[2], re.MULTILINE)
    )
    assert named == actions_declared() - happenings


def test_every_write_that_is_left_out_is_told_with_its_reason() -> None:
    told = set(re.findall(r"^\| ([A-Z]\w+) \|", README.partition("Left out")[2], re.MULTILINE))
    assert told == set(LEFT_OUT)


def test_every_mutant_is_in_the_table_and_every_named_one_exists() -> None:
    table = README.partition("Left out")[0]
    cells = re.findall(r"^\| [A-Z]\w+ \|[^|]*\|([^|]*)\|$", table, re.MULTILINE)
    assert sorted(name.strip() for cell in cells for name in cell.split(";") if name.strip()) == sorted(
        mutant.name for mutant in MUTANTS
    )


def test_every_promise_of_the_invariants_is_checked_and_has_two_mutants() -> None:
    assert set(SAFETY) == set(ON_SNAPSHOT) | set(ON_STEP)
    mutated = [mutant.promise for mutant in MUTANTS]
    assert [name for name in (*SAFETY, LIVENESS) if mutated.count(name) < 2] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_undoes_one_rule(mutant: Mutant) -> None:
    assert mutant.specification() != SPECIFICATION


def test_a_person_can_read_the_specification_in_one_sitting() -> None:
    assert len(SPECIFICATION.splitlines()) <= 250


def test_the_lifecycle_diagram_is_what_the_rules_do() -> None:
    assert lifecycle.DOCUMENT.read_text() == lifecycle.document(), "make docs-diagrams writes it anew"
