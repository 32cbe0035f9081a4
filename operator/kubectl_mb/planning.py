"""What an edited ModelBackend would do to the running instances, by the operator's own rule (`stop_reason`).

Pure: from the object as it is, the object as it would be, and the pods and claims of now.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kubectl_mb.sight import Sight, status_of
from modelbackend_operator.instances import claims_naming, port_fits, stop_reason
from modelbackend_operator.kinds import Raw
from modelbackend_operator.model.backend import Backend, Rollout
from modelbackend_operator.model.claim import Claim, ClaimPhase
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.model.pod import Pod
from modelbackend_operator.model.ports import Ports
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.observe.backend import backend_from
from modelbackend_operator.observe.claim import claim_from
from modelbackend_operator.observe.pod import pod_from
from modelbackend_operator.pod_template import template_hash
from modelbackend_operator.reading import mapping
from modelbackend_operator.spec import InvalidSpec, read_spec


@dataclass(frozen=True, slots=True)
class Change:
    """One field of the spec; None is absent."""

    path: str
    before: Any
    after: Any
    restarts: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one instance: it `starts`, `restarts`, `ends` or `stays`."""

    instance: int
    what: str
    how: str


@dataclass(frozen=True, slots=True)
class Plan:
    title: str
    changes: tuple[Change, ...]
    steps: tuple[Step, ...]
    refused: tuple[str, ...] = ()
    """Sentences: the operator would stop and start nothing for this spec."""

    @property
    def interrupts(self) -> bool:
        return any(step.what in ("restarts", "ends") for step in self.steps)


def plan_of(sight: Sight, planned: Raw) -> Plan:
    """`planned`: as the API server would store it, with the defaults in."""
    changes = tuple(_changes(sight.backend, planned))
    backend = _as_edited(sight, planned)
    if backend.refused:
        return Plan(sight.title, changes, (), backend.refused)
    observation = _observation(sight, backend)
    steps = sorted(_steps(sight, observation, backend), key=lambda step: step.instance)
    return Plan(sight.title, changes, tuple(steps))


def _as_edited(sight: Sight, planned: Raw) -> Backend:
    """With the identity and the status of the object that is there; whether hostPath is allowed is not known here."""
    live = sight.backend
    metadata = {"resourceVersion": "", **planned["metadata"]}  # a dry run of a new one has none
    backend = backend_from({"status": {}, **planned, "metadata": metadata}, allow_host_path=True)
    if live is None:
        return backend
    uid, version = live["metadata"]["uid"], live["metadata"]["resourceVersion"]
    return replace(
        backend, ref=replace(backend.ref, uid=uid, resource_version=version), status=mapping(live.get("status"))
    )


def _observation(sight: Sight, backend: Backend) -> Observation:
    claims = tuple(map(claim_from, sight.claims))
    return Observation(
        backend_uid=backend.ref.uid,
        backend=backend,
        namespace_terminating=False,
        claims=claims if "portclaims" not in sight.hidden else tuple(_told_claims(sight, backend)),
        pods=tuple(map(pod_from, sight.pods)),
        services=(),
        lease=None,
        nodes={},
        servers={},
        ports=Ports((), 0, frozenset()),
        taken_names=frozenset(),
    )


def _told_claims(sight: Sight, planned: Backend) -> Iterator[Claim]:
    """For users who may not read the ledger: as far as the status tells of it."""
    live = backend_from(sight.backend, allow_host_path=True) if sight.backend is not None else planned
    for entry in status_of(sight.backend).instances:
        pod = sight.pod(entry.pod.uid) if entry.pod is not None else None
        if pod is not None and entry.port is not None:
            facts = pod_from(pod)
            yield Claim(
                ref=Ref(f"port-{entry.port}", "", ""),
                port=entry.port,
                ordinal=entry.ordinal,
                exposure=live.exposure,
                phase=ClaimPhase.BOUND,
                pod_name=facts.ref.name,
                pod_uid=facts.ref.uid,
                node=None,
                since=facts.created_at,
                has_finalizer=True,
                terminating=False,
            )


def _steps(sight: Sight, observation: Observation, backend: Backend) -> Iterator[Step]:
    standing = {pod.ordinal: pod for pod in observation.pods if pod.handed_over is None}
    for ordinal in sorted({*backend.ordinals, *standing}):
        pod = standing.get(ordinal)
        if pod is None:
            yield Step(ordinal, "starts", "a new pod" if sight.backend is not None else "the backend is new")
        else:
            yield _step(observation, backend, pod)


def _step(observation: Observation, backend: Backend, pod: Pod) -> Step:
    reason = stop_reason(observation, pod)
    if pod.stop is not None or pod.deleting:
        follows = "; another one starts then" if pod.ordinal in backend.ordinals else ""
        return Step(pod.ordinal, "ends", f"pod {pod.ref.name} is being stopped already ({reason}){follows}")
    if reason is None:
        return Step(pod.ordinal, "stays", f"pod {pod.ref.name} runs on")
    ending = f"pod {pod.ref.name} drains for at most {backend.drain_seconds} s and ends ({reason})"
    if pod.ordinal not in backend.ordinals:
        return Step(pod.ordinal, "ends", ending)
    if reason is StopReason.SPEC_CHANGED and backend.rollout is Rollout.SURGE:
        return Step(
            pod.ordinal, "restarts", f"a second pod starts and serves first, behind another port; then {ending}"
        )
    kept = "behind the same port" if _keeps_port(observation, backend, pod) else "behind another port"
    return Step(pod.ordinal, "restarts", f"{ending}; the next one starts after proof, {kept}")


def _keeps_port(observation: Observation, backend: Backend, pod: Pod) -> bool:
    """Each of the ports that the changed spec asks for; one that is new to it is nobody's loss."""
    held = [claim for claim in claims_naming(observation, pod) if claim.role in backend.roles]
    return bool(held) and all(port_fits(backend, claim) for claim in held)


# -- which fields change, and which of them a running pod cannot take on ----------------------------------------------


def _changes(live: Raw | None, planned: Raw) -> Iterator[Change]:
    if live is None:
        return
    before, after = mapping(live.get("spec")), mapping(planned.get("spec"))
    for path, old, new in _differences((), before, after):
        yield Change(".".join(path), old, new, _restarts(before, path, new))


def _differences(path: tuple[str, ...], before: Any, after: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if before == after:
        return
    both = (before, after)
    if any(isinstance(side, Mapping) and side for side in both) and all(
        s is None or isinstance(s, Mapping) for s in both
    ):
        for key in sorted({*mapping(before), *mapping(after)}):
            yield from _differences((*path, key), mapping(before).get(key), mapping(after).get(key))
    else:
        yield path, before, after


def _restarts(spec: Raw, path: tuple[str, ...], value: Any) -> bool:
    """Alone, this change would make another pod template."""
    before, after = read_spec(spec), read_spec(_with(spec, path, value))
    if isinstance(before, InvalidSpec) or isinstance(after, InvalidSpec):
        return False
    return template_hash(before) != template_hash(after)


def _with(spec: Raw, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    head, *rest = path
    changed = dict(spec)
    inner = _with(mapping(spec.get(head)), tuple(rest), value) if rest else value
    if inner is None or inner == {}:
        changed.pop(head, None)
    else:
        changed[head] = inner
    return changed
