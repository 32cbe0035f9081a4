"""Alerts and dashboards name what exists: metrics, labels of reasons, places in the runbook."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml

from e2e.helm.chart import CHART, ROOT, Object, objects, render
from modelbackend_operator.metrics import Metrics
from modelbackend_server.metrics import Metrics as ServerMetrics

NAME = re.compile(r"\b((?:modelbackend|gen_ai)_[a-z_]+)\b")
SUFFIXES = ("_bucket", "_sum", "_count", "_total")
DASHBOARDS = sorted((CHART / "files/dashboards").glob("*.json"))
ALERTS = yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"][0]["rules"]


def operator_metrics() -> set[str]:
    metrics = Metrics()
    by_reason = ("claims", "ports_withheld", "stalled")
    metrics.watch(**{n: dict if n in by_reason else (lambda: 0) for n in inspect.signature(metrics.watch).parameters})  # type: ignore[arg-type]
    return {family.name for family in metrics.registry.collect()}


def server_metrics() -> set[str]:
    """Those of the class, and the gauges that other parts of the server add by name."""
    added = "".join(path.read_text() for path in (ROOT / "backend_image/modelbackend_server").glob("*.py"))
    names = set(re.findall(r'\b(?:gauge|count)\(\s*"([a-z_]+)"', added))
    return names | {family.name for family in ServerMetrics().registry.collect()}


def unknown(expression: str) -> list[str]:
    known = operator_metrics() | server_metrics()
    names = NAME.findall(expression)
    assert names, expression
    return [
        n for n in names if n not in known and not any(n.removesuffix(s) in known for s in SUFFIXES if n.endswith(s))
    ]


def expressions(dashboard: Object) -> Iterator[str]:
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_shows_metrics_that_exist(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    found = list(expressions(dashboard))
    assert len(found) > 5
    assert [name for expression in found for name in unknown(expression)] == []
    assert len({panel["title"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_a_metric_that_does_not_exist_is_noticed() -> None:
    assert unknown("sum(modelbackend_operator_nothing_total) / modelbackend_requests_total") == [
        "modelbackend_operator_nothing_total"
    ]


def test_alerts_ask_for_metrics_that_exist() -> None:
    assert [name for alert in ALERTS for name in unknown(alert["expr"])] == []


def test_every_expression_of_alerts_and_dashboards_is_one_of_prometheus() -> None:
    asked = [alert["expr"] for alert in ALERTS]
    asked += [found for path in DASHBOARDS for found in expressions(json.loads(path.read_text()))]
    for expression in asked:
        promql_parser.parse(expression.replace("$__rate_interval", "5m"))  # which Grafana fills in


def test_every_alert_has_its_place_in_the_runbook_and_the_other_way_round() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    headings = set(re.findall(r"^### (ModelBackend\w+)$", text, re.MULTILINE))
    assert headings == {alert["alert"] for alert in ALERTS}
    for alert in ALERTS:
        assert alert["annotations"]["runbook"] == f"docs/operations.md#{alert['alert'].lower()}"


def test_alerts_and_dashboards_come_out_of_the_chart_as_they_were_written() -> None:
    found = objects(render({"monitoring": {"rules": True, "dashboards": True}}))
    (rule,) = (one for one in found if one["kind"] == "PrometheusRule")
    assert rule["spec"]["groups"][0]["rules"] == ALERTS
    (boards,) = (one for one in found if one["metadata"]["name"].endswith("-dashboards"))
    assert {name: json.loads(text) for name, text in boards["data"].items()} == {
        path.name: json.loads(path.read_text()) for path in DASHBOARDS
    }
