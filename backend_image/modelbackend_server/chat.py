"""Lays out messages as one text, by the template that the model's file carries."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str


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
        self._template = environment.from_string(source)
        self._bos = bos
        self._eos = eos

    def render(self, messages: Sequence[Message]) -> str:
        """The messages, and the beginning of the assistant's turn. Raises TemplateRefusalError."""
        try:
            return self._template.render(
                messages=[{"role": message.role, "content": message.content} for message in messages],
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
            )
        except TemplateError as error:
            raise TemplateRefusalError(str(error)) from error


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().astimezone().strftime(form)
