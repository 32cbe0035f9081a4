"""Values of a schema, and what is wrong with a value: for the part of JSON Schema that CRDs and pydantic write."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

MOMENTS = st.integers(0, 4_000_000_000).map(
    lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
)
QUANTITIES = st.sampled_from(["0", "1", "500m", "1.5", "2Gi", "1e3"])
ANYTHING = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """What the API server would store: only known fields, and exactly one where `model.source` asks for one."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([values(choice) for choice in schema["anyOf"]]) if "pattern" not in schema else _quantity()
    match schema["type"]:
        case "string":
            return MOMENTS if schema.get("format") == "date-time" else _text(schema)
        case "integer":
            return st.integers(schema.get("minimum", -(2**31)), schema.get("maximum", 2**31 - 1))
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
        case "object":
            return _objects(schema)
    raise NotImplementedError(f"a schema of type {schema['type']}")


def _quantity() -> st.SearchStrategy[Any]:
    return QUANTITIES | st.integers(0, 2**31)


def _text(schema: Schema) -> st.SearchStrategy[str]:
    shortest = schema.get("minLength", 0)
    return st.text(min_size=shortest, max_size=max(shortest, min(schema.get("maxLength", 12), 12)))


def _objects(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    if "properties" not in schema:
        child = schema.get("additionalProperties")
        entries = values(child) if isinstance(child, dict) else ANYTHING
        return st.dictionaries(st.text(min_size=1, max_size=8), entries, max_size=3)
    fields = {name: values(child) for name, child in schema["properties"].items()}
    if "hostPath" in fields:  # model.source, where a rule asks for exactly one
        return st.one_of([st.fixed_dictionaries({name: child}) for name, child in fields.items()])
    required = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: child for name, child in fields.items() if name in required},
        optional={name: child for name, child in fields.items() if name not in required},
    )


def defaulted(value: Any, schema: Schema) -> Any:
    """The value with defaults filled in as the API server does it, from the outside inwards."""
    if isinstance(value, list):
        return [defaulted(entry, schema.get("items", {})) for entry in value]
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    filled = {name: child["default"] for name, child in fields.items() if "default" in child} | value
    return {name: defaulted(child, fields.get(name, {})) for name, child in filled.items()}


def faults(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Why the API server would refuse or prune the value, sizes and forms of strings apart."""
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if "anyOf" in schema:
        if all(any(faults(value, choice, path)) for choice in schema["anyOf"]):
            yield f"{path}: {value!r} fits no choice"
        return
    if type(value) is not _TYPES[schema["type"]]:
        yield f"{path}: {value!r} is no {schema['type']}"
    elif isinstance(value, int):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{path}: {value} is out of bounds"
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from faults(entry, schema["items"], f"{path}[{index}]")
    elif isinstance(value, dict) and "properties" in schema:
        yield from (f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value)
        for name, child in value.items():
            if name not in schema["properties"]:
                yield f"{path}.{name}: would be pruned"
            else:
                yield from faults(child, schema["properties"][name], f"{path}.{name}")


_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
