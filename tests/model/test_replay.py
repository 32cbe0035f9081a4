"""Traces of walks are behaviours of the specification; whatever is not one, or is not understood, is refused."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.model.__main__ import actions_declared
from tests.model.check_trace import follow, followed, replay, traces_of
from tests.model.scopes import SPECIFICATION
from tests.model.tla_trace import RefusedError, Trace
from tests.model.walks import WALKS, whole_life

Lines = list[dict[str, Any]]


def test_every_walk_is_a_behaviour_of_the_specification_and_together_they_take_every_write() -> None:
    traces = [trace for walk in WALKS.values() for trace in traces_of(walk().lines())]
    taken = replay(traces)
    happenings = SPECIFICATION.partition("(* --- the cluster")[2]
    writes = {name for name in actions_declared() if f"\n{name}" not in happenings}
    assert sorted(writes - set(taken)) == []


# -- negative controls ------------------------------------------------------------------------------------------------


def at(lines: Lines, action: str) -> int:
    return next(index for index, line in enumerate(lines) if line.get("action") == action)


def proof_is_forged(lines: Lines) -> None:
    for line in lines[: at(lines, "CoolClaim") + 1]:
        for pod in line["seen"]["pods"]:
            pod["word"] = "none"


def gate_opens_early(lines: Lines) -> None:
    first = at(lines, "BindClaim")
    lines[first] = {
        **lines[first],
        "action": "Ungate",
        "written": {"pod": lines[first]["written"]["pod"], "ordinal": 0},
    }


def a_write_is_left_out(lines: Lines) -> None:
    del lines[at(lines, "Ungate")]


def two_writes_change_places(lines: Lines) -> None:
    n = at(lines, "CoolClaim")
    lines[n]["action"], lines[n]["written"] = "ReleaseLease", {"pod": lines[n]["seen"]["lease"], "ordinal": 0}


def a_refused_write_counts(lines: Lines) -> None:
    lines[at(lines, "Ungate")]["outcome"] = "Conflict"


CORRUPTIONS: dict[str, Callable[[Lines], None]] = {
    "proof is forged": proof_is_forged,
    "the gate opens before the claim is bound": gate_opens_early,
    "a write is left out": a_write_is_left_out,
    "another write is told": two_writes_change_places,
    "a write that was refused changes something": a_refused_write_counts,
}


def test_a_corrupted_trace_is_no_behaviour_of_the_specification() -> None:
    lines = whole_life().lines()
    corrupted = []
    for corrupt in CORRUPTIONS.values():
        changed = copy.deepcopy(lines)
        corrupt(changed)
        corrupted.append(numbered(changed))
    (whole,) = traces_of(lines)
    traces = [whole, *(trace for changed in corrupted for trace in traces_of(changed))]
    first, *reached = followed(traces)
    assert first == len(whole.lines)
    passed = [name for name, trace, n in zip(CORRUPTIONS, traces[1:], reached, strict=True) if n == len(trace.lines)]
    assert passed == []


def gate_opens_before_the_second_port_is_bound() -> Lines:
    lines = WALKS["a whole life behind two ports"]().lines()
    del lines[next(n for n, line in enumerate(lines) if line["written"].get("role") == "Http")]
    return lines


def a_pod_goes_before_its_end_is_told() -> Lines:
    lines = WALKS["a whole life inside, whose end is waited for"]().lines()
    gone = at(lines, "RemovePodFinalizer")
    lines[gone]["seen"]["backend"]["named"] = lines[gone - 1]["seen"]["backend"]["named"]
    del lines[gone - 1]
    return lines


def nobody_vouched() -> Lines:
    lines = WALKS["waited for"]().lines()
    for line in lines:
        line["seen"]["vouched"] = []
    return lines


PASSED_OVER = (gate_opens_before_the_second_port_is_bound, a_pod_goes_before_its_end_is_told, nobody_vouched)


def test_nor_is_one_where_a_second_port_or_the_wait_for_an_end_is_passed_over() -> None:
    traces = {corrupted.__name__: traces_of(numbered(corrupted())) for corrupted in PASSED_OVER}
    reached = {id(trace): lines for trace, lines in follow(trace for some in traces.values() for trace in some)}
    assert [name for name, some in traces.items() if all(reached[id(one)] == len(one.lines) for one in some)] == []


def numbered(lines: Lines) -> Lines:
    return [{**line, "seq": number} for number, line in enumerate(lines, 1)]


# -- what is not understood -------------------------------------------------------------------------------------------

LOOK: dict[str, Any] = {"backend": None, "pods": [], "claims": [], "services": [], "lease": None, "vouched": []}
SETTLED = {"event": "settled", "key": "k", "seen": LOOK, "seq": 2}
STEP = {
    "event": "step",
    "key": "k",
    "seen": LOOK,
    "seq": 1,
    "action": "RecordNode",
    "outcome": "Applied",
    "arguments": {},
    "written": {"port": 30000, "ordinal": 0},
}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "the trace is empty"),
        ([STEP], "unfinished"),
        ([STEP, {**SETTLED, "seq": 3}], "line 3 comes where 2 is due"),
        ([{**STEP, "event": "stepped"}, SETTLED], "event stepped is unknown"),
    ],
    ids=["empty", "unfinished", "gap", "unknown event"],
)
def test_a_trace_that_is_not_whole_is_refused(lines: Lines, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        traces_of(lines)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"action": "FreePort"}, "action FreePort is unknown"),
        ({"outcome": "Perhaps"}, "outcome Perhaps is unknown"),
    ],
)
def test_what_the_specification_does_not_know_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        Trace("k", [{**STEP, **change}, SETTLED]).records()
