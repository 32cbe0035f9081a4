"""What status.lastShutdown says of the last instance that ended, and when it is written."""

from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.actions import CoolClaim, RemovePodFinalizer, WriteStatus
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act
from modelbackend_operator.deferrals import Deferrals
from modelbackend_operator.last_shutdown import tell_shutdown
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.stop import Cut, StopReason, StopRecord
from tests.unit.builders import (
    BACKEND_UID,
    POD_UID,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_shared_service,
    a_stop,
    a_terminating_pod,
    an_ended_pod,
    bound,
    later,
)

COOLING = a_claim(ClaimPhase.COOLING)


def ended(stop: StopRecord | None = None, **special: Any) -> Observation:
    """An instance whose end is proven and whose port was released; it is started again."""
    pod = an_ended_pod(stop=stop or a_stop(StopReason.SPEC_CHANGED))
    return replace(bound(pod, backend=a_backend(template_hash="hash-2")), **{"claims": (COOLING,), **special})


def written(world: Observation) -> dict[str, Any] | None:
    decision = decide(world, later(42))
    if not isinstance(decision, Act) or not isinstance(decision.action, WriteStatus):
        return None
    return dict(decision.action.status["lastShutdown"])


OUTCOMES: dict[str, tuple[StopRecord, str, int | None]] = {
    "its requests were finished": (a_stop(), "Drained", 0),
    "they were cut at the deadline": (a_stop(cut=Cut("", 3)), "Forced", 3),
    "they were cut by order": (a_stop(cut=Cut("all now", 0)), "Forced", 0),
    "nobody knows how many were cut": (a_stop(cut=Cut("", None)), "Forced", None),
    "it never served": (a_stop(drain_seconds=0), "NotServing", 0),
    "others deleted its pod": (a_stop(StopReason.FOREIGN, 0, epoch=""), "DeletedByOthers", None),
    "others deleted its pod, and it was forced": (
        a_stop(StopReason.FOREIGN, 0, epoch="", cut=Cut("all now", 2)),
        "Forced",
        2,
    ),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_a_shutdown_is_told_when(case: str) -> None:
    stop, outcome, cut = OUTCOMES[case]
    told = {"outcome": outcome, "seconds": 42, "finished": "2026-05-04T12:00:42Z"}
    pod = {"pod": {"name": "smollm2-0", "uid": POD_UID}}
    assert written(ended(stop)) == {**told, **pod, **({} if cut is None else {"requestsCut": cut})}


def test_it_is_told_once_and_kept() -> None:
    world = ended()
    first = decide(world, later(42))
    assert isinstance(first, Act)
    assert isinstance(first.action, WriteStatus)
    assert world.backend is not None
    told = replace(world, backend=replace(world.backend, status=first.action.status))
    again = decide(told, later(43))
    assert again == Act(RemovePodFinalizer(world.pods[0]))
    gone = replace(told, pods=())
    later_on = decide(replace(gone, claims=(), services=(a_shared_service(),)), later(99))
    assert isinstance(later_on, Act)
    status = getattr(later_on.action, "status", first.action.status)
    assert status["lastShutdown"] == first.action.status["lastShutdown"]


def test_the_port_is_released_before_anybody_is_told() -> None:
    decision = decide(ended(claims=(a_claim(),)), later(42))
    assert isinstance(decision, Act)
    assert isinstance(decision.action, CoolClaim)


def test_a_backend_that_ends_itself_is_not_told_what_nobody_could_read() -> None:
    world = bound(an_ended_pod(), backend=a_deleted_backend())
    assert decide(replace(world, claims=(COOLING,), services=()), later(42)) == Act(RemovePodFinalizer(world.pods[0]))


def test_an_end_is_not_held_up_by_a_status_that_cannot_be_written() -> None:
    world = ended()
    decision = decide(world, later(42))
    assert isinstance(decision, Act)
    found = Deferrals()
    found.refused(BACKEND_UID, decision.action, "no", later(42))
    refused = replace(world, deferred=found.of(BACKEND_UID))
    assert decide(refused, later(42)) == Act(RemovePodFinalizer(world.pods[0]))


def a_witness(told: dict[str, Any] | None = None) -> Observation:
    """An instance that was handed over ten seconds ago, its port withheld."""
    pod = a_terminating_pod(stop=a_stop(StopReason.SPEC_CHANGED, cut=Cut("", 3)), handed_over=later(32))
    world = bound(pod, backend=a_backend(template_hash="hash-2"))
    assert world.backend is not None
    backend = replace(world.backend, status={**world.backend.status, **({"lastShutdown": told} if told else {})})
    return replace(world, backend=backend, claims=(a_claim(ClaimPhase.WITHHELD),))


def told_of(pod_uid: str, second: int) -> dict[str, Any]:
    pod = {"name": "smollm2-0", "uid": pod_uid}
    return {"outcome": "Drained", "pod": pod, "finished": f"2026-05-04T12:00:{second}Z", "seconds": 1}


def test_an_end_that_was_given_up_as_unconfirmed_is_told_as_that() -> None:
    step = tell_shutdown(a_witness(told_of("earlier", 31)), a_witness().pods[0], later(42))
    assert step is not None
    assert isinstance(step.action, WriteStatus)
    told = step.action.status["lastShutdown"]
    assert (told["outcome"], told["seconds"], told["finished"]) == ("Unconfirmed", 32, "2026-05-04T12:00:32Z")


@pytest.mark.parametrize("told", [told_of(POD_UID, 32), told_of("successor", 32), told_of("successor", 40)])
def test_it_is_not_told_again_after_itself_or_a_later_one(told: dict[str, Any]) -> None:
    world = a_witness(told)
    assert tell_shutdown(world, world.pods[0], later(42)) is None
