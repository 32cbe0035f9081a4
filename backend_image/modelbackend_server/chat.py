"""Lays out messages as one text, by the template that the model's file carries."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from jinja2 import TemplateError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .tools import OPEN, Tool, ToolCall


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str
    # Of an assistant.
    tool_calls: tuple[ToolCall, ...] = ()
    # Of a tool.
    tool_call_id: str = ""

    @property
    def described(self) -> dict[str, Any]:
        """As templates read it: what is not there is not named."""
        fields: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            fields["tool_calls"] = [call.described for call in self.tool_calls]
        if self.tool_call_id:
            fields["tool_call_id"] = self.tool_call_id
        return fields


class TemplateRefusalError(Exception):
    """The template says that it has no place for these messages, in its own words."""


class ChatTemplate:
    """A chat template in the dialect of Hugging Face transformers, which is what GGUF files carry.

    Sandboxed: the template comes with the weights, and weights come from anywhere.
    """

    def __init__(self, source: str, *, bos: str, eos: str) -> None:
        """Raises jinja2.TemplateSyntaxError."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _strftime_now
        environment.filters["tojson"] = _tojson
        self._template = environment.from_string(source)
        # Whether it tells of tools, and has calls written in the form that we read.
        self.carries_tools = OPEN in source and "tools" in meta.find_undeclared_variables(environment.parse(source))
        self._bos = bos
        self._eos = eos

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
        """The messages, and the beginning of the assistant's turn. Raises TemplateRefusalError."""
        try:
            return self._template.render(
                messages=[message.described for message in messages],
                tools=[tool.described for tool in tools] or None,
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
            )
        except Exception as error:  # the template is somebody else's program, and its messages are anybody's
            raise TemplateRefusalError(str(error)) from error


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().astimezone().strftime(form)


def _tojson(
    value: Any,
    *,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: jinja2's own is for HTML, and escapes what is none."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
