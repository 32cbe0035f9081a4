"""Whose turn it is to end, what an end waits for, and how failures are counted: each rule with its words."""

from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.actions import AcquireLease, CreateClaim, CreatePod, WriteStatus
from modelbackend_operator.conditions import publish
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act
from modelbackend_operator.instances import stop_reason
from modelbackend_operator.model.backend import Backend, Rollout
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Container, ContainerState, Pod
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.restarts import Restarts, exhausted, next_pod_at, restarts_of
from modelbackend_operator.rollout import held_back
from tests.unit.builders import (
    ENDED,
    NODE,
    NOW,
    POD_UID,
    RUNNING,
    a_backend,
    a_claim,
    a_gated_pod,
    a_lease,
    a_loading_pod,
    a_rejected_pod,
    a_service,
    a_serving_pod,
    a_shared_service,
    a_stop,
    a_world,
    later,
    shown,
)

OUTDATED = "hash-0"
PORTS = (30000, 30001, 30002)


def instance(ordinal: int, make: Any = a_serving_pod, **special: Any) -> Pod:
    pod: Pod = make(f"p-{ordinal}", ordinal=ordinal, **special)
    return replace(pod, ref=Ref(f"smollm2-{ordinal}", f"p-{ordinal}", "1", "models"))


def three(*pods: Pod, rollout: Rollout = Rollout.RECREATE) -> Observation:
    """A backend of three, each of the given pods behind a port of its own."""
    world = a_world(
        a_backend(ordinals=(0, 1, 2), rollout=rollout),
        pods=pods,
        claims=[
            a_claim(port=30000 + n, ordinal=pod.ordinal, pod_uid=pod.ref.uid, pod_name=pod.ref.name, node=NODE)
            for n, pod in enumerate(pods)
        ],
        services=[
            a_shared_service(),
            *(
                a_service(30000 + n, ordinal=p.ordinal, pod_uid=p.ref.uid, ref=Ref(f"s-{n}", f"s-{n}", "1", "models"))
                for n, p in enumerate(pods)
            ),
        ],
    )
    return shown(world)


def why_held(world: Observation, pod: Pod) -> tuple[str, str] | None:
    reason = stop_reason(world, pod)
    assert reason is not None
    wait = held_back(world, pod, reason, NOW)
    return (wait.reason, wait.message) if wait is not None else None


# -- whose turn it is --------------------------------------------------------------------------------------------------


def first_to_end(world: Observation) -> int:
    decision = decide(world, NOW)
    assert isinstance(decision, Act), decision
    assert isinstance(decision.action, AcquireLease), decision
    return decision.action.holder.ordinal


def test_the_highest_of_several_instances_of_an_earlier_spec_is_replaced_first() -> None:
    assert first_to_end(three(*(instance(n, template_hash=OUTDATED) for n in range(3)))) == 2


def test_one_that_serves_nobody_is_replaced_before_one_that_does() -> None:
    pods = [instance(n, template_hash=OUTDATED) for n in range(3)]
    pods[1] = instance(1, a_loading_pod, template_hash=OUTDATED)
    assert first_to_end(three(*pods)) == 1


def test_of_those_that_are_scaled_away_one_that_serves_nobody_goes_first() -> None:
    world = three(instance(0), instance(1, a_loading_pod), instance(2))
    assert world.backend is not None
    assert first_to_end(replace(world, backend=replace(world.backend, ordinals=(0,)))) == 1


def test_with_recreate_a_serving_instance_waits_until_every_other_one_serves() -> None:
    world = three(instance(0, template_hash=OUTDATED), instance(1, template_hash=OUTDATED), instance(2, a_loading_pod))
    message = "instance 1 serves an earlier spec; it is replaced once instance 2 serves"
    assert why_held(world, world.pods[1]) == ("RollingOut", message)
    served = three(*world.pods[:2], instance(2))
    assert why_held(served, served.pods[1]) is None


def test_with_surge_a_serving_instance_waits_for_its_successor() -> None:
    world = three(*(instance(n, template_hash=OUTDATED) for n in range(3)), rollout=Rollout.SURGE)
    message = "instance 2 serves an earlier spec; it ends once its successor serves beside it"
    assert why_held(world, world.pods[2]) == ("RollingOut", message)
    successor = replace(instance(2), ref=Ref("smollm2-2-1", "p-next", "1", "models"), replaces="p-2")
    both = three(*world.pods, successor, rollout=Rollout.SURGE)
    assert why_held(both, both.pods[2]) is None
    assert first_to_end(both) == 2


@pytest.mark.parametrize(
    "begun",
    [
        three(instance(0), instance(1, template_hash=OUTDATED, stop=a_stop()), instance(2, a_loading_pod)),
        three(instance(0), instance(1, template_hash=OUTDATED, deleted_at=NOW), instance(2, a_loading_pod)),
        replace(
            three(instance(0), instance(1, template_hash=OUTDATED), instance(2, a_loading_pod)), lease=a_lease("p-1")
        ),
    ],
    ids=["recorded", "deleted by others", "its Lease is taken"],
)
def test_an_end_that_has_begun_is_held_back_by_nothing(begun: Observation) -> None:
    assert why_held(begun, begun.pods[1]) is None


# -- the second pod of a Surge -----------------------------------------------------------------------------------------


def test_the_successor_of_the_highest_outdated_instance_gets_a_port_and_a_name_of_its_own() -> None:
    world = three(*(instance(n, template_hash=OUTDATED) for n in range(3)), rollout=Rollout.SURGE)
    claiming = decide(world, NOW)
    assert isinstance(claiming, Act)
    assert isinstance(claiming.action, CreateClaim)
    assert (claiming.action.ordinal, claiming.action.port in PORTS) == (2, False)
    reserved = a_claim(ClaimPhase.RESERVED, claiming.action.port, ordinal=2)
    making = decide(replace(world, claims=(*world.claims, reserved)), NOW)
    assert isinstance(making, Act)
    assert isinstance(making.action, CreatePod)
    assert (making.action.ordinal, making.action.port, making.action.replaces) == (2, reserved.port, "p-2")
    assert making.action.name not in {pod.ref.name for pod in world.pods}


def test_no_second_pod_is_begun_while_another_instance_does_not_serve() -> None:
    world = three(instance(0, template_hash=OUTDATED), instance(1, template_hash=OUTDATED), instance(2, a_loading_pod))
    assert world.backend is not None
    surge = replace(world, backend=replace(world.backend, rollout=Rollout.SURGE))
    decision = decide(surge, NOW)
    assert not (isinstance(decision, Act) and isinstance(decision.action, CreateClaim | CreatePod)), decision


def test_a_second_pod_behind_its_gate_waits_once_the_first_is_being_ended() -> None:
    first = instance(0, template_hash=OUTDATED, stop=a_stop(), serving_label=False)
    second = replace(a_gated_pod("p-next", replaces="p-0"), ref=Ref("smollm2-0-1", "p-next", "1", "models"))
    world = a_world(
        a_backend(rollout=Rollout.SURGE),
        pods=[first, second],
        claims=[a_claim(port=30000, pod_uid="p-0"), a_claim(port=30001, pod_uid="p-next")],
    )
    decision = decide(world, NOW)
    assert not (isinstance(decision, Act) and type(decision.action).__name__ == "Ungate"), decision


# -- counting failures -------------------------------------------------------------------------------------------------

CRASHED_TWICE = replace(RUNNING, restarts=2, exit_code=1)
DOWN = Container(
    "server", ContainerState.WAITING, ever_created=True, reason="CrashLoopBackOff", exit_code=1, restarts=2
)


def remembering(restarts: int, of_pod: int = 0, failed_starts: int = 0, uid: str = POD_UID, **special: Any) -> Backend:
    entry = {"ordinal": 0, "pod": {"uid": uid}, "restarts": restarts}
    counts = {"podRestarts": of_pod, "failedStarts": failed_starts}
    return a_backend(status={"observedGeneration": 1, "instances": [entry | counts]}, **special)


COUNTS: dict[str, tuple[Backend, Pod | None, Restarts]] = {
    "nothing known, nothing failed": (a_backend(), a_serving_pod(), Restarts(0, 0, 0)),
    "runs that the kubelet began again": (
        a_backend(),
        a_serving_pod(containers=(CRASHED_TWICE,)),
        Restarts(2, 2, 0),
    ),
    "a run that ended and is not begun again yet": (a_backend(), a_loading_pod(containers=(DOWN,)), Restarts(3, 3, 0)),
    "counted once only": (
        remembering(3, of_pod=3),
        a_loading_pod(containers=(DOWN,)),
        Restarts(3, 3, 0),
    ),
    "an older look takes nothing back": (remembering(5, of_pod=3), a_serving_pod(), Restarts(5, 3, 0)),
    "those of earlier pods stay": (remembering(5, 3, uid="last"), a_loading_pod(containers=(DOWN,)), Restarts(8, 3, 0)),
    "a pod that its node refused": (remembering(0), a_rejected_pod(), Restarts(1, 1, 1)),
    "the next one that is refused": (remembering(1, 1, 1, uid="last"), a_rejected_pod(), Restarts(2, 1, 2)),
    "a start that succeeds ends the row": (remembering(2, 1, 2, uid="last"), a_serving_pod(), Restarts(2, 0, 0)),
    "an end that was ordered": (
        remembering(1, 1),
        a_serving_pod(containers=(ENDED,), stop=a_stop()),
        Restarts(1, 1, 0),
    ),
    "with no pod left": (remembering(4, 2, 1), None, Restarts(4, 0, 1)),
    "another generation of the spec": (
        replace(remembering(4, of_pod=2), generation=2),
        a_serving_pod(containers=(CRASHED_TWICE,)),
        Restarts(0, 2, 0),
    ),
    "beside its successor, the older pod is settled": (
        a_backend(
            status={
                "observedGeneration": 1,
                "instances": [
                    {"ordinal": 0, "pod": {"uid": POD_UID}, "successor": {"pod": {"uid": "next"}}, "restarts": 1}
                ],
            }
        ),
        a_serving_pod(containers=(CRASHED_TWICE,)),
        Restarts(1, 2, 0),
    ),
    "a status that others damaged": (
        a_backend(status={"observedGeneration": 1, "instances": [{"ordinal": 0, "restarts": "many"}]}),
        a_serving_pod(),
        Restarts(0, 0, 0),
    ),
}


@pytest.mark.parametrize("case", COUNTS)
def test_the_failures_of_an_instance_are_counted(case: str) -> None:
    backend, pod, expected = COUNTS[case]
    assert restarts_of(backend, 0, pod) == expected


@pytest.mark.parametrize(
    ("in_a_row", "seconds"), [(0, 10), (1, 20), (2, 40), (4, 160), (5, 300), (1000, 300)], ids=lambda n: str(n)
)
def test_each_failed_start_doubles_the_pause_up_to_its_bound(in_a_row: int, seconds: int) -> None:
    backend = remembering(in_a_row, 1, in_a_row, uid="last")
    assert next_pod_at(backend, a_rejected_pod()) == later(seconds)


def test_a_budget_allows_as_many_restarts_as_it_says() -> None:
    assert not exhausted(remembering(3, max_restarts=3), 0, None)
    assert exhausted(remembering(4, max_restarts=3), 0, None)
    assert not exhausted(remembering(1000), 0, None)


def test_a_failure_is_in_status_before_the_pod_that_shows_it_is_ended() -> None:
    rejected = a_rejected_pod(created_at=later(-600))
    world = shown(a_world(a_backend(), pods=[rejected], claims=[a_claim()]))
    forgotten = replace(world, backend=replace(world.backend, status={}))  # type: ignore[type-var]
    first = decide(forgotten, NOW)
    assert isinstance(first, Act)
    assert isinstance(first.action, WriteStatus)
    assert first.action.status["instances"][0]["restarts"] == 1
    second = decide(replace(world, backend=replace(a_backend(), status=first.action.status)), NOW)
    assert isinstance(second, Act)
    assert not isinstance(second.action, WriteStatus)


def test_an_exhausted_budget_keeps_its_words_once_the_pod_is_gone() -> None:
    words = replace(DOWN, message="no such file: /models/x.gguf", exit_code=66)
    backend = a_backend(max_restarts=1)
    world = a_world(backend, pods=[a_loading_pod(containers=(words,))], claims=[a_claim(node=NODE)])
    told = decide(world, NOW)
    assert isinstance(told, Act)
    assert isinstance(told.action, WriteStatus)
    stalled = {c["type"]: c for c in told.action.status["conditions"]}["Stalled"]
    assert (stalled["reason"], stalled["message"]) == (
        "RestartBudgetExhausted",
        "instance 0 failed 3 times under this spec, and restart.maxRestarts allows 1; the last time: exit code 66: "
        "no such file: /models/x.gguf; it is started again when the spec changes",
    )
    gone = a_world(replace(backend, status=told.action.status))
    after = decide(gone, NOW)
    assert isinstance(after, Act)
    assert isinstance(after.action, WriteStatus)
    again = {c["type"]: c for c in after.action.status["conditions"]}["Stalled"]
    assert again == stalled


def test_a_pod_of_an_earlier_spec_is_not_waited_for_because_its_node_refused_it() -> None:
    world = a_world(a_backend(), pods=[a_rejected_pod(template_hash=OUTDATED)])
    assert why_held(world, world.pods[0]) is None


def test_status_does_not_tick_while_a_pause_runs() -> None:
    world = shown(a_world(a_backend(), pods=[a_rejected_pod()], claims=[a_claim()]))
    told = publish(world, (), NOW).status
    assert told["instances"] == publish(world, (), later(7)).status["instances"]
