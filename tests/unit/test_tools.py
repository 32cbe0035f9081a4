"""Tools in a chat: what a template is told of them, how calls are found in a text, and the grammar of one."""

import json
from typing import Any

import pytest

from modelbackend_server import gbnf
from modelbackend_server.chat import ChatTemplate, Message
from modelbackend_server.json_schema import SchemaError
from modelbackend_server.tools import CallReader, Tool, ToolCall, call_grammar, free_grammar

WEATHER = Tool("weather", "How it is out there.", {"type": "object", "properties": {"city": {"type": "string"}}})
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
CALLED = ToolCall("weather", '{"city": "Köln"}')
# As Hermes' and Qwen's, in short.
TEMPLATE = """\
{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools> call with <tool_call>
{% endif %}
{%- for message in messages %}[{{ message.role }}]{{ message.content }}
{%- for call in message.tool_calls %}<tool_call>{{ call.function.name }} {{ call.function.arguments | tojson }}\
</tool_call>
{%- endfor %}{% endfor %}[assistant]"""


def test_a_template_is_told_of_tools_and_of_calls_as_transformers_tells_it() -> None:
    template = ChatTemplate(TEMPLATE, bos="", eos="")
    assert template.carries_tools
    text = template.render(
        [Message("user", "<rain>?"), Message("assistant", "", (CALLED,)), Message("tool", "wet", tool_call_id="1")],
        [WEATHER],
    )
    assert text == (
        f"<tools>{json.dumps(WEATHER.described)}</tools> call with <tool_call>\n"
        '[user]<rain>?[assistant]<tool_call>weather {"city": "Köln"}</tool_call>[tool]wet[assistant]'
    )
    assert template.render([Message("user", "x")]) == "[user]x[assistant]"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content }}",
        # Its calls are written otherwise.
        "{% for tool in tools %}{{ tool }}{% endfor %}<|python_tag|>",
        # It only speaks of them.
        "never write <tool_call> {{ messages }}",
        "{% set tools = [] %}{{ tools }}<tool_call>",
    ],
)
def test_a_template_carries_no_tools_where_we_could_not_read_the_calls(source: str) -> None:
    assert not ChatTemplate(source, bos="", eos="").carries_tools


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("no call", ["no call"]),
        (CALL, [CALLED]),
        (f"Let me see.\n{CALL}\n{CALL}", ["Let me see.\n", CALLED, "\n", CALLED]),
        ('<tool_call>{"name": "now"}</tool_call>.', [ToolCall("now", "{}"), "."]),
        ("<tool_call>nonsense</tool_call>", ["<tool_call>nonsense</tool_call>"]),
        ('<tool_call>{"name": 1}</tool_call>', ['<tool_call>{"name": 1}</tool_call>']),
        ('<tool_call>{"name": "f", "arguments": 1}</tool_call>!',
         ['<tool_call>{"name": "f", "arguments": 1}</tool_call>!']),
        ('<tool_call>{"name": "f"}', ['<tool_call>{"name": "f"}']),
        ("a < b <tool", ["a < b <tool"]),
        (f"<tool_<tool_call{CALL}", ["<tool_<tool_call", CALLED]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_calls_are_found_however_the_text_is_cut_and_the_rest_is_kept_to_the_letter(
    text: str, parts: list[str | ToolCall], size: int
) -> None:
    reader = CallReader()
    found = [part for at in range(0, len(text), size) for part in reader.feed(text[at : at + size])] + reader.flush()
    joined: list[str | ToolCall] = []
    for part in found:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    assert joined == parts


def test_text_that_can_be_no_call_is_not_held_back() -> None:
    reader = CallReader()
    assert reader.feed("a<b>") == ["a<b>"]
    assert reader.feed("c<tool") == ["c"]
    assert reader.feed("s>") == ["<tools>"]


def test_the_grammar_of_a_call_follows_references_within_the_parameters() -> None:
    place: dict[str, Any] = {"type": "object", "properties": {"name": {"const": "x"}}, "required": ["name"]}
    there = {"type": "object", "properties": {"place": {"$ref": "#/$defs/place"}}, "$defs": {"place": place}}
    grammar = call_grammar([WEATHER, Tool("travel", "", there)])
    root, *_ = grammar.splitlines()
    assert root.startswith('root ::= "<tool_call>\\n" (')
    assert root.endswith(') "\\n</tool_call>"')
    assert grammar.count('\\"travel\\"') == 1
    deep: Any = {}
    for _ in range(2000):
        deep = {"items": deep}
    with pytest.raises(SchemaError, match="nested too deep"):
        call_grammar([Tool("f", "", deep)])
    with pytest.raises(SchemaError, match="leads nowhere"):
        call_grammar([Tool("f", "", {"type": "object", "properties": {"a": {"$ref": "#/$defs/nothing"}}})])


def test_the_grammar_of_a_text_with_calls_keeps_the_schemas_of_strict_tools_alone() -> None:
    strict = Tool("order", "", {"type": "object", "properties": {"size": {"enum": ["s", "l"]}}}, strict=True)
    grammar = free_grammar([strict, Tool("f", "", {"pattern": "x"})])
    assert gbnf.why_not(grammar) == ""
    assert '\\"size\\"' in grammar
    with pytest.raises(SchemaError, match="pattern is not supported"):
        free_grammar([Tool("f", "", {"pattern": "x"}, strict=True)])
