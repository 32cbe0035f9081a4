"""The logs of an e2e run: put together to lives, and each followed, or the run is refused.

`samples/operator.log` is what an operator on a real cluster told of one backend, from its creation to its end.
"""

import json
import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from images.steps import StepError
from tests.model.lives import BY_HAND, LATE_SECONDS, Life, check, lives_of, processes_of, refusals, unfinished
from tests.model.tla_trace import RefusedError

SAMPLE = Path(__file__).parent / "samples" / "operator.log"
E2E = Path(__file__).parents[2] / "e2e"
Lines = list[dict[str, Any]]


def sample() -> Lines:
    return [json.loads(text) for text in SAMPLE.read_text().splitlines()]


def written(lines: Lines, log: Path) -> Path:
    """The log of one process: a first word, then its steps, numbered anew."""
    begins, *steps = lines
    numbered = [begins, *({**line, "seq": number} for number, line in enumerate(steps, 1))]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in numbered))
    return log


def life_of(*logs: Path) -> Life:
    (life,) = lives_of(process for log in logs for process in processes_of(log))
    return life


def later(timestamp: str, seconds: float) -> str:
    return (datetime.fromisoformat(timestamp) + timedelta(seconds=seconds)).isoformat()


def at(lines: Lines, action: str) -> int:
    return next(index for index, line in enumerate(lines) if line.get("action") == action)


# -- whole lives ------------------------------------------------------------------------------------------------------


def a_write_is_left_out(lines: Lines) -> Lines:
    cut = at(lines, "CoolClaim")
    return [*lines[:cut], *lines[cut + 1 :]]


def proof_is_forged(lines: Lines) -> Lines:
    for line in lines[1 : at(lines, "CoolClaim") + 1]:
        for pod in line["seen"]["pods"]:
            pod["word"] = "none"
    return lines


def the_gate_opens_before_the_claim_is_bound(lines: Lines) -> Lines:
    for line in lines[1 : at(lines, "Ungate") + 1]:
        for claim in line["seen"]["claims"]:
            claim |= {"phase": "Reserved", "pod": None}
    return lines


CORRUPTIONS: tuple[Callable[[Lines], Lines], ...] = (
    a_write_is_left_out,
    proof_is_forged,
    the_gate_opens_before_the_claim_is_bound,
)


def test_a_life_on_a_real_cluster_is_followed_and_a_corrupted_one_is_refused(tmp_path: Path) -> None:
    corrupted = [written(corrupt(sample()), tmp_path / f"{corrupt.__name__}.log") for corrupt in CORRUPTIONS]
    lives = [life_of(log) for log in (SAMPLE, *corrupted)]
    assert len(list(refusals(lives))) == len(CORRUPTIONS)
    assert not list(refusals(lives[:1]))


def test_what_a_killed_operator_left_in_the_middle_its_successor_goes_on_with(tmp_path: Path) -> None:
    begins, *steps = sample()
    untold = at(sample(), "BindClaim")  # done, and its operator died before it told
    first = written([begins, *steps[: untold - 1]], tmp_path / "first.log")
    second = written([{**begins, "timestamp": steps[untold]["timestamp"]}, *steps[untold:]], tmp_path / "second.log")
    life = life_of(second, first)
    assert len(life.traces) == 1
    assert not list(refusals([life]))


@pytest.mark.parametrize(("late_seconds", "refused"), [(0, False), (LATE_SECONDS, True)])
def test_what_a_killed_operator_had_sent_may_land_a_moment_later(
    late_seconds: int, refused: bool, tmp_path: Path
) -> None:
    begins, *steps = sample()
    untold = at(sample(), "CoolClaim") - 1  # it lands beside the first step of the successor
    first = written([begins, *steps[: untold - 1]], tmp_path / "first.log")
    began, *after = steps[untold - 1], *steps[untold + 1 :]
    after = [{**line, "timestamp": later(began["timestamp"], late_seconds)} for line in after]
    second = written([{**begins, "timestamp": began["timestamp"]}, began, *after], tmp_path / "second.log")
    assert bool(list(refusals([life_of(first, second)]))) is refused


def test_two_operators_at_once_are_followed_each_by_itself(tmp_path: Path) -> None:
    begins, *steps = sample()
    logs = [written([begins, *steps[start::2]], tmp_path / f"{start}.log") for start in (0, 1)]
    life = life_of(*logs)
    assert [trace.meddled for trace in life.traces] == [True, True]
    assert life.beside


def test_backends_that_are_meddled_with_are_those_of_tests() -> None:
    sources = "".join(path.read_text() for path in E2E.rglob("test_*.py"))
    assert [name for name in BY_HAND if f'backend("{name}"' not in sources] == []


@pytest.mark.parametrize("java", ["exit 0", "exit 127"])
def test_a_checker_that_says_nothing_of_its_success_fails_the_run(
    java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "java").write_text(f"#!/bin/sh\n{java}\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(StepError, match="TLC failed with exit code"):
        list(refusals([life_of(SAMPLE)]))


# -- what is not whole ------------------------------------------------------------------------------------------------


def test_a_life_that_ends_with_a_step_is_unfinished_unless_a_later_operator_found_nothing_to_do(tmp_path: Path) -> None:
    begins, *steps = sample()
    log = written([begins, *steps[: at(sample(), "CoolClaim")]], tmp_path / "killed.log")
    life, processes = life_of(log), list(processes_of(log))
    assert unfinished(life, processes)
    later = written([{**begins, "timestamp": steps[-1]["timestamp"]}], tmp_path / "later.log")
    assert not unfinished(life, [*processes, *processes_of(later)])


def test_no_later_operator_of_another_cluster_finishes_a_life(tmp_path: Path) -> None:
    begins, *steps = sample()
    for cluster in ("one", "other"):
        (tmp_path / cluster).mkdir()
    written([begins, *steps[: at(sample(), "CoolClaim")]], tmp_path / "one" / "killed.log")
    an_hour_later = [{**line, "timestamp": later(line["timestamp"], 3600)} for line in sample()]
    written(an_hour_later, tmp_path / "other" / "later.log")
    _, wrong = check(tmp_path)
    assert wrong == [f"{life_of(SAMPLE).name}: the trace is unfinished"]


def test_a_run_without_any_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no operator told anything"):
        check(tmp_path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: [*lines[:3], *lines[4:]], "line 4 comes where 3 is due"),
        (lambda lines: lines[1:], "the beginning is missing"),
        (lambda lines: [lines[0], {**lines[1], "event": "stepped"}], "event stepped is unknown"),
    ],
    ids=["a gap", "no beginning", "an unknown event"],
)
def test_a_log_that_is_not_whole_is_refused(damage: Callable[[Lines], Lines], words: str, tmp_path: Path) -> None:
    log = tmp_path / "operator.log"
    log.write_text("".join(f"{json.dumps(line)}\n" for line in damage(sample())))
    with pytest.raises(RefusedError, match=re.escape(words)):
        list(processes_of(log))


def test_a_line_that_cannot_be_read_is_refused_but_a_last_one_that_was_cut_off_is_not(tmp_path: Path) -> None:
    log = tmp_path / "operator.log"
    log.write_text(SAMPLE.read_text() + '{"seq": 99')
    assert life_of(log).lines[-1]["event"] == "settled"
    log.write_text('{"seq": 1\n')
    with pytest.raises(RefusedError, match="no JSON"):
        list(processes_of(log))
