"""Whose turn it is among the instances of one model."""

from dataclasses import replace

import pytest

from modelbackend_operator.actions import AcquireLease, WriteStatus
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.model.lease import ModelWait
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.stopping import stop
from tests.unit.builders import (
    NOW,
    a_claim,
    a_deleted_backend,
    a_neighbours_lease,
    a_serving_pod,
    bound,
    later,
)

DELETED = bound(a_serving_pod(), backend=a_deleted_backend())
NEIGHBOUR = "models/neighbour, instance 0"


def queued(world: Observation, since: float | None, *others: ModelWait, free_since: float | None = 0) -> Observation:
    """This instance has waited since then, these others have, and the Lease has been free for so long."""
    assert world.backend is not None
    entries = [
        {**entry, **({} if since is None else {"waitingSince": later(since).isoformat()})}
        for entry in world.backend.status["instances"]
    ]
    told = replace(world.backend, status={**world.backend.status, "instances": entries})
    free = None if free_since is None else later(free_since)
    return replace(world, backend=told, model_waits=others, lease_free_since=free)


def waiting(since: float, uid: str = "other-uid", who: str = NEIGHBOUR) -> ModelWait:
    return ModelWait(later(since), uid, who)


def next_is(who: str, again: float) -> Wait:
    return Wait("WaitingForModelLock", f"{who} has waited longer and is next", later(again), 0)


QUEUES: dict[str, tuple[Observation, Wait | None]] = {
    "nobody else waits": (queued(DELETED, -60), None),
    "a neighbour came later": (queued(DELETED, -60, waiting(-59)), None),
    "a neighbour came first": (queued(DELETED, -60, waiting(-61)), next_is(NEIGHBOUR, 10)),
    "a neighbour waits and this one comes only now": (queued(DELETED, None, waiting(-1)), next_is(NEIGHBOUR, 10)),
    "two came at once, and names decide": (
        queued(DELETED, -60, waiting(-60, "a-uid", "models/a, instance 0")),
        next_is("models/a, instance 0", 10),
    ),
    "two came at once, and names decide for this one": (queued(DELETED, -60, waiting(-60, "z-uid")), None),
    "several came first, and the first is named": (
        queued(DELETED, -60, waiting(-61), waiting(-62, "z-uid", "models/z, instance 1")),
        next_is("models/z, instance 1", 10),
    ),
    "the first has left it free for a while": (
        queued(DELETED, -60, waiting(-61), free_since=-25),
        next_is(NEIGHBOUR, 5),
    ),
    "the first has left it free for too long": (queued(DELETED, -60, waiting(-61), free_since=-30), None),
    "nobody has seen since when it is free": (queued(DELETED, -60, waiting(-61), free_since=None), None),
}


@pytest.mark.parametrize("case", QUEUES)
def test_a_free_lease_when(case: str) -> None:
    world, wait = QUEUES[case]
    step = stop(world, world.pods[0], NOW)
    if wait is not None:
        assert step == wait
    else:
        assert isinstance(step, Act)
        assert isinstance(step.action, AcquireLease)


def told(world: Observation) -> dict[str, object]:
    decision = decide(world, NOW)
    assert isinstance(decision, Act)
    assert isinstance(decision.action, WriteStatus)
    entry: dict[str, object] = decision.action.status["instances"][0]
    return entry


def test_an_instance_that_begins_to_wait_says_since_when_and_keeps_its_place() -> None:
    world = replace(DELETED, lease=a_neighbours_lease())
    assert told(world)["waitingSince"] == "2026-05-04T12:00:00Z"
    before = queued(world, -60)
    assert told(before)["waitingSince"] == "2026-05-04T11:59:00Z"
    assert decide(replace(before, backend=replace(before.backend, status=status_of(before))), NOW) == stop(  # type: ignore[type-var]
        before, before.pods[0], NOW
    )


def status_of(world: Observation) -> dict[str, object]:
    decision = decide(world, NOW)
    assert isinstance(decision, Act)
    assert isinstance(decision.action, WriteStatus)
    return dict(decision.action.status)


def test_the_place_is_lost_with_the_wish_and_with_the_pod() -> None:
    serving = bound(a_serving_pod())
    assert "waitingSince" not in told(queued(serving, -60))
    named = queued(replace(DELETED, lease=a_neighbours_lease()), -60)
    named = replace(named, pods=(a_serving_pod("p-2"),), claims=(a_claim(pod_uid="p-2"),))
    assert told(named)["waitingSince"] == "2026-05-04T12:00:00Z"
