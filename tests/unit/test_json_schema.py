"""Which JSON Schemas become a grammar, and which are refused by name. What a grammar gives: tests/server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modelbackend_server import gbnf
from modelbackend_server.json_schema import SchemaError, to_gbnf

NODE = {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}
TAKEN: list[Any] = [
    True,
    {},
    {"type": ["string", "null"], "description": "a name"},
    {"enum": ['say "hi"\\', 1.5, None, {"a": [True]}]},
    {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 5},
    {"type": "object", "additionalProperties": {"type": "boolean"}},
    {"type": "object", "additionalProperties": False},
    {"type": "object", "properties": {str(index): {} for index in range(60)}, "required": ["7", "other"]},
    {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 9}, {"type": "null"}]},
    {"properties": {"a": {"const": "b"}}},
]


@pytest.mark.parametrize("schema", TAKEN, ids=lambda schema: json.dumps(schema)[:50])
def test_a_schema_of_known_keywords_becomes_a_safe_grammar(schema: Any) -> None:
    assert gbnf.why_not(to_gbnf(json.dumps(schema))) == ""


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "no JSON"),
        ("[" * 5000, "no JSON"),
        ("[]", "no schema"),
        ("false", "accepts anything"),
        ('{"type": "strin"}', '#/type: "strin" is no type'),
        ('{"type": "integer", "minimum": 3}', "#: minimum is not supported for integer"),
        ('{"type": "string", "pattern": "a"}', "#: pattern is not supported for string"),
        ('{"properties": {"a": {"multipleOf": 2}}}', "#/properties/a: multipleOf is not supported"),
        ('{"anyOf": [{}], "properties": {}}', "anyOf cannot be combined with properties"),
        ('{"allOf": [{}, {}]}', "only one schema is taken"),
        ('{"$ref": "http://example.org/schema"}', "only those within the schema"),
        ('{"$ref": "#/$defs/none"}', "leads nowhere"),
        ('{"enum": []}', "not a list of something"),
        ('{"enum": [1], "type": "string"}', "none of the values is of the type string"),
        ('{"type": "array", "minItems": 3, "maxItems": 2}', "minItems 3 is more than maxItems 2"),
        ('{"type": "string", "minLength": -1}', "not a whole number"),
        ('{"required": ["a"], "additionalProperties": false}', "required, and may not be there"),
        ('{"items": ' * 60 + "{}" + "}" * 60, "nested more than 50 deep"),
        (json.dumps({"description": "x" * 70_000}), "at most 65536"),
        ('{"type": ["object", "object"]}', "#/type names a type twice"),
        ('{"required": [1]}', "#/required: 1 is no name of a property"),
        ('{"const": ' + "[" * 990 + "]" * 990 + "}", "nested too deep|no JSON"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name_and_place(schema: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words.replace("(", r"\(")):
        to_gbnf(schema)


def test_what_is_not_named_is_read_once_however_many_properties_it_stands_for() -> None:
    schema: Any = {"type": "null"}
    for _ in range(40):
        schema = {"required": ["a", "b"], "additionalProperties": schema}
    grammar = to_gbnf(json.dumps(schema))
    assert len(grammar) < 20_000
    assert gbnf.why_not(grammar) == ""


def test_a_reference_to_itself_alone_is_no_safe_grammar() -> None:
    assert "begins with itself" in gbnf.why_not(to_gbnf('{"$ref": "#"}'))
