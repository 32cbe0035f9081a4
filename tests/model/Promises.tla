------------------------------ MODULE Promises ------------------------------
(* What must hold whatever fails, under the names of invariants.py; and what must come once faults stop, if the operator
   and the cluster go on, machines come back, and somebody vouches for those that do not. *)
EXTENDS ModelBackend, TLC

Alike == Permutations(Backends) \cup Permutations(Ordinals) \cup Permutations(Ports)
Fair == /\ \A b \in Backends : WF_vars(Reconcile(b))
        /\ \A p \in Pods : WF_vars(Cluster(p))
FairSpec == Spec /\ Fair

DeletedByUs(p) == pod'[p] # pod[p] /\ (pod'[p].deleting \/ ~pod'[p].here) /\ DeletePod(p)
Drained(p) == proc'[p].draining /\ ~proc[p].draining
PortExclusive == \A p, q \in Pods : Up(p) /\ Up(q) /\ proc[p].port # None /\ proc[p].port = proc[q].port => p = q
PortWithheld == ClaimsPort => \A p \in Pods : Up(p) =>
    proc[p].port # None /\ Holding(proc[p].port) /\ claim[proc[p].port].pod = p
OneShutdownPerModel == Cardinality({p \in Pods : Open(p) /\ ~Proof(p)}) <= 1
NoDoublePod == LET most == IF Surges THEN 2 ELSE 1 IN \A i \in Instances :
    /\ Cardinality({p \in Pods : Of(p) = i /\ pod[p].here /\ ~pod[p].gated /\ ~pod[p].witness /\ ~Proof(p)}) <= most
    /\ ~HandsOver => Cardinality({p \in Pods : Of(p) = i /\ Up(p)}) <= most
GateBeforeClaim == [][\A p \in Pods : pod[p].gated /\ pod'[p].here /\ ~pod'[p].gated =>
    p \in backend[p[1]].named /\ (ClaimsPort => Named(p))]_vars
NeverAdvertiseDying == [][\A p \in Pods :
    /\ Drained(p) \/ (~pod[p].gated /\ ~pod[p].deleting /\ DeletedByUs(p)) =>
        ~pod[p].ready /\ p \notin backend[p[1]].told
    /\ p \in (backend[p[1]].told)' => p \in backend[p[1]].told \/ pod[p].record = "none"
                                      \/ \E w \in sent \ sent' : w[1] = "WriteStatus" /\ p \in w[5]]_vars  \* it was late
ForceOnlyAfterDeadline == [][\A p \in Pods : DeletedByUs(p) =>
    (proc[p].busy => pod[p].due) /\ (pod[p].deleting /\ ~pod'[p].here => Proof(p))]_vars
EvidenceNotAbsence == [][/\ \A c \in Ports : Holding(c) /\ ~Holding(c)' => Proof(claim[c].pod)
                         /\ \A p \in Pods : pod[p].fin /\ ~pod'[p].fin /\ RemovePodFinalizer(p) => Proof(p) /\ ~Kept(p)]_vars
FinalizerLast == [][\A b \in Backends : backend[b].fin /\ ~backend'[b].fin /\ RemoveFinalizer(b) =>
    \A p \in Pods : p[1] = b =>
        /\ pod[p].here => pod[p].gated \/ pod[p].witness
        /\ Up(p) => HandsOver
        /\ Up(p) /\ ClaimsPort => \E c \in Ports : claim[c].phase = "Withheld" /\ claim[c].pod = p]_vars
Settled == /\ lease = None
           /\ \A b \in Backends : backend[b].life # "deleting"
           /\ \A i \in Instances : Wanted(i) => \E p \in Standing(i) : p \in backend[i[1]].told
           /\ \A p \in Pods : pod[p].here => p \in backend[p[1]].told
           /\ \A c \in Ports : IF claim[c].phase = "Free" THEN service[c] = None 
              ELSE \E p \in Pods : claim[c].pod = p /\ pod[p].here
Eventually == <>[]Settled
=============================================================================
