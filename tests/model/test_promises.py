"""The document of the promises names only what exists, and leaves nothing out."""

import re
from pathlib import Path

from modelbackend_operator.invariants import ON_SNAPSHOT, ON_STEP
from tests.model.mutants import MUTANTS as OF_SPECIFICATION
from tests.model.promises import BESIDE, DOCUMENT, PROMISES, document
from tests.sim.mutants import MUTANTS as OF_RULES

ROOT = Path(__file__).parents[2]
TEXT = document()


def test_every_promise_has_its_row() -> None:
    assert {promise.name for promise in PROMISES} == {*ON_SNAPSHOT, *ON_STEP, "Eventually"}


def test_every_rule_that_is_named_is_a_function() -> None:
    missing = [
        rule
        for promise in (*PROMISES, *BESIDE)
        for rule in promise.rules
        if f"\ndef {rule.partition(':')[2]}("
        not in (ROOT / "operator/modelbackend_operator" / rule.partition(":")[0]).read_text()
    ]
    assert missing == []


def test_every_test_that_is_named_exists() -> None:
    sources = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("e2e/**/test_*.py")]
    defined = {name for source in sources for name in re.findall(r"def (test_[a-z0-9_]+)", source.read_text())}
    assert sorted(set(re.findall(r"`(test_\w+)`", TEXT)) - defined) == []


def test_every_mutant_is_told_with_its_promise() -> None:
    assert [mutant.name for mutant in (*OF_RULES, *OF_SPECIFICATION) if mutant.name not in TEXT] == []


def test_the_document_is_not_stale() -> None:
    assert DOCUMENT.read_text() == TEXT, "make docs-diagrams writes it anew"
