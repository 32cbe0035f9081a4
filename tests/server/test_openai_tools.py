"""Tools over OpenAI's API, as the official client meets them. The model writes noise: a grammar has it write calls."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from modelbackend.v1 import inference_pb2
from modelbackend_server.llama import Grammar
from modelbackend_server.tools import Tool, free_grammar
from tests.server.engine import engine_of
from tests.server.harness import GREEDY, running

SIZE: Any = {"type": "object", "properties": {"size": {"enum": ["s", "l"]}}, "required": ["size"]} | {
    "additionalProperties": False
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "order", "description": "One.", "parameters": SIZE, "strict": True}},
    {"type": "function", "function": {"name": "cancel", "parameters": {"type": "object", "properties": {}}}},
]
LOOSE: Any = [{"type": "function", "function": tool["function"] | {"strict": False}} for tool in TOOLS]
ORDER = {"type": "function", "function": {"name": "order"}}
CALL = 'I see. <tool_call>\n{"name": "order", "arguments": {"size": "s"}}\n</tool_call>'


def written(text: str) -> dict[str, Any]:
    """Has the model write this, and end. No tool may be strict, which is a grammar of its own."""
    literal = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return {"tools": LOOSE, "extra_body": {"grammar": f'root ::= "{literal}"'}}


def ask(client: openai.AsyncOpenAI, **given: Any) -> Awaitable[Any]:
    messages = [{"role": "user", "content": "one of the new"}]
    arguments: dict[str, Any] = {"model": "tiny", "messages": messages, "max_tokens": 200, "temperature": 0}
    arguments["tools"] = TOOLS
    return client.chat.completions.create(**(arguments | given))


@pytest.mark.parametrize(("choice", "names"), [("required", {"order", "cancel"}), (ORDER, {"order"})])
async def test_a_call_that_must_be_made_is_made_with_arguments_that_fit(
    with_tools: Path, choice: Any, names: set[str]
) -> None:
    async with running(with_tools) as server, server.openai() as client:
        answer = (await ask(client, tool_choice=choice)).choices[0]
        assert (answer.finish_reason, answer.message.content) == ("tool_calls", None)
        (call,) = answer.message.tool_calls
        assert call.function.name in names
        arguments = json.loads(call.function.arguments)
        if call.function.name == "order":
            assert arguments in ({"size": "s"}, {"size": "l"})

        chunks = [chunk.choices[0] async for chunk in await ask(client, tool_choice=choice, stream=True)]
        (streamed,) = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
        assert (streamed.index, streamed.function.name) == (0, call.function.name)
        assert json.loads(streamed.function.arguments) == arguments
        assert chunks[-1].finish_reason == "tool_calls"
        assert "".join(chunk.delta.content or "" for chunk in chunks) == ""


async def test_what_the_model_calls_by_itself_is_taken_out_of_its_text(with_tools: Path) -> None:
    async with running(with_tools) as server, server.openai() as client:
        answer = (await ask(client, **written(CALL + CALL))).choices[0]
        assert [(call.function.name, call.type) for call in answer.message.tool_calls] == [("order", "function")] * 2
        assert len({call.id for call in answer.message.tool_calls}) == 2
        assert (answer.message.content, answer.finish_reason) == ("I see. I see.", "tool_calls")

        chunks = [chunk.choices[0] async for chunk in await ask(client, **written(CALL), stream=True, logprobs=True)]
        assert "".join(chunk.delta.content or "" for chunk in chunks) == "I see. "
        (streamed,) = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
        assert streamed.function.arguments == '{"size": "s"}'
        assert chunks[-1].finish_reason == "tool_calls"
        tokens = [token.token for chunk in chunks if chunk.logprobs for token in chunk.logprobs.content]
        assert "".join(tokens).strip().startswith("I see. <tool_call>")

        # Half a call is text.
        cut = (await ask(client, **written(CALL), max_tokens=30)).choices[0]
        assert (cut.finish_reason, cut.message.tool_calls) == ("length", None)
        assert CALL.startswith(cut.message.content)


async def test_calls_and_their_answers_are_part_of_the_next_prompt(with_tools: Path) -> None:
    called = {"id": "1", "type": "function", "function": {"name": "order", "arguments": '{"size": "s"}'}}
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "1", "content": "it is on its way"},
    ]
    chat = inference_pb2.Chat(
        messages=[
            inference_pb2.ChatMessage(role=inference_pb2.ROLE_USER, content="one"),
            inference_pb2.ChatMessage(
                role=inference_pb2.ROLE_ASSISTANT,
                tool_calls=[inference_pb2.ToolCall(id="1", name="order", arguments='{"size": "s"}')],
            ),
            inference_pb2.ChatMessage(role=inference_pb2.ROLE_TOOL, tool_call_id="1", content="it is on its way"),
        ],
        tools=[inference_pb2.Tool(name="order"), inference_pb2.Tool(name="cancel")],
    )
    async with running(with_tools) as server, server.openai() as client:
        laid_out = (await server.stub.ApplyTemplate(inference_pb2.ApplyTemplateRequest(chat=chat))).text
        expected = 'order cancel call with <tool_call> user one assistant  order {"size": "s"} tool it is on its way '
        assert laid_out == expected
        request = inference_pb2.GenerateRequest(chat=chat, max_tokens=5, sampling=GREEDY)
        over_grpc = await server.stub.Generate(request)
        answer = await ask(client, messages=messages, tools=LOOSE, max_tokens=5)
        assert answer.choices[0].message.content == over_grpc.text
        assert answer.usage.prompt_tokens == over_grpc.finished.usage.prompt_tokens


@pytest.mark.parametrize(
    ("given", "parameter", "words"),
    [
        ({"tools": None, "tool_choice": "required"}, "", "there are no tools"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "'f', which is none of"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "Input should be 'function'"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].name", "letters, digits"),
        ({"tools": TOOLS[:1] * 2}, "tools[1].name", "another one than"),
        ({"tools": TOOLS[:1] * 129}, "tools", "129 tools"),
        ({"response_format": {"type": "json_object"}}, "", "cannot be kept together with tools"),
        ({"extra_body": {"grammar": 'root ::= "a"'}}, "tools", "no other constraint"),
        ({"tool_choice": "required", "extra_body": {"grammar": 'root ::= "a"'}}, "tool_choice", "no other constraint"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"pattern": "x"}}}],
             "tool_choice": "required"},
            "tools", "pattern is not supported",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0", "tool_call_id belongs to"),
        ({"messages": [{"role": "user"}]}, "messages.0", "content is missing"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "x"}}]}]},
            "messages[0].tool_calls[0].arguments", "no JSON object",
        ),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_tools_is_named(
    with_tools: Path, given: dict[str, Any], parameter: str, words: str
) -> None:
    async with running(with_tools) as server, server.openai() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(client, **given)
    assert words in str(refused.value)
    assert (refused.value.param or "") == parameter


async def test_a_model_whose_template_has_no_place_for_tools_refuses_them_by_name(tiny: Path) -> None:
    async with running(tiny) as server, server.openai() as client:
        with pytest.raises(openai.BadRequestError, match="no place for tools") as refused:
            await ask(client)
        assert (refused.value.code, refused.value.param) == ("unsupported", "tools")
        # None are offered: nothing is asked of the template.
        await ask(client, tool_choice="none", max_tokens=1)


async def test_one_call_at_most_ends_the_text(with_tools: Path) -> None:
    async with running(with_tools) as server, server.openai() as client:
        answer = (await ask(client, parallel_tool_calls=False, **written(CALL + CALL))).choices[0]
        assert [call.function.name for call in answer.message.tool_calls] == ["order"]
        assert (answer.finish_reason, answer.message.content) == ("tool_calls", "I see.")


INSIDE = '<tool_call>\n{"name": "order", "arguments": {"size": '


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a < b, <tool, <tool_cal and <<tool_callx>: no calls", ""),
        (CALL + " and " + CALL, ""),
        ('<<tool_call>\n{"name": "cancel", "arguments": {"any": ["thing", {}]}}\n</tool_call>', ""),
        (f'{INSIDE}"x"', f'{INSIDE}"'),
        ('<tool_call>\n{"name": "buy"', '<tool_call>\n{"name": "'),
        ("no.<tool_call> order", "no.<tool_call>"),
    ],
    ids=["text", "calls", "a call that is not strict", "not its schema", "no such tool", "no call"],
)
async def test_the_grammar_of_strict_tools_takes_all_text_and_no_other_calls(
    with_tools: Path, text: str, kept: str
) -> None:
    tools = [
        Tool(tool["name"], "", tool["parameters"], tool.get("strict", False))
        for tool in (each["function"] for each in TOOLS)
    ]
    with engine_of(with_tools) as engine:
        vocabulary = engine.model.vocabulary
        grammar = Grammar(vocabulary, free_grammar(tools))
        taken = ""
        # Byte by byte, so that what is refused is refused at its first wrong character.
        for byte in text.encode():
            token = next(token for token in range(vocabulary.size) if vocabulary.piece(token) == bytes([byte]))
            if not grammar.allows(np.array([token]))[0]:
                break
            grammar.accept(token)
            taken += chr(byte)
    assert taken == (kept or text)


async def test_strict_tools_leave_it_to_the_model_whether_it_calls(with_tools: Path) -> None:
    async with running(with_tools) as server, server.openai() as client:
        answer = (await ask(client, max_tokens=40)).choices[0]
    assert (answer.finish_reason, answer.message.tool_calls) == ("length", None)
    # The model's noise is half bytes of no character, and a grammar is one of characters.
    assert "\ufffd" not in answer.message.content[:-1]
