"""What a server tells of itself to Prometheus, and that the documents know all of it."""

from __future__ import annotations

import re
from pathlib import Path

from modelbackend_server.generation import Outcome
from tests.server.harness import running

DOCUMENT = (Path(__file__).parents[2] / "docs/serving-api.md").read_text().split("\n## Metrics")[1]
THE_CLIENT_LIBRARYS_OWN = ("process_", "python_")


async def test_every_metric_of_a_server_is_in_the_document_with_its_kind(tiny: Path) -> None:
    async with running(tiny) as server:
        families = list(server.server.metrics.registry.collect())
    told = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in families
        if not family.name.startswith(THE_CLIENT_LIBRARYS_OWN)
    }
    assert dict(re.findall(r"^\| `([a-z_]+)` \| ([a-z]+) \|", DOCUMENT, re.MULTILINE)) == told
    # Prometheus: base units, and a total's name says so.
    assert all(family.documentation for family in families)
    assert not [name for name in told if name.endswith(("_milliseconds", "_ms", "_percent"))]


def test_every_outcome_is_in_the_document() -> None:
    (row,) = (line for line in DOCUMENT.splitlines() if "`modelbackend_requests_total`" in line)
    assert set(re.findall(r"`([a-z]+)`", row.split("|")[3])) - {"outcome"} == {outcome.value for outcome in Outcome}
