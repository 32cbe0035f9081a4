"""The messages and tools of OpenAI's chat, checked, and as our own protocol has them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from modelbackend.v1 import inference_pb2

ROLES = {
    "system": inference_pb2.ROLE_SYSTEM,
    "developer": inference_pb2.ROLE_SYSTEM,
    "user": inference_pb2.ROLE_USER,
    "assistant": inference_pb2.ROLE_ASSISTANT,
    "tool": inference_pb2.ROLE_TOOL,
}

Json = dict[str, Any]


def _text_as_part(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class Part(BaseModel):
    """Refuses what it does not know. A field that is null is a field that is not given."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class TextPart(Part):
    type: Literal["text"]
    text: str


class CalledFunction(Part):
    name: str
    arguments: str


class ToolCall(Part):
    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Part):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[TextPart], BeforeValidator(_text_as_part)] = []
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _has_what_its_role_has(self) -> ChatMessage:
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls belong to a message of the role assistant")
        if (self.tool_call_id is not None) != (self.role == "tool"):
            raise ValueError("tool_call_id belongs to a message of the role tool, and only there")
        if "content" not in self.model_fields_set and not self.tool_calls:
            raise ValueError("content is missing")
        return self

    def message(self) -> inference_pb2.ChatMessage:
        calls = [
            inference_pb2.ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in self.tool_calls
        ]
        text = "".join(part.text for part in self.content)
        return inference_pb2.ChatMessage(
            role=ROLES[self.role], content=text, tool_calls=calls, tool_call_id=self.tool_call_id or ""
        )


class Function(Part):
    name: str
    description: str = ""
    parameters: Json | None = None
    strict: bool = False


class Tool(Part):
    type: Literal["function"]
    function: Function

    def tool(self) -> inference_pb2.Tool:
        parameters = "" if self.function.parameters is None else json.dumps(self.function.parameters)
        return inference_pb2.Tool(
            name=self.function.name,
            description=self.function.description,
            parameters=parameters,
            strict=self.function.strict,
        )


class FunctionName(Part):
    name: str


class NamedTool(Part):
    type: Literal["function"]
    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedTool
