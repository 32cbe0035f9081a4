"""shutdown.nodeLossSeconds: an instance on a lost node is ended by us, and not only by the cluster's eviction."""

from dataclasses import replace
from typing import Any

from modelbackend_operator.actions import AcquireLease, DeletePod, WriteStopRecord
from modelbackend_operator.decide import decide, servers_to_ask
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.stopping import stop
from tests.unit.builders import (
    MACHINE,
    NODE,
    NOW,
    a_backend,
    a_draining_pod,
    a_lease,
    a_report,
    a_serving_pod,
    a_stop,
    bound,
    later,
)
from tests.unit.test_lifecycle_walk import a_new_backend, claims, pods, serves
from tests.unit.test_unconfirmed_walk import lost

LOST = {NODE.name: replace(MACHINE, lost_since=NOW)}
LIMITED = a_backend(node_loss_seconds=40)


def on_a_lost_node(pod: Any = None, **special: Any) -> Observation:
    return replace(bound(pod or a_serving_pod(), backend=LIMITED), **{"nodes": LOST, **special})


def test_an_instance_is_ended_when_its_node_has_been_lost_for_the_limit_and_not_before() -> None:
    world = on_a_lost_node()
    early = stop(world, world.pods[0], later(39))
    assert early == Wait("NodeLossLimit", "", later(40), 0)
    action = decide(world, later(40))
    assert isinstance(action, Act)
    assert isinstance(action.action, AcquireLease)
    assert action.action.holder.purpose is StopReason.NODE_LOST


def test_without_a_limit_and_on_a_node_that_is_there_nothing_is_ended() -> None:
    for world in (
        replace(on_a_lost_node(), backend=replace(LIMITED, node_loss_seconds=None)),
        on_a_lost_node(nodes={NODE.name: MACHINE}),
        on_a_lost_node(nodes={}),
    ):
        assert stop(world, world.pods[0], later(10**6)) is None


def test_a_server_that_still_answers_drains_and_one_that_does_not_is_ended_at_once() -> None:
    lease = a_lease(purpose=StopReason.NODE_LOST)
    world = on_a_lost_node(lease=lease)
    assert servers_to_ask(world) == world.pods
    silent = stop(world, world.pods[0], later(40))
    assert silent == Act(WriteStopRecord(world.pods[0], a_stop(StopReason.NODE_LOST, 0, since=later(40))))
    heard = replace(world, servers={world.pods[0].ref.uid: a_report(in_flight=1)})
    drains = stop(heard, world.pods[0], later(40))
    assert drains == Act(WriteStopRecord(world.pods[0], a_stop(StopReason.NODE_LOST, 30, since=later(40))))


def test_the_pod_of_a_silent_one_is_deleted_without_a_drain() -> None:
    pod = a_draining_pod(stop=a_stop(StopReason.NODE_LOST, 0), withdrawn=True)
    world = on_a_lost_node(pod, lease=a_lease(purpose=StopReason.NODE_LOST))
    assert stop(world, pod, later(40)) == Act(DeletePod(pod, 15))


def test_a_lost_instance_is_served_again_although_nobody_evicts_it() -> None:
    walk, pod = lost(node_loss_seconds=40, unconfirmed_after_seconds=5)
    walk.held = ("evict",)
    walk.settle()
    assert serves(walk), walk.told()
    assert {claim.pod_uid for claim in claims(walk)} >= {pod.ref.uid}
    assert len(pods(walk)) == 2
    assert a_new_backend().node_loss_seconds is None
