"""Before the operator is uninstalled: are there ModelBackends that need it to end?

Without the operator their finalizers are taken off by nobody, so a deletion waits for ever and a namespace with one in
it, too. Either that is refused, with their names, or all of them are deleted and waited for.

What no waiting settles is a port that is withheld: nothing proves the end of its last process. It does not hold up an
uninstall, since the claim, its reason and the pod that is kept as a witness outlive the operator; it is told.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.kubernetes_api import KubernetesApi
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.observe.claim import claim_from

POLL_SECONDS = 2.0
MOST_NAMES = 20
log = logging.getLogger(__name__)


class UninstallRefusedError(Exception):
    """Says what is still there, and what to do."""


async def guard(api: KubernetesApi, namespaces: Sequence[str], *, drain: bool, timeout_seconds: float) -> str:
    """What to tell the person once nothing is left that needs the operator.

    `namespaces` are those that the operator looks after; none means all. Raises UninstallRefusedError.
    """
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    deleted: set[str] = set()
    while True:
        backends, claims = await _what_is_left(api, namespaces, deadline)
        if not backends and not [claim for claim in claims if _is_settled_soon(claim)]:
            return _farewell([claim for claim in claims if _phase(claim) is ClaimPhase.WITHHELD])
        if backends and not drain:
            raise UninstallRefusedError(
                f"{_count(backends, 'ModelBackend')} would be left without the operator that ends them: "
                f"{_names(backends)}. Delete them first (kubectl delete modelbackends --all -n NAMESPACE), or have the "
                "uninstall do it (helm rollback RELEASE, since it counts as uninstalling now, and then helm upgrade "
                "RELEASE CHART --set uninstall.guard=Drain), or leave all as it is and uninstall with "
                "--no-hooks: then they serve on, and their deletion waits until an operator is installed again."
            )
        for backend in backends:
            if backend["metadata"]["uid"] not in deleted and await _delete(api, backend):
                deleted.add(backend["metadata"]["uid"])
        if asyncio.get_running_loop().time() > deadline:
            raise UninstallRefusedError(_late(backends, claims, timeout_seconds))
        await asyncio.sleep(POLL_SECONDS)


async def _what_is_left(api: KubernetesApi, namespaces: Sequence[str], deadline: float) -> tuple[list[Raw], list[Raw]]:
    """A kind that is not installed, or an API server that does not answer, tells nothing: it is asked again."""
    while True:
        try:
            backends = [raw for name in namespaces or ("",) for raw in (await api.list(Kind.BACKEND, name)).items]
            claims = (await api.list(Kind.CLAIM)).items
        except ClusterUnavailable as error:
            if asyncio.get_running_loop().time() > deadline:
                raise UninstallRefusedError(f"whether ModelBackends exist is not known: {error}") from error
            log.warning("%s", error)
            await asyncio.sleep(POLL_SECONDS)
            continue
        return backends, [raw for raw in claims if not namespaces or raw["spec"]["backend"]["namespace"] in namespaces]


async def _delete(api: KubernetesApi, backend: Raw) -> bool:
    metadata = backend["metadata"]
    if metadata.get("deletionTimestamp"):
        return True
    preconditions = {"preconditions": {"uid": metadata["uid"]}}
    answer = await api.call("DELETE", Kind.BACKEND.path(metadata["namespace"], metadata["name"]), body=preconditions)
    log.info("deleting %s/%s: %s", metadata["namespace"], metadata["name"], "ok" if answer.ok else answer.message)
    return bool(answer.ok or answer.denies_existence())


def _late(backends: Sequence[Raw], claims: Sequence[Raw], timeout_seconds: float) -> str:
    if backends:
        reasons = "; ".join(f"{_name(raw)}: {_ready_message(raw)}" for raw in backends[:MOST_NAMES])
        return (
            f"after {timeout_seconds:.0f} s {_count(backends, 'ModelBackend')} had not ended. {reasons}. Their "
            "deletion goes on: run helm uninstall again later, with more time (uninstall.timeoutSeconds, --timeout)."
        )
    cooling = [raw for raw in claims if _is_settled_soon(raw)]
    names = ", ".join(raw["metadata"]["name"] for raw in cooling[:MOST_NAMES])
    return f"after {timeout_seconds:.0f} s the operator had not released {names}: see its log, and try again."


def _farewell(withheld: Sequence[Raw]) -> str:
    if not withheld:
        return "no ModelBackend and no port claim is left"
    names = ", ".join(raw["metadata"]["name"] for raw in withheld[:MOST_NAMES])
    return (
        f"no ModelBackend is left. Nothing proves the end of the last process behind {names}: these claims stay, with "
        "their pods, until an operator is installed again and sees proof."
    )


def _phase(claim: Raw) -> ClaimPhase:
    return ClaimPhase(claim.get("status", {}).get("phase", ClaimPhase.RESERVED))


def _is_settled_soon(claim: Raw) -> bool:
    """A withheld one is not; and one whose machine was removed is only kept, for a while, in case that comes back."""
    phase = _phase(claim)
    if phase is ClaimPhase.COOLING:
        return not claim_from(claim).removed_nodes
    return phase is not ClaimPhase.WITHHELD


def _name(raw: Raw) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"


def _names(raws: Sequence[Raw]) -> str:
    more = f" and {len(raws) - MOST_NAMES} more" if len(raws) > MOST_NAMES else ""
    return ", ".join(map(_name, raws[:MOST_NAMES])) + more


def _count(raws: Sequence[Raw], what: str) -> str:
    return f"{len(raws)} {what}" + ("s" if len(raws) != 1 else "")


def _ready_message(raw: Raw) -> str:
    conditions: Sequence[Mapping[str, str]] = raw.get("status", {}).get("conditions") or ()
    ready = next((condition for condition in conditions if condition["type"] == "Ready"), {})
    return ready.get("message", "") or "no word of the operator yet"
