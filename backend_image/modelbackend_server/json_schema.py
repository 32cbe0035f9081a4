"""From a JSON Schema to a grammar whose every text the schema accepts. Pure.

The grammar may accept less than the schema does (properties come in the order in which they are written, and none
that is not named), never more. A keyword that would be needed for that and is not known here is refused by name.
https://json-schema.org/draft/2020-12/json-schema-validation
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BYTES_MAX = 65_536
DEPTH_MAX = 50
ANNOTATIONS = frozenset(
    {
        *("$schema", "$id", "$comment", "$defs", "definitions", "discriminator"),
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("format", "contentEncoding", "contentMediaType"),
    }
)
"""They say something to people, or hold what is referred to; `format` constrains nothing by default."""
KEYWORDS = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength"}),
    "number": frozenset[str](),
    "integer": frozenset[str](),
    "boolean": frozenset[str](),
    "null": frozenset[str](),
}
WHOLE = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const")
"""One of these is the whole of a schema; only enum and const may have a `type` beside them."""
PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}

# A space or a line with its indentation, where JSON lets one be.
BASE = r"""
space ::= "" | " " | "\n" [ \t]{0,20}
character ::= [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
string ::= "\"" character* "\""
whole ::= "0" | [1-9] [0-9]{0,15}
integer ::= "-"? whole
number ::= "-"? whole ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?
boolean ::= "true" | "false"
null ::= "null"
value ::= object | array | string | number | boolean | null
member ::= string space ":" space value
object ::= "{" space (member space ("," space member space)*)? "}"
array ::= "[" space (value space ("," space value space)*)? "]"
"""


class SchemaError(ValueError):
    """Says which keyword, where, and why."""


def to_gbnf(text: str) -> str:
    """A grammar with the rule `root`. Raises SchemaError."""
    if len(text.encode()) > BYTES_MAX:
        raise SchemaError(f"the schema has {len(text.encode())} bytes, at most {BYTES_MAX} are taken")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is no JSON: {error}") from None
    converter = _Converter(schema)
    try:
        root = converter.part(schema, "#", 0)
    except RecursionError:
        raise SchemaError("the schema has a value that is nested too deep") from None
    rules = "".join(f"{name} ::= {rule}\n" for name, rule in converter.rules.items())
    return f"root ::= {root}\n{rules}{BASE.lstrip()}"


@dataclass(slots=True)
class _Converter:
    whole: Any
    rules: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def part(self, schema: Any, path: str, depth: int) -> str:
        """What stands for a schema within a rule."""
        if depth > DEPTH_MAX:
            raise SchemaError(f"the schema is nested more than {DEPTH_MAX} deep at {path}")
        if schema is True:
            return "value"
        if not isinstance(schema, dict):
            raise SchemaError(f"{path} is {_shown(schema)}, which is no schema that accepts anything")
        given = schema.keys() - ANNOTATIONS
        whole = [keyword for keyword in WHOLE if keyword in given]
        if whole:
            return self._whole(schema, whole[0], given, path, depth)
        return self._of_types(schema, given, path, depth)

    def _whole(self, schema: Mapping[str, Any], keyword: str, given: set[str], path: str, depth: int) -> str:
        beside = given - {keyword} - ({"type"} if keyword in ("enum", "const") else set())
        if beside:
            raise SchemaError(f"{path}: {keyword} cannot be combined with {', '.join(sorted(beside))}")
        value = schema[keyword]
        match keyword:
            case "$ref":
                return self._reference(value, path, depth)
            case "const":
                return self._literals([value], schema, path)
            case "enum":
                return self._literals(_list(value, f"{path}/enum"), schema, path)
            case "allOf" if len(_list(value, f"{path}/allOf")) != 1:
                raise SchemaError(f"{path}/allOf: only one schema is taken")
        parts = _list(value, f"{path}/{keyword}")
        return _any_of(self.part(part, f"{path}/{keyword}/{at}", depth + 1) for at, part in enumerate(parts))

    def _literals(self, values: list[Any], schema: Mapping[str, Any], path: str) -> str:
        types = _types(schema, path) if "type" in schema else list(PYTHON_TYPES)
        fitting = [value for value in values if any(_is(value, name) for name in types)]
        if not fitting:
            raise SchemaError(f"{path}: none of the values is of the type {schema.get('type')}")
        return _any_of(_literal(json.dumps(value, ensure_ascii=False)) for value in fitting)

    def _reference(self, reference: Any, path: str, depth: int) -> str:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise SchemaError(f"{path}: $ref is {_shown(reference)}, only those within the schema (#/...) are followed")
        if reference not in self._names:
            self._names[reference] = f"ref-{len(self._names)}"
            target = self.whole
            for step in reference[2:].split("/") if reference != "#" else []:
                key = step.replace("~1", "/").replace("~0", "~")
                if not isinstance(target, dict) or key not in target:
                    raise SchemaError(f"{path}: $ref {reference} leads nowhere")
                target = target[key]
            self.rules[self._names[reference]] = self.part(target, reference, depth + 1)
        return self._names[reference]

    def _of_types(self, schema: Mapping[str, Any], given: set[str], path: str, depth: int) -> str:
        types = _types(schema, path)
        known = frozenset({"type"}).union(*(KEYWORDS[name] for name in types))
        if unknown := given - known:
            raise SchemaError(f"{path}: {', '.join(sorted(unknown))} is not supported for {' or '.join(types)}")
        return _any_of(self._of_type(name, schema, path, depth) for name in types)

    def _of_type(self, name: str, schema: Mapping[str, Any], path: str, depth: int) -> str:
        match name:
            case "object" if schema.keys() & KEYWORDS["object"]:
                return self._object(schema, path, depth)
            case "array" if schema.keys() & KEYWORDS["array"]:
                item = self._named(self.part(schema.get("items", True), f"{path}/items", depth + 1))
                return _array(item, *_limits(schema, "minItems", "maxItems", path))
            case "string" if schema.keys() & KEYWORDS["string"]:
                least, most = _limits(schema, "minLength", "maxLength", path)
                return rf'"\"" character{{{least},{"" if most is None else most}}} "\""'
        return name

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        properties = schema.get("properties", {})
        required = _list(schema.get("required", []), f"{path}/required", may_be_empty=True)
        if not isinstance(properties, dict):
            raise SchemaError(f"{path}/properties is {_shown(properties)}, not an object")
        others = schema.get("additionalProperties", True)
        if not properties and not required:
            if others is False:
                return '"{" space "}"'
            value = self.part(others, f"{path}/additionalProperties", depth + 1)
            member = self._named(f'string space ":" space {_grouped(value)} space')
            return f'"{{" space ({member} ("," space {member})*)? "}}"'
        if wrong := [name for name in required if not isinstance(name, str)]:
            raise SchemaError(f"{path}/required: {_shown(wrong[0])} is no name of a property")
        must = dict.fromkeys(required)
        unnamed = [name for name in must if name not in properties]
        if unnamed and others is False:
            raise SchemaError(f"{path}: {_shown(unnamed[0])} is required, and may not be there")
        # Read once, however many there are: twice at each level would be a million times at twenty.
        rule_of_others = self._named(self.part(others, f"{path}/additionalProperties", depth + 1)) if unnamed else ""
        # Members in their order, each rule one more: with and without a comma before it.
        tail = {True: '"}"', False: '"}"'}
        for name in reversed([*properties, *unnamed]):
            if name in properties:
                part = self.part(properties[name], f"{path}/properties/{name}", depth + 1)
            else:
                part = rule_of_others
            key = _literal(json.dumps(name, ensure_ascii=False))
            member = self._named(f'{key} space ":" space {_grouped(part)} space {tail[True]}')
            after, first = f'"," space {member}', member
            if name not in must:
                after, first = f"{after} | {tail[True]}", f"{first} | {tail[False]}"
            tail = {True: self._named(after), False: self._named(first)}
        return f'"{{" space {tail[False]}'

    def _named(self, rule: str) -> str:
        name = f"part-{len(self.rules)}"
        self.rules[name] = rule
        return name


def _types(schema: Mapping[str, Any], path: str) -> list[str]:
    given = schema.get("type")
    if given is None:
        fitting = [name for name, keywords in KEYWORDS.items() if keywords & schema.keys()]
        # Keywords of one type say nothing of the others; text of that type is accepted whatever they say.
        return fitting[:1] or ["object", "array", "string", "number", "boolean", "null"]
    types = [given] if isinstance(given, str) else _list(given, f"{path}/type")
    for name in types:
        if not isinstance(name, str) or name not in KEYWORDS:
            raise SchemaError(f"{path}/type: {_shown(name)} is no type of JSON Schema")
    if len(set(types)) < len(types):
        raise SchemaError(f"{path}/type names a type twice")
    return types


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, PYTHON_TYPES[name])


def _limits(schema: Mapping[str, Any], least: str, most: str, path: str) -> tuple[int, int | None]:
    for keyword in (least, most):
        value = schema.get(keyword, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise SchemaError(f"{path}/{keyword} is {_shown(value)}, not a whole number from 0 on")
    low, high = schema.get(least, 0), schema.get(most)
    if high is not None and low > high:
        raise SchemaError(f"{path}: {least} {low} is more than {most} {high}")
    return low, high


def _array(item: str, least: int, most: int | None) -> str:
    if most == 0:
        return '"[" space "]"'
    rest = f'("," space {item} space){{{max(0, least - 1)},{"" if most is None else most - 1}}}'
    items = f"{item} space {rest}"
    return f'"[" space {items if least else f"({items})?"} "]"'


def _any_of(parts: Iterable[str]) -> str:
    different = list(dict.fromkeys(parts))
    return different[0] if len(different) == 1 else f"({' | '.join(different)})"


def _grouped(part: str) -> str:
    return f"({part})" if " " in part else part


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\x7f", "\\x7F")
    return f'"{escaped}"'


def _list(value: Any, path: str, *, may_be_empty: bool = False) -> list[Any]:
    if not isinstance(value, list) or not (value or may_be_empty):
        raise SchemaError(f"{path} is {_shown(value)}, not a list of something")
    return value


def _shown(value: Any) -> str:
    return json.dumps(value)[:60]
