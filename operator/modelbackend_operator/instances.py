"""Views over an observation that several rules share: which pod, which claim, whose Lease, and is it to be stopped."""

from datetime import datetime, timedelta

from modelbackend_operator.model.backend import Backend, PortRole, WhenUnconfirmed
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import ContainerState, Pod
from modelbackend_operator.model.server import ServerReport
from modelbackend_operator.model.service import Service
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.orders import force_for
from modelbackend_operator.proof import rejected_at_admission
from modelbackend_operator.restarts import exhausted, given_up, status_entry

HOLDING = (ClaimPhase.BOUND, ClaimPhase.WITHHELD)
"""Phases of a claim whose port may have a process behind it."""
PORT_TAKEN_EXIT_CODES = {75: PortRole.GRPC, 76: PortRole.HTTP}
"""The server's own (modelbackend_server/exits.py), by the port that it could not have."""
PORT_TAKEN_REASONS = {PortRole.GRPC: StopReason.PORT_TAKEN, PortRole.HTTP: StopReason.HTTP_PORT_TAKEN}


def pods_of(observation: Observation, ordinal: int) -> tuple[Pod, ...]:
    """Oldest first, the same order for every observer. Creation is told to the second: what replaces is younger.

    Without witnesses, who stand for no instance any more.
    """
    mine = [pod for pod in observation.pods if pod.ordinal == ordinal and pod.handed_over is None]
    uids = {pod.ref.uid for pod in mine}
    return tuple(sorted(mine, key=lambda pod: (pod.created_at, pod.replaces in uids, pod.ref.name)))


def pod_of(observation: Observation, ordinal: int) -> Pod | None:
    """The one that stands for the instance: one that was let through, else one that a claim names, else the oldest."""
    pods = pods_of(observation, ordinal)
    return min(pods, key=lambda pod: (pod.gated, not claims_naming(observation, pod)), default=None)


def staying_pod(observation: Observation, ordinal: int) -> Pod | None:
    """The one that nothing ends: of several, one that was let through, else one that a claim names, else the oldest."""
    pods = [pod for pod in pods_of(observation, ordinal) if stop_reason(observation, pod) is None]
    return min(pods, key=lambda pod: (pod.gated, not claims_naming(observation, pod)), default=None)


def newest_pod(observation: Observation, ordinal: int) -> Pod | None:
    """The one whose failures are the instance's; beside an older pod, the one that takes its place."""
    return next(reversed(pods_of(observation, ordinal)), None)


def is_serving(pod: Pod) -> bool:
    """May be advertised: ready by the kubelet's word, and nothing ends it."""
    return pod.ready and pod.serving_condition and pod.serving_label and pod.stop is None and not pod.deleting


def wanted(observation: Observation, ordinal: int) -> bool:
    """The spec asks for this instance now, and nothing ends the backend."""
    backend = observation.backend
    return backend is not None and backend.deleting_since is None and ordinal in backend.ordinals


def waits_for_proof(observation: Observation) -> bool:
    """Without proof the instance is not replaced and its backend does not end: shutdown.whenUnconfirmed is Wait."""
    backend = observation.backend
    return backend is not None and backend.when_unconfirmed is WhenUnconfirmed.WAIT


def node_lost_at(observation: Observation, pod: Pod) -> datetime | None:
    """When the loss of its node ends this pod's instance; None while the node is there, or where no limit is set."""
    backend, node = observation.backend, observation.nodes.get(pod.node)
    if backend is None or backend.node_loss_seconds is None or node is None or node.lost_since is None:
        return None
    return node.lost_since + timedelta(seconds=backend.node_loss_seconds)


def claims_naming(observation: Observation, pod: Pod) -> tuple[Claim, ...]:
    """Of every role, in any phase."""
    return tuple(claim for claim in observation.claims if claim.pod_uid == pod.ref.uid)


def claim_naming(observation: Observation, pod: Pod, role: PortRole = PortRole.GRPC) -> Claim | None:
    return next((claim for claim in claims_naming(observation, pod) if claim.role is role), None)


def reserved_claim(observation: Observation, ordinal: int, role: PortRole) -> Claim | None:
    """The one Reserved claim that the next pod of this instance takes: the lowest port, whoever looks."""
    backend = observation.backend
    fitting = (
        claim
        for claim in observation.claims
        if (claim.ordinal, claim.role, claim.phase) == (ordinal, role, ClaimPhase.RESERVED) and not claim.terminating
        if backend is not None and port_fits(backend, claim)
    )
    return min(fitting, key=lambda claim: claim.port, default=None)


def holders_left(observation: Observation, claim: Claim) -> bool:
    """The pod of this cooling claim still has an object, or another port that is not released.

    Until neither is left the claim stays as it is: its evidence is what releases the others.
    """
    return pod_lives(observation, claim.pod_uid) or any(
        other.pod_uid == claim.pod_uid and other.phase in HOLDING for other in observation.claims
    )


def port_fits(backend: Backend, claim: Claim) -> bool:
    """The claim is one that the present spec could have made."""
    if claim.exposure is not backend.exposure or claim.role not in backend.roles:
        return False
    pinned = backend.pin(claim.role)
    if pinned is not None:
        return claim.port == pinned
    return backend.port_range is None or backend.port_range[0] <= claim.port <= backend.port_range[1]


def pod_lives(observation: Observation, pod_uid: str) -> bool:
    """The object exists; of the process this says nothing."""
    return any(pod.ref.uid == pod_uid for pod in observation.pods)


def instance_service(observation: Observation, ordinal: int, port: int) -> Service | None:
    """The NodePort Service of the instance that has this port, perhaps among others."""
    return next((s for s in observation.services if s.ordinal == ordinal and port in s.node_ports), None)


def shared_service(observation: Observation) -> Service | None:
    return next((s for s in observation.services if s.ordinal is None), None)


def status_names(backend: Backend, pod: Pod) -> bool:
    """The backend's status names this pod for its ordinal, as its pod or as the successor of that."""
    entry = status_entry(backend, pod.ordinal)
    named = (entry.get("pod"), (entry.get("successor") or {}).get("pod"))
    return any((reference or {}).get("uid") == pod.ref.uid for reference in named)


def status_advertises(backend: Backend, pod: Pod) -> bool:
    return any(entry.get("podUID") == pod.ref.uid for entry in backend.status.get("endpoints") or ())


def holds_lease(observation: Observation, pod: Pod) -> bool:
    """The model's Lease is held for the stop of exactly this pod."""
    lease = observation.lease
    return (
        lease is not None
        and lease.holder is not None
        and lease.holder.backend_uid == observation.backend_uid
        and lease.holder.pod_uid == pod.ref.uid
    )


def own_report(observation: Observation, pod: Pod) -> ServerReport | None:
    """What the pod's server says, if it answers as that pod of this backend; another's word is no word."""
    report = observation.servers.get(pod.ref.uid)
    if report is None or (report.backend_uid, report.pod_uid) != (observation.backend_uid, pod.ref.uid):
        return None
    return report


def server_is_dead(pod: Pod) -> bool:
    """By the kubelet's word. A status without containers is none: one that was just restarted may write such a one
    of a pod whose containers run on."""
    return bool(pod.containers) and not any_container_running(pod)


def any_container_running(pod: Pod) -> bool:
    return any(container.state is ContainerState.RUNNING for container in pod.containers)


def stop_reason(observation: Observation, pod: Pod) -> StopReason | None:
    """Why this pod must end, or None while it is to stay.

    A recorded stop and a Lease taken for it are points of no return: they are finished even when the wish behind them
    is taken back, because a release and a late write of the same stop could otherwise cross.
    """
    if pod.stop is not None:
        return pod.stop.reason
    if holds_lease(observation, pod) and observation.lease is not None and observation.lease.holder is not None:
        return observation.lease.holder.purpose
    if pod.deleting:
        return StopReason.FOREIGN
    backend = observation.backend
    if backend is None or backend.deleting_since is not None:
        return StopReason.DELETED
    if pod.ordinal not in backend.ordinals:
        return StopReason.SUSPENDED if backend.suspended else StopReason.SCALED_DOWN
    unlike = None if backend.refused else _unlike_the_spec(observation, backend, pod)
    ends = unlike or _failed(backend, pod) or _port_taken(backend, pod)
    if ends is None and force_for(backend, pod) is not None:
        return StopReason.ORDERED
    return ends or _too_busy(observation, backend, pod)


def _failed(backend: Backend, pod: Pod) -> StopReason | None:
    """The kubelet gives no more runs to it, or the spec does not."""
    if exhausted(backend, pod.ordinal, pod):
        return StopReason.RESTARTS_EXHAUSTED
    if given_up(pod):
        return StopReason.REJECTED if rejected_at_admission(pod) else StopReason.FAILED
    return None


def _port_taken(backend: Backend, pod: Pod) -> StopReason | None:
    """Its server ended because somebody else listens on its port. A pinned port is waited for: it is a wish."""
    if pod.containers_ready or pod.gated:
        return None
    ended = (c.exit_code for c in pod.containers if c.state is not ContainerState.RUNNING)
    found = {PORT_TAKEN_EXIT_CODES.get(code) for code in ended if code is not None}
    for role in backend.roles:
        if role in found and backend.pin(role) is None:
            return PORT_TAKEN_REASONS[role]
    return None


def _too_busy(observation: Observation, backend: Backend, pod: Pod) -> StopReason | None:
    """By the age of its oldest request: steady traffic of short ones is no reason, however dense."""
    limit, server = backend.busy_timeout_seconds, own_report(observation, pod)
    if limit is None or server is None or server.oldest_seconds <= limit:
        return None
    return StopReason.BUSY_TIMEOUT


def _unlike_the_spec(observation: Observation, backend: Backend, pod: Pod) -> StopReason | None:
    """Made from another template, or not behind a claimed port that the present spec could have."""
    if pod.template_hash != backend.template_hash:
        return StopReason.SPEC_CHANGED
    for role in backend.roles:
        claim = claim_naming(observation, pod, role)
        if claim is None and not pod.gated:
            return StopReason.CLAIM_LOST
        if claim is not None and not port_fits(backend, claim):
            return StopReason.SPEC_CHANGED
    return None
