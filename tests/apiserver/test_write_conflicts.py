"""A write decided from an old look meets a newer object, or another one of that name: a conflict, and no effect."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from modelbackend_operator.actions import (
    AcquireLease,
    Action,
    AddFinalizer,
    BindClaim,
    CoolClaim,
    CreateService,
    DeleteClaim,
    DeletePod,
    DeleteService,
    PointService,
    RecordNode,
    ReleaseLease,
    RemoveClaimFinalizer,
    RemoveFinalizer,
    RemovePodFinalizer,
    ReserveClaim,
    SetServing,
    Ungate,
    WithholdClaim,
    WriteStatus,
    WriteStopRecord,
)
from modelbackend_operator.kinds import Kind
from modelbackend_operator.model.backend import Backend
from modelbackend_operator.model.claim import Claim
from modelbackend_operator.model.lease import Holder
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.service import Service
from modelbackend_operator.model.stop import StopReason, StopRecord
from modelbackend_operator.observe.lease import lease_from
from modelbackend_operator.observe.service import service_from
from tests.apiserver.world import NOW, World, node_ports

pytestmark = pytest.mark.apiserver

NODE = NodeId("worker", "node-uid", "boot-1")


def changes_of(world: World) -> dict[str, tuple[Callable[[Ref], Action], Kind, Ref]]:
    """Each conditional write, made for whatever version of its target is given."""
    backend = world.backend()
    pod, claim = world.pod(backend), world.claim(backend)
    service = service_from(world.do(CreateService(backend, "own", 0, next(node_ports), "x")))
    lease = lease_from(world.do(AcquireLease(backend, Holder(backend.ref.uid, 0, "p", StopReason.DELETED))))
    record = StopRecord(NOW, StopReason.DELETED, NOW, "")

    def of_backend(make: Callable[[Backend], Action]) -> tuple[Callable[[Ref], Action], Kind, Ref]:
        return lambda ref: make(replace(backend, ref=ref)), Kind.BACKEND, backend.ref

    def of_pod(make: Callable[[Pod], Action]) -> tuple[Callable[[Ref], Action], Kind, Ref]:
        return lambda ref: make(replace(pod, ref=ref)), Kind.POD, pod.ref

    def of_claim(make: Callable[[Claim], Action]) -> tuple[Callable[[Ref], Action], Kind, Ref]:
        return lambda ref: make(replace(claim, ref=ref)), Kind.CLAIM, claim.ref

    def of_service(make: Callable[[Service], Action]) -> tuple[Callable[[Ref], Action], Kind, Ref]:
        return lambda ref: make(replace(service, ref=ref)), Kind.SERVICE, service.ref

    return {
        "AddFinalizer": of_backend(AddFinalizer),
        "RemoveFinalizer": of_backend(RemoveFinalizer),
        "WriteStatus": of_backend(lambda b: WriteStatus(b, {"replicas": 7})),
        "Ungate": of_pod(Ungate),
        "SetServing": of_pod(lambda p: SetServing(p, serving=True)),
        "WriteStopRecord": of_pod(lambda p: WriteStopRecord(p, record)),
        "RemovePodFinalizer": of_pod(RemovePodFinalizer),
        "DeletePod": of_pod(lambda p: DeletePod(p, 0)),
        "BindClaim": of_claim(lambda c: BindClaim(c, pod)),
        "ReserveClaim": of_claim(ReserveClaim),
        "RecordNode": of_claim(lambda c: RecordNode(c, NODE)),
        "CoolClaim": of_claim(lambda c: CoolClaim(c, "NeverStarted")),
        "WithholdClaim": of_claim(lambda c: WithholdClaim(c, "r", "m")),
        "RemoveClaimFinalizer": of_claim(RemoveClaimFinalizer),
        "DeleteClaim": of_claim(DeleteClaim),
        "PointService": of_service(lambda s: PointService(backend, s, "y")),
        "DeleteService": of_service(DeleteService),
        "ReleaseLease": (lambda ref: ReleaseLease(replace(lease, ref=ref)), Kind.LEASE, lease.ref),
    }


def test_a_write_decided_from_an_older_version_is_a_conflict_and_changes_nothing(world: World) -> None:
    for name, (make, kind, seen) in changes_of(world).items():
        older = replace(seen, resource_version=str(int(seen.resource_version) - 1))
        before = world.get(kind, seen).body
        answer = world.send(make(older))
        assert (name, answer.status, answer.body["reason"]) == (name, 409, "Conflict"), answer.message
        assert world.get(kind, seen).body == before


def test_a_write_meant_for_an_object_of_the_past_is_a_conflict_and_changes_nothing(world: World) -> None:
    for name, (make, kind, seen) in changes_of(world).items():
        before = world.get(kind, seen).body
        predecessor = replace(seen, uid="00000000-0000-4000-8000-000000000000", resource_version="1")
        answer = world.send(make(predecessor))
        assert (name, answer.status, answer.body["reason"]) == (name, 409, "Conflict"), answer.message
        assert world.get(kind, seen).body == before
