"""Situations in which a backend is stuck, as a user would see them: the status is what the real rules write."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kubectl_mb.sight import Sight
from modelbackend_operator.actions import WriteStatus
from modelbackend_operator.decide import decide
from modelbackend_operator.decision import Act
from modelbackend_operator.model.backend import WhenUnconfirmed
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Container, ContainerState, PodPhase
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.reasons import Reason
from modelbackend_operator.timestamps import rfc3339
from tests.unit.builders import (
    BACKEND_UID,
    NODE,
    NOW,
    POD_UID,
    PORT,
    a_backend,
    a_claim,
    a_draining_pod,
    a_lease,
    a_loading_pod,
    a_neighbours_lease,
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

Raw = dict[str, Any]
CREATED = rfc3339(later(-600))


@dataclass(frozen=True)
class Situation:
    title: str
    reason: str
    """The one that `why` must name first."""
    sight: Sight
    now: datetime = NOW


def status_in(world: Observation, now: datetime) -> Mapping[str, Any]:
    """As the operator writes it when there is nothing else to do."""
    decision = decide(world, now)
    if isinstance(decision, Act):
        assert isinstance(decision.action, WriteStatus), decision
        return decision.action.status
    assert world.backend is not None
    return world.backend.status


def raw_backend(status: Mapping[str, Any], *, name: str = "smollm2", uid: str = BACKEND_UID, **special: Any) -> Raw:
    metadata = {
        "name": name,
        "namespace": "models",
        "uid": uid,
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": CREATED,
        "finalizers": ["modelbackend.dev/termination"],
        **special.pop("metadata", {}),
    }
    spec = {"model": {"source": {"persistentVolumeClaim": {"claimName": "weights", "path": "m.gguf"}}}, **special}
    return {"metadata": metadata, "spec": spec, "status": {"observedGeneration": metadata["generation"], **status}}


def raw_claim(port: int, phase: str = "Bound", *, owner: str = "smollm2", **status: Any) -> Raw:
    uid = BACKEND_UID if owner == "smollm2" else f"{owner}-uid"
    return {
        "metadata": {
            "name": f"port-{port}",
            "uid": f"claim-{port}",
            "resourceVersion": "1",
            "creationTimestamp": CREATED,
        },
        "spec": {
            "port": port,
            "exposure": "NodePort",
            "ordinal": 0,
            "backend": {"namespace": "models", "name": owner, "uid": uid},
        },
        "status": {"phase": phase, "since": rfc3339(NOW), **status},
    }


def raw_node(name: str = NODE.name, *, trouble: str = "") -> Raw:
    ready = {"type": "Ready", "status": "Unknown" if trouble else "True", "message": trouble}
    return {"metadata": {"name": name, "uid": NODE.uid}, "status": {"conditions": [ready]}}


def raw_pod(uid: str = POD_UID, name: str = "smollm2-0", node: str = NODE.name) -> Raw:
    return {"metadata": {"name": name, "namespace": "models", "uid": uid}, "spec": {"nodeName": node}}


LEASE: Raw = {
    "metadata": {
        "name": "modelbackend-5f2d9a1c33e07b44",
        "namespace": "modelbackend-system",
        "uid": "lease-uid",
        "resourceVersion": "1",
        "annotations": {
            "modelbackend.dev/holder": '{"backendUID": "other-uid", "ordinal": 0, "podUID": "other-pod-uid", '
            '"purpose": "SpecChanged", "description": "models/neighbour, instance 0"}'
        },
    },
    "spec": {"acquireTime": rfc3339(later(-12)), "leaseTransitions": 0},
}


def seen(world: Observation, now: datetime = NOW, *, asked: Mapping[str, Any] | None = None, **special: Any) -> Sight:
    """What a user sees of this world, with the given other objects."""
    backend = raw_backend(status_in(world, now), **(asked or {}))
    return replace(
        Sight("models", "smollm2", backend=backend, nodes={NODE.name: raw_node()}, pods=(raw_pod(),)), **special
    )


def pulling(reason: str, message: str) -> Container:
    return Container("server", ContainerState.WAITING, ever_created=False, reason=reason, message=message)


def waits_for_the_lease() -> Situation:
    world = bound(a_serving_pod(template_hash="older"), lease=a_neighbours_lease())
    world = replace(world, servers={POD_UID: a_report()})
    return Situation(
        "another instance of the model is being shut down",
        Reason.WAITING_FOR_MODEL_LOCK,
        seen(world, later(20), lease=LEASE, neighbours=(neighbour(),)),
        later(34),
    )


def neighbour() -> Raw:
    """Another backend of the model, which is being stopped."""
    ending = {
        "ordinal": 0,
        "phase": "Draining",
        "pod": {"name": "neighbour-0", "uid": "other-pod-uid"},
        "stop": {"since": rfc3339(later(-12)), "reason": "SpecChanged", "deadline": rfc3339(later(48))},
    }
    return raw_backend({"instances": [ending]}, name="neighbour", uid="other-uid", model={"name": "smollm2"})


def waits_for_the_lease_unseen() -> Situation:
    """By a tenant, who may not read Leases: the neighbour's own status tells."""
    one = waits_for_the_lease()
    sight = replace(one.sight, lease=None, nodes={}, hidden=frozenset({"leases", "nodes", "portclaims"}))
    return replace(one, title="the same, as a tenant sees it", sight=sight)


def has_no_port() -> Situation:
    ports = Ports(
        ((30000, 30001),),
        15,
        frozenset({30000, 30001}),
        {30000: "models/a", 30001: "models/b"},
        {"Bound": 1, "Withheld": 1},
    )
    world = a_world(a_backend(), ports=ports, services=(a_shared_service(),))
    ledger = (raw_claim(30000, owner="a"), raw_claim(30001, "Withheld", owner="b"))
    return Situation("no port is free", Reason.PORT_POOL_EXHAUSTED, seen(world, ledger=ledger, pods=()), later(75))


def finds_no_node() -> Situation:
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    world = bound(an_unscheduled_pod(unschedulable=words))
    return Situation(
        "no node has a GPU to spare", Reason.UNSCHEDULABLE, seen(world, pods=(raw_pod(node=""),)), later(600)
    )


def cannot_pull() -> Situation:
    container = pulling("ImagePullBackOff", 'Back-off pulling image "registry.example/server:typo"')
    pod = a_loading_pod(phase=PodPhase.PENDING, containers=(container,))
    return Situation("the image cannot be pulled", Reason.IMAGE_UNAVAILABLE, seen(bound(pod)), later(95))


LOST = "Kubelet stopped posting node status."


def is_unconfirmed() -> Situation:
    pod = a_terminating_pod(handed_over=None)
    world = bound(pod, backend=a_backend(when_unconfirmed=WhenUnconfirmed.WAIT), node_troubles={NODE.name: LOST})
    world = replace(world, pods=(replace(pod, stop=a_stop(yielded_at=NOW)),))
    nodes = {NODE.name: raw_node(trouble=LOST)}
    return Situation(
        "a node was lost, and proof is waited for",
        Reason.UNCONFIRMED,
        seen(world, later(900), nodes=nodes),
        later(3700),
    )


def is_busy() -> Situation:
    pod = a_draining_pod(stop=a_stop(yielded_at=later(31)))
    report = a_report(ServerState.DRAINING, in_flight=3)
    world = bound(pod, backend=a_backend(escalate=False, ordinals=(), suspended=True), servers={POD_UID: report})
    return Situation(
        "busy, and not to be ended by force", Reason.BUSY, seen(world, later(40), asked={"suspend": True}), later(300)
    )


def is_suspended() -> Situation:
    fields = {"manager": "kubectl-edit", "time": CREATED, "fieldsV1": {"f:spec": {"f:suspend": {}}}}
    asked = {"suspend": True, "metadata": {"managedFields": [fields]}}
    world = a_world(a_backend(ordinals=(), suspended=True), services=(a_shared_service(),))
    return Situation("suspended", Reason.SUSPENDED, seen(world, pods=(), asked=asked), later(60))


def has_its_pin_taken() -> Situation:
    ports = Ports(((30000, 30085),), 15, frozenset({PORT}), {PORT: "shop/checkout"})
    world = a_world(a_backend(pinned_port=PORT), ports=ports, services=(a_shared_service(),))
    service = {"metadata": {"namespace": "shop", "name": "checkout"}, "spec": {"ports": [{"nodePort": PORT}]}}
    asked = {"exposure": {"nodePort": PORT}}
    return Situation(
        "a foreign Service has the pinned port",
        Reason.PINNED_PORT_TAKEN,
        seen(world, asked=asked, services=(service,), pods=()),
        later(45),
    )


def spent_its_budget() -> Situation:
    entry = {
        "ordinal": 0,
        "phase": "Waiting",
        "restarts": 4,
        "reason": Reason.RESTART_BUDGET_EXHAUSTED,
        "message": "instance 0 failed 4 times under this spec, and restart.maxRestarts allows 3; the last time: "
        "ended by SIGSEGV (exit code 139): ggml_cuda: out of memory; it is started again when the spec changes",
    }
    backend = a_backend(max_restarts=3, status={"observedGeneration": 1, "instances": [entry]})
    world = a_world(backend, services=(a_shared_service(),))
    sight = seen(world, asked={"restart": {"maxRestarts": 3}}, pods=())
    return Situation("it crashed too often", Reason.RESTART_BUDGET_EXHAUSTED, sight, later(120))


def is_gone_but_for_a_port() -> Situation:
    claim = a_claim(ClaimPhase.WITHHELD, node=NODE)
    told: Raw = {
        "pod": {"name": claim.pod_name, "uid": claim.pod_uid},
        "node": {"name": NODE.name, "uid": NODE.uid, "bootID": NODE.boot_id},
        "reason": claim.reason,
        "message": claim.message,
    }
    nodes = {NODE.name: raw_node(trouble=LOST)}
    sight = Sight("models", "smollm2", ledger=(raw_claim(PORT, "Withheld", **told),), nodes=nodes)
    return Situation("the backend is gone, and a port is withheld", Reason.POD_MISSING, sight, later(7200))


def drains() -> Situation:
    report = a_report(ServerState.DRAINING, in_flight=2)
    backend = a_backend(deleting_since=NOW, ordinals=())
    world = bound(a_draining_pod(), backend=backend, lease=a_lease(), servers={POD_UID: report})
    asked = {
        "metadata": {
            "deletionTimestamp": rfc3339(NOW),
            "finalizers": ["modelbackend.dev/termination", "example.org/backup"],
        }
    }
    return Situation("deleted, and requests run", Reason.DRAINING, seen(world, later(4), asked=asked), later(14))


def nobody_looks() -> Situation:
    sight = Sight("models", "smollm2", backend=raw_backend({"observedGeneration": -1}))
    return Situation("no operator runs", "NotObserved", sight)


SITUATIONS = (
    waits_for_the_lease(),
    waits_for_the_lease_unseen(),
    has_no_port(),
    finds_no_node(),
    cannot_pull(),
    is_unconfirmed(),
    is_busy(),
    is_suspended(),
    has_its_pin_taken(),
    spent_its_budget(),
    is_gone_but_for_a_port(),
    drains(),
    nobody_looks(),
)
