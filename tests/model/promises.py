"""Each promise with the rules that keep it, the tests that tried to break it, and its mutants: docs/promises.md."""

from dataclasses import dataclass
from pathlib import Path

from tests.model.mutants import MUTANTS as OF_SPECIFICATION
from tests.sim.mutants import MUTANTS as OF_RULES

DOCUMENT = Path(__file__).parents[2] / "docs" / "promises.md"
EVERYWHERE = ("test_through_faults_every_promise_holds_and_then_all_ends_well",)


@dataclass(frozen=True, slots=True)
class Promise:
    name: str
    words: str
    rules: tuple[str, ...]
    """`file:function`, in the operator or the server."""
    tests: tuple[str, ...]


PROMISES = (
    Promise(
        "PortExclusive",
        "no two live processes ever listen behind one claimed port",
        ("allotment.py:allotment", "starting.py:_next_claim", "settling.py:settle_claim", "proof.py:evidence_of_end"),
        ("test_whatever_is_done_by_hand_at_whatever_step_the_life_goes_on_and_ends",),
    ),
    Promise(
        "PortWithheld",
        "a port whose last holder is live or unproven stays claimed",
        ("settling.py:_withhold_if_pod_vanished", "ending.py:_release"),
        ("test_a_pod_whose_finalizer_is_stripped_leaves_its_port_to_nobody_else",),
    ),
    Promise(
        "GateBeforeClaim",
        "a pod leaves its scheduling gate only after the claim and the backend's status name it",
        ("starting.py:_open_gate", "instances.py:claim_naming", "instances.py:status_names"),
        ("test_a_write_that_lands_late_breaks_no_promise_whichever_it_is",),
    ),
    Promise(
        "OneShutdownPerModel",
        "at most one instance of a model is shut down at a time, by our decision",
        ("model_lease.py:take", "model_lease.py:release"),
        (
            "test_late_writes_of_two_backends_of_one_model_break_no_promise",
            "test_a_lease_deleted_by_hand_along_a_life_lets_no_neighbour_in",
        ),
    ),
    Promise(
        "ForceOnlyAfterDeadline",
        "nothing is forced before its recorded deadline, unless the user orders it",
        ("stopping.py:_drain", "stopping.py:_past_deadline", "ending.py:_await_removal"),
        (
            "test_a_request_that_does_not_finish_is_cut_at_the_deadline_and_not_before",
            "test_killed_during_a_drain_the_deadline_stays_and_the_stream_comes_whole",
        ),
    ),
    Promise(
        "NeverAdvertiseDying",
        "no endpoint of an instance that ends is written, and no Drain or DELETE comes before its withdrawal",
        ("stopping.py:_withdraw", "instances.py:is_serving", "conditions.py:_endpoints"),
        ("test_the_address_is_withdrawn_before_the_server_is_told_to_drain",),
    ),
    Promise(
        "FinalizerLast",
        "when a ModelBackend is gone nothing of it runs and nothing is bound, but what is withheld with its reason",
        ("settling.py:remove_finalizer",),
        ("test_a_deletion_at_every_step_of_a_start_leaves_nothing",),
    ),
    Promise(
        "NoDoublePod",
        "at most one pod of an instance is behind no gate, Surge's second apart",
        ("starting.py:start", "instances.py:pods_of"),
        ("test_a_second_operator_with_an_old_cache_breaks_no_promise",),
    ),
    Promise(
        "EvidenceNotAbsence",
        "a missing answer, a missing object or a time-out releases nothing",
        ("proof.py:evidence_of_end", "settling.py:_withhold_if_pod_vanished"),
        ("test_no_proof", "test_the_same_boot_of_a_machine_proves_nothing_of_a_pod_that_was_torn_out"),
    ),
    Promise(
        "Eventually",
        "once faults stop, every deletion ends, every live spec is served, every released port is usable again",
        ("settling.py:sweep_services", "settling.py:_free_when_cooled", "model_lease.py:release"),
        ("test_an_operator_that_dies_at_each_of_its_writes_finishes_a_life_one_write_at_a_time",),
    ),
)

BESIDE = (
    Promise(
        "Rollout",
        "one instance at a time is replaced, the next only while all others serve",
        ("rollout.py:_await_turn", "rollout.py:_first_absent"),
        ("test_surge_lets_the_new_pod_serve_before_the_old_one_goes_and_its_stream_comes_whole",),
    ),
    Promise(
        "RestartBudget",
        "what fails too often is ended, and says so",
        ("rollout.py:failures", "restarts.py:exhausted"),
        ("test_a_budget_allows_as_many_restarts_as_it_says",),
    ),
    Promise(
        "OneLeader",
        "who cannot renew its Lease in time works no more; no promise above rests on that",
        (),
        (
            "test_a_leader_that_is_cut_off_stops_before_another_one_leads",
            "test_two_operators_at_once_bring_every_backend_through_its_life",
        ),
    ),
)
"""Rules that nobody's data hangs on, and their mutants, which named unit tests find."""


def document() -> str:
    rows, beside = ("\n".join(map(_row, table)) for table in (PROMISES, BESIDE))
    return f"""# The promises: what keeps each, and what tried to break it

Written by `make docs-diagrams`; a test holds that everything named here exists. The promises are functions in
[invariants.py](../operator/modelbackend_operator/invariants.py), which every layer of tests calls after every step.
All of them are searched for counter-examples by the simulator, the explorer (`tests/sim`) and TLC (`tests/model`);
below stand the tests that aim at one. A mutant is a rule undone: a search must find the promise broken. *Mutants of the
rules* are found in the real `decide` by the explorer, *of the specification* by TLC.

| promise | rules | tests | mutants of the rules | mutants of the specification |
| --- | --- | --- | --- | --- |
{rows}

Beside these, with mutants that named unit tests find:

| rule | where | tests | mutants of the rules | mutants of the specification |
| --- | --- | --- | --- | --- |
{beside}

Not moments but courses, and tested where they can be seen: *NeverRunTwice* (a request that reached the model is never
run again by us) and *Isolation* (one backend's trouble delays no other:
`test_one_backends_trouble_is_shown_and_holds_up_no_other`).
"""


def _row(promise: Promise) -> str:
    of_rules = [mutant.name for mutant in OF_RULES if mutant.promise.lower() == promise.name.lower()]
    of_specification = [mutant.name for mutant in OF_SPECIFICATION if mutant.promise == promise.name]
    cells = [
        f"**{promise.name}**: {promise.words}",
        ", ".join(f"`{rule}`" for rule in promise.rules),
        ", ".join(f"`{test}`" for test in (*(EVERYWHERE if promise in PROMISES else ()), *promise.tests)),
        "; ".join(of_rules),
        "; ".join(of_specification),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    DOCUMENT.write_text(document())
    print(f"wrote {DOCUMENT.name}")


if __name__ == "__main__":
    main()
