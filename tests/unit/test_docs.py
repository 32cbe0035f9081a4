"""The documents name only what exists."""

import re
from pathlib import Path

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
