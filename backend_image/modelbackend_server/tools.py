"""Functions that a model may call: how a call looks in a text, and the grammar of one that must be made.

Chat templates differ in how they tell of tools and in how calls are written. This is the form of Hermes and Qwen, which
most open models have: `<tool_call>` and a JSON object. A template that does not have it carries no tools here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .json_schema import SchemaError, to_gbnf

OPEN, CLOSE = "<tool_call>", "</tool_call>"
TOOLS_MAX = 128
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ANYTHING = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    # A JSON Schema.
    parameters: dict[str, Any]
    # Whether the schema is kept also where the model calls by itself.
    strict: bool = False

    @property
    def described(self) -> dict[str, Any]:
        """As templates read it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    # A JSON object.
    arguments: str

    @property
    def described(self) -> dict[str, Any]:
        """As templates read it. Raises ValueError where the arguments are no JSON."""
        return {"type": "function", "function": {"name": self.name, "arguments": json.loads(self.arguments)}}


def call_grammar(tools: Sequence[Tool]) -> str:
    """GBNF of one call of one of these. Raises SchemaError."""
    call, rules = _one_call(tools)
    return f'root ::= "{OPEN}\\n" ({call}) "\\n{CLOSE}"\n{rules}'


def free_grammar(tools: Sequence[Tool]) -> str:
    """GBNF of any text whose calls are calls of these, with arguments that the schemas of strict ones accept.

    Raises SchemaError. Text goes through the states of a search for OPEN, which begins with a character that it has
    nowhere else; each state may be the last. llama.cpp keeps no stack for a rule that ends with another.
    """
    call, rules = _one_call([tool if tool.strict else replace(tool, parameters=ANYTHING) for tool in tools])
    first = OPEN[0]
    states = ["root ::= text-0", f'text-0 ::= ([^{first}] text-0 | "{first}" text-1)?']
    for index, wanted in enumerate(OPEN[1:], 1):
        then = "inside" if index + 1 == len(OPEN) else f"text-{index + 1}"
        states.append(f'text-{index} ::= ("{wanted}" {then} | "{first}" text-1 | [^{first}{wanted}] text-0)?')
    states.append(f'inside ::= "\\n" ({call}) "\\n{CLOSE}" text-0')
    return "\n".join([*states, rules])


def _one_call(tools: Sequence[Tool]) -> tuple[str, str]:
    """What a call may be, and the rules that it names."""
    try:
        calls = {str(index): _call_schema(tool, f"#/$defs/{index}") for index, tool in enumerate(tools)}
        schema = json.dumps({"anyOf": [{"$ref": f"#/$defs/{index}"} for index in calls], "$defs": calls})
    except RecursionError:
        raise SchemaError("nested too deep") from None
    call, _, rules = to_gbnf(schema).removeprefix("root ::= ").partition("\n")
    return call, rules


def _call_schema(tool: Tool, path: str) -> dict[str, Any]:
    arguments = _moved(tool.parameters, f"{path}/properties/arguments")
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Any, where: str) -> Any:
    """The schema with its references to itself leading to where it is put."""
    if isinstance(schema, list):
        return [_moved(part, where) for part in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(part, where) for key, part in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        moved["$ref"] = where + reference[1:]
    return moved


class CallReader:
    """Finds the calls in a text that comes in pieces. What is no call stays text, to the letter."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> list[str | ToolCall]:
        """What is decided by now: text that belongs to no call, and whole calls."""
        self._held += text
        found: list[str | ToolCall] = []
        while True:
            before, opened, after = self._held.partition(OPEN)
            if not opened:
                undecided = _overlap(before)
                self._held = before[len(before) - undecided :]
                return _joined([*found, before[: len(before) - undecided]])
            inside, closed, rest = after.partition(CLOSE)
            if not closed:
                self._held = opened + after
                return _joined([*found, before])
            found += [before, read_call(inside) or f"{OPEN}{inside}{CLOSE}"]
            self._held = rest

    def flush(self) -> list[str | ToolCall]:
        """At the end of the text: a call that was not closed is text."""
        held, self._held = self._held, ""
        return _joined([held])


def _overlap(text: str) -> int:
    """How many characters at its end may be the beginning of a call."""
    return next((length for length in range(len(OPEN) - 1, 0, -1) if text.endswith(OPEN[:length])), 0)


def _joined(parts: Sequence[str | ToolCall]) -> list[str | ToolCall]:
    return [part for part in parts if part]


def read_call(text: str) -> ToolCall | None:
    """None where it is not {"name": text, "arguments": object}."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return ToolCall(call["name"], json.dumps(arguments, ensure_ascii=False))


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
