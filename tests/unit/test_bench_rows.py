"""The benchmark's table: what counts as reached, and a picture that a browser can read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.serving.plot import svg
from bench.serving.record import Record
from bench.serving.rows import Goal, Row, line, summary


def row(ours: float, other: float, goal: Goal) -> Row:
    return Row("a work", "a measure", ours, other, goal)


@pytest.mark.parametrize(
    ("ours", "other", "goal", "reached"),
    [
        (97, 100, Goal(0.97), True),
        (96, 100, Goal(0.97), False),
        (1.2, 1, Goal(1.2, lower=True), True),
        (1.3, 1, Goal(1.2, lower=True), False),
        (2, 150, Goal(2, lower=True, of_ours_alone=True), True),
        (3, 150, Goal(2, lower=True, of_ours_alone=True), False),
        (1, 0, Goal(1.2, lower=True), False),
    ],
)
def test_a_figure_is_reached_at_least_or_at_most_as_its_goal_says(
    ours: float, other: float, goal: Goal, reached: bool
) -> None:
    found = row(ours, other, goal)
    assert found.reached is reached
    assert ("NOT REACHED" in line(found)) is not reached
    assert summary([found]).startswith(f"ratios ({int(reached)} of 1 reached")


def test_the_picture_has_a_bar_for_each_row_and_its_words_are_escaped() -> None:
    rows = [row(1, 2, Goal(1)), row(5, 0, Goal(1)), row(0, 5, Goal(2, lower=True, of_ours_alone=True))]
    picture = ElementTree.fromstring(svg(rows, "<ours> & other"))
    bars = picture.findall("{http://www.w3.org/2000/svg}rect")
    assert len(bars) == len(rows)
    assert all(float(bar.attrib["width"]) > 0 for bar in bars)


def test_a_run_that_was_interrupted_goes_on_after_the_works_it_has(tmp_path: Path) -> None:
    path, rows = tmp_path / "results.json", [row(1, 2, Goal(1)), row(3, 4, Goal(2, lower=True))]
    Record(path, "this machine").add(rows, load_average=0.5)
    resumed = Record.resumed(path, "this machine")
    assert resumed.rows == rows
    assert resumed.works == {"a work"}
    assert Record.resumed(tmp_path / "none.json", "this machine").works == set()


def test_rows_of_another_machine_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    Record(path, "this machine").add([row(1, 2, Goal(1))], load_average=0.5)
    with pytest.raises(ValueError, match="is of another run: this machine, now: that machine"):
        Record.resumed(path, "that machine")
