"""One instance's entry in status.instances and status.endpoints."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from modelbackend_operator.api import (
    GRPC_PORT,
    Endpoint,
    Instance,
    InstancePhase,
    NodeReference,
    PodReference,
    StopEntry,
    Successor,
)
from modelbackend_operator.decision import Wait
from modelbackend_operator.evidence import evidence_of
from modelbackend_operator.instances import (
    any_container_running,
    claim_naming,
    is_serving,
    newest_pod,
    own_report,
    pod_of,
    shared_service,
)
from modelbackend_operator.model.backend import Backend, Exposure, PortRole
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.problems import problem_in
from modelbackend_operator.reasons import Reason
from modelbackend_operator.restarts import restarts_of
from modelbackend_operator.told_in_status import told_node, waiting_since


def instance_of(
    observation: Observation, backend: Backend, ordinal: int, waits: Sequence[Wait], now: datetime
) -> Instance:
    known = restarts_of(backend, ordinal, newest_pod(observation, ordinal))
    seen = _seen(observation, backend, ordinal, waits, now)
    failures = {
        "restarts": known.total if seen.pod is not None or known.total else None,
        "pod_restarts": known.of_pod or None,
        "failed_starts": known.failed_starts or None,
    }
    return seen.model_copy(update=failures)


def _seen(observation: Observation, backend: Backend, ordinal: int, waits: Sequence[Wait], now: datetime) -> Instance:
    pod = pod_of(observation, ordinal)
    wait = next((wait for wait in waits if wait.ordinal == ordinal), None)
    if pod is None:
        return _without_pod(observation, ordinal, wait)
    claim = claim_naming(observation, pod)
    problem = problem_in(observation, pod)
    # Told together, once a container was made or cannot be: writes moments apart tell nobody more.
    is_made = any(container.ever_created for container in pod.containers)
    is_placed = bool(pod.host_ip) and (problem is not None or is_made)
    cause = wait if wait is not None and wait.reason == Reason.RESTART_BUDGET_EXHAUSTED else problem or wait
    return Instance(
        ordinal=ordinal,
        phase=InstancePhase.UNCONFIRMED if _is_overdue(wait) else _phase(observation, pod),
        pod=PodReference(name=pod.ref.name, uid=pod.ref.uid),
        node=_node(observation, backend, pod, is_made=is_made),
        address=_address(observation, backend, pod, claim) if is_placed else None,
        port=claim.port if claim is not None else None,
        http_port=_http_port(observation, pod),
        in_flight=_in_flight(observation, pod),
        stop=_stop_entry(pod),
        evidence=evidence_of(observation, pod) if claim is None else None,
        reason=cause.reason if cause is not None else None,
        message=(cause.message or None) if cause is not None else None,
        waiting_since=_waiting_since(backend, pod, wait, now),
        successor=_successor(observation, backend, pod, wait),
    )


def _node(observation: Observation, backend: Backend, pod: Pod, *, is_made: bool) -> NodeReference | None:
    """Its machine, once a container was made there: by that a pod is known to have run (`told_in_status.py`).

    It stays told when the Node object goes, or its kubelet forgets the containers.
    """
    machine, told = observation.nodes.get(pod.node), told_node(backend, pod.ref.uid)
    if machine is None or not is_made:
        return NodeReference.model_validate(told) if told else None
    return NodeReference(name=machine.name, uid=machine.uid, boot_id=machine.boot_id or None)


def _successor(observation: Observation, backend: Backend, pod: Pod, wait: Wait | None) -> Successor | None:
    """The wait of an instance that has one is about it; that of the older pod shows in its own phase."""
    other = newest_pod(observation, pod.ordinal)
    if other is None or other is pod:
        return None
    claim, problem = claim_naming(observation, other), problem_in(observation, other)
    cause = problem or wait
    return Successor(
        phase=_phase(observation, other),
        pod=PodReference(name=other.ref.name, uid=other.ref.uid),
        address=_address(observation, backend, other, claim),
        port=claim.port if claim is not None else None,
        evidence=evidence_of(observation, other) if claim is None else None,
        http_port=_http_port(observation, other),
        reason=cause.reason if cause is not None and not is_serving(other) else None,
        message=(cause.message or None) if cause is not None and not is_serving(other) else None,
    )


def endpoints_of(observation: Observation, backend: Backend, pod: Pod) -> Iterator[Endpoint]:
    """One for each role; inside the cluster, where no port is claimed, that of gRPC."""
    for role in backend.roles or (PortRole.GRPC,):
        address = _address(observation, backend, pod, claim_naming(observation, pod, role))
        if address:
            yield Endpoint(ordinal=pod.ordinal, role=role, pod_uid=pod.ref.uid, address=address)


def _http_port(observation: Observation, pod: Pod) -> int | None:
    claim = claim_naming(observation, pod, PortRole.HTTP)
    return claim.port if claim is not None else None


def _without_pod(observation: Observation, ordinal: int, wait: Wait | None) -> Instance:
    """Either not begun, or its pod vanished and only the withheld claim remembers it."""
    withheld = (claim for claim in observation.claims if claim.phase is ClaimPhase.WITHHELD)
    vanished = next((claim for claim in withheld if claim.ordinal == ordinal), None)
    if wait is None and vanished is not None:
        pod = PodReference(name=vanished.pod_name, uid=vanished.pod_uid)
        message = f"port {vanished.port} is {vanished.phase}"
        return Instance(
            ordinal=ordinal,
            phase=InstancePhase.UNCONFIRMED,
            pod=pod,
            port=vanished.port,
            reason=vanished.reason or Reason.POD_MISSING,
            message=message,
        )
    return Instance(
        ordinal=ordinal,
        phase=InstancePhase.WAITING,
        reason=wait.reason if wait is not None else None,
        message=(wait.message or None) if wait is not None else None,
    )


def _is_overdue(wait: Wait | None) -> bool:
    return wait is not None and wait.reason == Reason.UNCONFIRMED


def _phase(observation: Observation, pod: Pod) -> InstancePhase:
    if pod.deleting:
        return InstancePhase.TERMINATING
    if pod.stop is not None:
        return InstancePhase.DRAINING
    if is_serving(pod):
        return InstancePhase.SERVING
    if problem_in(observation, pod) is not None and pod.node:
        return InstancePhase.FAILING
    return InstancePhase.LOADING if any_container_running(pod) else InstancePhase.PENDING


def _address(observation: Observation, backend: Backend, pod: Pod, claim: Claim | None) -> str | None:
    """Where callers find it. A node port answers on every node; the pod's own node saves a hop."""
    if backend.exposure is Exposure.CLUSTER_IP:
        service = shared_service(observation)
        return f"{service.ref.name}.{backend.ref.namespace}.svc:{GRPC_PORT}" if service is not None else None
    return f"{pod.host_ip}:{claim.port}" if claim is not None and pod.host_ip else None


def _waiting_since(backend: Backend, pod: Pod, wait: Wait | None, now: datetime) -> datetime | None:
    """Its place in the queue for its model's turn: kept while it waits, and lost with the wish."""
    if wait is None or wait.reason != Reason.WAITING_FOR_MODEL_LOCK:
        return None
    return waiting_since(backend, pod.ref.uid) or now


def _in_flight(observation: Observation, pod: Pod) -> int | None:
    """Only while it drains: a count that moves with every request would be written for ever."""
    server = own_report(observation, pod)
    return server.in_flight if pod.stop is not None and not pod.deleting and server is not None else None


def _stop_entry(pod: Pod) -> StopEntry | None:
    stop = pod.stop
    if stop is None:
        return None
    order = (stop.cut.order if stop.cut is not None else "") or stop.extended
    return StopEntry(
        since=stop.since,
        reason=stop.reason,
        deadline=stop.deadline,
        epoch=stop.epoch or None,
        order=order or None,
        yielded_at=stop.yielded_at,
    )
