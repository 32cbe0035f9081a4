"""What a user orders: to stop, to go on, to force, to extend, to attest. Each is one conditional write.

The operator's answer is then waited for: `status.orders` says for which pods an order was accepted, or why refused.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kubectl_mb.connecting import Session
from kubectl_mb.look import backend_named, one
from kubectl_mb.sight import status_of
from kubectl_mb.troubles import Exit, Trouble, trouble_of
from modelbackend_operator.api import ANNOTATION_ATTEST, ANNOTATION_EXTEND, ANNOTATION_FORCE, OrderEntry, claim_name
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.model.backend import OrderKind
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.orders import ALL, EXTENSION_MAX_SECONDS, TEXT_MAX_CHARACTERS
from modelbackend_operator.reading import annotations, mapping
from modelbackend_operator.reasons import Reason

FIELD_MANAGER = "kubectl-mb"
MERGE_PATCH = "application/merge-patch+json"
CONFLICTS_MAX = 8
POLL_SECONDS = 0.3

_ANNOTATION = {
    OrderKind.FORCE: ANNOTATION_FORCE,
    OrderKind.EXTEND: ANNOTATION_EXTEND,
    OrderKind.ATTEST: ANNOTATION_ATTEST,
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which instances a command is about, as flags say it."""

    instance: int | None = None
    pod: str | None = None
    every: bool = False


def target_of(backend: Raw, choice: Choice) -> str:
    """The pod uid, or `all`. Where nothing was chosen: the one that is being stopped, or the only one."""
    if choice.every:
        return ALL
    if choice.pod is not None:
        return choice.pod
    name = backend["metadata"]["name"]
    known = [entry for entry in status_of(backend).instances if entry.pod is not None]
    if choice.instance is not None:
        known = [entry for entry in known if entry.ordinal == choice.instance]
    elif len(known) > 1:
        known = [entry for entry in known if entry.stop is not None]
    pods = [entry.pod.uid for entry in known if entry.pod is not None]
    if len(pods) == 1:
        return pods[0]
    about = f"instance {choice.instance} of " if choice.instance is not None else ""
    count = "no pod" if not pods else f"{len(pods)} pods to choose from"
    raise Trouble(Exit.NOT_FOUND, f"{about}ModelBackend {name} has {count}; name one with --instance or --pod")


async def order(
    session: Session, name: str, kind: OrderKind, choice: Choice, words: str, *, wait_seconds: float
) -> OrderEntry:
    """Writes the annotation and returns the operator's answer. Raises Trouble where there is none, or a refusal.

    To attest is no act, so it may be said twice: what was refused for a pod that lived is judged anew when it ends.
    """
    backend = await backend_named(session, name)
    text = f"{target_of(backend, choice)} {words}"
    if len(text) > TEXT_MAX_CHARACTERS:
        raise Trouble(Exit.NO, f"the order has {len(text)} characters, and {TEXT_MAX_CHARACTERS} are allowed: say less")
    if kind is not OrderKind.ATTEST and annotations(backend).get(_ANNOTATION[kind]) == text:
        hint = "an order acts once; to give it again, say it with another --reason or number of seconds"
        raise Trouble(Exit.NO, f"this very order was given to ModelBackend {name} already; {hint}")
    await _annotate(session, Kind.BACKEND, backend, {_ANNOTATION[kind]: text})

    def answer(raw: Raw) -> OrderEntry | None:
        return next((o for o in status_of(raw).orders if o.kind is kind and o.text == text), None)

    entry = await _until(session, Kind.BACKEND, name, answer, wait_seconds, "answer the order")
    if entry.refused:
        raise Trouble(Exit.NO, f"the operator refused it: {entry.refused}")
    return entry


def extension(seconds: int) -> str:
    if not 1 <= seconds <= EXTENSION_MAX_SECONDS:
        raise Trouble(Exit.NO, f"an extension has 1 to {EXTENSION_MAX_SECONDS} seconds, not {seconds}")
    return str(seconds)


async def suspend(session: Session, name: str, *, suspended: bool) -> bool:
    """False: it was so already."""
    backend = await backend_named(session, name)
    if (mapping(backend.get("spec")).get("suspend") is True) == suspended:
        return False
    await _patch(session, Kind.BACKEND, backend, {"spec": {"suspend": suspended}})
    return True


async def end_instance(session: Session, name: str, choice: Choice) -> str:
    """Deletes the pod of one instance, with the grace period it was made with: it drains by itself and is replaced."""
    backend = await backend_named(session, name)
    uid = target_of(backend, choice)
    pods = (entry.pod for entry in status_of(backend).instances if entry.pod is not None)
    pod = next((pod.name for pod in pods if pod.uid == uid), None)
    if pod is None:
        raise Trouble(
            Exit.NOT_FOUND, f"ModelBackend {name} has no pod with uid {uid}; kubectl mb list -o wide shows them"
        )
    path, body = Kind.POD.path(session.namespace, pod), {"preconditions": {"uid": uid}}
    answer = await session.api.call("DELETE", path, body=body)
    if not answer.ok:
        raise trouble_of(answer, f"delete pod {session.namespace}/{pod}")
    return pod


async def attest(session: Session, where: str, pod_uid: str, reason: str, *, wait_seconds: float) -> str:
    """On the claim of a port (a number), or on a ModelBackend that claims none (a name). Returns what became of it."""
    if not where.isdigit():
        backend = await backend_named(session, where)
        status = status_of(backend)
        known = {entry.pod.uid for entry in status.instances if entry.pod is not None}
        known |= {entry.pod.uid for entry in status.vanished}
        if pod_uid not in known:
            told = ", ".join(sorted(known)) or "no pod"
            raise Trouble(Exit.NO, f"ModelBackend {where} has {told}, and not {pod_uid}; nothing was written")
        choice = Choice(pod=pod_uid)
        await order(session, where, OrderKind.ATTEST, choice, reason, wait_seconds=wait_seconds)
        return f"accepted: the end of pod {pod_uid} counts as proven. kubectl mb watch {where}"
    name = claim_name(int(where))
    claim = await one(session, Kind.CLAIM, "", name)
    if claim is None:
        raise Trouble(Exit.NOT_FOUND, f"nobody has a claim on port {where}, so there is nothing to attest")
    held = mapping(mapping(claim.get("status")).get("pod"))
    if held.get("uid") != pod_uid:
        told = f"pod {held.get('name')} ({held.get('uid')})" if held else "no pod"
        raise Trouble(Exit.NO, f"port {where} is held for {told}, not for {pod_uid}; nothing was written")
    await _annotate(session, Kind.CLAIM, claim, {ANNOTATION_ATTEST: f"{pod_uid} {reason}"})
    return await _until(
        session, Kind.CLAIM, name, lambda raw: _released(raw, pod_uid), wait_seconds, f"release port {where}"
    )


def _released(claim: Raw | None, pod_uid: str) -> str | None:
    """What the operator made of an attestation; None: nothing yet."""
    if claim is None:
        return "attested; the port is free, and its claim is gone"
    status = mapping(claim.get("status"))
    if _refuses(status, pod_uid):
        raise Trouble(Exit.NO, f"attested, and not released: {status['reason']}: {status.get('message')}")
    past = {mapping(entry.get("pod")).get("uid"): entry.get("evidence") for entry in status.get("history") or ()}
    if pod_uid in past and status.get("phase") != ClaimPhase.WITHHELD:
        return f"attested; released with evidence {past[pod_uid]}, and {status.get('phase')} now"
    return None


def _refuses(status: Raw, pod_uid: str) -> bool:
    """This word: what stands there of an earlier one, about another pod, is no answer to it."""
    if status.get("reason") == Reason.ATTESTATION_REFUSED:
        return f"names pod {pod_uid}," in status.get("message", "")
    return status.get("reason") == Reason.STILL_ANSWERING


async def _annotate(session: Session, kind: Kind, raw: Raw, words: Mapping[str, str]) -> None:
    await _patch(session, kind, raw, {"metadata": {"annotations": dict(words)}})


async def _patch(session: Session, kind: Kind, raw: Raw, change: Mapping[str, Any]) -> None:
    """For this very object (uid). A version that has moved on is read again: a status changes all the time."""
    namespace, name, uid = session.namespace if kind.namespaced else "", raw["metadata"]["name"], raw["metadata"]["uid"]
    path, query = kind.path(namespace, name), [("fieldManager", FIELD_MANAGER)]
    for _ in range(CONFLICTS_MAX):
        precondition = {"uid": uid, "resourceVersion": raw["metadata"]["resourceVersion"]}
        body = {**change, "metadata": {**change.get("metadata", {}), **precondition}}
        answer = await session.api.call("PATCH", path, query=query, body=body, content_type=MERGE_PATCH)
        if answer.ok:
            return
        newer = await one(session, kind, namespace, name) if answer.code == 409 else None
        if newer is None or newer["metadata"]["uid"] != uid:
            raise trouble_of(answer, f"change {kind.plural} {name}")
        raw = newer
    raise trouble_of(answer, f"change {kind.plural} {name}")


async def _until(
    session: Session, kind: Kind, name: str, answer: Callable[[Any], T | None], seconds: float, what: str
) -> T:
    """Asks until there is an answer; the order stands also when nobody waits for it."""
    deadline = time.monotonic() + seconds
    while True:
        raw = await one(session, kind, session.namespace if kind.namespaced else "", name)
        if raw is None and kind is Kind.BACKEND:
            raise Trouble(Exit.NOT_FOUND, f"ModelBackend {name} is gone: its deletion has ended")
        found = answer(raw)
        if found is not None:
            return found
        if time.monotonic() > deadline:
            hint = "it stands, and is carried out once an operator runs; kubectl mb why says more"
            raise Trouble(Exit.TOO_LATE, f"written, but the operator did not {what} within {seconds:g} s; {hint}")
        await asyncio.sleep(POLL_SECONDS)
