"""Whether a grammar is small enough to be given to llama.cpp. Pure.

llama.cpp's parser and matcher recurse: nesting of some ten thousand groups ends the process, and two dozen rules
that each name the next one twice keep it busy for hours, for every caller. So the size, the nesting, and the number
of ways in which each part can begin are bounded. Whether the rest is right is llama.cpp's to say.
GBNF: ggml-org/llama.cpp, grammars/README.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

BYTES_MAX = 65_536
NESTING_MAX = 50
REFERENCES_MAX = 100
BEGINNINGS_MAX = 512
"""The matcher compares what is open after a character with each other: in the worst case the third power of this."""
REPETITIONS_MAX = 2000
REPEATED_BYTES_MAX = 500_000
"""llama.cpp writes a repetition out."""

# Nothing is tried a second time (`*+`): the matching of a text made for it would hold every thread for hours.
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<terminal>"(?:\\.|[^"\\\n])*"|\[(?:\\.|[^\]\\\n])*\]|!?<[^>\s]*>|\.)
    |(?P<define>::=)|(?P<name>[A-Za-z0-9_-]+)
    |(?P<repeat>[*+?]|\{\s*+\d*+\s*+(?:,\s*+\d*+\s*+)?+\})
    |(?P<punctuation>[()|])""",
    re.VERBOSE,
)


class _RefusedError(Exception):
    pass


def why_not(text: str) -> str:
    """Why this grammar is refused unread; "" if it is not."""
    size = len(text.encode())
    if size > BYTES_MAX:
        return f"the grammar has {size} bytes, at most {BYTES_MAX} are taken"
    if "\0" in text:
        return "the grammar has a null character"
    try:
        rules = _Parser(_tokens(text)).rules()
        _Beginnings(rules).check()
    except _RefusedError as refused:
        return str(refused)
    except RecursionError:
        return "the grammar has rules and groups that each begin with the next, and go too deep"
    return ""


@dataclass(frozen=True, slots=True)
class _Terminal:
    empty: bool


@dataclass(frozen=True, slots=True)
class _Reference:
    name: str


@dataclass(frozen=True, slots=True)
class _Repeat:
    what: _Node
    at_least: int
    # None: without limit.
    at_most: int | None


@dataclass(frozen=True, slots=True)
class _Choice:
    sequences: list[list[_Node]]


_Node = _Terminal | _Reference | _Repeat | _Choice


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _RefusedError(f"the grammar has no meaning at {text[at : at + 20]!r}")
        if match.lastgroup != "space":
            found.append((str(match.lastgroup), match.group()))
        at = match.end()
    return found


@dataclass(slots=True)
class _Parser:
    tokens: list[tuple[str, str]]
    at: int = 0
    repeated_bytes: int = 0

    def rules(self) -> dict[str, _Choice]:
        rules: dict[str, _Choice] = {}
        while self.at < len(self.tokens):
            (kind, name), defined = self.tokens[self.at], self._is_definition(self.at)
            if kind != "name" or not defined:
                raise _RefusedError(f"the grammar has {name!r} where a rule begins")
            self.at += 2
            rules[name] = self._choice(0)
        if "root" not in rules:
            raise _RefusedError("the grammar has no rule called root")
        return rules

    def _is_definition(self, at: int) -> bool:
        return at + 1 < len(self.tokens) and self.tokens[at][0] == "name" and self.tokens[at + 1][0] == "define"

    def _choice(self, depth: int) -> _Choice:
        if depth > NESTING_MAX:
            raise _RefusedError(f"the grammar is nested more than {NESTING_MAX} groups deep")
        sequences: list[list[_Node]] = [[]]
        while self.at < len(self.tokens) and not self._is_definition(self.at):
            kind, text = self.tokens[self.at]
            if text == ")" and kind == "punctuation":
                break
            self.at += 1
            match kind:
                case "terminal":
                    sequences[-1].append(_Terminal(empty=text == '""'))
                case "name":
                    sequences[-1].append(_Reference(text))
                case "repeat" if sequences[-1]:
                    # Of a group or a rule only its name is repeated.
                    before = self.tokens[self.at - 2]
                    length = len(before[1]) if before[0] == "terminal" else 1
                    sequences[-1][-1] = self._repeated(sequences[-1][-1], text, length)
                case "punctuation" if text == "|":
                    sequences.append([])
                case "punctuation":
                    sequences[-1].append(self._choice(depth + 1))
                    if self.at >= len(self.tokens):
                        raise _RefusedError("the grammar has a group that is not closed")
                    self.at += 1
                case _:
                    raise _RefusedError(f"the grammar has {text!r} where nothing can be repeated or defined")
        if depth == 0 and self.at < len(self.tokens) and not self._is_definition(self.at):
            raise _RefusedError("the grammar closes a group that was not opened")
        return _Choice(sequences)

    def _repeated(self, what: _Node, text: str, length: int) -> _Repeat:
        repeat = _repeat(what, text)
        self.repeated_bytes += length * max(repeat.at_least, repeat.at_most or 1)
        if self.repeated_bytes > REPEATED_BYTES_MAX:
            raise _RefusedError(f"the grammar's repetitions, written out, have more than {REPEATED_BYTES_MAX} bytes")
        return repeat


def _repeat(what: _Node, text: str) -> _Repeat:
    match text:
        case "*":
            return _Repeat(what, 0, None)
        case "+":
            return _Repeat(what, 1, None)
        case "?":
            return _Repeat(what, 0, 1)
    least, comma, most = (part.strip() for part in text[1:-1].partition(","))
    if max(len(least), len(most)) > 9 or max(int(least or 0), int(most or 0)) > REPETITIONS_MAX:
        raise _RefusedError(f"the grammar repeats something {text}, at most {REPETITIONS_MAX} times are taken")
    if not comma:
        return _Repeat(what, int(least or 0), int(least or 0))
    return _Repeat(what, int(least or 0), int(most) if most else None)


@dataclass(slots=True)
class _Beginnings:
    """In how many ways a part can begin, and whether it may be empty; that is what the matcher goes through."""

    rules: dict[str, _Choice]
    known: dict[str, tuple[int, bool]] = field(default_factory=dict)
    # By the identity of the node: a group is reached from each of those around it.
    known_choices: dict[int, tuple[int, bool]] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)

    def check(self) -> None:
        for choice in self.rules.values():
            self._check_suffixes(choice)

    def _check_suffixes(self, node: _Node) -> None:
        match node:
            case _Choice(sequences):
                self._of(node)
                for sequence in sequences:
                    # From the end: in how many ways can go on what has come to this part.
                    ways = 0
                    for part in reversed(sequence):
                        count, empty = self._of(part)
                        ways = self._bounded(count + (ways if empty else 0))
                        self._check_suffixes(part)
            case _Repeat(what, _, _):
                self._check_suffixes(what)

    def _of(self, node: _Node) -> tuple[int, bool]:
        match node:
            case _Terminal(empty):
                return (0, True) if empty else (1, False)
            case _Reference(name):
                return self._of_rule(name)
            case _Repeat(what, at_least, at_most):
                count, empty = self._of(what)
                times = 1 if at_most is None or not empty else max(1, at_most)
                return self._bounded(count * times), empty or at_least == 0
            case _Choice(sequences):
                if id(node) not in self.known_choices:
                    found = [self._of_sequence(sequence) for sequence in sequences]
                    ways = self._bounded(sum(count for count, _ in found))
                    self.known_choices[id(node)] = ways, any(empty for _, empty in found)
                return self.known_choices[id(node)]

    def _of_rule(self, name: str) -> tuple[int, bool]:
        if name not in self.rules:
            raise _RefusedError(f"the grammar names the rule {name}, which it does not define")
        if name in self.under_way:
            raise _RefusedError(f"the grammar's rule {name} begins with itself")
        if name not in self.known:
            if len(self.under_way) >= REFERENCES_MAX:
                raise _RefusedError(f"the grammar has more than {REFERENCES_MAX} rules that each begin with the next")
            self.under_way.add(name)
            self.known[name] = self._of(self.rules[name])
            self.under_way.remove(name)
        return self.known[name]

    def _of_sequence(self, sequence: list[_Node]) -> tuple[int, bool]:
        total = 0
        for part in sequence:
            count, empty = self._of(part)
            total += count
            if not empty:
                return self._bounded(total), False
        return self._bounded(total), True

    def _bounded(self, count: int) -> int:
        if count > BEGINNINGS_MAX:
            raise _RefusedError(f"a part of the grammar can begin in more than {BEGINNINGS_MAX} ways")
        return count
