"""An operator that takes over from an earlier one: what that one wrote, byte for byte, is understood and goes on.

The texts here are as the first version wrote them, and are not to be regenerated: objects out there carry them.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from modelbackend_operator.actions import DeletePod, DrainServer, WriteStatus
from modelbackend_operator.cache import Cache
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act, Done
from modelbackend_operator.kinds import Kind
from modelbackend_operator.manifests import lease_name
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.server import ServerReport, ServerState
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.settings import Settings
from modelbackend_operator.snapshot import observation_of

UID = "9f7c6a0e-5f0a-4f57-9d0b-0b6a6f3f1c11"
POD = "smollm2-12345678-0"
POD_UID = "0c5b2f0e-7d7e-4a64-8a55-2f2b9a6a7d01"
LEASE_UID = "5d0f9b6e-2b59-4a3e-8a39-3f0a0f6b9c02"
NOW = datetime(2026, 5, 4, 12, 0, 10, tzinfo=UTC)
TEMPLATE_HASH = "6dd27d57ac72550b"
STOP_RECORD = (
    '{"deadline": "2026-05-04T12:00:30.000000Z", "epoch": "5d0f9b6e-2b59-4a3e-8a39-3f0a0f6b9c02/0", '
    '"reason": "BackendDeleted", "since": "2026-05-04T12:00:00.000000Z"}'
)
HOLDER = (
    '{"backendUID": "9f7c6a0e-5f0a-4f57-9d0b-0b6a6f3f1c11", "description": "models/smollm2, instance 0", "ordinal": 0, '
    '"podUID": "0c5b2f0e-7d7e-4a64-8a55-2f2b9a6a7d01", "purpose": "BackendDeleted"}'
)
OWNED = {
    "modelbackend.dev/backend-uid": UID,
    "app.kubernetes.io/managed-by": "modelbackend-operator",
    "modelbackend.dev/ordinal": "0",
}
OPEN = {"modelbackend.dev/pod-uid": POD_UID, "modelbackend.dev/serving": "true"}


def metadata(name: str, uid: str, **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": "modelbackend.dev/v1alpha1", "kind": "ModelBackend", "name": "smollm2", "uid": UID}
    return {
        "name": name,
        "namespace": "models",
        "uid": uid,
        "resourceVersion": "1",
        "creationTimestamp": "2026-05-04T11:00:00Z",
        "ownerReferences": [owner | {"controller": True}],
        **more,
    }


def backend(*, deleting: bool) -> dict[str, Any]:
    """With the status that the first version had written while its instance served."""
    source = {"persistentVolumeClaim": {"claimName": "weights", "path": "smollm2.gguf"}}
    found = metadata("smollm2", UID, generation=1, finalizers=["modelbackend.dev/termination"])
    del found["ownerReferences"]
    if deleting:
        found["deletionTimestamp"] = "2026-05-04T12:00:00Z"
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "serving"}
    claimed = {"type": "PortAvailable", "status": "True", "reason": "Claimed", "message": "claimed: 30001"}
    known = {"observedGeneration": 1, "lastTransitionTime": "2026-05-04T11:00:30Z"}
    instance = {"ordinal": 0, "phase": "Serving", "pod": {"name": POD, "uid": POD_UID}, "restarts": 0}
    instance |= {"node": {"name": "worker", "uid": "node-uid", "bootID": "boot-1"}, "address": "10.0.0.1:30001"}
    return {
        "metadata": found,
        "spec": {"model": {"source": source}, "replicas": 1},
        "status": {
            "observedGeneration": 1,
            "replicas": 1,
            "readyReplicas": 1,
            "selector": f"modelbackend.dev/backend-uid={UID}",
            "serviceName": "smollm2",
            "endpoints": [{"ordinal": 0, "role": "Grpc", "podUID": POD_UID, "address": "10.0.0.1:30001"}],
            "instances": [instance | {"port": 30001}],
            "model": {"name": "smollm2", "architecture": "llama"},
            "conditions": [ready | known, claimed | known],
        },
    }


def pod(*, stopping: bool) -> dict[str, Any]:
    annotations = {"modelbackend.dev/template-hash": TEMPLATE_HASH}
    conditions = [{"type": "ContainersReady", "status": "True"}]
    serving = "False" if stopping else "True"
    conditions += [{"type": name, "status": serving} for name in ("modelbackend.dev/serving", "Ready")]
    status = {"containerID": "containerd://a", "name": "server", "restartCount": 0, "state": {"running": {}}}
    return {
        "metadata": metadata(
            POD,
            POD_UID,
            finalizers=["modelbackend.dev/termination"],
            labels=OWNED if stopping else OWNED | OPEN,
            annotations=annotations | ({"modelbackend.dev/stop": STOP_RECORD} if stopping else {}),
        ),
        "spec": {"nodeName": "worker", "containers": [{"name": "server"}]},
        "status": {
            "phase": "Running",
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.7",
            "conditions": conditions,
            "containerStatuses": [status],
        },
    }


def services() -> list[dict[str, Any]]:
    shared = metadata("smollm2", "svc", labels={k: v for k, v in OWNED.items() if "ordinal" not in k})
    own = metadata(POD, "svc-0", labels=OWNED)
    grpc = {"name": "grpc", "port": 50051, "targetPort": "grpc", "protocol": "TCP"}
    serving = {"modelbackend.dev/serving": "true"}
    one = {"type": "NodePort", "selector": serving | {"modelbackend.dev/pod-uid": POD_UID}}
    every = {"type": "ClusterIP", "selector": serving | {"modelbackend.dev/backend-uid": UID}}
    return [
        {"metadata": shared, "spec": every | {"ports": [grpc]}},
        {"metadata": own, "spec": one | {"ports": [grpc | {"nodePort": 30001}]}},
    ]


def observe(*, stopping: bool) -> Observation:
    cache = Cache()
    cache.put(Kind.BACKEND, backend(deleting=stopping))
    cache.put(Kind.POD, pod(stopping=stopping))
    for service in services():
        cache.put(Kind.SERVICE, service)
    claim: dict[str, Any] = {"name": "port-30001", "uid": "claim", "resourceVersion": "1"}
    claim["finalizers"] = ["modelbackend.dev/termination"]
    of = {"namespace": "models", "name": "smollm2", "uid": UID}
    status = {"phase": "Bound", "since": "2026-05-04T11:00:00Z", "pod": {"name": POD, "uid": POD_UID}}
    status |= {"node": {"name": "worker", "uid": "node-uid", "bootID": "boot-1"}}
    spec = {"port": 30001, "exposure": "NodePort", "role": "Grpc", "ordinal": 0, "backend": of}
    cache.put(Kind.CLAIM, {"metadata": claim, "spec": spec, "status": status})
    node = {"name": "worker", "uid": "node-uid", "resourceVersion": "1"}
    cache.put(Kind.NODE, {"metadata": node, "status": {"nodeInfo": {"bootID": "boot-1"}}})
    if stopping:
        lease = {"name": lease_name("models", "smollm2"), "uid": LEASE_UID, "namespace": "modelbackend-system"}
        lease |= {"resourceVersion": "1", "annotations": {"modelbackend.dev/holder": HOLDER}}  # type: ignore[dict-item]
        cache.put(Kind.LEASE, {"metadata": lease, "spec": {"leaseTransitions": 0}})
    observation = observation_of(cache, UID, Settings(), ports_outside={}, live=False)
    return replace(observation, namespace_terminating=False)


def answering(world: Observation, state: ServerState, in_flight: int = 0) -> Observation:
    report = ServerReport(state, UID, "smollm2", POD_UID, in_flight, {"architecture": "llama"})
    return replace(world, servers={POD_UID: report})


def next_step(world: Observation, now: datetime = NOW) -> object:
    """The first that is more than a status, which a newer version may word differently."""
    for _ in range(3):
        decision = decide(world, now)
        if not (isinstance(decision, Act) and isinstance(decision.action, WriteStatus)):
            return decision.action if isinstance(decision, Act) else decision
        assert world.backend is not None
        status = json.loads(json.dumps(decision.action.status))
        world = replace(world, backend=replace(world.backend, status=status))
    raise AssertionError("the status is written for ever")


def test_an_instance_that_an_earlier_operator_started_is_left_alone() -> None:
    decision = decide(observe(stopping=False), NOW)
    assert decision == Done() or (isinstance(decision, Act) and type(decision.action).__name__ == "PointService")


def test_its_status_is_not_even_worded_anew() -> None:
    world = observe(stopping=False)
    services = tuple(replace(service, intact=True) for service in world.services)
    assert decide(replace(world, services=services), NOW) == Done()


def test_a_shutdown_that_an_earlier_operator_began_is_understood() -> None:
    world = observe(stopping=True)
    (stopped,) = world.pods
    assert stopped.stop is not None
    assert (stopped.stop.reason, stopped.stop.epoch) == (StopReason.DELETED, f"{LEASE_UID}/0")
    assert stopped.stop.deadline == datetime(2026, 5, 4, 12, 0, 30, tzinfo=UTC)
    assert world.lease is not None
    assert world.lease.holder is not None
    assert (world.lease.holder.pod_uid, world.lease.epoch) == (POD_UID, f"{LEASE_UID}/0")


@pytest.mark.parametrize(
    ("state", "in_flight", "seconds", "expected"),
    [
        (ServerState.SERVING, 1, 0, DrainServer),
        (ServerState.DRAINING, 0, 0, DeletePod),
    ],
    ids=["it was not told to drain yet", "it has nothing left to finish"],
)
def test_a_shutdown_that_an_earlier_operator_began_goes_on_where_it_was(
    state: ServerState, in_flight: int, seconds: int, expected: type[object]
) -> None:
    world = answering(observe(stopping=True), state, in_flight)
    assert isinstance(next_step(world, NOW + timedelta(seconds=seconds)), expected)
