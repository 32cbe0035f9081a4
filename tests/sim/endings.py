"""What must be true once faults have stopped and everybody has had the time to do their part."""

from collections.abc import Iterator

from modelbackend_operator.instances import is_serving
from modelbackend_operator.model.backend import Backend, WhenUnconfirmed
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.lease import Lease
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.service import Service
from modelbackend_operator.vanished import vanished
from tests.sim.world import World


def what_is_wrong(world: World) -> Iterator[str]:
    """A sentence for each live spec that is not served, and for each thing that a gone backend left."""
    state = world.state
    for lease in state.all(Lease):
        yield f"Lease {lease.ref.uid} of {lease.description} is still held"
    for backend in state.all(Backend):
        yield from _unserved(world, backend)
    for uid, owner in state.owners.items():
        thing = state.objects[uid]
        gone = owner not in state.objects
        if isinstance(thing, Claim):
            yield from _of_claim(world, thing, gone)
        elif gone and isinstance(thing, Pod | Service) and not _is_witness(world, thing):
            yield f"{uid} of {owner} is left"
    for uid, run in state.runs.items():
        if run.alive and uid not in state.objects:
            yield f"the process of {uid} lives on, and its pod is gone"


def _is_witness(world: World, thing: Pod | Service) -> bool:
    """Handed over, and its process lives on indeed."""
    return isinstance(thing, Pod) and thing.handed_over is not None and thing.ref.uid in world.state.servers


def _unserved(world: World, backend: Backend) -> Iterator[str]:
    uid = backend.ref.uid
    waits = backend.when_unconfirmed is WhenUnconfirmed.WAIT
    if waits and any(gone.pod_uid not in world.state.servers for gone in vanished(world.observe(uid))):
        return  # nobody has looked at the machine, which is what this backend waits for
    if backend.deleting_since is not None:
        yield f"{uid} is not gone"
        return
    claims = world.state.all(Claim)
    free = set(range(world.looking.pool[0], world.looking.pool[1] + 1)) - {claim.port for claim in claims}
    for ordinal in backend.ordinals:
        serving = [pod for pod in world.state.all(Pod, uid) if pod.ordinal == ordinal and is_serving(pod)]
        told = {entry["podUID"] for entry in backend.status.get("endpoints") or ()}
        if len(serving) == 1 and serving[0].ref.uid in told:
            continue
        if not serving and backend.exposure.claims_port and _waits_for_a_port(world, backend, ordinal, free):
            continue
        if backend.exposure.value == "HostPort" and _no_node_is_free(world):
            continue
        yield f"{uid}/{ordinal} is not served by one told pod: {[pod.ref.uid for pod in serving]}"


def _waits_for_a_port(world: World, backend: Backend, ordinal: int, free: set[int]) -> bool:
    """Every port it may have is somebody's, or withheld from it."""
    mine = (claim for claim in world.state.all(Claim, backend.ref.uid) if claim.ordinal == ordinal)
    if any(claim.phase is not ClaimPhase.WITHHELD for claim in mine):
        return False
    pinned = {pin for role in backend.roles if (pin := backend.pin(role)) is not None}
    return not pinned <= free or len(free) < len(backend.roles)


def _no_node_is_free(world: World) -> bool:
    return all(machine.node is None or not machine.ready for machine in world.state.machines.values())


def _of_claim(world: World, claim: Claim, gone: bool) -> Iterator[str]:
    if claim.phase is ClaimPhase.WITHHELD:
        if claim.pod_uid in world.state.objects:
            yield f"{claim.ref.name} is withheld, and pod {claim.pod_uid} is there to prove its end"
    elif gone:
        yield f"{claim.ref.name} is left {claim.phase}"
    elif claim.phase is not ClaimPhase.BOUND:
        yield f"{claim.ref.name} stays {claim.phase}"
