"""Writes docs/reference.md, a page of the site that is not kept in the tree, from the schemas in crds/."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference.md"
HEAD = """# Reference of the fields

Written from the schemas in `crds/`; `kubectl explain` shows the same. [The overview](api.md) groups the fields by what
they are for.
"""
BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "pattern")

Schema = dict[str, Any]


def page() -> str:
    parts = [HEAD]
    for plural in ("modelbackends", "portclaims"):
        (version,) = (crd := yaml.safe_load((ROOT / f"crds/{plural}.yaml").read_text()))["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        parts.append(f"\n## {crd['spec']['names']['kind']}\n\n{schema['description']}\n")
        for name in ("spec", "status"):
            parts.extend(_tables(name, schema["properties"][name]))
    return "".join(parts)


def _tables(path: str, schema: Schema) -> Iterator[str]:
    """One table for this object, then one for each object in it."""
    yield f"\n### {path}\n\n"
    if text := _sentences(schema):
        yield f"{text}\n\n"
    yield "| field | type | default | meaning |\n| --- | --- | --- | --- |\n"
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        mark = ", required" if name in required else ""
        default = f"`{_literal(field['default'])}`" if "default" in field else ""
        yield f"| `{name}` | {_type(field)}{mark} | {default} | {_sentences(field)} |\n"
    for name, field in schema["properties"].items():
        inner, suffix = (field["items"], "[]") if field.get("type") == "array" else (field, "")
        if "properties" in inner:
            yield from _tables(f"{path}.{name}{suffix}", inner)


def _type(field: Schema) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    if field["type"] == "object" and "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}"
    bounds = ", ".join(f"{name} `{field[name]}`" for name in BOUNDS if name in field)
    return f"{field['type']} ({bounds})".replace("|", "\\|") if bounds else str(field["type"])


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sentences(field: Schema) -> str:
    """Its description, and what its rules say to whoever breaks them."""
    rules = [rule["message"] for rule in field.get("x-kubernetes-validations", ()) if "message" in rule]
    text = " ".join(str(field.get("description", "")).split())
    held = " ".join(f"*{rule}.*" for rule in rules)
    return " ".join(part for part in (text, held) if part).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
