"""The rules, broken on purpose: a search that finds nothing wrong with these could not find anything.

    python -m tests.sim.mutants [--quick]

Each mutant undoes one guard of the real rules, or of the writes behind them, and names the promise that must break
and the smallest scenario in which it does. Some are the holes that an earlier search found in this protocol: they say
which. `invariants.py` is never mutated.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any
from unittest.mock import patch

import pytest

from modelbackend_operator import actions as do
from modelbackend_operator import (
    allotment,
    ending,
    evidence,
    instances,
    ledger,
    model_lease,
    proof,
    restarts,
    rollout,
    settling,
    starting,
    stopping,
    told_in_status,
)
from modelbackend_operator import decide as deciding
from modelbackend_operator import election as electing
from modelbackend_operator import vanished as vanishing
from modelbackend_operator.model.backend import WhenUnconfirmed
from modelbackend_operator.model.claim import Claim
from tests.sim import broken
from tests.sim.explore import Found, Search
from tests.sim.scenario import Bounds, Scenario
from tests.sim.scenarios import (
    B1,
    B2,
    INSIDE,
    ONE_PORT,
    OTHER_MODEL,
    OTHER_WITH_HTTP,
    SURGING,
    WITH_HTTP,
    on_host,
)
from tests.sim.world import World

STATES_MAX = 30_000
"""Not seconds: what is found does not depend on how busy the machine is."""


@dataclass(frozen=True)
class Mutant:
    promise: str
    """That breaks, by its name in `invariants.py`; `eventually` for a goal out of reach."""
    name: str
    scenario: Scenario | None
    """None: `tests` find it."""
    changes: tuple[tuple[Any, Any], ...] = ()
    """Functions of the rules, and what each is replaced by wherever it is used."""
    world: tuple[tuple[type, str, Any], ...] = ()
    """Attributes replaced as they stand: of an action, or of the world that stands for the API server."""
    quick: bool = True
    only: bool = False
    """Look for this promise alone: another would break before it."""
    tests: str = ""
    """The tests that find it, where no moment of a world shows what breaks."""


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


def hunt(mutant: Mutant) -> Found:
    """Searches with the mutant in place, and stops at the first breach."""
    if mutant.scenario is None:
        return _tested(mutant)
    with applied(mutant):
        return Search(mutant.scenario, mutant.promise if mutant.only else "").run(states_max=STATES_MAX)


def _tested(mutant: Mutant) -> Found:
    """In a process of its own, because tests keep what they have imported."""
    began = monotonic()
    command = [sys.executable, "-m", "tests.sim.mutants", "--apply", mutant.name]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{mutant.tests} did not run:\n{run.stdout}{run.stderr}")
    found = Found(mutant.tests, seconds=monotonic() - began)
    failed = re.search(r"^FAILED (\S+)", run.stdout, re.MULTILINE)
    if run.returncode == pytest.ExitCode.TESTS_FAILED and failed is not None:
        found.breach = f"{mutant.promise}: {failed[1]} fails"
        found.story = [failed[1].rpartition("::")[2]]
    return found


def _run_tests(mutant: Mutant) -> int:
    with applied(mutant):
        return pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--no-header", mutant.tests])


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
    pool=ONE_PORT,
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
REJECTED_AGAIN = Scenario("rejected again", on_host(B1), Bounds((("reject again", 1),), pauses=1), pool=ONE_PORT)
REJECTED_AGAIN_LOADING = Scenario(
    "rejected again before it served",
    on_host(B1),
    Bounds((("reject again", 1),), pauses=1),
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
SURGED = Scenario("a surge", (replace(SURGING, exposure=INSIDE),), Bounds((("edit", 1),)))
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
VANISHED = Scenario(
    "torn out inside, and waited for",
    (replace(B1, exposure=INSIDE, when_unconfirmed=WhenUnconfirmed.WAIT),),
    Bounds((("tear out pod", 1), ("delete", 1))),
)
TWO_PORTS_STARTED = Scenario("started behind two ports", (WITH_HTTP,), Bounds(), served=False)
TWO_PORTS_TORN_OUT = Scenario("torn out behind two ports", on_host(WITH_HTTP), Bounds((("tear out pod", 1),)))
TWO_PORTS_ATTESTED = Scenario(
    "torn out behind two ports, its machine rebooted",
    on_host(WITH_HTTP),
    Bounds((("machine dies", 1), ("tear out pod", 1), ("delete", 1))),
)
TWO_PORTS_OF_THREE = Scenario(
    "two ports each, and only three", on_host(WITH_HTTP, OTHER_WITH_HTTP), Bounds(), pool=(30000, 30002), served=False
)
NEXT_OWNER = Scenario("one node port, two owners", (B1, OTHER_MODEL), Bounds((("suspend", 1),)), pool=ONE_PORT)
LINGERS = Scenario(
    "forgotten by its kubelet", (B1,), Bounds((("delete", 1), ("forget", 1))), pool=ONE_PORT, eager=("ready",)
)


MUTANTS = (
    Mutant(
        "PortExclusive",
        "a missing pod object frees its port for others",
        TORN_PAIR,
        ((settling._withhold_if_pod_vanished, broken.absence_is_proof),),
        quick=False,
        only=True,
    ),
    Mutant(
        "PortExclusive",
        "a claim is made by whoever writes it last",
        RACE,
        world=((World, "apply", broken.takes_claims_over),),
        quick=False,
        only=True,
    ),
    Mutant(
        "NoDoublePod",
        "a pod that others delete is forgotten before it has ended",
        EVICTED,
        ((instances.pods_of, broken.forgets_the_terminating), (starting._names_in_use, broken.every_name)),
    ),
    Mutant(
        "EvidenceNotAbsence",
        "a missing pod object is proof",
        TORN,
        ((settling._withhold_if_pod_vanished, broken.absence_is_proof),),
    ),
    Mutant(
        "PortWithheld",
        "pod garbage collection's Failed is proof",
        LOST,
        ((proof.evidence_of_end, broken.failed_is_the_end),),
        quick=False,
    ),
    Mutant(
        "PortWithheld",
        "`terminated` on a pod that is not deleted is proof (the third hole)",
        CRASH,
        ((proof.evidence_of_end, broken.terminated_is_the_end),),
    ),
    Mutant(
        "PortWithheld",
        "a reboot counts from whatever boot the node showed last (the first hole)",
        REBOOTED,
        ((evidence.reference_boot, broken.by_any_status),),
        quick=False,
    ),
    Mutant(
        "PortWithheld",
        "a port cools on although the machine of its holder is back",
        None,
        ((settling._free_when_cooled, broken.whoever_is_back),),
        tests="tests/unit/test_decide_unconfirmed.py",
        quick=False,
    ),
    Mutant(
        "EvidenceNotAbsence",
        "an instance that is handed over gives up its port",
        OVERDUE,
        ((ending._keep_as_witness, broken.frees_the_port),),
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
        (
            (proof.evidence_of_end, broken.unbound_is_never_started),
            (stopping._drain, broken.unscheduled_needs_no_delete),
        ),
    ),
    Mutant("PortWithheld", "no scheduling gate", STARTED_ON_HOST, world=((World, "apply", broken.made_without_gate),)),
    Mutant(
        "PortWithheld",
        "a claim is bound to a pod of another host port (the fourth hole)",
        PINNED,
        ((starting._open_gate, broken.bound_whatever_its_port),),
        quick=False,
    ),
    Mutant(
        "PortWithheld",
        "no resourceVersion on claims",
        LATE_EDIT,
        world=((World, "unchecked", frozenset({Claim})),),
    ),
    Mutant(
        "PortWithheld",
        "a kubelet's rejection is proof, also of a pod that had run",
        REJECTED_AGAIN,
        ((proof.had_run, broken.no),),
    ),
    Mutant(
        "PortWithheld",
        "what status remembers of a pod is not asked",
        REJECTED_AGAIN_LOADING,
        ((told_in_status.with_status, lambda pod, _: pod),),
    ),
    Mutant(
        "OneShutdownPerModel",
        "a stop whose pod takes no write gives way to nobody",
        None,
        ((told_in_status.with_status, broken.never_yields_by_word),),
        tests="tests/unit/test_snapshot.py",
        quick=False,
    ),
    Mutant("GateBeforeClaim", "the gate is opened first", STARTED, ((starting._open_gate, broken.opened_first),)),
    Mutant(
        "GateBeforeClaim",
        "the gate is opened before the status names the pod",
        STARTED,
        ((instances.status_names, broken.yes),),
    ),
    Mutant(
        "GateBeforeClaim",
        "the gate is opened with one of two ports bound",
        TWO_PORTS_STARTED,
        ((starting._open_gate, broken.opened_with_one_port),),
    ),
    Mutant(
        "EvidenceNotAbsence",
        "only one of two ports is withheld",
        TWO_PORTS_TORN_OUT,
        ((settling._withhold_if_pod_vanished, broken.withholds_one_port),),
    ),
    Mutant(
        "eventually",
        "who waits for one port keeps another",
        TWO_PORTS_OF_THREE,
        ((allotment.is_allotted, broken.keeps_what_it_has),),
    ),
    Mutant(
        "eventually",
        "what proved the end of a pod opens one of its ports",
        TWO_PORTS_ATTESTED,
        ((evidence._proof_on, broken.never),),
    ),
    Mutant("OneShutdownPerModel", "no Lease is taken", PAIR, ((model_lease.take, broken.never),)),
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
        ((model_lease.release, broken.given_back_at_once), (model_lease._others_open, lambda *_: {})),
    ),
    Mutant(
        "OneShutdownPerModel",
        "a stop may be taken back (the sixth hole)",
        RESUMED,
        (
            (instances.stop_reason, broken.the_wish_alone),
            (model_lease.release, broken.given_back_without_wish),
            (model_lease._others_open, lambda *_: {}),
        ),
        quick=False,
    ),
    Mutant(
        "ForceOnlyAfterDeadline",
        "deleted without waiting for requests",
        BUSY,
        ((stopping._drain, broken.deleted_at_once),),
    ),
    Mutant(
        "ForceOnlyAfterDeadline", "a busy server is taken for idle", BUSY, ((instances.own_report, broken.always_idle),)
    ),
    Mutant(
        "ForceOnlyAfterDeadline",
        "deleted with grace 0",
        DELETED,
        ((stopping._grace_seconds, broken.ends_with_grace_0),),
    ),
    Mutant(
        "ForceOnlyAfterDeadline",
        "whoever does not answer is taken for broken, and its deadline is moved up",
        OVERDUE,
        ((stopping._is_unreachable, broken.yes),),
    ),
    Mutant(
        "eventually",
        "a server that fails its probes and does not answer is waited for until its deadline",
        None,
        ((stopping._is_unreachable, broken.no),),
        tests="tests/unit/test_decide_stopping.py",
        quick=False,
    ),
    Mutant(
        "ForceOnlyAfterDeadline",
        "whoever takes over records a stop anew, and its deadline",
        None,
        ((stopping._record, broken.recorded_anew),),
        tests="tests/sim/test_upgrade_in_worlds.py",
        quick=False,
    ),
    Mutant("NeverAdvertiseDying", "drained before it is withdrawn", DELETED, ((stopping._withdraw, broken.never),)),
    Mutant(
        "NeverAdvertiseDying",
        "deleted before its address is taken back",
        DELETED,
        ((instances.status_advertises, lambda *_: False),),
    ),
    Mutant(
        "FinalizerLast", "the backend's finalizer goes first", DELETED, ((deciding._steps, broken.finalizer_first),)
    ),
    Mutant(
        "FinalizerLast",
        "the backend's finalizer does not wait for pods",
        PAIR,
        ((settling.remove_finalizer, broken.whatever_remains),),
    ),
    Mutant(
        "NoDoublePod",
        "a successor starts while its predecessor terminates",
        EDITED,
        ((starting.start, broken.starts_beside),),
    ),
    Mutant(
        "NoDoublePod",
        "a start asks for a free Lease, not for the end of its predecessor (the fifth hole)",
        EVICTED,
        ((starting.start, broken.fenced_by_the_lease_alone),),
    ),
    Mutant(
        "NoDoublePod",
        "a pod that no claim remembers is forgotten",
        VANISHED,
        ((vanishing.vanished, lambda _: ()),),
        only=True,
    ),
    Mutant(
        "FinalizerLast",
        "a backend that waits for proof goes without it, where no claim remembers the pod",
        VANISHED,
        ((vanishing.vanished, broken.where_it_is_wanted),),
    ),
    Mutant(
        "NoDoublePod",
        "a gated pod does not wait for the end of a port's last holder",
        None,
        ((starting._await_unproven, broken.nobody),),
        tests="tests/unit/test_decide_unconfirmed.py",
        quick=False,
    ),
    Mutant(
        "eventually",
        "a pod without a claim is let go before status tells of its end",
        None,
        ((vanishing.is_told_ended, broken.yes),),
        tests="tests/unit/test_vanished.py",
        quick=False,
    ),
    Mutant(
        "NoDoublePod",
        "the second pod of a surge does not say whom it replaces",
        SURGED,
        world=((World, "apply", broken.replaces_nobody),),
    ),
    Mutant(
        "eventually",
        "the first pod of a surge does not make way for the second",
        SURGED,
        ((rollout._await_turn, broken.no_successor_is_enough),),
    ),
    Mutant(
        "Rollout",
        "instances of an earlier spec end at once, whoever serves",
        None,
        ((rollout._await_turn, broken.whatever_else_serves),),
        tests="tests/unit/test_rollout.py",
        quick=False,
    ),
    Mutant(
        "Rollout",
        "the next instance is begun before the last one serves",
        None,
        ((rollout._first_absent, broken.nobody),),
        tests="tests/unit/test_rollout.py",
        quick=False,
    ),
    Mutant(
        "RestartBudget",
        "a failure is not counted before its pod goes",
        None,
        ((rollout.failures, broken.counts_nothing),),
        tests="tests/unit/test_rollout.py",
        quick=False,
    ),
    Mutant(
        "RestartBudget",
        "no budget is ever spent",
        None,
        ((restarts.exhausted, lambda *_: False),),
        tests="tests/unit/test_rollout.py",
        quick=False,
    ),
    Mutant(
        "OneLeader",
        "a leader counts for as long as its candidates wait",
        None,
        world=(
            (electing.Election, "is_leader", property(broken.leads_as_long_as_others_wait)),
            (electing.Election, "_remaining_seconds", broken.as_long_as_others_wait),
        ),
        tests="tests/unit/test_election.py",
        quick=False,
    ),
    Mutant(
        "OneLeader",
        "the times in a Lease are compared with the own clock",
        None,
        world=((electing.Election, "_is_free", broken.free_by_its_own_clock),),
        tests="tests/unit/test_election.py",
        quick=False,
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
        ((ending._await_removal, broken.waits_for_the_kubelet),),
    ),
    Mutant(
        "eventually",
        "a port's Service outlives its claim (the eighth hole)",
        NEXT_OWNER,
        ((ledger.free_service, broken.never), (settling.sweep_services, broken.never)),
    ),
    Mutant(
        "eventually",
        "what a late write leaves is not swept (the ninth hole)",
        LATE,
        ((stopping._end_gated, broken.leaves_gated_pods),),
    ),
    Mutant(
        "eventually",
        "a pod may come back to a node where somebody else has its port",
        None,
        ((starting._avoided_nodes, broken.nowhere),),
        tests="tests/unit/test_foreign_ports.py",
        quick=False,
    ),
    Mutant(
        "eventually",
        "a port that is taken somewhere is asked for before all others",
        None,
        ((allotment._probed, allotment.probe_order),),
        tests="tests/unit/test_decide_starting.py",
        quick=False,
    ),
    Mutant("eventually", "the Lease is never given back", DELETED, ((model_lease.release, broken.never),)),
    Mutant("eventually", "a port never cools down", DELETED, ((settling._free_when_cooled, broken.never),)),
)


# -- the table --------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only those that are found in a few seconds")
    parser.add_argument("--story", action="store_true", help="print how each was found")
    parser.add_argument("--apply", help="run the tests that find this one, with it in place", metavar="NAME")
    parser.add_argument("names", nargs="*", help="parts of names")
    asked = parser.parse_args(arguments)
    if asked.apply:
        return _run_tests(next(mutant for mutant in MUTANTS if mutant.name == asked.apply))
    chosen = [
        m
        for m in MUTANTS
        if (m.quick or not asked.quick) and (not asked.names or any(n in m.name for n in asked.names))
    ]
    survived, began = 0, monotonic()
    print("| promise | mutant | found by | steps | states | seconds |\n| --- | --- | --- | --- | --- | --- |")
    for mutant in chosen:
        found = hunt(mutant)
        killed = is_killed(mutant, found)
        survived += not killed
        by = f"the explorer: {mutant.scenario.name}" if mutant.scenario else f"a test: {''.join(found.story)}"
        where = by if killed else f"SURVIVED {found.line()}"
        steps = max(0, len(found.story) - 1)
        figures = f"{steps} | {found.states} | {found.seconds:.1f}"
        print(f"| {mutant.promise} | {mutant.name} | {where} | {figures} |", flush=True)
        if asked.story:
            print("\n".join(f"    {line}" for line in [*found.story, f"=> {found.breach}"]))
    print(f"mutants: {len(chosen) - survived} of {len(chosen)} found, {monotonic() - began:.0f} s")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
