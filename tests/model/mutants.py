"""The specification with one rule undone: for each, TLC must find the promise broken, or its check proves nothing."""

from dataclasses import dataclass

from tests.model.scopes import (
    ENDS,
    ONE_HOST_PORT,
    SPECIFICATION,
    TWO_FOR_ONE_PORT,
    TWO_OF_ONE_MODEL,
    WAITS,
    WAITS_BEHIND_PORTS,
    Scope,
)

NO_PORT = Scope("one backend, no port", ports=0, exposure="ClusterIP")


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    promise: str
    rule: str
    """As it stands in the specification, once."""
    undone: str
    scope: Scope

    def specification(self) -> str:
        if SPECIFICATION.count(self.rule) != 1:
            raise ValueError(f"the rule of mutant `{self.name}` is not in the specification once: {self.rule}")
        return SPECIFICATION.replace(self.rule, self.undone)


MUTANTS = (
    Mutant(
        "a missing pod counts as ended",
        "PortExclusive",
        r"Holding(c) /\ Proof(claim[c].pod) /\ (Wanted",
        r"Holding(c) /\ (Proof(claim[c].pod) \/ ~pod[claim[c].pod].here) /\ (Wanted",
        ONE_HOST_PORT,
    ),
    Mutant(
        "a claim is made by an upsert",
        "PortExclusive",
        'IF claim[c].phase # "Free" THEN api ELSE [api EXCEPT !.claim[c] =',
        "IF FALSE THEN api ELSE [api EXCEPT !.claim[c] =",
        TWO_FOR_ONE_PORT,
    ),
    Mutant(
        "garbage collection's Failed counts as ended",
        "PortWithheld",
        r'pod[p].deleting /\ (~pod[p].bound \/ pod[p].word = "ended")',
        r'pod[p].deleting /\ (~pod[p].bound \/ pod[p].word \in {"ended", "lost"})',
        ONE_HOST_PORT,
    ),
    Mutant(
        "a crashed container counts as ended",
        "PortWithheld",
        r'pod[p].deleting /\ (~pod[p].bound \/ pod[p].word = "ended")',
        r'pod[p].deleting /\ (~pod[p].bound \/ pod[p].word \in {"ended", "crashed"})',
        ONE_HOST_PORT,
    ),
    Mutant(
        "a pod that the kubelet refuses after a restart counts as ended",
        "PortWithheld",
        r'pod[p].deleting /\ (~pod[p].bound \/ pod[p].word = "ended")',
        r'pod[p].deleting /\ (~pod[p].bound \/ pod[p].word \in {"ended", "failed"})',
        ONE_HOST_PORT,
    ),
    Mutant(
        "pods are made without a gate",
        "PortWithheld",
        "!.here = TRUE, !.gated = TRUE",
        "!.here = TRUE, !.gated = FALSE",
        ONE_HOST_PORT,
    ),
    Mutant(
        "the gate opens before the claim names the pod",
        "GateBeforeClaim",
        r"""ClaimsPort => \E c \in Ports : /\ claim[c].phase = "Bound" /\ claim[c].pod = p""",
        r"""ClaimsPort => \E c \in Ports : /\ TRUE""",
        ONE_HOST_PORT,
    ),
    Mutant(
        "the gate opens before the status names the pod",
        "GateBeforeClaim",
        r" /\ p \in backend[p[1]].named" + "\n",
        "\n",
        ONE_HOST_PORT,
    ),
    Mutant(
        "the gate opens without a resourceVersion",
        "GateBeforeClaim",
        'Write(<<"Ungate", "pod", p>>',
        'Write(<<"Ungate", "new", p>>',
        ONE_HOST_PORT,
    ),
    Mutant(
        "the Lease alone says who is shut down",
        "OneShutdownPerModel",
        r"lease = None /\ (Open(p) \/ \A q \in Pods : ~Open(q))",
        "lease = None",
        Scope("two backends of one model, one fault", 2, incarnations=1, ports=0, exposure="ClusterIP"),
    ),
    Mutant(
        "a stop needs no Lease",
        "OneShutdownPerModel",
        r'[] whose = "ours" -> lease = p /\ (due =>',
        r'[] whose = "ours" -> MustEnd(p) /\ (due =>',
        TWO_OF_ONE_MODEL,
    ),
    Mutant(
        "a pod that drains is replaced at once",
        "NoDoublePod",
        r"Of(p) = i /\ pod[p].here /\ ~pod[p].witness}",
        r'Of(p) = i /\ pod[p].here /\ pod[p].record = "none"}',
        NO_PORT,
    ),
    Mutant(
        "a pod that is being deleted is replaced at once",
        "NoDoublePod",
        r"Of(p) = i /\ pod[p].here /\ ~pod[p].witness}",
        r"Of(p) = i /\ pod[p].here /\ ~pod[p].deleting}",
        NO_PORT,
    ),
    Mutant(
        "status forgets a pod that vanished",
        "NoDoublePod",
        r"Unproven(b) == {p \in backend[b].named : StatusKeeps(b)",
        r"Unproven(b) == {p \in backend[b].named : FALSE",
        WAITS,
    ),
    Mutant(
        "a withheld port is not waited for",
        "NoDoublePod",
        r"Awaited(i) == ~HandsOver /\ \E p",
        r"Awaited(i) == ~HandsOver /\ ~ClaimsPort /\ \E p",
        WAITS_BEHIND_PORTS,
    ),
    Mutant(
        "the server drains before its address is withdrawn",
        "NeverAdvertiseDying",
        r"DrainServer(p) == /\ Withdrawn(p) /\ ",
        r'DrainServer(p) == /\ pod[p].record # "none" /\ ',
        ONE_HOST_PORT,
    ),
    Mutant(
        "withdrawal leaves the published address",
        "NeverAdvertiseDying",
        r'Withdrawn(p) == pod[p].record # "none" /\ ~pod[p].ready /\ p \notin backend[p[1]].told',
        r'Withdrawn(p) == pod[p].record # "none"',
        ONE_HOST_PORT,
    ),
    Mutant(
        "the status tells of instances that end",
        "NeverAdvertiseDying",
        r'pod[p].ready /\ pod[p].record = "none" /\ ~pod[p].deleting}',
        r"pod[p].ready}",
        ONE_HOST_PORT,
    ),
    Mutant(
        "requests are not waited for",
        "ForceOnlyAfterDeadline",
        r"/\ pod[p].due \/ ~Up(p) \/ (proc[p].draining /\ ~proc[p].busy)",
        r"/\ TRUE",
        ONE_HOST_PORT,
    ),
    Mutant(
        "grace 0 before proof",
        "ForceOnlyAfterDeadline",
        r"""\/ pod[p].deleting /\ Proof(p) /\ ~pod[p].fin,
    IF pod[p].deleting /\ Proof(p) /\ ~pod[p].fin THEN""",
        r"""\/ pod[p].deleting /\ ~pod[p].fin,
    IF pod[p].deleting /\ ~pod[p].fin THEN""",
        ONE_HOST_PORT,
    ),
    Mutant(
        "a claim deleted by hand is let go",
        "EvidenceNotAbsence",
        r"""RemoveClaimFinalizer(c) == Write(<<"RemoveClaimFinalizer", "claim", c>>, Unneeded(c) /\ claim[c].going""",
        r"""RemoveClaimFinalizer(c) == Write(<<"RemoveClaimFinalizer", "claim", c>>, claim[c].going""",
        ONE_HOST_PORT,
    ),
    Mutant(
        "a pod's end is not kept for its proof",
        "EvidenceNotAbsence",
        r"pod[p].deleting /\ pod[p].fin /\ Proof(p) /\ ~Kept(p)",
        r"pod[p].deleting /\ pod[p].fin /\ ~Kept(p)",
        NO_PORT,
    ),
    Mutant(
        "a pod goes before status tells of its end",
        "EvidenceNotAbsence",
        r"pod[p].deleting /\ pod[p].fin /\ Proof(p) /\ ~Kept(p)",
        r"pod[p].deleting /\ pod[p].fin /\ Proof(p) /\ ~Named(p)",
        WAITS,
    ),
    Mutant(
        "a witness is no proof of its own end",
        "EvidenceNotAbsence",
        r"Holding(c) /\ Proof(claim[c].pod) /\ (Wanted",
        r"Holding(c) /\ (Proof(claim[c].pod) \/ pod[claim[c].pod].witness) /\ (Wanted",
        ONE_HOST_PORT,
    ),
    Mutant(
        "the backend goes before its pods",
        "FinalizerLast",
        r"i[1] = b => Standing(i) = {} /\ ~Awaited(i)",
        r"i[1] = b => ~Awaited(i)",
        ONE_HOST_PORT,
    ),
    Mutant(
        "the backend goes before its claims are accounted for",
        "FinalizerLast",
        r'claim[c].phase \in {"Bound", "Reserved"} => claim[c].of[1] # b,',
        r'claim[c].phase = "Reserved" => claim[c].of[1] # b,',
        ONE_HOST_PORT,
    ),
    Mutant(
        "a backend that waits goes before the end of a pod that vanished",
        "FinalizerLast",
        r"i[1] = b => Standing(i) = {} /\ ~Awaited(i)",
        r"i[1] = b => Standing(i) = {}",
        WAITS,
    ),
    Mutant(
        "a Service that a late write made is not swept",
        "Eventually",
        r"\/ claim[c].of # service[c]" + "\n",
        "\\/ FALSE\n",
        ENDS,
    ),
    Mutant(
        "a cooling port is not taken back",
        "Eventually",
        'Write(<<"ReserveClaim", "claim", c>>, CanTakeBack(c)',
        'Write(<<"ReserveClaim", "claim", c>>, FALSE',
        ENDS,
    ),
    Mutant(
        "a Lease whose pod has vanished is kept",
        "Eventually",
        r"lease = p /\ (~pod[p].here \/ pod[p].witness",
        r"lease = p /\ pod[p].here /\ (pod[p].witness",
        ENDS,
    ),
)
