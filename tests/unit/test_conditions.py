"""The status a person reads: reasons and words, and that it is written only when it says something new."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from modelbackend_operator.conditions import MESSAGE_MAX_CHARACTERS, publish, says_already
from modelbackend_operator.decision import Wait
from modelbackend_operator.model.backend import Exposure
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.node import Node
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.model.stop import Cut
from modelbackend_operator.reasons import Reason
from tests.unit.builders import (
    BACKEND_UID,
    ENDED,
    NODE,
    NOW,
    POD_UID,
    PORT,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_draining_pod,
    a_gated_pod,
    a_loading_pod,
    a_rejected_pod,
    a_report,
    a_serving_pod,
    a_shared_service,
    a_stop,
    a_terminating_pod,
    a_world,
    an_unscheduled_pod,
    bound,
    later,
)

EXHAUSTED = Wait(Reason.PORT_POOL_EXHAUSTED, "no free port", later(10), 0)
LOCKED = Wait(Reason.WAITING_FOR_MODEL_LOCK, "models/neighbour, instance 0 is being shut down", later(10), 0)


def status(world: Observation, *waits: Wait, seconds: float = 0) -> dict[str, Any]:
    return dict(publish(world, waits, later(seconds)).status)


def told(conditions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """`Type: "Status Reason: message"` for each condition."""
    return {c["type"]: f"{c['status']} {c['reason']}: {c['message']}" for c in conditions}


# -- conditions -------------------------------------------------------------------------------------------------------

CONDITIONS: dict[str, tuple[Observation, tuple[Wait, ...], dict[str, str]]] = {
    "serves": (
        bound(a_serving_pod()),
        (),
        {"Ready": "True Ready: serving", "PortAvailable": "True Claimed: claimed: 30007"},
    ),
    "starts": (
        bound(a_loading_pod()),
        (),
        {
            "Ready": "False Starting: instance 0 is starting",
            "Reconciling": "True Starting: instance 0 is starting",
            "PortAvailable": "True Claimed: claimed: 30007",
        },
    ),
    "finds no node": (
        bound(an_unscheduled_pod(unschedulable="0/1 nodes are available")),
        (),
        {
            "Ready": "False Unschedulable: 0/1 nodes are available",
            "Stalled": "True Unschedulable: 0/1 nodes are available",
            "PortAvailable": "True Claimed: claimed: 30007",
        },
    ),
    "is on a node that does not report": (
        bound(a_serving_pod(ready=False), node_troubles={NODE.name: "Kubelet stopped posting node status."}),
        (),
        {
            "Ready": "False NodeNotReady: "
            "node node-1 of pod smollm2-0 is not Ready: Kubelet stopped posting node status.",
            "Stalled": "True NodeNotReady: "
            "node node-1 of pod smollm2-0 is not Ready: Kubelet stopped posting node status.",
            "PortAvailable": "True Claimed: claimed: 30007",
        },
    ),
    "served and does not answer its probe now": (
        bound(a_serving_pod(ready=False, containers_ready=False)),
        (),
        {
            "Ready": "False ServerSilent: instance 0 served, and fails its readiness probe now",
            "Reconciling": "True ServerSilent: instance 0 served, and fails its readiness probe now",
            "PortAvailable": "True Claimed: claimed: 30007",
        },
    ),
    "finds no port": (
        a_world(a_backend()),
        (EXHAUSTED,),
        {
            "Ready": "False PortPoolExhausted: no free port",
            "Stalled": "True PortPoolExhausted: no free port",
            "PortAvailable": "False PortPoolExhausted: no free port",
        },
    ),
    "waits for its model's lock": (
        bound(a_serving_pod(), backend=a_backend(template_hash="hash-2")),
        (LOCKED,),
        {
            "Ready": "False WaitingForModelLock: models/neighbour, instance 0 is being shut down",
            "Reconciling": "True WaitingForModelLock: models/neighbour, instance 0 is being shut down",
            "PortAvailable": "True Claimed: claimed: 30007",
        },
    ),
    "drains": (
        bound(a_draining_pod()),
        (Wait(Reason.DRAINING, "requests in flight are finishing", later(1), 0),),
        {
            "Ready": "False Draining: requests in flight are finishing",
            "Reconciling": "True Draining: requests in flight are finishing",
            "PortAvailable": "True Claimed: claimed: 30007",
            "Drained": "False Draining: requests in flight are finishing",
        },
    ),
    "was told to end": (
        bound(a_terminating_pod(), backend=a_deleted_backend()),
        (),
        {
            "Ready": "False AwaitingProof: the backend is being deleted",
            "Reconciling": "True AwaitingProof: the backend is being deleted",
            "PortAvailable": "True Claimed: claimed: 30007",
            "Drained": "True AwaitingProof: admission closed; the pod was told to end",
        },
    ),
    "is busy past its deadline": (
        bound(a_draining_pod(), backend=a_deleted_backend()),
        (Wait(Reason.BUSY, "1 requests run past the drain deadline", None, 0),),
        {
            "Ready": "False Busy: 1 requests run past the drain deadline",
            "Reconciling": "True Busy: 1 requests run past the drain deadline",
            "PortAvailable": "True Claimed: claimed: 30007",
            "Drained": "False Busy: 1 requests run past the drain deadline",
        },
    ),
    "was told to end with requests in flight": (
        bound(a_terminating_pod(stop=a_stop(cut=Cut("", 3))), backend=a_deleted_backend()),
        (),
        {
            "Ready": "False AwaitingProof: the backend is being deleted",
            "Reconciling": "True AwaitingProof: the backend is being deleted",
            "PortAvailable": "True Claimed: claimed: 30007",
            "Drained": "False Forced: pod smollm2-0 was ended with 3 requests in flight",
        },
    ),
    "asks for nothing": (
        a_world(a_backend(ordinals=())),
        (),
        {"Ready": "True NoInstances: the spec asks for no instance"},
    ),
    "is suspended": (
        a_world(a_backend(ordinals=(), suspended=True)),
        (),
        {"Ready": "True Suspended: spec.suspend is true: no instance runs until it is false again"},
    ),
    "serves an earlier spec": (
        bound(a_serving_pod(), backend=a_backend(template_hash="hash-2")),
        (),
        {
            "Ready": "False RollingOut: instance 0 serves an earlier spec",
            "Reconciling": "True RollingOut: instance 0 serves an earlier spec",
            "PortAvailable": "True Claimed: claimed: 30007",
        },
    ),
    "has failed too often": (
        a_world(a_backend(max_restarts=2)),
        (Wait(Reason.RESTART_BUDGET_EXHAUSTED, "instance 0 failed 3 times", None, 0),),
        {
            "Ready": "False RestartBudgetExhausted: instance 0 failed 3 times",
            "Stalled": "True RestartBudgetExhausted: instance 0 failed 3 times",
        },
    ),
    "needs no port": (
        a_world(a_backend(exposure=Exposure.CLUSTER_IP), pods=[a_serving_pod()], services=[a_shared_service()]),
        (),
        {"Ready": "True Ready: serving"},
    ),
    "cools a port, which concerns nobody": (
        a_world(a_backend(ordinals=()), claims=[a_claim(ClaimPhase.COOLING)]),
        (Wait(Reason.PORT_COOLING, "port 30007 cools", later(15), 0),),
        {"Ready": "True NoInstances: the spec asks for no instance"},
    ),
    "serves one of two instances": (
        bound(a_serving_pod(), backend=a_backend(ordinals=(0, 1))),
        (),
        {
            "Ready": "False Starting: instance 1 is starting",
            "Reconciling": "True Starting: instance 1 is starting",
            "PortAvailable": "True Claimed: claimed: 30007",
        },
    ),
}


@pytest.mark.parametrize("case", CONDITIONS)
def test_the_conditions_of_a_backend_that(case: str) -> None:
    world, waits, conditions = CONDITIONS[case]
    assert told(status(world, *waits)["conditions"]) == conditions


@pytest.mark.parametrize("case", CONDITIONS)
def test_reconciling_and_stalled_are_never_both_said_and_never_false(case: str) -> None:
    world, waits, _ = CONDITIONS[case]
    entries = {c["type"]: c["status"] for c in status(world, *waits)["conditions"]}
    assert len({"Reconciling", "Stalled"} & set(entries)) <= 1
    assert {entries.get("Reconciling", "True"), entries.get("Stalled", "True")} == {"True"}


def test_a_long_message_is_cut() -> None:
    world = bound(an_unscheduled_pod(unschedulable="node " * 10_000))
    assert max(len(c["message"]) for c in status(world)["conditions"]) == MESSAGE_MAX_CHARACTERS


# -- times ------------------------------------------------------------------------------------------------------------


def test_last_transition_time_moves_only_when_the_status_does() -> None:
    loading = replace(bound(a_loading_pod()))
    assert loading.backend is not None
    stuck = replace(loading, pods=(a_loading_pod(containers=(replace(ENDED, exit_code=1),)),))
    failing = status(stuck, seconds=60)
    ready = next(c for c in failing["conditions"] if c["type"] == "Ready")
    assert (ready["reason"], ready["lastTransitionTime"]) == ("Crashing", "2026-05-04T12:00:00Z")
    serving = replace(stuck, backend=replace(loading.backend, status=failing), pods=(a_serving_pod(),))
    ready = next(c for c in status(serving, seconds=90)["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", "2026-05-04T12:01:30Z")


def test_every_condition_says_which_spec_it_is_about() -> None:
    world = bound(a_serving_pod(), backend=a_backend(generation=7))
    written = status(world)
    assert written["observedGeneration"] == 7
    assert {c["observedGeneration"] for c in written["conditions"]} == {7}


# -- instances and endpoints ------------------------------------------------------------------------------------------


def test_a_serving_instance_is_told_with_pod_machine_and_address() -> None:
    world = bound(a_serving_pod())
    written = status(world)
    assert written["instances"] == [
        {
            "ordinal": 0,
            "phase": "Serving",
            "pod": {"name": "smollm2-0", "uid": POD_UID},
            "node": {"name": "node-1", "uid": "n-uid", "bootID": "boot-1"},
            "address": f"10.0.0.1:{PORT}",
            "port": PORT,
            "restarts": 0,
        }
    ]
    assert written["endpoints"] == [{"ordinal": 0, "role": "Grpc", "podUID": POD_UID, "address": f"10.0.0.1:{PORT}"}]
    assert (written["replicas"], written["readyReplicas"], written["serviceName"]) == (1, 1, "smollm2")
    assert written["selector"] == f"modelbackend.dev/backend-uid={BACKEND_UID}"
    assert "inFlight" not in written


def test_a_cluster_ip_instance_is_found_by_the_shared_service() -> None:
    backend = a_backend(exposure=Exposure.CLUSTER_IP)
    written = status(a_world(backend, pods=[a_serving_pod()], services=[a_shared_service()]))
    assert [e["address"] for e in written["endpoints"]] == ["smollm2.models.svc:50051"]


@pytest.mark.parametrize(
    "special",
    [
        {"stop": a_stop()},
        {"deleted_at": NOW},
        {"ready": False},
        {"serving_condition": False},
        {"serving_label": False},
    ],
    ids=["to be stopped", "deleted by anybody", "not ready", "of unconfirmed identity", "withdrawn"],
)
def test_no_endpoint_is_told_of_an_instance_that_is(special: dict[str, Any]) -> None:
    assert status(bound(a_serving_pod(**special)))["endpoints"] == []


PHASES = {
    "Pending": a_gated_pod(),
    "Loading": a_loading_pod(),
    "Serving": a_serving_pod(),
    "Failing": a_rejected_pod(),
    "Draining": a_draining_pod(),
    "Terminating": a_terminating_pod(),
}


@pytest.mark.parametrize("phase", PHASES)
def test_the_phase_of_an_instance(phase: str) -> None:
    assert [i["phase"] for i in status(bound(PHASES[phase]))["instances"]] == [phase]


def test_an_instance_without_a_pod_says_what_it_waits_for() -> None:
    (instance,) = status(a_world(a_backend()), EXHAUSTED)["instances"]
    assert instance == {
        "ordinal": 0,
        "phase": "Waiting",
        "reason": "PortPoolExhausted",
        "message": "no free port",
    }


def test_a_vanished_pod_is_remembered_by_its_withheld_port() -> None:
    (instance,) = status(a_world(a_backend(ordinals=()), claims=[a_claim(ClaimPhase.WITHHELD)]))["instances"]
    assert (instance["phase"], instance["reason"]) == ("Unconfirmed", "PodMissing")
    assert (instance["pod"]["uid"], instance["message"]) == (POD_UID, "port 30007 is Withheld")


def test_an_instance_whose_last_pod_is_proven_to_have_ended_is_not_called_unconfirmed() -> None:
    (instance,) = status(a_world(a_backend(), claims=[a_claim(ClaimPhase.COOLING)]))["instances"]
    assert instance["phase"] == "Waiting"


def test_requests_in_flight_are_told_only_while_an_instance_drains() -> None:
    busy = {POD_UID: a_report(ServerState.DRAINING, in_flight=3)}
    assert status(bound(a_draining_pod(), servers=busy))["inFlight"] == 3
    for pod in (a_serving_pod(), a_terminating_pod()):
        assert "inFlight" not in status(bound(pod, servers=busy))


def test_the_stop_record_is_told() -> None:
    (instance,) = status(bound(a_draining_pod()))["instances"]
    assert instance["stop"] == {
        "since": "2026-05-04T12:00:00Z",
        "reason": "BackendDeleted",
        "deadline": "2026-05-04T12:00:30Z",
        "epoch": "lease-uid/0",
    }


# -- the model --------------------------------------------------------------------------------------------------------

LLAMA, QWEN = {"architecture": "llama"}, {"architecture": "qwen"}


def with_model(world: Observation, facts: Mapping[str, Any]) -> Observation:
    assert world.backend is not None
    return replace(world, backend=replace(world.backend, status={"model": {"name": "smollm2", **facts}}))


def test_the_facts_of_the_model_are_kept_while_no_server_is_asked() -> None:
    assert status(with_model(bound(a_serving_pod()), LLAMA))["model"] == {"name": "smollm2", **LLAMA}


def test_the_facts_of_a_new_model_replace_those_of_the_last() -> None:
    world = with_model(bound(a_serving_pod(), servers={POD_UID: a_report(facts=QWEN)}), LLAMA)
    assert status(world)["model"] == {"name": "smollm2", **QWEN}


@pytest.mark.parametrize(
    "special", [{"backend_uid": "x"}, {"model": "x"}, {"pod_uid": "x"}], ids=lambda s: next(iter(s))
)
def test_a_strangers_facts_are_not_told_as_ours(special: dict[str, Any]) -> None:
    world = bound(a_serving_pod(), servers={POD_UID: replace(a_report(facts=QWEN), **special)})
    assert status(world)["model"] == {"name": "smollm2"}


def test_an_ending_instance_does_not_bring_the_last_models_facts_back() -> None:
    world = with_model(bound(a_draining_pod(), servers={POD_UID: a_report(facts=LLAMA)}), QWEN)
    assert status(world)["model"] == {"name": "smollm2", **QWEN}


# -- when it need not be written --------------------------------------------------------------------------------------


def test_the_same_status_later_is_no_news() -> None:
    world = bound(a_serving_pod())
    assert says_already(status(world), status(world, seconds=3600))


def test_the_order_of_entries_is_no_news() -> None:
    written = status(bound(a_serving_pod(), backend=a_backend(ordinals=(0, 1))))
    shuffled = {**written, **{key: written[key][::-1] for key in ("conditions", "instances", "endpoints")}}
    assert says_already(shuffled, written)


def test_a_condition_of_another_writer_is_no_reason_to_write() -> None:
    written = status(bound(a_serving_pod()))
    theirs = {"type": "BackedUp", "status": "True", "reason": "Nightly", "message": ""}
    assert says_already({**written, "conditions": [theirs, *written["conditions"]]}, written)


@pytest.mark.parametrize(
    "change",
    [
        {"readyReplicas": 0},
        {"inFlight": 1},
        {"conditions": []},
        {"instances": []},
        {"endpoints": []},
        {"observedGeneration": -1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_is_news(change: dict[str, Any]) -> None:
    written = status(bound(a_serving_pod()))
    assert not says_already({**written, **change}, written)


def test_a_reboot_is_told() -> None:
    world = bound(a_serving_pod())
    rebooted = replace(world, nodes={NODE.name: Node(NODE.name, NODE.uid, "boot-2")})
    assert not says_already(status(world), status(rebooted))
