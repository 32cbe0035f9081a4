"""How an instance begins: claim, gated pod, binding, status, Services, gate, node, identity. In this order.

The gate makes every crash and every late write harmless: a pod runs only after the ledger and the backend's status
name it, and a pod that nobody names is never let through and is deleted.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random

from modelbackend_operator.actions import (
    BindClaim,
    CreateClaim,
    CreatePod,
    CreateService,
    DeletePod,
    PointService,
    RecordNode,
    RemakeToken,
    ReserveClaim,
    SetServing,
    Ungate,
)
from modelbackend_operator.conditions import publish
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.instances import (
    claim_naming,
    claim_to_take_back,
    instance_service,
    own_report,
    pods_of,
    reserved_claim,
    shared_service,
    status_names,
    staying_pod,
    stop_reason,
    waits_for_proof,
)
from modelbackend_operator.manifests import control_secret_name, pod_name, service_name, shared_service_name
from modelbackend_operator.model.backend import Backend, Exposure
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.reasons import Reason
from modelbackend_operator.restarts import exhausted
from modelbackend_operator.rollout import predecessor
from modelbackend_operator.vanished import vanished

RETRY_POOL_SECONDS = 10
MAX_PORT = 65535
ASK_SERVER_SECONDS = 1
ASK_FETCHER_SECONDS = 5
PREPARING_SECONDS = 30
"""So long a start may take before anybody wonders why no container is there."""
REMAKE_TOKEN_SECONDS = 600


def start(observation: Observation, backend: Backend, ordinal: int, now: datetime) -> Act | Wait | None:
    """The next step towards this instance serving, or None when it does."""
    pods, pod = pods_of(observation, ordinal), staying_pod(observation, ordinal)
    earlier = predecessor(observation, ordinal)
    is_held = any(other is not earlier and stop_reason(observation, other) for other in pods)
    if (pod is None or pod.gated) and (is_held or any(one.ordinal == ordinal for one in vanished(observation))):
        return None  # the last one is being ended; until its proof nothing more of this instance starts
    if pod is None:
        spent = exhausted(backend, ordinal, None)
        return None if spent else _make_pod(observation, backend, ordinal, earlier, now)
    surplus = next((other for other in pods if other.gated and other is not pod), None)
    if surplus is not None:
        return Act(DeletePod(surplus, backend.termination_grace_seconds))
    if pod.gated:
        return _open_gate(observation, backend, pod, now)
    if pod.unschedulable and earlier is not None:
        return _surge_unschedulable(pod, earlier)
    return _follow(observation, backend, pod, now)


# -- before the pod ---------------------------------------------------------------------------------------------------


def _make_pod(
    observation: Observation, backend: Backend, ordinal: int, earlier: Pod | None, now: datetime
) -> Act | Wait:
    unproven = _unproven_claim(observation, ordinal)
    if unproven is not None and waits_for_proof(observation):
        return Wait(Reason.UNCONFIRMED, f"port {unproven.port}: {unproven.message}", None, ordinal)
    name = pod_name(backend, ordinal, observation.taken_names | _names_in_use(observation))
    replaces = earlier.ref.uid if earlier is not None else ""
    if not backend.exposure.claims_port:
        return Act(CreatePod(backend, ordinal, name, None, replaces))
    claim = reserved_claim(observation, ordinal)
    if claim is not None:
        return Act(CreatePod(backend, ordinal, name, claim.port, replaces, _avoided_nodes(observation, claim)))
    cooling = claim_to_take_back(observation, ordinal)
    if cooling is not None:
        return Act(ReserveClaim(cooling))
    return _claim_port(observation, backend, ordinal, now)


def _surge_unschedulable(pod: Pod, earlier: Pod) -> Wait:
    message = (
        f"pod {pod.ref.name} finds no node beside pod {earlier.ref.name}, which goes on serving the earlier spec: "
        f"{pod.unschedulable}; make room, take the change of the spec back, or set rollout to Recreate"
    )
    return Wait(Reason.SURGE_UNSCHEDULABLE, message, None, pod.ordinal)


def _unproven_claim(observation: Observation, ordinal: int) -> Claim | None:
    withheld = (claim for claim in observation.claims if claim.phase is ClaimPhase.WITHHELD)
    return next((claim for claim in withheld if claim.ordinal == ordinal), None)


def _names_in_use(observation: Observation) -> set[str]:
    """A vanished pod's name is not used again while its claim is withheld: two stories under one name mislead."""
    withheld = {claim.pod_name for claim in observation.claims if claim.phase is ClaimPhase.WITHHELD}
    return withheld | {pod.ref.name for pod in observation.pods}


def _claim_port(observation: Observation, backend: Backend, ordinal: int, now: datetime) -> Act | Wait:
    retry_at = now + timedelta(seconds=RETRY_POOL_SECONDS)
    own = {claim.port: claim for claim in observation.claims}
    if backend.pinned_port is not None:
        return _claim_pinned(observation, backend, ordinal, own.get(backend.pinned_port), retry_at)
    for port in _probed(observation, backend, ordinal):
        if port not in observation.ports.taken and port not in own:
            return Act(CreateClaim(backend, ordinal, port))
    return Wait(Reason.PORT_POOL_EXHAUSTED, _exhaustion(observation, backend), retry_at, ordinal)


def _claim_pinned(
    observation: Observation, backend: Backend, ordinal: int, own: Claim | None, retry_at: datetime
) -> Act | Wait:
    port = backend.pinned_port
    assert port is not None
    if own is not None:
        ends = (
            "the reuse delay ends" if own.phase is ClaimPhase.COOLING else f"pod {own.pod_name} is proven to have ended"
        )
        message = (
            f"port {port} is {own.phase} by this backend until {ends}; remove exposure.nodePort to start on another"
        )
        return Wait(Reason.PINNED_PORT_WITHHELD, message, retry_at, ordinal)
    if port in observation.ports.taken:
        who = observation.ports.taken_by.get(port, "an object outside this operator")
        message = (
            f"port {port} of exposure.nodePort is held by {who}; "
            f"pin another port, remove the pin, or delete the holder (kubectl get portclaim port-{port})"
        )
        return Wait(Reason.PINNED_PORT_TAKEN, message, retry_at, ordinal)
    return Act(CreateClaim(backend, ordinal, port))


def _avoided_nodes(observation: Observation, claim: Claim) -> frozenset[str]:
    """On which somebody outside the ledger has the claimed port."""
    return observation.ports.taken_on.get(claim.port, frozenset())


def _probed(observation: Observation, backend: Backend, ordinal: int) -> Iterator[int]:
    """Ports that are taken on some node come last."""
    yield from sorted(probe_order(observation, backend, ordinal), key=lambda port: port in observation.ports.taken_on)


def probe_order(observation: Observation, backend: Backend, ordinal: int) -> Iterator[int]:
    """Every port of the pools once, in the instance's own order: a repeated attempt asks for the same first."""
    first, last = backend.port_range or (0, MAX_PORT)
    ports = [port for pool in observation.ports.pools for port in range(max(first, pool[0]), min(last, pool[1]) + 1)]
    yield from Random(f"{backend.ref.uid}/{ordinal}").sample(ports, len(ports))


def _exhaustion(observation: Observation, backend: Backend) -> str:
    ports = observation.ports
    pool = ", ".join(f"{first}-{last}" for first, last in ports.pools)
    if backend.port_range is not None:
        pool = f"{backend.port_range[0]}-{backend.port_range[1]} (exposure.portRange, within {pool})"
    own = Counter(str(claim.phase) for claim in observation.claims)
    counts = [f"{count} {phase} by other backends" for phase, count in sorted(ports.taken_in.items())]
    counts += [f"{count} {phase} by this backend" for phase, count in sorted(own.items())]
    outside = len(ports.taken) - sum(ports.taken_in.values())
    counts += [f"{outside} held outside this operator"] if outside > 0 else []
    return (
        f"no free {backend.exposure} port in {pool}: {', '.join(counts) or 'it is empty'}; "
        "delete a backend, wait for a cooling claim, or have the pool widened (kubectl get portclaims)"
    )


# -- from the gated pod to the open gate ------------------------------------------------------------------------------


def _open_gate(observation: Observation, backend: Backend, pod: Pod, now: datetime) -> Act | Wait:
    claim = claim_naming(observation, pod)
    if backend.exposure.claims_port and claim is None:
        claim = reserved_claim(observation, pod.ordinal)
        if claim is None or (backend.exposure is Exposure.HOST_PORT and pod.host_port != claim.port):
            return Act(DeletePod(pod, backend.termination_grace_seconds))
        return Act(BindClaim(claim, pod))
    shared = _share(observation, backend)
    if shared is not None:
        return shared
    if not status_names(backend, pod):
        return Act(publish(observation, (), now))
    return _expose(observation, backend, pod, now) or Act(Ungate(pod))


def _share(observation: Observation, backend: Backend) -> Act | None:
    """The Service of all instances, made, and made right where others edited it."""
    service = shared_service(observation)
    if service is None:
        return Act(CreateService(backend, shared_service_name(backend, observation.taken_names)))
    return None if service.intact else Act(PointService(backend, service, pod_uid=""))


def _expose(observation: Observation, backend: Backend, pod: Pod, now: datetime) -> Act | Wait | None:
    """The port's Service, in place and pointed at this pod."""
    claim = claim_naming(observation, pod)
    if claim is None or backend.exposure is not Exposure.NODE_PORT:
        return None
    service = instance_service(observation, pod.ordinal, claim.port)
    if service is None:
        return _make_service(observation, backend, pod, claim.port, now)
    if service.terminating:
        return Wait(
            Reason.STARTING,
            f"Service {service.ref.name} of an earlier start is being deleted",
            None,
            pod.ordinal,
        )
    if service.pod_uid != pod.ref.uid or not service.intact:
        return Act(PointService(backend, service, pod.ref.uid))
    return None


def _make_service(observation: Observation, backend: Backend, pod: Pod, port: int, now: datetime) -> Act | Wait:
    """A claimed port that is taken all the same is held by a Service that asked no ledger: start on another."""
    if port not in observation.ports.taken:
        name = service_name(backend, pod.ordinal, observation.taken_names | {s.ref.name for s in observation.services})
        return Act(CreateService(backend, name, pod.ordinal, port, pod.ref.uid))
    if pod.gated and backend.pinned_port is None:
        return Act(DeletePod(pod, backend.termination_grace_seconds))
    who = observation.ports.taken_by.get(port, "a Service outside this operator")
    reason = Reason.PORT_TAKEN if backend.pinned_port is None else Reason.PINNED_PORT_TAKEN
    message = f"node port {port} is allocated to {who}; delete that Service, or change exposure to start on another"
    return Wait(reason, message, now + timedelta(seconds=RETRY_POOL_SECONDS), pod.ordinal)


# -- from the open gate to serving ------------------------------------------------------------------------------------


def _follow(observation: Observation, backend: Backend, pod: Pod, now: datetime) -> Act | Wait | None:
    if not pod.serving_label:
        return Act(Ungate(pod))  # the labels were edited away; without them no Service finds the pod
    claim, node = claim_naming(observation, pod), observation.nodes.get(pod.node)
    if claim is not None and node is not None and claim.node != node.identity:
        return Act(RecordNode(claim, node.identity))
    # Anybody may delete or edit a Service, at any time.
    exposed = _share(observation, backend) or _expose(observation, backend, pod, now)
    if exposed is not None or pod.serving_condition:
        return exposed
    if pod.fetching:
        return _await_model(observation, pod, now)
    if not pod.containers_ready:
        return _await_containers(backend, pod, now)
    return _check_identity(observation, backend, pod, now)


def _await_containers(backend: Backend, pod: Pod, now: datetime) -> Act | Wait | None:
    """A kubelet that lacks a Secret says so in an Event only; the Secret of the control token is ours to make again."""
    if not pod.node:
        return _await_scheduler(pod, now)
    if not pod.containers or any(container.ever_created for container in pod.containers):
        return None
    if pod.token_made_at is None:
        look_at = pod.created_at + timedelta(seconds=PREPARING_SECONDS)
        return Wait(Reason.STARTING, "", look_at, pod.ordinal) if now < look_at else Act(RemakeToken(backend, pod))
    again_at = pod.token_made_at + timedelta(seconds=REMAKE_TOKEN_SECONDS)
    if now >= again_at:
        return Act(RemakeToken(backend, pod))
    message = (
        f"node {pod.node} has not made the container of pod {pod.ref.name} yet: its image is large, or a volume or a "
        f"Secret is missing (kubectl describe pod {pod.ref.name})"
    )
    return Wait(Reason.PREPARING, message, again_at, pod.ordinal)


def _await_scheduler(pod: Pod, now: datetime) -> Wait | None:
    """Of a pod that it does not try, the scheduler says nothing: the pod's own condition still tells of our gate."""
    if pod.unschedulable:
        return None
    look_at = pod.created_at + timedelta(seconds=PREPARING_SECONDS)
    if now < look_at:
        return Wait(Reason.STARTING, "", look_at, pod.ordinal)
    message = (
        f"the scheduler has not tried pod {pod.ref.name} yet: a ResourceClaim that it names does not exist, a "
        f"scheduling gate of others holds it, or no scheduler runs (kubectl describe pod {pod.ref.name})"
    )
    return Wait(Reason.PREPARING, message, None, pod.ordinal)


def _await_model(observation: Observation, pod: Pod, now: datetime) -> Wait:
    """The fetcher says something new at each tenth, so that to ask it often writes no more often."""
    report = own_report(observation, pod)
    told = report.message if report is not None else ""
    message = told or f"pod {pod.ref.name} asks the model's source"
    return Wait(Reason.FETCHING, message, now + timedelta(seconds=ASK_FETCHER_SECONDS), pod.ordinal)


def _check_identity(observation: Observation, backend: Backend, pod: Pod, now: datetime) -> Act | Wait:
    """A reused address or a wrong image must not be published as this backend."""
    ask_again = now + timedelta(seconds=ASK_SERVER_SECONDS)
    server = observation.servers.get(pod.ref.uid)
    if pod.ref.uid in observation.refusing:
        message = (
            f"the server of pod {pod.ref.name} refuses the operator's control token: Secret "
            f"{control_secret_name(backend)} was edited; delete that Secret and then the pod, and both are made anew"
        )
        return Wait(Reason.TOKEN_REFUSED, message, now + timedelta(seconds=RETRY_POOL_SECONDS), pod.ordinal)
    if server is None:
        message = f"the control port of pod {pod.ref.name} does not answer"
        return Wait(Reason.SERVER_SILENT, message, ask_again, pod.ordinal)
    expected = (backend.ref.uid, backend.model, pod.ref.uid)
    if (server.backend_uid, server.model, server.pod_uid) != expected:
        message = (
            f"pod {pod.ref.name} ({pod.ref.uid}) answers as model {server.model} of backend {server.backend_uid} "
            f"in pod {server.pod_uid}, not as model {backend.model} of backend {backend.ref.uid}; it is not published"
        )
        return Wait(Reason.WRONG_IDENTITY, message, now + timedelta(seconds=RETRY_POOL_SECONDS), pod.ordinal)
    if server.state is not ServerState.SERVING:
        return Wait(Reason.LOADING, f"the server is {server.state}", ask_again, pod.ordinal)
    return Act(SetServing(pod, serving=True))
