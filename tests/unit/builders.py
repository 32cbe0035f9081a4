"""Small factories for the vocabulary of `model/`: a world is said by what is special about it, all else is usual.

The usual backend wants one instance behind a node port; its usual pod is `POD_UID` and its usual port `PORT`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from modelbackend_operator.conditions import publish
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.lease import Holder, Lease
from modelbackend_operator.model.node import Node, NodeId
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Container, ContainerState, Pod, PodPhase
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.server import ServerReport, ServerState
from modelbackend_operator.model.service import Service
from modelbackend_operator.model.stop import StopReason, StopRecord
from modelbackend_operator.reasons import Reason
from modelbackend_operator.words import missing_words

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
BACKEND_UID = "b-uid"
POD_UID = "p-uid"
PORT = 30007
NODE = NodeId("node-1", "n-uid", "boot-1")
MACHINE = Node(NODE.name, NODE.uid, NODE.boot_id, address="10.0.0.1")
"""The same, as its Node object tells of it."""
RUNNING = Container("server", ContainerState.RUNNING, ever_created=True)
ENDED = Container("server", ContainerState.TERMINATED, ever_created=True, exit_code=0)
NEVER_MADE = Container("server", ContainerState.WAITING, ever_created=False, reason="ContainerCreating")


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_backend(**special: Any) -> Backend:
    usual = Backend(
        ref=Ref("smollm2", BACKEND_UID, "1", "models"),
        model="smollm2",
        generation=1,
        has_finalizer=True,
        deleting_since=None,
        ordinals=(0,),
        template_hash="hash-1",
        exposure=Exposure.NODE_PORT,
        pinned_port=None,
        port_range=None,
        drain_seconds=30,
        termination_grace_seconds=15,
        refused=(),
    )
    return replace(usual, **special)


def a_deleted_backend(**special: Any) -> Backend:
    return a_backend(deleting_since=NOW, ordinals=(), **special)


def a_claim(phase: ClaimPhase = ClaimPhase.BOUND, port: int = PORT, **special: Any) -> Claim:
    """Named by the usual pod in every phase in which a claim names one. A withheld one says that the pod vanished."""
    named = phase is not ClaimPhase.RESERVED
    usual = Claim(
        ref=Ref(f"port-{port}", f"claim-{port}-uid", "1"),
        port=port,
        ordinal=0,
        exposure=Exposure.NODE_PORT,
        phase=phase,
        pod_name="smollm2-0" if named else "",
        pod_uid=POD_UID if named else "",
        node=None,
        since=NOW,
        has_finalizer=True,
        terminating=False,
    )
    claim = replace(usual, **special)
    if claim.phase is not ClaimPhase.WITHHELD or claim.message:
        return claim
    return replace(claim, reason=Reason.POD_MISSING, message=missing_words(claim))


def a_gated_pod(uid: str = POD_UID, **special: Any) -> Pod:
    usual = Pod(
        ref=Ref("smollm2-0", uid, "1", "models"),
        ordinal=0,
        template_hash="hash-1",
        host_port=None,
        gated=True,
        serving_label=False,
        serving_condition=False,
        stop=None,
        has_finalizer=True,
        created_at=NOW,
        deleted_at=None,
        grace_seconds=None,
        phase=PodPhase.PENDING,
        phase_reason="",
        phase_message="",
        unschedulable="",
        node="",
        host_ip="",
        ip="",
        containers=(),
        containers_ready=False,
        ready=False,
        removed_by_pod_gc=False,
    )
    return replace(usual, **special)


def an_unscheduled_pod(uid: str = POD_UID, **special: Any) -> Pod:
    return a_gated_pod(uid, **{"gated": False, "serving_label": True, **special})


def a_loading_pod(uid: str = POD_UID, **special: Any) -> Pod:
    running = {
        "node": NODE.name,
        "host_ip": "10.0.0.1",
        "ip": "10.1.0.7",
        "phase": PodPhase.RUNNING,
        "containers": (RUNNING,),
    }
    return an_unscheduled_pod(uid, **{**running, **special})


def a_serving_pod(uid: str = POD_UID, **special: Any) -> Pod:
    return a_loading_pod(uid, **{"containers_ready": True, "serving_condition": True, "ready": True, **special})


def a_stop(
    reason: StopReason = StopReason.DELETED,
    drain_seconds: int = 30,
    epoch: str = "lease-uid/0",
    since: datetime = NOW,
    **special: Any,
) -> StopRecord:
    return replace(StopRecord(since, reason, since + timedelta(seconds=drain_seconds), epoch), **special)


def a_draining_pod(uid: str = POD_UID, **special: Any) -> Pod:
    """Withdrawn from callers in every way; its requests may still run."""
    withdrawn = {"stop": a_stop(), "serving_label": False, "serving_condition": False, "ready": False}
    return a_serving_pod(uid, **{**withdrawn, **special})


def a_terminating_pod(uid: str = POD_UID, **special: Any) -> Pod:
    return a_draining_pod(uid, **{"deleted_at": NOW, "grace_seconds": 15, **special})


def an_ended_pod(uid: str = POD_UID, **special: Any) -> Pod:
    """Every container terminated, by the kubelet's word: proof."""
    ended = {"phase": PodPhase.SUCCEEDED, "containers": (ENDED,), "containers_ready": False}
    return a_terminating_pod(uid, **{**ended, **special})


def a_rejected_pod(uid: str = POD_UID, **special: Any) -> Pod:
    words = {
        "node": NODE.name,
        "phase": PodPhase.FAILED,
        "phase_reason": "UnexpectedAdmissionError",
        "phase_message": "Pod was rejected: Allocate failed due to no healthy devices present",
    }
    return an_unscheduled_pod(uid, **{**words, **special})


def a_service(port: int = PORT, **special: Any) -> Service:
    usual = Service(Ref("smollm2-0", f"svc-{port}-uid", "1", "models"), 0, port, POD_UID)
    return replace(usual, **special)


def a_shared_service(**special: Any) -> Service:
    return replace(Service(Ref("smollm2", "svc-uid", "1", "models"), None, None, ""), **special)


def a_lease(pod_uid: str = POD_UID, purpose: StopReason = StopReason.DELETED, **special: Any) -> Lease:
    holder = Holder(BACKEND_UID, 0, pod_uid, purpose)
    usual = Lease(
        Ref("modelbackend-1", "lease-uid", "1", "modelbackend-system"), holder, 0, "models/smollm2, instance 0"
    )
    return replace(usual, **special)


def a_neighbours_lease() -> Lease:
    holder = Holder("other-uid", 0, "other-pod-uid", StopReason.SPEC_CHANGED)
    return a_lease(holder=holder, description="models/neighbour, instance 0")


def a_report(
    state: ServerState = ServerState.SERVING, in_flight: int = 0, pod_uid: str = POD_UID, **special: Any
) -> ServerReport:
    return replace(ServerReport(state, BACKEND_UID, "smollm2", pod_uid, in_flight), **special)


def a_world(
    backend: Backend | None = None,
    *,
    claims: Iterable[Claim] = (),
    pods: Iterable[Pod] = (),
    services: Iterable[Service] = (),
    servers: Mapping[str, ServerReport] | None = None,
    **special: Any,
) -> Observation:
    usual = Observation(
        backend_uid=BACKEND_UID,
        backend=backend,
        namespace_terminating=False,
        claims=tuple(claims),
        pods=tuple(pods),
        services=tuple(services),
        lease=None,
        nodes={NODE.name: MACHINE},
        servers=servers or {},
        ports=Ports(((30000, 30085),), 15, frozenset()),
        taken_names=frozenset(),
    )
    return replace(usual, **special)


def shown(observation: Observation, now: datetime = NOW) -> Observation:
    """The same world once its status has been written, so that it names and advertises what is true."""
    assert observation.backend is not None
    written = publish(observation, (), now).status
    return replace(observation, backend=replace(observation.backend, status=written))


def bound(*pods: Pod, backend: Backend | None = None, **special: Any) -> Observation:
    """The usual instance with claim and Services, its status written when `pods` were as given."""
    world = a_world(
        backend or a_backend(),
        claims=(a_claim(node=NODE),),
        pods=pods,
        services=(a_shared_service(), a_service()),
        **special,
    )
    return shown(world)
