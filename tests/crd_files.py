"""The CRD files as they lie in the tree."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parents[1] / "crds"
PLURALS = ("modelbackends", "portclaims")


def read_crd(plural: str) -> dict[str, Any]:
    crd = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    assert isinstance(crd, dict)
    return crd


def schema_of(plural: str) -> dict[str, Any]:
    """Its one version's structural schema."""
    (version,) = read_crd(plural)["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def rule_messages(plural: str) -> set[str]:
    """The messages of all its CEL rules."""
    return {rule["message"] for rule in _rules(schema_of(plural))}


def _rules(node: Any) -> Iterator[dict[str, str]]:
    if isinstance(node, dict):
        yield from node.get("x-kubernetes-validations", ())
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _rules(child)
