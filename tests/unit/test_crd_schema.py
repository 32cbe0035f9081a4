"""The CRDs and the Python models of them say the same: neither side may drift.

Compared are fields, types, defaults, enumerations, numeric bounds, and what is required. Sizes, and how a string must
look, are the CRD's alone: Python reads what the API server let through. Parts of core types that are handed to the pod
as they are (`JsonObject`) have no fields on the Python side, so the comparison ends there.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelbackend_operator.api import ModelBackendStatus, Part, PortClaimSpec, PortClaimStatus
from modelbackend_operator.claim_patches import HISTORY_LENGTH
from modelbackend_operator.spec import ModelBackendSpec
from tests.crd_files import schema_of
from tests.structural_schema import Schema, defaulted, faults, values

PAIRS: dict[str, tuple[Schema, type[Part]]] = {
    "ModelBackend spec": (schema_of("modelbackends")["properties"]["spec"], ModelBackendSpec),
    "ModelBackend status": (schema_of("modelbackends")["properties"]["status"], ModelBackendStatus),
    "PortClaim spec": (schema_of("portclaims")["properties"]["spec"], PortClaimSpec),
    "PortClaim status": (schema_of("portclaims")["properties"]["status"], PortClaimStatus),
}
each_pair = pytest.mark.parametrize(("crd", "model"), PAIRS.values(), ids=PAIRS)

BOUNDS = ("minimum", "maximum")


# -- the two sides in one form ---------------------------------------------------------------------------------------


def python_schema(model: type[Part]) -> Schema:
    """The JSON schema of a model, with its references put in place and `or null` left out."""
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})

    def plain(node: Any) -> Any:
        if isinstance(node, list):
            return [plain(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return plain({**definitions[node["$ref"].rpartition("/")[2]], **_without(node, "$ref")})
        if {"type": "null"} in node.get("anyOf", ()):
            others = [choice for choice in node["anyOf"] if choice != {"type": "null"}]
            return plain({**(others[0] if len(others) == 1 else {"anyOf": others}), **_without(node, "anyOf")})
        return {key: plain(value) for key, value in node.items()}

    result = plain(schema)
    assert isinstance(result, dict)
    return result


def _without(node: Mapping[str, Any], *keys: str) -> Schema:
    return {key: value for key, value in node.items() if key not in keys}


def facts(schema: Schema, stop_at: frozenset[str] = frozenset(), path: str = "") -> dict[str, Schema]:
    """What is compared of each field, by its path."""
    if path in stop_at:
        return {path: {"passed on": True}}
    found: Schema = {key: schema[key] for key in ("type", *BOUNDS) if key in schema}
    found["any of"] = sorted(choice["type"] for choice in schema.get("anyOf", ()))
    found["enum"] = sorted(schema.get("enum", ()))
    found["required"] = sorted(schema.get("required", ()))
    found["default"] = _told(schema.get("default"))
    everything = {path: found}
    for name, child in schema.get("properties", {}).items():
        everything |= facts(child, stop_at, f"{path}.{name}")
    if schema.get("type") == "array":
        everything |= facts(schema["items"], stop_at, f"{path}[]")
    return everything


def _told(default: Any) -> Any:
    """A default that says something; of an object's only that there is one, its fields being compared by themselves."""
    if isinstance(default, dict):
        return {} if default == {} or _compact(default) else None
    return default if default not in (None, [], ()) else None


def _compact(value: Any) -> Any:
    """Without what is absent or empty, at any depth."""
    if isinstance(value, dict):
        return {key: kept for key, child in value.items() if (kept := _compact(child)) not in (None, {}, [])}
    return [_compact(child) for child in value] if isinstance(value, list) else value


def passed_on(schema: Schema, path: str = "") -> frozenset[str]:
    """The paths where Python takes any object."""
    if schema.get("type") == "object" and "properties" not in schema:
        return frozenset({path})
    children = {f"{path}.{name}": child for name, child in schema.get("properties", {}).items()}
    if schema.get("type") == "array":
        children[f"{path}[]"] = schema["items"]
    return frozenset().union(*(passed_on(child, at) for at, child in children.items()))


@each_pair
def test_both_sides_have_the_same_fields_types_defaults_and_bounds(crd: Schema, model: type[Part]) -> None:
    python = python_schema(model)
    ends = passed_on(python)
    # The default of a whole status is the CRD's word for "not looked at yet"; Python never fills it in.
    assert facts(_without(crd, "default"), ends) == facts(python, ends)


def test_the_history_that_the_operator_keeps_fits_into_a_claim() -> None:
    crd, _ = PAIRS["PortClaim status"]
    assert crd["properties"]["history"]["maxItems"] >= HISTORY_LENGTH


unhurried = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])


@each_pair
@unhurried
@given(data=st.data())
def test_python_reads_all_that_the_schema_allows_and_loses_nothing(
    data: st.DataObject, crd: Schema, model: type[Part]
) -> None:
    value = data.draw(values(crd))
    assert _compact(model.model_validate(value).to_json()) == _compact(defaulted(value, crd))


@each_pair
@unhurried
@given(data=st.data())
def test_the_schema_allows_all_that_python_writes(data: st.DataObject, crd: Schema, model: type[Part]) -> None:
    python = python_schema(model)
    for path in passed_on(python):  # free on the Python side
        python["properties"].pop(path.split(".")[1].removesuffix("[]"), None)
    written = model.model_validate(data.draw(values(python))).to_json()
    assert list(faults(written, crd)) == []
