"""The golden logs are what the rules do today."""

import pytest

from tests.sim.golden import FOLDER, STORIES, Story, written


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_life_goes_as_its_golden_log_tells(story: Story) -> None:
    golden = (FOLDER / f"{story.name}.log").read_text()
    assert written(story) == golden, "look at the difference; if it is meant, write the logs anew with `make golden`"


def test_every_golden_log_is_of_a_story() -> None:
    assert {log.stem for log in FOLDER.glob("*.log")} == {story.name for story in STORIES}
