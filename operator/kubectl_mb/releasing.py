"""`kubectl mb release-finalizers`: the way out when no operator is left to prove anything. It says what it gives up.

Audited: before anything is let go, an Event on each object says who did it and why, and the writes carry their own
field manager, which the API server's audit log shows.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubectl_mb.connecting import Session
from kubectl_mb.look import one
from kubectl_mb.orders import MERGE_PATCH
from kubectl_mb.sight import Sight
from kubectl_mb.troubles import Exit, Trouble, trouble_of
from modelbackend_operator.api import API_VERSION, FINALIZER, MODELBACKEND_KIND, PORTCLAIM_KIND, PortClaimStatus
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.proof import evidence_of_end
from modelbackend_operator.reading import has_finalizer, mapping, terminating
from modelbackend_operator.timestamps import rfc3339

FIELD_MANAGER = "kubectl-mb-release-finalizers"
EVENT_REASON = "FinalizerReleased"


@dataclass(frozen=True, slots=True)
class Loss:
    """One object that would be let go, and what is given up with its finalizer."""

    kind: Kind
    raw: Raw
    gives_up: str

    @property
    def title(self) -> str:
        noun = {Kind.BACKEND: MODELBACKEND_KIND, Kind.CLAIM: PORTCLAIM_KIND}.get(self.kind, "Pod")
        return f"{noun} {self.raw['metadata']['name']}"


def losses(sight: Sight, *, pods: bool, ports: bool) -> tuple[Loss, ...]:
    """In the order in which they are let go, the backend last, so that an interrupted command can be repeated."""
    backend = sight.backend
    if backend is not None and not terminating(backend):
        raise Trouble(
            Exit.NO,
            f"ModelBackend {sight.title} is not being deleted, and its finalizer holds up nothing; "
            f"kubectl delete mb {sight.name} -n {sight.namespace} comes first",
        )
    found = list(_losses(sight, pods, ports))
    if not found:
        raise Trouble(Exit.NOT_FOUND, f"nothing of ModelBackend {sight.title} carries the finalizer {FINALIZER}")
    return tuple(found)


def _losses(sight: Sight, pods: bool, ports: bool) -> Iterator[Loss]:
    for pod in sight.pods if pods else ():
        if has_finalizer(pod):
            proof = (
                "its end is proven, so nothing" if _has_ended(pod) else "the kubelet's word that it has ended is lost"
            )
            yield Loss(Kind.POD, pod, proof)
    for claim in sight.claims if ports else ():
        if has_finalizer(claim):
            yield Loss(Kind.CLAIM, claim, _loss_of_port(sight, claim))
    if sight.backend is not None and has_finalizer(sight.backend):
        running = [pod["metadata"]["name"] for pod in sight.pods if not _has_ended(pod)]
        what = f"{', '.join(running)} may run on" if running else "no pod of it is left"
        yield Loss(Kind.BACKEND, sight.backend, f"nobody waits any more for the end of its pods: {what}")


def _has_ended(pod: Raw) -> bool:
    return evidence_of_end(pod_from(pod)) is not None


def _loss_of_port(sight: Sight, claim: Raw) -> str:
    status, port = PortClaimStatus.model_validate(mapping(claim.get("status"))), claim["spec"]["port"]
    holder = status.pod
    if holder is None or status.evidence is not None:
        return f"nothing: no process is behind port {port}"
    pod = sight.pod(holder.uid)
    if pod is not None and _has_ended(pod):
        return f"nothing: pod {holder.name} has ended"
    return f"port {port} may be given to another while a process of pod {holder.name} still answers on it"


async def release(session: Session, sight: Sight, found: Sequence[Loss], reason: str) -> tuple[str, ...]:
    """Tells first, then lets go; returns what was done, a line each."""
    who = await _user(session)
    done = []
    for loss in found:
        await _tell(session, sight, loss, f"{who} took the finalizer off by hand ({reason}); given up: {loss.gives_up}")
        await _let_go(session, loss)
        done.append(f"{loss.title}: finalizer taken off")
    return tuple(done)


async def _user(session: Session) -> str:
    """As the API server knows them (KEP-3325)."""
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await session.api.call("POST", path, body=body)
    return str(mapping(mapping(answer.body.get("status")).get("userInfo")).get("username") or "somebody")


async def _tell(session: Session, sight: Sight, loss: Loss, message: str) -> None:
    """Events of objects without a namespace are kept in `default`."""
    metadata = loss.raw["metadata"]
    namespace = metadata.get("namespace") or "default"
    api_version = "v1" if loss.kind is Kind.POD else API_VERSION
    moment = rfc3339(datetime.now(UTC))
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name'][:200]}.{time.time_ns():x}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": api_version,
            "kind": loss.title.split()[0],
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "type": "Warning",
        "reason": EVENT_REASON,
        "message": message[:1024],
        "source": {"component": "kubectl-mb"},
        "reportingComponent": "kubectl-mb",
        "reportingInstance": "kubectl-mb",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    answer = await session.api.call("POST", f"/api/v1/namespaces/{namespace}/events", body=body)
    if not answer.ok:
        raise trouble_of(answer, f"write the Event that records this, so nothing is let go of {sight.title}")


async def _let_go(session: Session, loss: Loss) -> None:
    metadata = loss.raw["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    path = loss.kind.path(namespace, name)
    kept = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != FINALIZER]
    body = {"metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "finalizers": kept}}
    answer = await session.api.call(
        "PATCH", path, query=[("fieldManager", FIELD_MANAGER)], body=body, content_type=MERGE_PATCH
    )
    if not answer.ok and not answer.denies_existence():
        raise trouble_of(answer, f"take the finalizer off {loss.title}")
    if loss.kind is Kind.CLAIM and await one(session, Kind.CLAIM, "", name) is not None:
        await session.api.call("DELETE", path, body={"preconditions": {"uid": metadata["uid"]}})
