"""Walks whose traces are replayed: together they take every action that the specification knows."""

from collections.abc import Callable
from typing import Any

from modelbackend_operator.model.backend import Attestation, Backend, Exposure, OrderKind, WhenUnconfirmed
from modelbackend_operator.model.pod import Pod, PodPhase
from modelbackend_operator.model.ref import Ref
from tests.model.traced_walk import TracedWalk
from tests.sim.world import World
from tests.unit.builders import a_backend

MAIN = "main-uid"


def backend(**special: Any) -> Backend:
    return a_backend(**{"ref": Ref("main", MAIN, "", "models"), "has_finalizer": False, **special})


def started(
    *,
    exposure: Exposure = Exposure.NODE_PORT,
    when: WhenUnconfirmed = WhenUnconfirmed.HAND_OVER,
    http: bool = False,
    **faults: Any,
) -> TracedWalk:
    one = backend(exposure=exposure, when_unconfirmed=when, http=http)
    return TracedWalk(World(one), **faults).settle_traced()


def pod_of(walk: TracedWalk) -> Pod:
    (pod,) = walk.world.state.all(Pod)
    return pod


def deleted(walk: TracedWalk) -> TracedWalk:
    walk.held = ()
    walk.world.delete_backend(MAIN)
    return walk.settle_traced()


def whole_life(**faults: Any) -> TracedWalk:
    """Started, restarted for a new spec with a request inside, deleted."""
    walk = started(**faults)
    for pod in walk.world.state.all(Pod):
        walk.world.request(pod)
    for found in walk.world.state.all(Backend):
        walk.world.edit(found, template_hash="hash-2")
    walk.settle_traced()
    return deleted(walk)


def torn_out() -> TracedWalk:
    walk = started()
    walk.world.remove(pod_of(walk))
    walk.settle_traced()
    return deleted(walk)


def evicted() -> TracedWalk:
    walk = started(exposure=Exposure.HOST_PORT)
    walk.world.delete_pod(pod_of(walk))
    walk.settle_traced()
    return deleted(walk)


def without_pod_finalizer() -> TracedWalk:
    walk = started()
    walk.world.edit(pod_of(walk), has_finalizer=False)
    walk.settle_traced()
    return deleted(walk)


def rejected() -> TracedWalk:
    walk = started(held=("run",))
    words = "Pod was rejected: Allocate failed due to no healthy devices present"
    walk.world.edit(pod_of(walk), phase=PodPhase.FAILED, phase_reason="UnexpectedAdmissionError", phase_message=words)
    walk.held = ()
    walk.settle_traced()
    return deleted(walk)


def forced_while_it_terminates() -> TracedWalk:
    """A request does not end, others delete the pod, and the user orders force: the server is told to cut it."""
    walk = started(held=("finish", "end"))
    pod = pod_of(walk)
    walk.world.request(pod)
    walk.world.delete_pod(pod)
    for found in walk.world.state.all(Backend):
        walk.world.edit(found, orders={OrderKind.FORCE: f"{pod.ref.uid} it hangs"})
    walk.settle_traced(until=lambda: any("AbortServer" in line for line in walk.story))
    return deleted(walk)


def handed_over() -> TracedWalk:
    """Its kubelet does not report; it is replaced beside the witness, and proof comes at last."""
    walk = started(held=("end",))
    walk.world.delete_pod(pod_of(walk))
    walk.settle_traced()
    walk.held = ()
    walk.settle_traced()
    return deleted(walk)


def waited_for() -> TracedWalk:
    """Inside, torn out while its kubelet is away: status keeps its name until an administrator's word frees it."""
    walk = started(exposure=Exposure.CLUSTER_IP, when=WhenUnconfirmed.WAIT, held=("end",))
    pod = pod_of(walk)
    walk.world.remove(pod)
    walk.settle_traced()
    walk.held = ()
    walk.settle_traced()
    for found in walk.world.state.all(Backend):
        walk.world.edit(found, attestation=Attestation(pod.ref.uid, "it is off"))
    walk.settle_traced()
    return deleted(walk)


WALKS: dict[str, Callable[[], TracedWalk]] = {
    "a whole life behind a node port": whole_life,
    "a whole life behind a host port": lambda: whole_life(exposure=Exposure.HOST_PORT),
    "a whole life inside": lambda: whole_life(exposure=Exposure.CLUSTER_IP),
    "a cluster that is always faster": lambda: whole_life(cluster_first=True),
    "a second operator with an old cache": lambda: whole_life(stale=3, cluster_first=True),
    "a pod that is made late": lambda: whole_life(late=(2, 6)),
    "a stop record that is written late": lambda: whole_life(late=(12, 1)),
    "torn out": torn_out,
    "evicted": evicted,
    "a pod finalizer edited away": without_pod_finalizer,
    "rejected": rejected,
    "forced while it terminates": forced_while_it_terminates,
    "handed over": handed_over,
    "waited for": waited_for,
    "a whole life inside, whose end is waited for": lambda: whole_life(
        exposure=Exposure.CLUSTER_IP, when=WhenUnconfirmed.WAIT
    ),
    "a whole life behind two ports": lambda: whole_life(http=True),
}
