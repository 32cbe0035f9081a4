"""Chat templates come with the weights, and weights come from anywhere."""

from __future__ import annotations

import pytest
from jinja2 import TemplateSyntaxError

from modelbackend_server.chat import ChatTemplate, Message, TemplateRefusalError

MESSAGES = [Message("user", "Hello")]


def render(source: str) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>").render(MESSAGES)


def test_a_template_sees_messages_special_tokens_and_that_an_answer_is_wanted() -> None:
    source = (
        "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    assert render(source) == "<s><user>Hello</s><assistant>"


def test_blocks_leave_no_blank_lines_as_in_transformers() -> None:
    assert render("  {% if true %}\na\n  {% endif %}\nb") == "a\nb"


def test_a_template_may_refuse_in_its_own_words() -> None:
    with pytest.raises(TemplateRefusalError, match="no such role"):
        render("{{ raise_exception('no such role') }}")


def test_a_template_may_tell_the_date() -> None:
    assert render("{{ strftime_now('%Y') }}").isdigit()


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ bos_token.__init__.__globals__ }}",
        "{{ no_such_thing.attribute }}",
        # A fault of its own.
        "{{ messages[0].content + 1 }}",
        "{{ 1 // 0 }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(source: str) -> None:
    with pytest.raises(TemplateRefusalError):
        render(source)


def test_a_template_that_is_no_template_is_found_when_it_is_read() -> None:
    with pytest.raises(TemplateSyntaxError):
        ChatTemplate("{% for %}", bos="", eos="")
