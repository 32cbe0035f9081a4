"""What tools that read kstatus conclude of a ModelBackend in each phase of its life.

`kstatus` below is this project's own short form of the rules in
https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md and its `status/generic.go`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.conditions import publish
from modelbackend_operator.decision import Wait
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.reasons import Reason
from tests.crd_files import read_crd
from tests.unit.builders import (
    NOW,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_draining_pod,
    a_gated_pod,
    a_loading_pod,
    a_rejected_pod,
    a_serving_pod,
    a_terminating_pod,
    a_world,
    an_unscheduled_pod,
    bound,
)


def kstatus(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The first rule that applies."""
    conditions = {entry["type"]: entry["status"] for entry in status.get("conditions", ())}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    if conditions.get("Ready", "True") != "True":
        return "InProgress"
    return "Current"


LIFE: dict[str, tuple[Observation, tuple[Wait, ...], str]] = {
    "just made": (a_world(a_backend()), (), "InProgress"),
    "claimed, behind its gate": (bound(a_gated_pod()), (), "InProgress"),
    "no node takes it": (bound(an_unscheduled_pod(unschedulable="0/3 nodes have a GPU")), (), "Failed"),
    "loading": (bound(a_loading_pod()), (), "InProgress"),
    "serving": (bound(a_serving_pod()), (), "Current"),
    "serving an earlier spec": (bound(a_serving_pod(), backend=a_backend(template_hash="hash-2")), (), "InProgress"),
    "one of two serves": (bound(a_serving_pod(), backend=a_backend(ordinals=(0, 1))), (), "InProgress"),
    "refused by its node": (bound(a_rejected_pod()), (), "Failed"),
    "a field that is not supported": (
        a_world(a_backend(refused=("spec.x is not supported.",))),
        (Wait(Reason.UNSUPPORTED_FIELD, "spec.x is not supported."),),
        "Failed",
    ),
    "no port is free": (a_world(a_backend()), (Wait(Reason.PORT_POOL_EXHAUSTED, "none", None, 0),), "Failed"),
    "its turn to be replaced has not come": (
        bound(a_serving_pod()),
        (Wait(Reason.WAITING_FOR_MODEL_LOCK, "another is being shut down", None, 0),),
        "InProgress",
    ),
    "draining for a new spec": (bound(a_draining_pod()), (Wait(Reason.DRAINING, "finishing", None, 0),), "InProgress"),
    "being suspended": (
        bound(a_draining_pod(), backend=a_backend(ordinals=(), suspended=True)),
        (Wait(Reason.DRAINING, "finishing", None, 0),),
        "InProgress",
    ),
    "suspended": (a_world(a_backend(ordinals=(), suspended=True)), (), "Current"),
    "scaled to zero": (a_world(a_backend(ordinals=())), (), "Current"),
    "scaled to zero, its port cools": (
        a_world(a_backend(ordinals=()), claims=[a_claim(ClaimPhase.COOLING)]),
        (Wait(Reason.PORT_COOLING, "cools", None, 0),),
        "Current",
    ),
    "waiting for a proof": (
        bound(a_terminating_pod()),
        (Wait(Reason.UNCONFIRMED, "nothing proves the end of its pod", None, 0),),
        "Failed",
    ),
    "handed over, its replacement serves": (
        replace(
            bound(a_serving_pod()), pods=(a_serving_pod(), a_terminating_pod("witness", handed_over=NOW, ordinal=0))
        ),
        (),
        "Current",
    ),
    "deleted, draining": (
        bound(a_draining_pod(), backend=a_deleted_backend()),
        (Wait(Reason.DRAINING, "finishing", None, 0),),
        "Terminating",
    ),
}


@pytest.mark.parametrize("phase", LIFE)
def test_a_backend_reads_as_a_person_would_say(phase: str) -> None:
    world, waits, concluded = LIFE[phase]
    assert world.backend is not None
    status = publish(world, waits, NOW).status
    metadata = {"generation": world.backend.generation}
    if world.backend.deleting_since is not None:
        metadata["deletionTimestamp"] = NOW  # type: ignore[assignment] # only that it is there matters
    assert kstatus(metadata, status) == concluded
    kinds = [entry["type"] for entry in status["conditions"]]
    assert not {"Reconciling", "Stalled"} <= set(kinds)


def test_a_backend_that_the_operator_has_not_seen_is_in_progress() -> None:
    schema = read_crd("modelbackends")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert kstatus({"generation": 1}, schema["properties"]["status"]["default"]) == "InProgress"


def test_a_spec_that_was_edited_a_moment_ago_is_in_progress() -> None:
    status = publish(bound(a_serving_pod()), (), NOW).status
    assert kstatus({"generation": 2}, status) == "InProgress"
