"""The documents name only what exists."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from kubectl_mb import commands
from kubectl_mb.cli import cli
from modelbackend_operator.metrics import Metrics
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.reasons import Reason
from modelbackend_operator.settings import Settings

__all__ = ["commands"]

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


DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]


def code_in(document: Path) -> str:
    """What stands in back quotes, in fences and in indented lines: words that a reader types."""
    text = document.read_text()
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return "\n".join([*fenced, *re.findall(r"`([^`\n]+)`", text), *re.findall(r"^    (.*)$", text, re.MULTILINE)])


def named(pattern: str) -> dict[str, set[str]]:
    """Each match in the code of the documents, and where it stands."""
    found: dict[str, set[str]] = {}
    for document in DOCUMENTS:
        for name in re.findall(pattern, code_in(document)):
            found.setdefault(name, set()).add(str(document.relative_to(ROOT)))
    return found


def unknown(found: dict[str, set[str]], known: Iterable[str]) -> dict[str, set[str]]:
    """None would mean that the pattern finds nothing any more."""
    assert found
    names = set(known)
    return {name: where for name, where in found.items() if name not in names}


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert unknown(named(r"(?:^|[`\s])make ([a-z][a-z0-9-]*)"), targets) == {}


def test_every_command_of_the_plugin_that_a_document_names_exists() -> None:
    assert unknown(named(r"kubectl mb ([a-z][a-z-]*)"), cli.commands) == {}


def test_every_setting_of_the_operator_that_a_document_names_exists() -> None:
    settings = (name.upper() for name in Settings.model_fields)
    assert unknown(named(r"MODELBACKEND_OPERATOR_([A-Z_]+)"), settings) == {}


def test_every_value_of_the_chart_that_a_document_sets_exists() -> None:
    def paths(value: object, above: str = "") -> Iterator[str]:
        for name, below in value.items() if isinstance(value, dict) else ():
            yield above + name
            yield from paths(below, f"{above}{name}.")

    values = yaml.safe_load((ROOT / "charts/modelbackend-operator/values.yaml").read_text())
    assert unknown(named(r"(?:--set |,)([a-zA-Z]+(?:\.[a-zA-Z]+)+)="), paths(values)) == {}


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
