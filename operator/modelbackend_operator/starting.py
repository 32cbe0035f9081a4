"""How an instance begins: claim, gated pod, binding, status, Services, gate, node, identity. In this order.

The gate makes every crash and every late write harmless: a pod runs only after the ledger and the backend's status
name it, and a pod that nobody names is never let through and is deleted.
"""

from datetime import datetime, timedelta

from modelbackend_operator.actions import (
    BindClaim,
    CreateClaim,
    CreatePod,
    CreateService,
    DeletePod,
    DeleteService,
    PointService,
    RecordNode,
    RemakeToken,
    ReserveClaim,
    SetServing,
    Ungate,
)
from modelbackend_operator.allotment import Allotment, Lack, allotment
from modelbackend_operator.conditions import publish
from modelbackend_operator.decision import Act, Wait
from modelbackend_operator.instances import (
    claim_naming,
    claims_naming,
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
from modelbackend_operator.model.backend import Backend, Exposure, PortRole
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.server import ServerState
from modelbackend_operator.reasons import Reason
from modelbackend_operator.restarts import exhausted
from modelbackend_operator.rollout import predecessor
from modelbackend_operator.vanished import vanished

RETRY_POOL_SECONDS = 10
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
        return _await_unproven(observation, ordinal) or _open_gate(observation, backend, pod, now)
    if pod.unschedulable and earlier is not None:
        return _surge_unschedulable(pod, earlier)
    return _follow(observation, backend, pod, now)


# -- before the pod ---------------------------------------------------------------------------------------------------


def _make_pod(
    observation: Observation, backend: Backend, ordinal: int, earlier: Pod | None, now: datetime
) -> Act | Wait:
    unproven = _await_unproven(observation, ordinal)
    if unproven is not None:
        return unproven
    name = pod_name(backend, ordinal, observation.taken_names | _names_in_use(observation))
    replaces = earlier.ref.uid if earlier is not None else ""
    ports = allotment(observation, backend, ordinal)
    if isinstance(ports, Lack):
        return Wait(ports.reason, ports.message, now + timedelta(seconds=RETRY_POOL_SECONDS), ordinal)
    return _next_claim(backend, ordinal, ports) or _create_pod(observation, backend, ordinal, name, ports, replaces)


def _next_claim(backend: Backend, ordinal: int, ports: Allotment) -> Act | None:
    """New ports first, of them the lower number; the own ones that cool are not lost meanwhile."""
    new = [(port, role) for role, port in ports.items() if isinstance(port, int)]
    if new:
        return Act(CreateClaim(backend, ordinal, *min(new)))
    cooling = (c for c in ports.values() if isinstance(c, Claim) and c.phase is ClaimPhase.COOLING)
    claim = min(cooling, key=lambda claim: claim.port, default=None)
    return Act(ReserveClaim(claim)) if claim is not None else None


def _create_pod(
    observation: Observation, backend: Backend, ordinal: int, name: str, ports: Allotment, replaces: str
) -> Act:
    numbers = {role: claim.port for role, claim in ports.items() if isinstance(claim, Claim)}
    avoided = frozenset[str]().union(*(_avoided_nodes(observation, port) for port in numbers.values()))
    port, http_port = numbers.get(PortRole.GRPC), numbers.get(PortRole.HTTP)
    return Act(CreatePod(backend, ordinal, name, port, replaces, avoided, http_port))


def _avoided_nodes(observation: Observation, port: int) -> frozenset[str]:
    """On which somebody outside the ledger has the claimed port."""
    return observation.ports.taken_on.get(port, frozenset())


def _surge_unschedulable(pod: Pod, earlier: Pod) -> Wait:
    message = (
        f"pod {pod.ref.name} finds no node beside pod {earlier.ref.name}, which goes on serving the earlier spec: "
        f"{pod.unschedulable}; make room, take the change of the spec back, or set rollout to Recreate"
    )
    return Wait(Reason.SURGE_UNSCHEDULABLE, message, None, pod.ordinal)


def _await_unproven(observation: Observation, ordinal: int) -> Wait | None:
    """Where an end is waited for no pod is made, nor one that a late write made let through, beside a withheld port."""
    withheld = (claim for claim in observation.claims if claim.phase is ClaimPhase.WITHHELD)
    unproven = next((claim for claim in withheld if claim.ordinal == ordinal), None)
    if unproven is None or not waits_for_proof(observation):
        return None
    return Wait(Reason.UNCONFIRMED, f"port {unproven.port}: {unproven.message}", None, ordinal)


def _names_in_use(observation: Observation) -> set[str]:
    """A vanished pod's name is not used again while its claim is withheld: two stories under one name mislead."""
    withheld = {claim.pod_name for claim in observation.claims if claim.phase is ClaimPhase.WITHHELD}
    return withheld | {pod.ref.name for pod in observation.pods}


# -- from the gated pod to the open gate ------------------------------------------------------------------------------


def _open_gate(observation: Observation, backend: Backend, pod: Pod, now: datetime) -> Act | Wait:
    for role in backend.roles:
        if claim_naming(observation, pod, role) is not None:
            continue
        claim = reserved_claim(observation, pod.ordinal, role)
        on_host = backend.exposure is Exposure.HOST_PORT
        if claim is None or (on_host and pod.host_port_for(role) != claim.port):
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
    """The Service of the instance's ports, in place and pointed at this pod."""
    claims = [claim_naming(observation, pod, role) for role in backend.roles]
    ports = tuple(claim.port for claim in claims if claim is not None)
    if len(ports) < len(claims) or backend.exposure is not Exposure.NODE_PORT:
        return None
    services = (instance_service(observation, pod.ordinal, port) for port in ports)
    service = next((found for found in services if found is not None), None)
    if service is None:
        return _make_service(observation, backend, pod, ports, now)
    if service.terminating:
        return Wait(
            Reason.STARTING,
            f"Service {service.ref.name} of an earlier start is being deleted",
            None,
            pod.ordinal,
        )
    if service.node_ports != ports:
        return Act(DeleteService(service))  # of a time when the spec asked for other ports
    if service.pod_uid != pod.ref.uid or not service.intact:
        return Act(PointService(backend, service, pod.ref.uid))
    return None


def _make_service(
    observation: Observation, backend: Backend, pod: Pod, ports: tuple[int, ...], now: datetime
) -> Act | Wait:
    """A claimed port that is taken all the same is held by a Service that asked no ledger: start on another."""
    taken = next((port for port in ports if port in observation.ports.taken), None)
    if taken is None:
        name = service_name(backend, pod.ordinal, observation.taken_names | {s.ref.name for s in observation.services})
        return Act(CreateService(backend, name, pod.ordinal, ports[0], pod.ref.uid, *ports[1:]))
    pinned = taken in {backend.pin(role) for role in backend.roles}
    if pod.gated and not pinned:
        return Act(DeletePod(pod, backend.termination_grace_seconds))
    who = observation.ports.taken_by.get(taken, "a Service outside this operator")
    reason = Reason.PINNED_PORT_TAKEN if pinned else Reason.PORT_TAKEN
    message = f"node port {taken} is allocated to {who}; delete that Service, or change exposure to start on another"
    return Wait(reason, message, now + timedelta(seconds=RETRY_POOL_SECONDS), pod.ordinal)


# -- from the open gate to serving ------------------------------------------------------------------------------------


def _follow(observation: Observation, backend: Backend, pod: Pod, now: datetime) -> Act | Wait | None:
    if not pod.serving_label:
        return Act(Ungate(pod))  # the labels were edited away; without them no Service finds the pod
    node = observation.nodes.get(pod.node)
    for claim in claims_naming(observation, pod):
        if node is not None and claim.node != node.identity:
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
