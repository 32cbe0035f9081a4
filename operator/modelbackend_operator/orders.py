"""What a user orders by annotation on a ModelBackend, also while it is being deleted.

    modelbackend.dev/force:  "<pod uid> <reason>" or "all <reason>"    end it now, whatever runs
    modelbackend.dev/extend: "<pod uid> <seconds>"                     drain for so much longer than drainSeconds
    modelbackend.dev/attest: "<pod uid> <reason>"                      no process of it runs any more

An order is first accepted into `status.orders`, with the pods that it is for, and acts on those alone: "all" means the
pods of that moment and never their successors. It is then recorded in each pod's stop record, and so acts once,
however often it is applied again or read anew. One that names no pod of this backend, or makes no sense, does nothing
and is answered there in words. The end of a pod that holds a port is attested on its PortClaim, which outlives both.
"""

from modelbackend_operator.api import ANNOTATION_ATTEST, ANNOTATION_EXTEND, ANNOTATION_FORCE, OrderEntry
from modelbackend_operator.model.backend import Backend, OrderKind, WhenUnconfirmed
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.told_in_status import remembered

ANNOTATIONS = {
    OrderKind.FORCE: ANNOTATION_FORCE,
    OrderKind.EXTEND: ANNOTATION_EXTEND,
    OrderKind.ATTEST: ANNOTATION_ATTEST,
}
TEXT_MAX_CHARACTERS = 256
EXTENSION_MAX_SECONDS = 604_800
ALL = "all"
_HOW = {
    OrderKind.FORCE: 'write "<pod uid> <reason>" or "all <reason>"',
    OrderKind.EXTEND: f'write "<pod uid> <seconds>", with 1 to {EXTENSION_MAX_SECONDS} seconds',
    OrderKind.ATTEST: 'write "<pod uid> <reason>"',
}


def answered(observation: Observation, backend: Backend) -> tuple[OrderEntry, ...]:
    """Each present order and what became of it. One that was accepted stays so, for the same pods."""
    known = {(entry.get("kind"), entry.get("text")): entry for entry in backend.status.get("orders") or ()}
    answers = []
    for kind, text in sorted(backend.orders.items()):
        before = known.get((kind, text))
        accepted = before is not None and not before.get("refused")
        answers.append(OrderEntry.model_validate(before) if accepted else _judge(observation, kind, text))
    return tuple(answers)


def force_for(backend: Backend | None, pod: Pod) -> str | None:
    """The accepted order to end this pod now, verbatim."""
    entry = _accepted(backend, OrderKind.FORCE, pod)
    return None if entry is None else entry.text


def extension_for(backend: Backend | None, pod: Pod) -> tuple[str, int] | None:
    """The accepted order to drain this pod for longer: verbatim, and the seconds it gives."""
    entry = _accepted(backend, OrderKind.EXTEND, pod)
    return None if entry is None else (entry.text, int(entry.text.split()[1]))


def _accepted(backend: Backend | None, kind: OrderKind, pod: Pod) -> OrderEntry | None:
    if backend is None:
        return None
    for entry in backend.status.get("orders") or ():
        present = entry.get("kind") == kind and entry.get("text") == backend.orders.get(kind)
        if present and pod.ref.uid in entry.get("pods", ()):
            return OrderEntry.model_validate(entry)
    return None


def _judge(observation: Observation, kind: OrderKind, text: str) -> OrderEntry:
    pods = {pod.ref.uid: pod for pod in observation.pods}
    words = text.split(maxsplit=1)
    if len(text) > TEXT_MAX_CHARACTERS or len(words) != 2 or not _makes_sense(kind, *words):
        return _refused(kind, text, f"it is not understood and does nothing: {_HOW[kind]}")
    if kind is OrderKind.FORCE and words[0] == ALL:
        return OrderEntry(kind=kind, text=text, pods=tuple(sorted(pods)))
    claim = next((claim for claim in observation.claims if claim.pod_uid == words[0]), None)
    if kind is OrderKind.ATTEST and claim is not None:
        return _refused(kind, text, f"that pod holds port {claim.port}: annotate PortClaim {claim.ref.name} with it")
    pod = pods.get(words[0])
    if pod is None and kind is OrderKind.ATTEST and _is_waited_for(observation, words[0]):
        return OrderEntry(kind=kind, text=text, pods=(words[0],))
    if pod is None:
        missing = f"this backend has no pod with uid {words[0]}; status.instances names those it has"
        return _refused(kind, text, missing)
    if kind is OrderKind.EXTEND and pod.deleting:
        late = f"pod {pod.ref.name} was told to end already, and a grace period cannot be lengthened"
        return _refused(kind, text, late)
    if kind is OrderKind.ATTEST and not pod.deleting:
        return _refused(kind, text, f"pod {pod.ref.name} is not being deleted; delete it first")
    return OrderEntry(kind=kind, text=text, pods=(pod.ref.uid,))


def _is_waited_for(observation: Observation, pod_uid: str) -> bool:
    """Its object is gone, and status remembers it."""
    backend = observation.backend
    if backend is None or backend.when_unconfirmed is not WhenUnconfirmed.WAIT:
        return False
    return any(pod.pod_uid == pod_uid for pod in remembered(backend.status))


def _makes_sense(kind: OrderKind, target: str, what: str) -> bool:
    if kind is not OrderKind.EXTEND:
        return target != ALL or kind is OrderKind.FORCE
    is_number = what.isascii() and what.isdigit() and len(what) <= len(str(EXTENSION_MAX_SECONDS))
    return target != ALL and is_number and 1 <= int(what) <= EXTENSION_MAX_SECONDS


def _refused(kind: OrderKind, text: str, why: str) -> OrderEntry:
    return OrderEntry(kind=kind, text=text[:TEXT_MAX_CHARACTERS], refused=f"{ANNOTATIONS[kind]}: {why}")
