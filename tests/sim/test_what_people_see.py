"""What is shown to people, of every status that the rules write in whole lives: total, and never without advice."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from kubectl_mb.causes import causes_of
from kubectl_mb.drawing import as_text
from kubectl_mb.listing import backend_row
from kubectl_mb.sight import Sight
from kubectl_mb.timeline import timeline_of
from kubectl_mb.watching import ending_words, is_settled, seen
from kubectl_mb.why import words
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.status_page import page
from tests.kubectl.situations import Raw, raw_backend
from tests.sim.golden import STORIES, Story, lived
from tests.sim.simulation import Simulation

NOW = datetime(2026, 5, 4, 13, tzinfo=UTC)


def statuses(story: Story) -> Iterator[Raw]:
    """Every ModelBackend as it was at some time of this life, each state once."""
    told = set()
    for state in lived(story, Simulation).past:
        for thing in state.objects.values():
            if isinstance(thing, Backend):
                raw = raw_backend(thing.status, uid=thing.ref.uid, metadata={"generation": thing.generation})
                text = json.dumps(raw, sort_keys=True, default=str)
                if text not in told:
                    told.add(text)
                    yield raw


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_every_status_of_a_life_can_be_shown_and_every_wait_has_its_advice(story: Story) -> None:
    shown = 0
    for raw in statuses(story):
        sight = Sight("models", "smollm2", backend=raw)
        causes = causes_of(sight)
        assert words(sight, causes, NOW)
        assert [cause for cause in causes if not (cause.waits_for and cause.release)] == []
        assert backend_row(raw, NOW)
        assert all(entry.line(NOW) for entry in seen(raw))
        assert is_settled(raw) in (True, False)
        ending_words(raw)
        assert as_text(timeline_of(sight, NOW))
        assert page([raw], [], NOW)
        shown += 1
    assert shown > 1
