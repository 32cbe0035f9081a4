"""When a kind that a path does not know counts as one of which there are no objects."""

from typing import Any

import pytest

from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.discovery import ABSENT_SECONDS, Discovery
from modelbackend_operator.kinds import Kind
from modelbackend_operator.kubernetes_api import Answer

GROUP, GROUPS = Kind.BACKEND.api, "/apis"
NOT_FOUND = Answer(404, {"message": "404 page not found"})
OTHERS = Answer(200, {"groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1"}]}]})
OURS = Answer(
    200, {"groups": [{"name": "modelbackend.dev", "versions": [{"groupVersion": "modelbackend.dev/v1alpha1"}]}]}
)


def serving(*plurals: str) -> Answer:
    return Answer(200, {"resources": [{"name": plural} for plural in plurals]})


def discovery(answers: dict[str, Answer], clock: list[float] | None = None) -> Discovery:
    async def get(path: str) -> Any:
        return answers[path]

    return Discovery(get, lambda: clock[0] if clock is not None else 0.0)


@pytest.mark.parametrize(
    ("answers", "serves"),
    [
        ({GROUP: serving("modelbackends", "modelbackends/status", "portclaims")}, True),
        ({GROUP: serving("portclaims")}, False),
        ({GROUP: NOT_FOUND, GROUPS: OTHERS}, False),
    ],
    ids=["in its group", "missing from its group", "without its group"],
)
async def test_a_kind_is_served_as_discovery_says(answers: dict[str, Answer], serves: bool) -> None:
    assert await discovery(answers).serves(Kind.BACKEND) is serves


@pytest.mark.parametrize(
    "answers",
    [
        {GROUP: Answer(0, {"message": "no answer"})},
        {GROUP: Answer(503)},
        {GROUP: Answer(403)},
        {GROUP: Answer(200, {"kind": "Something"})},
        {GROUP: NOT_FOUND, GROUPS: NOT_FOUND},
        {GROUP: NOT_FOUND, GROUPS: Answer(200, {"message": "welcome"})},
        {GROUP: NOT_FOUND, GROUPS: OURS},
    ],
)
async def test_whatever_else_is_answered_says_nothing(answers: dict[str, Answer]) -> None:
    with pytest.raises(ClusterUnavailable):
        await discovery(answers, clock=[0.0]).denies(Kind.BACKEND)


async def test_there_are_no_objects_of_a_kind_once_it_was_denied_for_a_while_and_without_a_gap() -> None:
    clock, answers = [0.0], {GROUP: serving("portclaims")}
    asked = discovery(answers, clock)
    assert not await asked.denies(Kind.BACKEND)
    clock[0] = ABSENT_SECONDS - 1
    assert not await asked.denies(Kind.BACKEND)
    clock[0] = ABSENT_SECONDS
    assert await asked.denies(Kind.BACKEND)
    asked.seen(Kind.BACKEND)  # another API server, say, which knew it
    assert not await asked.denies(Kind.BACKEND)


async def test_a_kind_of_kubernetes_itself_is_never_denied() -> None:
    assert not await discovery({}).denies(Kind.POD)
