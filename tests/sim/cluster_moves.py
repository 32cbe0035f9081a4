"""What a cluster does by itself: scheduler, kubelets, node controller, pod garbage collector, garbage collector.

Each move is small, because other things happen between them: a kubelet starts a process and reports it in two moves,
and a process that ended is unknown to the API server until it is reported.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from modelbackend_operator.model.backend import Backend, PortRole
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.node import NodeId
from modelbackend_operator.model.pod import ContainerState, Pod, PodPhase
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.model.service import Service
from tests.sim.effects import is_released
from tests.sim.state import Machine, Run
from tests.unit.builders import ENDED, NEVER_MADE, RUNNING

if TYPE_CHECKING:
    from tests.sim.world import World

READY: dict[str, Any] = {"ready": True, "lost_since": None}
Move = tuple[str, Callable[[], object]]


def moves_of(world: "World") -> Iterator[Move]:
    for pod in world.state.all(Pod):
        yield from _kubelet_moves(world, pod)
        yield from _scheduler_moves(world, pod)
        yield from _control_plane_moves(world, pod)
    yield from _process_moves(world)
    yield from _collections(world)
    for name, machine in world.state.machines.items():
        yield from _node_moves(world, name, machine)
    for port in sorted(world.state.lagging_ports):
        yield f"give node port {port} back", partial(_give_back, world, port)


def quick_moves_of(world: "World") -> Iterator[Move]:
    """Those that follow on others by themselves in a moment, among them all of `ready`, `remove` and `give`."""
    for pod in world.state.all(Pod):
        if pod.node and world.state.machines[pod.node].works:
            yield from _kubelet_moves(world, pod)
    for port in world.state.lagging_ports:
        yield f"give node port {port} back", partial(_give_back, world, port)


# -- the scheduler ----------------------------------------------------------------------------------------------------


def _scheduler_moves(world: "World", pod: Pod) -> Iterator[Move]:
    if pod.gated or pod.node or pod.deleting or pod.phase.terminal:
        return
    for name, machine in world.state.machines.items():
        if machine.node is not None and machine.ready and not _port_is_used(world, pod, name):
            where = f" on {name}" if len(world.state.machines) > 1 else ""
            yield f"schedule {pod.ref.uid}{where}", partial(world.edit, pod, node=name, host_ip=f"ip-of-{name}")


def _port_is_used(world: "World", pod: Pod, node: str) -> bool:
    """A host port is free again for the scheduler once its pod's phase is terminal."""
    asked = set(host_ports(pod))
    return bool(asked) and any(
        asked.intersection(host_ports(other)) and other.node == node and not other.phase.terminal
        for other in world.state.all(Pod)
    )


# -- kubelets ---------------------------------------------------------------------------------------------------------


def _kubelet_moves(world: "World", pod: Pod) -> Iterator[Move]:
    machine = world.state.machines.get(pod.node)
    if machine is None or not machine.works:
        return
    uid, run = pod.ref.uid, world.state.runs.get(pod.ref.uid)
    to_end = pod.deleting or pod.phase.terminal
    if not to_end and (run is None or not run.alive):
        yield f"run {uid}", partial(_start, world, pod)
    elif to_end and run is not None and run.alive:
        if run.killable:
            yield f"end {uid}", partial(_end, world, uid)
        return
    if machine.node is None:
        return
    told = _as_the_kubelet_sees_it(pod, run)
    if any(getattr(pod, name) != value for name, value in told.items()):
        yield f"report {uid}", partial(world.edit, pod, **told)
    elif pod.deleting and pod.phase.terminal and pod.grace_seconds and uid not in world.state.forgotten:
        yield f"remove {uid}", partial(world.delete_pod, pod, 0)
    elif pod.ready != (pod.containers_ready and pod.serving_condition):
        yield f"ready {uid}", partial(world.edit, pod, ready=not pod.ready)


def _start(world: "World", pod: Pod) -> None:
    run = world.state.runs.get(pod.ref.uid)
    if run is not None:
        world.state = world.state.with_run(pod.ref.uid, Run(run.node, run.ports, run.instance))
        return
    instance = (world.state.owners[pod.ref.uid], pod.ordinal)
    claimed = (c.port for c in world.state.all(Claim) if c.pod_uid == pod.ref.uid and c.phase is ClaimPhase.BOUND)
    ports = host_ports(pod) or tuple(sorted(claimed))
    world.state = world.state.with_run(pod.ref.uid, Run(pod.node, ports, instance))


def host_ports(pod: Pod) -> tuple[int, ...]:
    return tuple(port for port in map(pod.host_port_for, PortRole) if port is not None)


def _end(world: "World", pod_uid: str) -> None:
    world.state = world.state.with_run(pod_uid, world.state.runs[pod_uid].ended())
    world.forget_ended(pod_uid)


def _as_the_kubelet_sees_it(pod: Pod, run: Run | None) -> dict[str, object]:
    """The status that its kubelet would write now. A terminal phase is written once, and stays."""
    if run is not None and run.alive:
        ready = run.server in (ServerState.SERVING, ServerState.DRAINING)
        return {"phase": PodPhase.RUNNING, "containers": (RUNNING,), "containers_ready": ready}
    unready = {"containers_ready": False, "ready": False}
    if pod.deleting:
        return {
            **unready,
            "phase": pod.phase if pod.phase.terminal else PodPhase.SUCCEEDED,
            "containers": (ENDED,) if run is not None or _ever_made(pod) else (NEVER_MADE,),
            "containers_changed_after_pod_gc": pod.removed_by_pod_gc and bool(pod.containers),
        }
    phase = pod.phase if pod.phase.terminal else PodPhase.RUNNING
    return {**unready, "phase": phase, "containers": (ENDED,)} if run is not None else {}


def _ever_made(pod: Pod) -> bool:
    return any(container.ever_created or container.state is ContainerState.RUNNING for container in pod.containers)


# -- the server itself ------------------------------------------------------------------------------------------------


def _process_moves(world: "World") -> Iterator[Move]:
    for uid, run in world.state.runs.items():
        if not run.alive:
            continue
        pod = world.state.objects.get(uid)
        if run.server is ServerState.LOADING and pod is not None and not pod.deleting:
            yield f"load {uid}", partial(_become, world, uid, server=ServerState.SERVING)
        if run.in_flight and run.server is ServerState.DRAINING:
            yield f"finish {uid}", partial(_become, world, uid, in_flight=run.in_flight - 1)
        if pod is None and run.killable and world.state.machines[run.node].works:
            yield f"end {uid}", partial(_end, world, uid)


def _become(world: "World", pod_uid: str, **changes: object) -> None:
    run = world.state.runs[pod_uid]
    world.state = world.state.with_run(pod_uid, replace(run, **changes))  # type: ignore[arg-type]


# -- controllers ------------------------------------------------------------------------------------------------------


def _control_plane_moves(world: "World", pod: Pod) -> Iterator[Move]:
    """Eviction by taint, and pod garbage collection: it ends records, and knows nothing of processes."""
    if not pod.node:
        return
    machine = world.state.machines[pod.node]
    if machine.node is None:
        if not (pod.deleting and not pod.grace_seconds and pod.phase.terminal):
            yield f"PodGC fails {pod.ref.uid}", partial(_collect_lost, world, pod, with_condition=True)
    elif not machine.ready:
        if not pod.deleting and not pod.phase.terminal:
            yield f"evict {pod.ref.uid}", partial(world.delete_pod, pod)
        elif machine.out_of_service and pod.deleting and pod.grace_seconds:
            yield f"PodGC fails {pod.ref.uid}", partial(_collect_lost, world, pod, with_condition=False)


def _collect_lost(world: "World", pod: Pod, *, with_condition: bool) -> None:
    """Phase Failed, then a deletion with grace 0 (KEP-2268, KEP-3329)."""
    if not pod.phase.terminal:
        marked = pod.removed_by_pod_gc or with_condition
        pod = replace(pod, phase=PodPhase.FAILED, ready=False, removed_by_pod_gc=marked)
        world.put(pod)
    world.delete_pod(pod, 0)


def _collections(world: "World") -> Iterator[Move]:
    """The garbage collector: dependants of what is gone, or is being deleted in the foreground."""
    state = world.state
    for uid, owner in state.owners.items():
        thing = state.objects[uid]
        if owner in state.objects and owner not in state.foreground:
            continue
        if isinstance(thing, Pod) and not thing.deleting:
            yield f"collect {uid}", partial(world.delete_pod, thing)
        elif isinstance(thing, Service):
            yield f"collect {uid}", partial(world.remove, thing)
    for uid in state.foreground:
        dependants = (state.objects[other] for other, owner in state.owners.items() if owner == uid)
        if not any(isinstance(d, Service) or (isinstance(d, Pod) and not d.deleting) for d in dependants):
            yield f"let {uid} go", partial(_let_go, world, uid)
    if state.namespace_terminating:
        yield from _namespace_moves(world)


def _let_go(world: "World", backend_uid: str) -> None:
    """None of our dependants blocks its owner's deletion, so those that only terminate are not waited for."""
    world.state = world.state._replace(foreground=world.state.foreground - {backend_uid})
    backend = world.state.objects[backend_uid]
    if is_released(backend):
        world.remove(backend)


def _namespace_moves(world: "World") -> Iterator[Move]:
    for backend in world.state.all(Backend):
        if backend.deleting_since is None:
            yield f"delete {backend.ref.uid} with its namespace", partial(world.delete_backend, backend.ref.uid)
    for pod in world.state.all(Pod):
        if not pod.deleting:
            yield f"delete {pod.ref.uid} with its namespace", partial(world.delete_pod, pod)
    for service in world.state.all(Service):
        yield f"delete {service.ref.uid} with its namespace", partial(world.remove, service)


# -- nodes ------------------------------------------------------------------------------------------------------------


def _node_moves(world: "World", name: str, machine: Machine) -> Iterator[Move]:
    change = partial(_change_machine, world, name)
    node = machine.node
    if node is None:
        if machine.works:
            yield f"{name} registers again", partial(_register, world, name, machine)
        return
    if machine.works and node.boot_id != machine.boot_id:
        yield f"{name} reports its boot", partial(change, node=replace(node, boot_id=machine.boot_id), **READY)
    elif machine.works and not machine.ready:
        yield f"{name} becomes ready", partial(change, **READY)
    elif not machine.works and machine.ready:
        yield f"{name} becomes not ready", partial(change, ready=False, lost_since=world.now)


def _register(world: "World", name: str, machine: Machine) -> None:
    node = NodeId(name, world.fresh_node_uid(name), machine.boot_id)
    _change_machine(world, name, node=node, out_of_service=False, **READY)


def _change_machine(world: "World", name: str, **changes: object) -> None:
    world.state = world.state.with_machine(name, **changes)._replace(version=world.state.version + 1)


def _give_back(world: "World", port: int) -> None:
    world.state = world.state._replace(lagging_ports=world.state.lagging_ports - {port})
