"""The rules, broken on purpose: a search that finds nothing wrong with these could not find anything.

    python -m tests.sim.mutants [--quick]

Each mutant undoes one guard of the real rules, or of the writes behind them, and names the promise that must break
and the smallest scenario in which it does. Some are the holes that an earlier search found in this protocol: they say
which. `invariants.py` is never mutated.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from modelbackend_operator import actions as do
from modelbackend_operator import decide as deciding
from modelbackend_operator import ending, evidence, instances, ledger, model_lease, proof, settling, starting, stopping
from modelbackend_operator.actions import Act, Wait
from modelbackend_operator.api import Evidence
from modelbackend_operator.model import Claim, ClaimPhase, ContainerState, Observation, Pod
from modelbackend_operator.reasons import Reason
from tests.sim.explore import Bounds, Found, Scenario, Search
from tests.sim.scenarios import B1, B2, INSIDE, ONE_PORT, OTHER_MODEL, on_host
from tests.sim.world import World

SECONDS_MAX = 120


@dataclass(frozen=True)
class Mutant:
    promise: str
    """That breaks, by its name in `invariants.py`; `eventually` for a goal out of reach."""
    name: str
    scenario: Scenario
    changes: tuple[tuple[Any, Any], ...] = ()
    """Functions of the rules, and what each is replaced by wherever it is used."""
    world: tuple[tuple[type, str, Any], ...] = ()
    """Attributes replaced as they stand: of an action, or of the world that stands for the API server."""
    quick: bool = True
    only: bool = False
    """Look for this promise alone: another would break before it."""


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    patches = [
        patch.object(module, name, changed)
        for original, changed in mutant.changes
        for module in _rules()
        for name, value in vars(module).items()
        if value is original
    ]
    patches += [patch.object(owner, name, value) for owner, name, value in mutant.world]
    assert patches, f"nothing is changed by {mutant.name}"
    for change in patches:
        change.start()
    try:
        yield
    finally:
        for change in reversed(patches):
            change.stop()


def _rules() -> list[Any]:
    """Every module of the operator but the promises themselves."""
    mine = ((name, module) for name, module in sys.modules.items() if name.startswith("modelbackend_operator."))
    return [module for name, module in mine if name != "modelbackend_operator.invariants"]


def hunt(mutant: Mutant, seconds: float = SECONDS_MAX) -> Found:
    """Searches with the mutant in place, and stops at the first breach."""
    with applied(mutant):
        return Search(mutant.scenario, mutant.promise if mutant.only else "").run(seconds_max=seconds)


def is_killed(mutant: Mutant, found: Found) -> bool:
    return found.breach.startswith(mutant.promise)


# -- scenarios of their own: the smallest that show it ----------------------------------------------------------------

DELETED = Scenario("deleted", (B1,), Bounds((("delete", 1),)), pool=ONE_PORT)
BUSY = Scenario("deleted while a request runs", (B1,), Bounds((("request", 1), ("delete", 1))), pool=ONE_PORT)
STARTED = Scenario("started", (B1,), Bounds(), pool=ONE_PORT, served=False)
LATE = Scenario(
    "deleted while it starts, one write late", (B1,), Bounds((("delete", 1),), late=1), pool=ONE_PORT, served=False
)
STARTED_ON_HOST = Scenario("started behind a host port", on_host(B1), Bounds(), pool=ONE_PORT, served=False)
TORN = Scenario("torn out", on_host(B1), Bounds((("strip pod", 1), ("force", 1), ("kubelet stops", 1))))
LOST = Scenario(
    "Node removed",
    on_host(B1),
    Bounds((("kubelet stops", 1), ("Node removed", 1), ("delete", 1))),
    nodes=("node-1", "node-2"),
)
OVERDUE = Scenario(
    "deleted while its kubelet is away", on_host(B1), Bounds((("kubelet stops", 1), ("delete", 1))), pool=ONE_PORT
)
REBOOTED = Scenario(
    "torn out, and its machine reboots",
    on_host(B1),
    Bounds((("machine dies", 1), ("strip pod", 1), ("force", 1))),
    pool=ONE_PORT,
    served=False,
)
CRASH = Scenario("crash", (B1,), Bounds((("crash", 1), ("delete", 1))), pool=ONE_PORT)
TORN_PAIR = Scenario(
    "torn out, and another waits for the port",
    on_host(B1, OTHER_MODEL),
    Bounds((("strip pod", 1), ("force", 1), ("kubelet stops", 1))),
    pool=ONE_PORT,
    nodes=("node-1", "node-2"),
)
RACE = Scenario(
    "two start at once, one write late",
    on_host(B1, OTHER_MODEL),
    Bounds(late=1),
    pool=ONE_PORT,
    nodes=("node-1", "node-2"),
    served=False,
)
EVICTED = Scenario("evicted", (replace(B1, exposure=INSIDE),), Bounds((("evict", 1),)))
PAIR = Scenario("two of a model", (B1, B2), Bounds((("delete", 2),)))
PAIR_LEASE = Scenario("two of a model, the Lease deleted", (B1, B2), Bounds((("delete", 2), ("delete Lease", 1))))
RESUMED = Scenario("two of a model, one resumed", (B1, B2), Bounds((("suspend", 2), ("resume", 1)), late=1))
EDITED = Scenario("edited", (replace(B1, exposure=INSIDE),), Bounds((("edit", 1),)))
OLD_PODS = Scenario("an old cache of pods", (B1,), Bounds(stale=1, frozen=("Pod",)), served=False)
LATE_EDIT = Scenario(
    "edited, one write late", (B1,), Bounds((("edit|suspend", 1), ("resume", 1)), late=1), pool=ONE_PORT
)
PINNED = Scenario(
    "pinned to another port, one write late",
    on_host(replace(B1, pinned_port=ONE_PORT[0])),
    Bounds((("pin", 1),), late=1),
    served=False,
)
NEXT_OWNER = Scenario("one node port, two owners", (B1, OTHER_MODEL), Bounds((("suspend", 1),)), pool=ONE_PORT)
LINGERS = Scenario(
    "forgotten by its kubelet", (B1,), Bounds((("delete", 1), ("forget", 1))), pool=ONE_PORT, eager=("ready",)
)


# -- what is broken ---------------------------------------------------------------------------------------------------


def _absence_is_proof(observation: Observation, claim: Claim) -> Act | None:
    if instances.pod_lives(observation, claim.pod_uid):
        return None
    return Act(do.CoolClaim(claim, "Absent"))


def _unbound_is_never_started(pod: Pod) -> Evidence | None:
    return Evidence.NEVER_STARTED if not pod.node else _evidence(pod)


def _terminated_is_the_end(pod: Pod) -> Evidence | None:
    ended = bool(pod.containers) and all(c.state is ContainerState.TERMINATED for c in pod.containers)
    return Evidence.CONTAINERS_TERMINATED if ended else _evidence(pod)


def _failed_is_the_end(pod: Pod) -> Evidence | None:
    return Evidence.CONTAINERS_TERMINATED if pod.deleting and pod.phase.terminal else _evidence(pod)


def _unscheduled_needs_no_delete(observation: Observation, pod: Pod, now: Any) -> Any:
    return _drain(observation, pod, now) if pod.node else None


_drain = stopping._drain
_evidence = proof.evidence_of_end
_stop_reason = instances.stop_reason
_open_gate = starting._open_gate
_start = starting.start
_apply = World.apply


def _bound_whatever_its_port(observation: Observation, backend: Any, pod: Pod, now: Any) -> Any:
    if instances.claim_naming(observation, pod) is None:
        claim = instances.reserved_claim(observation, pod.ordinal)
        if claim is not None:
            return Act(do.BindClaim(claim, pod))
    return _open_gate(observation, backend, pod, now)


def _opened_first(observation: Observation, backend: Any, pod: Pod, now: Any) -> Any:
    return Act(do.Ungate(pod))


def _the_wish_alone(observation: Observation, pod: Pod) -> Any:
    """No point of no return: neither a record nor a Lease outlives the wish behind it."""
    return _stop_reason(replace(observation, lease=None), replace(pod, stop=None))


def _given_back_without_wish(observation: Observation, now: Any) -> Act | None:
    lease = observation.lease
    if lease is None or lease.holder is None or lease.holder.backend_uid != observation.backend_uid:
        return None
    pod = next((pod for pod in observation.pods if pod.ref.uid == lease.holder.pod_uid), None)
    return None if pod is not None and _the_wish_alone(observation, pod) else Act(do.ReleaseLease(lease))


def _given_back_at_once(observation: Observation, now: Any) -> Act | None:
    """As if the Lease had expired: by time, not by a fact."""
    lease = observation.lease
    if lease is None or lease.holder is None or lease.holder.backend_uid != observation.backend_uid:
        return None
    pod = next((pod for pod in observation.pods if pod.ref.uid == lease.holder.pod_uid), None)
    return Act(do.ReleaseLease(lease)) if pod is None or pod.deleting else None


def _whatever_remains(observation: Observation) -> Act | None:
    backend = observation.backend
    if backend is None or backend.deleting_since is None or not backend.has_finalizer:
        return None
    return Act(do.RemoveFinalizer(backend))


def _finalizer_first(observation: Observation, now: Any) -> Iterator[Any]:
    yield _whatever_remains(observation)
    yield from _steps(observation, now)


_steps = deciding._steps


def _starts_beside(observation: Observation, backend: Any, ordinal: int, now: Any) -> Any:
    """A successor is not kept waiting by a predecessor that terminates."""
    others = tuple(pod for pod in observation.pods if not pod.deleting)
    taken = observation.taken_names | {pod.ref.name for pod in observation.pods}
    return _start(replace(observation, pods=others, taken_names=taken), backend, ordinal, now)


def _deleted_at_once(observation: Observation, pod: Pod, now: Any) -> Any:
    return None if pod.deleting else Act(do.DeletePod(pod, 15))


def _always_idle(observation: Observation, pod: Pod) -> Any:
    report = _own_report(observation, pod)
    return None if report is None else replace(report, in_flight=0)


_own_report = instances.own_report


def _ends_with_grace_0(observation: Observation) -> int:
    return 0


def _waits_for_the_kubelet(pod: Pod, now: Any) -> Wait:
    return Wait(Reason.TERMINATING, "", None, pod.ordinal)


def _leaves_gated_pods(observation: Observation, pod: Pod, now: Any) -> Any:
    return None


def _made_without_gate(world: World, action: Any) -> Any:
    outcome = _apply(world, action)
    if isinstance(action, do.CreatePod):
        for pod in world.state.all(Pod):
            if pod.gated:
                world.edit(pod, gated=False, serving_label=True)
    return outcome


def _made_without_finalizer(world: World, action: Any) -> Any:
    outcome = _apply(world, action)
    if isinstance(action, do.CreatePod):
        for pod in world.state.all(Pod):
            if pod.has_finalizer and pod.gated:
                world.edit(pod, has_finalizer=False)
    return outcome


def _takes_claims_over(world: World, action: Any) -> Any:
    """As if a claim were made by an apply and not by a create."""
    outcome = _apply(world, action)
    if isinstance(action, do.CreateClaim) and isinstance(outcome, do.Exists):
        held = next(claim for claim in world.state.all(Claim) if claim.port == action.port)
        owners = {**world.state.owners, held.ref.uid: action.backend.ref.uid}
        world.state = world.state._replace(owners=owners)
        world.edit(held, phase=ClaimPhase.RESERVED, pod_uid="", pod_name="", ordinal=action.ordinal)
        return do.Applied()
    return outcome


def _forgets_the_terminating(observation: Observation, ordinal: int) -> tuple[Pod, ...]:
    return tuple(pod for pod in _pods_of(observation, ordinal) if not pod.deleting)


_pods_of = instances.pods_of


def _every_name(observation: Observation) -> set[str]:
    return {pod.ref.name for pod in observation.pods}


def _by_any_status(observation: Observation, claim: Claim) -> str:
    node = observation.nodes.get(claim.node.name) if claim.node is not None else None
    return node.boot_id if node is not None else ""


def _frees_the_port(observation: Observation, pod: Pod) -> Act | None:
    claim = instances.claim_naming(observation, pod)
    return Act(do.CoolClaim(claim, "Overdue")) if claim is not None and claim.phase is ClaimPhase.BOUND else None


def _never(*_: Any) -> None:
    return None


def _yes(*_: Any) -> bool:
    return True


MUTANTS = (
    Mutant(
        "PortExclusive",
        "a missing pod object frees its port for others",
        TORN_PAIR,
        ((settling._withhold_if_pod_vanished, _absence_is_proof),),
        quick=False,
        only=True,
    ),
    Mutant(
        "PortExclusive",
        "a claim is made by whoever writes it last",
        RACE,
        world=((World, "apply", _takes_claims_over),),
        quick=False,
        only=True,
    ),
    Mutant(
        "NoDoublePod",
        "a pod that others delete is forgotten before it has ended",
        EVICTED,
        ((instances.pods_of, _forgets_the_terminating), (starting._names_in_use, _every_name)),
    ),
    Mutant(
        "EvidenceNotAbsence",
        "a missing pod object is proof",
        TORN,
        ((settling._withhold_if_pod_vanished, _absence_is_proof),),
    ),
    Mutant(
        "PortWithheld",
        "pod garbage collection's Failed is proof",
        LOST,
        ((proof.evidence_of_end, _failed_is_the_end),),
    ),
    Mutant(
        "PortWithheld",
        "`terminated` on a pod that is not deleted is proof (the third hole)",
        CRASH,
        ((proof.evidence_of_end, _terminated_is_the_end),),
    ),
    Mutant(
        "PortWithheld",
        "a reboot counts from whatever boot the node showed last (the first hole)",
        REBOOTED,
        ((evidence.reference_boot, _by_any_status),),
        quick=False,
    ),
    Mutant(
        "EvidenceNotAbsence",
        "an instance that is handed over gives up its port",
        OVERDUE,
        ((ending._keep_as_witness, _frees_the_port),),
    ),
    Mutant(
        "EvidenceNotAbsence",
        "an instance is given up as soon as it is told to end",
        OVERDUE,
        ((ending.overdue_at, lambda _, pod: pod.deleted_at),),
    ),
    Mutant(
        "PortWithheld",
        "an unbound pod is proven, deleted or not (the second hole)",
        LATE,
        ((proof.evidence_of_end, _unbound_is_never_started), (stopping._drain, _unscheduled_needs_no_delete)),
    ),
    Mutant("PortWithheld", "no scheduling gate", STARTED_ON_HOST, world=((World, "apply", _made_without_gate),)),
    Mutant(
        "PortWithheld",
        "a claim is bound to a pod of another host port (the fourth hole)",
        PINNED,
        ((starting._open_gate, _bound_whatever_its_port),),
        quick=False,
    ),
    Mutant(
        "PortWithheld",
        "no resourceVersion on claims",
        LATE_EDIT,
        world=((World, "unchecked", frozenset({Claim})),),
    ),
    Mutant("GateBeforeClaim", "the gate is opened first", STARTED, ((starting._open_gate, _opened_first),)),
    Mutant(
        "GateBeforeClaim",
        "the gate is opened before the status names the pod",
        STARTED,
        ((instances.status_names, _yes),),
    ),
    Mutant("OneShutdownPerModel", "no Lease is taken", PAIR, ((model_lease.take, _never),)),
    Mutant(
        "OneShutdownPerModel",
        "open stops of others are not looked at",
        PAIR_LEASE,
        ((model_lease._others_open, lambda *_: {}),),
    ),
    Mutant(
        "OneShutdownPerModel",
        "the Lease is given back before proof",
        PAIR,
        ((model_lease.release, _given_back_at_once), (model_lease._others_open, lambda *_: {})),
    ),
    Mutant(
        "OneShutdownPerModel",
        "a stop may be taken back (the sixth hole)",
        RESUMED,
        (
            (instances.stop_reason, _the_wish_alone),
            (model_lease.release, _given_back_without_wish),
            (model_lease._others_open, lambda *_: {}),
        ),
        quick=False,
    ),
    Mutant(
        "ForceOnlyAfterDeadline", "deleted without waiting for requests", BUSY, ((stopping._drain, _deleted_at_once),)
    ),
    Mutant("ForceOnlyAfterDeadline", "a busy server is taken for idle", BUSY, ((instances.own_report, _always_idle),)),
    Mutant("ForceOnlyAfterDeadline", "deleted with grace 0", DELETED, ((stopping._grace_seconds, _ends_with_grace_0),)),
    Mutant("NeverAdvertiseDying", "drained before it is withdrawn", DELETED, ((stopping._withdraw, _never),)),
    Mutant(
        "NeverAdvertiseDying",
        "deleted before its address is taken back",
        DELETED,
        ((instances.status_advertises, lambda *_: False),),
    ),
    Mutant("FinalizerLast", "the backend's finalizer goes first", DELETED, ((deciding._steps, _finalizer_first),)),
    Mutant(
        "FinalizerLast",
        "the backend's finalizer does not wait for pods",
        PAIR,
        ((settling.remove_finalizer, _whatever_remains),),
    ),
    Mutant(
        "NoDoublePod",
        "a successor starts while its predecessor terminates",
        EDITED,
        ((starting.start, _starts_beside),),
    ),
    Mutant(
        "eventually",
        "a claim is withheld on an old look",
        OLD_PODS,
        world=((do.WithholdClaim, "LIVE", False),),
        quick=False,
    ),
    Mutant(
        "eventually",
        "an ended pod waits for its kubelet for ever (the seventh hole)",
        LINGERS,
        ((ending._await_removal, _waits_for_the_kubelet),),
    ),
    Mutant(
        "eventually",
        "a port's Service outlives its claim (the eighth hole)",
        NEXT_OWNER,
        ((ledger.free_service, _never), (settling.sweep_services, _never)),
    ),
    Mutant(
        "eventually",
        "what a late write leaves is not swept (the ninth hole)",
        LATE,
        ((stopping._end_gated, _leaves_gated_pods),),
    ),
    Mutant("eventually", "the Lease is never given back", DELETED, ((model_lease.release, _never),)),
    Mutant("eventually", "a port never cools down", DELETED, ((settling._free_when_cooled, _never),)),
)


# -- the table --------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only those that are found in a few seconds")
    parser.add_argument("--story", action="store_true", help="print how each was found")
    parser.add_argument("names", nargs="*", help="parts of names")
    asked = parser.parse_args(arguments)
    chosen = [
        m
        for m in MUTANTS
        if (m.quick or not asked.quick) and (not asked.names or any(n in m.name for n in asked.names))
    ]
    survived, seconds = 0, 0.0
    print("| promise | mutant | found in | steps | states | seconds |\n| --- | --- | --- | --- | --- | --- |")
    for mutant in chosen:
        found = hunt(mutant)
        killed = is_killed(mutant, found)
        survived, seconds = survived + (not killed), seconds + found.seconds
        where = mutant.scenario.name if killed else f"SURVIVED {mutant.scenario.name}: {found.line()}"
        steps = len(found.story) - 1
        figures = f"{steps} | {found.states} | {found.seconds:.1f}"
        print(f"| {mutant.promise} | {mutant.name} | {where} | {figures} |", flush=True)
        if asked.story:
            print("\n".join(f"    {line}" for line in [*found.story, f"=> {found.breach}"]))
    print(f"mutants: {len(chosen) - survived} of {len(chosen)} found, {seconds:.0f} s")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
