"""What people, machines and processes do to a cluster that nobody asked them to: each by a name that a bound can count.

`USERS` and `FAULTS` are what a search may do so many times; `HEALING` undoes faults, and is never bounded.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from modelbackend_operator.model.backend import Attestation, Backend, WhenUnconfirmed
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.pod import Pod, PodPhase
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.model.service import Service
from modelbackend_operator.proof import had_run
from modelbackend_operator.told_in_status import with_status
from modelbackend_operator.vanished import vanished
from tests.sim.state import Machine, Run
from tests.sim.world import World

REJECTION = "Pod was rejected: Allocate failed due to no healthy devices present"


class Hand(NamedTuple):
    kind: str
    what: str
    act: Callable[[], object]


USERS = frozenset(
    {
        "create",
        "delete",
        "delete in the foreground",
        "suspend",
        "resume",
        "edit",
        "pin",
        "http",
        "evict",
        "force",
        "strip pod",
        "tear out pod",
        "strip backend",
        "attest",
        "delete claim",
        "delete Service",
        "delete Lease",
        "edit labels",
        "wipe status",
        "delete namespace",
        "request",
    }
)
FAULTS = frozenset(
    {"kubelet stops", "machine dies", "Node removed", "out of service", "crash", "hang", "reject", "forget", "blank"}
)
RARE = frozenset({"reject again"})
"""For searches that ask for it."""
ON_BACKENDS = frozenset(
    {"delete", "delete in the foreground", "edit", "pin", "http", "suspend", "resume", "strip backend", "wipe status"}
)
ON_PODS = frozenset(
    {"evict", "reject", "reject again", "forget", "blank", "strip pod", "tear out pod", "force", "edit labels"}
)
ON_OTHERS = frozenset({"attest", "delete claim", "delete Service", "delete Lease", "delete namespace"})
HEALING = frozenset({"kubelet returns", "machine boots", "unhang"})


def hands_of(
    world: World, kinds: frozenset[str] = USERS | FAULTS | HEALING, struck: tuple[str, ...] = ()
) -> Iterator[Hand]:
    """Those of these kinds that are possible now; `struck`: the only machines to which something happens."""
    return (hand for hand in _hands_of(world, kinds, struck) if hand.kind in kinds)


def _hands_of(world: World, kinds: frozenset[str], struck: tuple[str, ...]) -> Iterator[Hand]:
    if kinds & ON_BACKENDS:
        for backend in world.state.all(Backend):
            yield from _on_backend(world, backend)
    for uid, backend in world.later.items():
        names = {other.ref.name for other in world.state.all(Backend)}
        if uid not in world.state.spent and backend.ref.name not in names and not world.state.namespace_terminating:
            yield Hand("create", f"create {uid}", partial(create_backend, world, backend))
    if kinds & ON_PODS:
        for pod in world.state.all(Pod):
            yield from _on_pod(world, pod)
    if kinds & ON_OTHERS:
        yield from _on_others(world)
    for uid, run in world.state.runs.items():
        yield from _on_process(world, uid, run)
    for name, machine in world.state.machines.items():
        if not struck or name in struck:
            yield from _on_machine(world, name, machine)


def create_backend(world: World, backend: Backend) -> None:
    world.state = world.state._replace(spent=world.state.spent | {backend.ref.uid})
    world.put(backend)


def _on_backend(world: World, backend: Backend) -> Iterator[Hand]:
    uid = backend.ref.uid
    if backend.deleting_since is None:
        yield Hand("delete", f"delete {uid}", partial(world.delete_backend, uid))
        yield Hand("delete in the foreground", f"delete {uid} in the foreground", partial(_foreground, world, uid))
        new = f"hash-{2 if backend.template_hash == 'hash-1' else 1}"
        edit = partial(world.edit, backend, template_hash=new, generation=backend.generation + 1)
        yield Hand("edit", f"edit the template of {uid}", edit)
        if backend.exposure.claims_port:
            asked = partial(world.edit, backend, http=not backend.http, template_hash=f"{backend.template_hash}'")
            yield Hand("http", f"{'no ' if backend.http else ''}HTTP port for {uid}", asked)
            first, last = world.looking.pool
            port = last if backend.pinned_port == first else first
            yield Hand("pin", f"pin {uid} to {port}", partial(world.edit, backend, pinned_port=port))
        if backend.ordinals:
            yield Hand("suspend", f"suspend {uid}", partial(world.edit, backend, ordinals=()))
        else:
            wanted = world.wanted_ordinals[uid]
            yield Hand("resume", f"resume {uid}", partial(world.edit, backend, ordinals=wanted))
    if backend.has_finalizer:
        yield Hand("strip backend", f"strip the finalizer of {uid}", partial(world.edit, backend, has_finalizer=False))
    if backend.status:
        yield Hand("wipe status", f"wipe the status of {uid}", partial(world.edit, backend, status={}))


def _foreground(world: World, uid: str) -> None:
    world.state = world.state._replace(foreground=world.state.foreground | {uid})
    world.delete_backend(uid)


def _on_pod(world: World, pod: Pod) -> Iterator[Hand]:
    uid = pod.ref.uid
    if not pod.deleting:
        yield Hand("evict", f"evict {uid}", partial(world.delete_pod, pod))
        if pod.node and world.state.machines[pod.node].works and not pod.phase.terminal:
            run = world.state.runs.get(uid)
            if run is None or not run.alive:
                yield Hand("reject", f"{pod.node} rejects {uid}", partial(_reject, world, pod))
            elif pod.containers:
                if had_run(with_status(pod, _status_of(world, uid))):
                    yield Hand("reject again", f"the kubelet of {uid} restarts, and rejects it", _again(world, pod))
                yield Hand("blank", f"the kubelet of {uid} restarts, and tells of no container", _blank(world, pod))
    if pod.has_finalizer:
        yield Hand("strip pod", f"strip the finalizer of {uid}", partial(world.edit, pod, has_finalizer=False))
    yield Hand("tear out pod", f"tear {uid} out past its finalizer", partial(world.remove, pod))
    if not (pod.deleting and not pod.grace_seconds):
        yield Hand("force", f"force-delete {uid}", partial(world.delete_pod, pod, 0))
    if pod.deleting and pod.phase.terminal and pod.grace_seconds and uid not in world.state.forgotten:
        yield Hand("forget", f"the kubelet of {uid} forgets to remove it", partial(_forget, world, uid))
    if pod.serving_label:
        yield Hand("edit labels", f"edit the labels of {uid}", partial(world.edit, pod, serving_label=False))


def _forget(world: World, uid: str) -> None:
    world.state = world.state._replace(forgotten=world.state.forgotten | {uid})


def _reject(world: World, pod: Pod) -> None:
    """Also of a pod that ran there before its machine died: seen on Kubernetes 1.35, without a word of its containers.

    Those come with the kubelet's next report.
    """
    why = {"phase_reason": "UnexpectedAdmissionError", "phase_message": REJECTION}
    world.edit(pod, phase=PodPhase.FAILED, containers=(), containers_ready=False, ready=False, **why)


def _again(world: World, pod: Pod) -> Callable[[], object]:
    """Seen on Kubernetes 1.35: what runs is rejected, without a word of its containers, and ended after that.

    Not of a container that nobody but its kubelet knows of yet: an operator cannot tell that pod from one that was
    never run, until the kubelet reports the container.
    """
    return partial(_reject, world, pod)


def _status_of(world: World, pod_uid: str) -> Mapping[str, Any]:
    backend = world.state.objects.get(world.state.owners.get(pod_uid, ""))
    return backend.status if backend is not None else {}


def _blank(world: World, pod: Pod) -> Callable[[], object]:
    """Seen on Kubernetes 1.35: phase Running and no container statuses, while the server answers."""
    return partial(world.edit, pod, containers=(), containers_ready=False, ready=False)


def _on_others(world: World) -> Iterator[Hand]:
    waiting = (b for b in world.state.all(Backend) if b.when_unconfirmed is WhenUnconfirmed.WAIT)
    for backend in waiting:
        for gone in vanished(world.observe(backend.ref.uid)):
            if gone.pod_uid not in world.state.servers and backend.attestation is None:
                word = Attestation(gone.pod_uid, "looked at the machine")
                attest = partial(world.edit, backend, attestation=word)
                yield Hand("attest", f"attest the end of {gone.pod_uid}", attest)
    for claim in world.state.all(Claim):
        if (
            claim.phase is ClaimPhase.WITHHELD
            and claim.attestation is None
            and claim.pod_uid not in world.state.servers
        ):
            word = Attestation(claim.pod_uid, "looked at the machine")
            yield Hand("attest", f"attest the end of {claim.pod_uid}", partial(world.edit, claim, attestation=word))
        if not claim.terminating:
            yield Hand("delete claim", f"delete {claim.ref.name}", partial(world.delete_claim, claim))
    for service in world.state.all(Service):
        yield Hand("delete Service", f"delete {service.ref.uid}", partial(world.remove, service))
    for lease in world.state.all(Lease):
        yield Hand("delete Lease", f"delete {lease.ref.uid}", partial(world.remove, lease))
    if not world.state.namespace_terminating:
        yield Hand("delete namespace", "delete the namespace", partial(_end_namespace, world))


def _end_namespace(world: World) -> None:
    world.state = world.state._replace(namespace_terminating=True)


def _on_process(world: World, uid: str, run: Run) -> Iterator[Hand]:
    if not run.alive:
        return
    if run.server is ServerState.SERVING and not run.in_flight:
        yield Hand("request", f"a request reaches {uid}", partial(_set_run, world, uid, in_flight=1))
    if run.killable:
        yield Hand("crash", f"the server of {uid} crashes", partial(_end_run, world, uid))
        yield Hand("hang", f"the process of {uid} cannot be killed", partial(_set_run, world, uid, killable=False))
    else:
        yield Hand("unhang", f"the process of {uid} can be killed again", partial(_set_run, world, uid, killable=True))


def _set_run(world: World, uid: str, **changes: object) -> None:
    world.state = world.state.with_run(uid, replace(world.state.runs[uid], **changes))  # type: ignore[arg-type]


def _end_run(world: World, uid: str) -> None:
    world.state = world.state.with_run(uid, world.state.runs[uid].ended())
    world.forget_ended(uid)


def _on_machine(world: World, name: str, machine: Machine) -> Iterator[Hand]:
    if machine.works:
        yield Hand("kubelet stops", f"the kubelet of {name} stops", partial(_set_machine, world, name, kubelet=False))
    elif machine.powered:
        yield Hand(
            "kubelet returns", f"the kubelet of {name} returns", partial(_set_machine, world, name, kubelet=True)
        )
    if machine.powered:
        yield Hand("machine dies", f"{name} loses power", partial(_power_off, world, name))
    else:
        boot = f"{machine.boot_id}+"
        on = partial(_set_machine, world, name, powered=True, kubelet=True, boot_id=boot, out_of_service=False)
        yield Hand("machine boots", f"{name} boots", on)
    if machine.node is not None:
        yield Hand("Node removed", f"Node {name} is removed", partial(_set_machine, world, name, node=None))
        if not machine.powered and not machine.out_of_service:
            mark = partial(_set_machine, world, name, out_of_service=True)
            yield Hand("out of service", f"{name} is tainted out-of-service", mark)


def _set_machine(world: World, name: str, **changes: object) -> None:
    world.state = world.state.with_machine(name, **changes)._replace(version=world.state.version + 1)


def _power_off(world: World, name: str) -> None:
    """Every process of the machine ends, and nobody is told."""
    _set_machine(world, name, powered=False, kubelet=False)
    for uid, run in tuple(world.state.runs.items()):
        if run.node == name and run.alive:
            _end_run(world, uid)
