"""Which grammars are small enough for llama.cpp."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelbackend_server.gbnf import why_not

DEEP = 30


@pytest.mark.parametrize(
    "text",
    [
        'root ::= "a"',
        "root ::= [^\\]\\n]* # the rest\nother ::= .",
        'root ::= ("a" | (b c?)+)* "]"\nb ::= [a-z]{2,5}\nc ::= b{3} | ""',
        'root ::= value\nvalue ::= "[" (value ("," value)*)? "]"',
        "root ::= <think> !</think>+ <|end|>",
        'root ::= "\\"" "\\x41" [\\u00e9]',
        'root ::= "a"{ 2 , 5 } "b"{3 } "c"{ ,4} "d"{ 1, }',
        "root ::= " + '"" ' * 20_000 + '"a"',
    ],
)
def test_a_grammar_of_usual_size_is_taken(text: str) -> None:
    assert why_not(text) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rule called root"),
        ('start ::= "a"', "no rule called root"),
        ("root ::= b", "names the rule b"),
        ('root ::= root "a"', "begins with itself"),
        ('root ::= ("" | "a"?) root', "begins with itself"),
        ('root ::= a "x"\na ::= "b"? root', "begins with itself"),
        ('root ::= ("a"', "not closed"),
        ('root ::= "a")', "not opened"),
        ("root ::= *", "nothing can be repeated"),
        ('root ::= "a', "no meaning at"),
        ('root ::= "a" \0', "null character"),
        ('root ::= "a"{2,3000}', "at most 2000"),
        ('root ::= "a"{99999999999}', "at most 2000"),
        ("root ::= " + "(" * 51 + '"a"' + ")" * 51, "nested more than 50"),
        (f'root ::= "{"a" * 70_000}"', "at most 65536"),
        ("root ::= a0\n" + "".join(f"a{i} ::= a{i + 1}\n" for i in range(200)) + 'a200 ::= "x"', "more than 100 rules"),
        (
            "root ::= a0\n" + "".join(f"a{i} ::= a{i + 1} | a{i + 1}\n" for i in range(DEEP)) + f'a{DEEP} ::= "x"',
            "512 ways",
        ),
        (
            'root ::= "x" a0\n' + "".join(f"a{i} ::= a{i + 1}? a{i + 1}?\n" for i in range(DEEP)) + f'a{DEEP} ::= "x"',
            "512",
        ),
        ("root ::= " + '"a"? ' * 600, "512 ways"),
        ('root ::= "' + "a" * 60_000 + '"{2000}', "written out"),
        ("root ::= " + '"a"{0,2000} ' * 300, "written out"),
        (
            "root ::= a0\n" + "".join(f"a{i} ::= {'(' * 49}a{i + 1}{')' * 49}\n" for i in range(90)) + 'a90 ::= "x"',
            "go too deep",
        ),
        # Each of these took minutes, and one more of its kind hours, while no other thread could run.
        ('root ::= "a"{' + " " * 20_000, "no meaning at"),
        ('root ::= "a"{' + " " * 20_000 + "," + " " * 20_000, "no meaning at"),
        ("root ::= " + '"" ' * 20_000 + '"a"{9999}', "at most 2000"),
    ],
)
def test_a_grammar_that_could_hurt_is_refused_with_the_reason(text: str, words: str) -> None:
    assert words in why_not(text)


@given(st.text(st.sampled_from('root:= "a|b()[]{}*+?.,1\n\\<>!#'), max_size=60))
def test_whatever_is_sent_there_is_an_answer(text: str) -> None:
    assert isinstance(why_not(text), str)
    assert isinstance(why_not("root ::= " + text), str)
