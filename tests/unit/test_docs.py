"""The documents name only what exists."""

import ast
import inspect
import re
from pathlib import Path

from modelbackend_operator.metrics import Metrics
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.reasons import Reason

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_scenarios_name_exists() -> None:
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", (ROOT / "docs/scenarios.md").read_text()))
    sources = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("e2e/**/test_*.py")]
    defined = {name for source in sources for name in re.findall(r"def (test_[a-z0-9_]+)", source.read_text())}
    assert len(named) > 50
    assert sorted(named - defined) == []


def test_every_file_that_a_document_links_to_exists() -> None:
    broken = [
        f"{document.relative_to(ROOT)} -> {target}"
        for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text())
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert broken == []


def test_every_direct_dependency_has_its_reason() -> None:
    reasons = (ROOT / "docs/dependencies.md").read_text()
    declared = re.findall(r'^    "([a-z][a-z0-9-]*)[=<>"]', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    wanted = {name for name in declared if not name.startswith(("types-", "modelbackend"))}
    assert len(wanted) > 15
    assert sorted(name for name in wanted if name not in reasons) == []


# -- operations.md is complete, and names nothing else ---------------------------------------------------------

OPERATIONS = (ROOT / "docs/operations.md").read_text()


def section(heading: str) -> str:
    """From this heading to the next one of its level."""
    return OPERATIONS.split(f"\n## {heading}")[1].split("\n## ")[0]


def first_cells(text: str) -> set[str]:
    """The names in the first column of its tables."""
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in rows for name in re.findall(r"`([A-Za-z_]+)`", cell)}


def events_in_code() -> set[str]:
    """Their reasons stand beside their type; those that are a condition's too are explained with that."""
    tree = ast.parse((ROOT / "operator/modelbackend_operator/events.py").read_text())
    tuples = (node.elts for node in ast.walk(tree) if isinstance(node, ast.Tuple) and len(node.elts) > 1)
    reasons = (reason for kind, reason, *_ in tuples if isinstance(kind, ast.Attribute))
    words = (part for reason in reasons for part in ast.walk(reason) if isinstance(part, ast.Constant))
    return {word.value for word in words if isinstance(word.value, str) and word.value[:1].isupper()}


def metrics_in_code() -> set[str]:
    metrics, zero = Metrics(), (lambda: 0)
    gauges = inspect.signature(metrics.watch).parameters
    metrics.watch(**{name: dict if name in ("claims", "ports_withheld", "stalled") else zero for name in gauges})  # type: ignore[arg-type]
    families = metrics.registry.collect()
    names = (family.name + ("_total" if family.type == "counter" else "") for family in families)
    return {name.removeprefix("modelbackend_operator_") for name in names}


def test_operations_explains_every_reason_of_a_condition() -> None:
    assert first_cells(section("Reasons in conditions")) == {reason.value for reason in Reason}


def test_operations_explains_every_reason_of_a_stop() -> None:
    assert first_cells(section("Why an instance is being stopped")) == {reason.value for reason in StopReason}


def test_operations_explains_every_event() -> None:
    assert len(events_in_code()) > 10
    assert first_cells(section("Events")) == events_in_code()


def test_operations_explains_every_metric() -> None:
    assert first_cells(section("Metrics")) == metrics_in_code()
