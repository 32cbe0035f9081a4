---------------------------- MODULE ModelBackend ----------------------------
(* The lifecycle protocol, for people and for TLC. What the operator may write, and when, is one action each, named as
   the class in actions.py; what the cluster, its machines and its users do comes after; the promises are in Promises.tla.
   Time is left out: a delay is a step that may come at any moment. All backends share one model.

   A write is decided from one look and lands in another world: at once, or late. That one idea stands for a stale
   cache, a lost reply, a crash and a second operator. A write in flight carries the version of its target, so it is
   void as soon as its target changes; a create is void when its name is taken. *)
EXTENDS Naturals, FiniteSets

CONSTANTS Backends, Ordinals, Incarnations, \* a pod is one incarnation of an ordinal of a backend
          Ports, None,
          Exposure,   \* NodePort, HostPort or ClusterIP
          HandsOver,  \* shutdown.whenUnconfirmed: HandOver (TRUE) or Wait
          Surges,     \* rollout: Surge (TRUE) or Recreate
          FaultsMax   \* late writes, lost machines and hands that reach in: so many in one behaviour

VARIABLES api,    \* what the API server keeps: backend, claim, pod, service, lease, and whose end is vouched for
          proc,   \* what really runs, whatever the API server was told
          sent, faults  \* writes in flight; how many mishaps may still come
vars == <<api, proc, sent, faults>>

Instances == Backends \X Ordinals    Pods == Backends \X Ordinals \X Incarnations    Of(p) == <<p[1], p[2]>>
backend == api.backend    claim == api.claim    pod == api.pod    service == api.service    lease == api.lease
NoPod == [here |-> FALSE, gated |-> FALSE, bound |-> FALSE, port |-> None, word |-> "none", ready |-> FALSE,
          outgrown |-> FALSE, record |-> "none", due |-> FALSE, deleting |-> FALSE, fin |-> FALSE, witness |-> FALSE]
NoClaim == [phase |-> "Free", of |-> None, pod |-> None, going |-> FALSE]
NoProc == [run |-> "never", port |-> None, busy |-> FALSE, draining |-> FALSE, lost |-> FALSE]
Init == /\ api = [backend |-> [b \in Backends |-> [life |-> "live", fin |-> FALSE, wanted |-> Ordinals,
                                                  named |-> {}, told |-> {}]],
                  claim |-> [c \in Ports |-> NoClaim], pod |-> [p \in Pods |-> NoPod],
                  service |-> [c \in Ports |-> None], lease |-> None, vouched |-> {}]
        /\ proc = [p \in Pods |-> NoProc] /\ sent = {} /\ faults = FaultsMax
(* --- what a look tells -------------------------------------------------------------------------------------------- *)
ClaimsPort == Exposure # "ClusterIP"    Up(p) == proc[p].run = "up"    Live(b) == backend[b].life = "live"
Wanted(i) == Live(i[1]) /\ i[2] \in backend[i[1]].wanted    Holding(c) == claim[c].phase \in {"Bound", "Withheld"}
Standing(i) == {p \in Pods : Of(p) = i /\ pod[p].here /\ ~pod[p].witness}  \* a witness stands for nobody
Named(p) == \E c \in Ports : Holding(c) /\ claim[c].pod = p
Reserved(i) == {c \in Ports : claim[c].phase = "Reserved" /\ claim[c].of = i /\ ~claim[c].going}
(* What outlives a pod's object: a claim that names it; where it needs none and its end is waited for, the status. *)
StatusKeeps(b) == ~HandsOver /\ ~ClaimsPort /\ backend[b].life # "gone"
Kept(p) == Named(p) \/ (StatusKeeps(p[1]) /\ p \in backend[p[1]].named)
(* proof.py: never started, or ended by the kubelet's word on a deleted pod, or vouched for by evidence that outlives
   the object. A missing pod, a `crashed` or `failed` on a living one, and PodGC's `lost` are none. *)
Proof(p) == \/ pod[p].deleting /\ (~pod[p].bound \/ pod[p].word = "ended")
            \/ pod[p].word = "rejected"
            \/ p \in api.vouched /\ (pod[p].deleting \/ ~pod[p].here)
Awaited(i) == ~HandsOver /\ \E p \in Pods : Of(p) = i /\ ~pod[p].here /\ Kept(p) /\ ~Proof(p)  \* it vanished
MustEnd(p) == \/ pod[p].record # "none" \/ lease = p  \* points of no return
              \/ pod[p].deleting \/ ~Wanted(Of(p)) \/ pod[p].outgrown \/ pod[p].word \in {"rejected", "failed"}
              \/ ClaimsPort /\ ~pod[p].gated /\ ~Named(p)
(* Surge: the only pod of its instance serves an earlier spec, and its end has not begun; the next may start beside it. *)
Outdated(p) == Surges /\ pod[p].outgrown /\ pod[p].ready /\ pod[p].record = "none" /\ ~pod[p].deleting /\ lease # p
Alone(p) == ~Awaited(Of(p)) /\ \A q \in Standing(Of(p)) : q = p \/ Outdated(q)
Vacant(i) == ~Awaited(i) /\ \A p \in Standing(i) : Standing(i) = {p} /\ Outdated(p)
Open(p) == pod[p].record = "ours" /\ ~pod[p].witness /\ ~Proof(p)
CanTakeBack(c) == /\ claim[c].phase = "Cooling" /\ ~claim[c].going /\ Wanted(claim[c].of)
                  /\ Standing(claim[c].of) = {} /\ Reserved(claim[c].of) = {} /\ ~pod[claim[c].pod].here
Unneeded(c) == LET i == claim[c].of IN
    /\ service[c] # i
    /\ \/ claim[c].phase = "Cooling" /\ ~pod[claim[c].pod].here /\ ~CanTakeBack(c)
       \/ /\ claim[c].phase = "Reserved"
          /\ ~Wanted(i) \/ claim[c].going \/ Cardinality(Reserved(i)) > 1 \/ \E p \in Standing(i) : Named(p) /\ ~Vacant(i)
          /\ ~\E p \in Standing(i) : pod[p].gated /\ ~Named(p)
(* --- how a write meets the API server ------------------------------------------------------------------------------ *)
Target(world, w) == CASE w[2] = "backend" -> world.backend[w[3]] [] w[2] = "claim" -> world.claim[w[3]]
                      [] w[2] = "pod" -> world.pod[w[3]] [] w[2] = "service" -> world.service[w[3]]
                      [] w[2] = "lease" -> world.lease [] OTHER -> "new"
Becomes(next, runs, writes) ==
    /\ api' = next
    /\ proc' = [p \in Pods |-> IF ~next.pod[p].here /\ runs[p].run # "up" THEN NoProc ELSE runs[p]]
    /\ sent' = {w \in writes : Target(next, w) = Target(api, w)}
Write(w, rule, then) ==
    \/ rule /\ Becomes(then, proc, sent) /\ UNCHANGED faults
    \/ /\ rule /\ faults > 0 /\ then # api /\ w \notin sent
       /\ sent' = sent \cup {w} /\ faults' = faults - 1 /\ UNCHANGED <<api, proc>>
    \/ w \in sent /\ Becomes(then, proc, sent \ {w}) /\ UNCHANGED faults
Removed(p) == [api EXCEPT !.pod[p] = NoPod]
Deleted(p) == IF pod[p].bound \/ pod[p].fin THEN [api EXCEPT !.pod[p].deleting = TRUE] ELSE Removed(p)
(* --- starting ------------------------------------------------------------------------------------------------------ *)
AddFinalizer(b) == Write(<<"AddFinalizer", "backend", b>>, Live(b) /\ ~backend[b].fin,
    [api EXCEPT !.backend[b].fin = TRUE])
CreateClaim(i, c) == Write(<<"CreateClaim", "new", i, c>>,
    /\ ClaimsPort /\ Wanted(i) /\ backend[i[1]].fin /\ Vacant(i) /\ claim[c].phase = "Free"
    /\ \A d \in Ports : claim[d].of = i => claim[d].going \/ claim[d].phase = "Withheld" \/ claim[d].pod \in Standing(i),
    IF claim[c].phase # "Free" THEN api ELSE [api EXCEPT !.claim[c] = [NoClaim EXCEPT !.phase = "Reserved", !.of = i]])
ReserveClaim(c) == Write(<<"ReserveClaim", "claim", c>>, CanTakeBack(c),
    [api EXCEPT !.claim[c] = [NoClaim EXCEPT !.phase = "Reserved", !.of = claim[c].of]])
Unused(p) == ~pod[p].here /\ proc[p].run # "up" /\ lease # p /\ ~Kept(p) /\ \A c \in Ports : claim[c].pod # p
CreatePod(i, c, n) == Write(<<"CreatePod", "new", i, c, n>>,
    /\ Wanted(i) /\ backend[i[1]].fin /\ Vacant(i) /\ Unused(<<i[1], i[2], n>>)
    /\ IF ClaimsPort THEN c \in Reserved(i) ELSE c = None,
    IF ~Unused(<<i[1], i[2], n>>) THEN api
    ELSE [api EXCEPT !.vouched = @ \ {<<i[1], i[2], n>>}, !.pod[<<i[1], i[2], n>>] = [NoPod EXCEPT
        !.here = TRUE, !.gated = TRUE, !.fin = TRUE, !.port = IF Exposure = "HostPort" THEN c ELSE None]])
BindClaim(c, p) == Write(<<"BindClaim", "claim", c, p>>,
    /\ pod[p].here /\ ~Named(p)
    /\ \/ pod[p].gated /\ ~MustEnd(p) /\ c \in Reserved(Of(p)) /\ pod[p].port \in {None, c}
       \/ ~pod[p].gated /\ ~Proof(p) /\ claim[c].of = Of(p) /\ claim[c].phase \in {"Reserved", "Cooling"},  \* edited
    [api EXCEPT !.claim[c].phase = "Bound", !.claim[c].pod = p])
Unproven(b) == {p \in backend[b].named : StatusKeeps(b) /\ ~Proof(p)}
NamesNow(b) == Unproven(b) \cup {p \in Pods : p[1] = b /\ pod[p].here /\ ~pod[p].witness /\ ~(StatusKeeps(b) /\ Proof(p))}
TellsNow(b) == {p \in Pods : p[1] = b /\ pod[p].ready /\ pod[p].record = "none" /\ ~pod[p].deleting}
WriteStatus(b, names, tells) == Write(<<"WriteStatus", "backend", b, names, tells>>,
    /\ backend[b].life # "gone" /\ tells \subseteq TellsNow(b) /\ Unproven(b) \subseteq names
    /\ names \subseteq {p \in Pods : p[1] = b /\ (pod[p].here \/ Kept(p))},
    [api EXCEPT !.backend[b].named = names, !.backend[b].told = tells])
CreateService(i, c) == Write(<<"CreateService", "new", i, c>>,
    /\ Exposure = "NodePort" /\ service[c] = None
    /\ \E p \in Standing(i) : claim[c].pod = p /\ Holding(c) /\ ~MustEnd(p),
    IF service[c] # None THEN api ELSE [api EXCEPT !.service[c] = i])
Ungate(p) == Write(<<"Ungate", "pod", p>>,
    /\ pod[p].here /\ pod[p].gated /\ ~MustEnd(p) /\ Alone(p) /\ p \in backend[p[1]].named
    /\ ClaimsPort => \E c \in Ports : /\ claim[c].phase = "Bound" /\ claim[c].pod = p
                                      /\ Exposure = "NodePort" => service[c] = Of(p), [api EXCEPT !.pod[p].gated = FALSE])
SetServing(p, on) == Write(<<"SetServing", "pod", p, on>>,
    IF on THEN pod[p].here /\ ~MustEnd(p) /\ ~pod[p].ready /\ proc[p].run = "up" /\ pod[p].word = "none"
          ELSE pod[p].ready /\ pod[p].record # "none", [api EXCEPT !.pod[p].ready = on])
RestoreMarks(p) == Write(<<"RestoreMarks", "pod", p>>, pod[p].here /\ ~pod[p].fin /\ ~pod[p].deleting,
    [api EXCEPT !.pod[p].fin = TRUE])
(* --- stopping ------------------------------------------------------------------------------------------------------ *)
AcquireLease(p) == Write(<<"AcquireLease", "new", p>>,
    /\ pod[p].here /\ ~pod[p].gated /\ ~pod[p].deleting /\ MustEnd(p) /\ pod[p].record \in {"none", "ours"}
    /\ ~Proof(p) /\ backend[p[1]].life # "gone"
    /\ lease = None /\ (Open(p) \/ \A q \in Pods : ~Open(q)),
    IF lease = None THEN [api EXCEPT !.lease = p] ELSE api)
Undrained(p) == ~pod[p].ready \/ pod[p].deleting \/ backend[p[1]].life = "gone"  \* no time is left to it
WriteStopRecord(p, whose, due) == Write(<<"WriteStopRecord", "pod", p, whose, due>>,
    /\ pod[p].here /\ ~pod[p].gated
    /\ CASE pod[p].record = whose -> due \/ ~pod[p].due  \* the user orders force
         [] pod[p].record = "ours" -> whose = "yielded" /\ due = pod[p].due /\ (due \/ pod[p].deleting)
         [] pod[p].record # "none" -> FALSE
         [] whose = "ours" -> lease = p /\ (due => Undrained(p))
         [] whose = "foreign" -> lease # p /\ MustEnd(p) /\ (due => Undrained(p))
                                 /\ (pod[p].deleting \/ Proof(p) \/ backend[p[1]].life = "gone")
         [] OTHER -> FALSE, [api EXCEPT !.pod[p].record = whose, !.pod[p].due = due])
Withdrawn(p) == pod[p].record # "none" /\ ~pod[p].ready /\ p \notin backend[p[1]].told
DrainServer(p) == /\ Withdrawn(p) /\ ~pod[p].deleting /\ ~pod[p].due /\ proc[p].run = "up" /\ ~proc[p].draining
                  /\ Becomes(api, [proc EXCEPT ![p].draining = TRUE], sent) /\ UNCHANGED faults
DeletePod(p) == Write(<<"DeletePod", "pod", p>>,
    /\ pod[p].here
    /\ \/ /\ pod[p].gated /\ ~pod[p].deleting
          /\ MustEnd(p) \/ (~Named(p) /\ (~Alone(p) \/ (ClaimsPort /\ ~\E c \in Reserved(Of(p)) : pod[p].port \in {None, c})))
       \/ /\ ~pod[p].gated /\ ~pod[p].deleting /\ Withdrawn(p)
          /\ lease = p \/ pod[p].record # "ours" \/ (lease # None /\ ~Open(lease))  \* or by hand deleted, and taken since
          /\ pod[p].due \/ ~Up(p) \/ (proc[p].draining /\ ~proc[p].busy)
       \/ pod[p].deleting /\ Proof(p) /\ ~pod[p].fin,
    IF pod[p].deleting /\ Proof(p) /\ ~pod[p].fin THEN Removed(p) ELSE Deleted(p))
AbortServer(p) == /\ pod[p].deleting /\ pod[p].due /\ Up(p) /\ ~proc[p].lost
                  /\ Becomes(api, [proc EXCEPT ![p].busy = FALSE, ![p].run = "over"], sent) /\ UNCHANGED faults
HandOver(p) == Write(<<"HandOver", "pod", p>>,
    HandsOver /\ pod[p].deleting /\ pod[p].record # "none" /\ ~Proof(p) /\ ~pod[p].witness,
    [api EXCEPT !.pod[p].witness = TRUE])
ReleaseLease(p) == Write(<<"ReleaseLease", "lease", p>>,
    lease = p /\ (~pod[p].here \/ pod[p].witness \/ Proof(p) \/ pod[p].record = "yielded"), [api EXCEPT !.lease = None])
(* --- settling ------------------------------------------------------------------------------------------------------ *)
WithholdClaim(c) == Write(<<"WithholdClaim", "claim", c>>,
    claim[c].phase = "Bound" /\ (~pod[claim[c].pod].here \/ pod[claim[c].pod].witness),
    [api EXCEPT !.claim[c].phase = "Withheld"])
CoolClaim(c) == Write(<<"CoolClaim", "claim", c>>,
    Holding(c) /\ Proof(claim[c].pod) /\ (Wanted(claim[c].of) \/ service[c] # claim[c].of),
    [api EXCEPT !.claim[c].phase = "Cooling"])
RemovePodFinalizer(p) == Write(<<"RemovePodFinalizer", "pod", p>>,
    pod[p].deleting /\ pod[p].fin /\ Proof(p) /\ ~Kept(p),
    IF pod[p].bound THEN [api EXCEPT !.pod[p].fin = FALSE] ELSE Removed(p))
DeleteService(c) == Write(<<"DeleteService", "service", c>>,
    /\ service[c] # None
    /\ \/ claim[c].of # service[c]
       \/ /\ ~Wanted(service[c]) \/ \E p \in Standing(service[c]) : Named(p) /\ claim[c].pod # p
          /\ (claim[c].phase \in {"Reserved", "Cooling"} \/ (Holding(c) /\ Proof(claim[c].pod)))
       \/ claim[c].phase \in {"Reserved", "Cooling"} /\ claim[c].going, [api EXCEPT !.service[c] = None])
DeleteClaim(c) == Write(<<"DeleteClaim", "claim", c>>, Unneeded(c) /\ ~claim[c].going, [api EXCEPT !.claim[c].going = TRUE])
RemoveClaimFinalizer(c) == Write(<<"RemoveClaimFinalizer", "claim", c>>, Unneeded(c) /\ claim[c].going,
    [api EXCEPT !.claim[c] = NoClaim])
RemoveFinalizer(b) == Write(<<"RemoveFinalizer", "backend", b>>,
    /\ backend[b].life = "deleting" /\ backend[b].fin /\ \A p \in Pods : lease = p => p[1] # b
    /\ \A i \in Instances : i[1] = b => Standing(i) = {} /\ ~Awaited(i)
    /\ \A c \in Ports : claim[c].phase \in {"Bound", "Reserved"} => claim[c].of[1] # b,
    [api EXCEPT !.backend[b].life = "gone", !.backend[b].fin = FALSE])
(* --- the cluster --------------------------------------------------------------------------------------------------- *)
Happens(next, runs) == Becomes(next, runs, sent) /\ UNCHANGED faults    Runs(p, new) == [proc EXCEPT ![p] = new]
Schedule(p) == pod[p].here /\ ~pod[p].gated /\ ~pod[p].bound /\ ~pod[p].deleting
    /\ Happens([api EXCEPT !.pod[p].bound = TRUE], proc)
Start(p) == pod[p].bound /\ ~pod[p].deleting /\ pod[p].word \notin {"rejected", "failed"} /\ ~Up(p) /\ ~proc[p].lost
    /\ LET behind == {c \in Ports : Holding(c) /\ claim[c].pod = p} IN
       Happens(api, Runs(p, [NoProc EXCEPT !.run = "up", !.port =
           IF pod[p].port # None \/ behind = {} THEN pod[p].port ELSE CHOOSE c \in behind : TRUE]))
End(p) == pod[p].bound /\ pod[p].deleting /\ ~proc[p].lost /\ pod[p].word # "ended"
    /\ Happens([api EXCEPT !.pod[p].word = "ended"], Runs(p, [NoProc EXCEPT !.run = "over"]))
Recover(p) == pod[p].word = "crashed" /\ ~pod[p].deleting /\ Happens([api EXCEPT !.pod[p].word = "none"], proc)
Vanish(p) == pod[p].deleting /\ ~pod[p].fin /\ (pod[p].word \in {"ended", "rejected", "lost"} \/ ~pod[p].bound)
    /\ Happens(Removed(p), proc)
KillOrphan(p) == ~pod[p].here /\ proc[p].run = "up" /\ ~proc[p].lost /\ Happens(api, Runs(p, NoProc))
Collect(p) == backend[p[1]].life = "gone" /\ pod[p].here /\ ~pod[p].deleting /\ Happens(Deleted(p), proc)
Request(p) == p \in backend[p[1]].told /\ proc[p].run = "up" /\ ~proc[p].draining /\ ~proc[p].busy
    /\ Happens(api, Runs(p, [proc[p] EXCEPT !.busy = TRUE]))
Finish(p) == proc[p].busy /\ Happens(api, Runs(p, [proc[p] EXCEPT !.busy = FALSE]))
DeadlinePasses(p) == pod[p].record # "none" /\ ~pod[p].due /\ Happens([api EXCEPT !.pod[p].due = TRUE], proc)
(* A machine comes back, or somebody who knows says that what ran on it has ended (attested, rebooted, out of service). *)
Return(p) == proc[p].lost /\ Happens(api, Runs(p, [proc[p] EXCEPT !.lost = FALSE]))
Die(p) == proc[p].lost /\ proc[p].run = "up" /\ Happens(api, Runs(p, [proc[p] EXCEPT !.run = "over", !.busy = FALSE]))
Vouch(p) == Kept(p) /\ p \notin api.vouched /\ ~Up(p) /\ (~pod[p].here \/ (pod[p].deleting /\ proc[p].lost))
    /\ Happens([api EXCEPT !.vouched = @ \cup {p}], proc)
(* --- people and mishaps -------------------------------------------------------------------------------------------- *)
Fault(next, runs) == faults > 0 /\ Becomes(next, runs, sent) /\ faults' = faults - 1
Delete(b) == Live(b) /\ Happens([api EXCEPT !.backend[b].life = IF backend[b].fin THEN "deleting" ELSE "gone"], proc)
Scale(b, some) == Live(b) /\ backend[b].wanted # some /\ Fault([api EXCEPT !.backend[b].wanted = some], proc)
TearFinalizer(b) == backend[b].fin /\ Fault([api EXCEPT !.backend[b].fin = FALSE, !.backend[b].life =
    IF Live(b) THEN "live" ELSE "gone"], proc)
Outgrow(p) == pod[p].here /\ ~pod[p].outgrown /\ Fault([api EXCEPT !.pod[p].outgrown = TRUE], proc)
Evict(p) == pod[p].here /\ ~pod[p].deleting /\ Fault(Deleted(p), proc)
TearPod(p) == pod[p].here /\ Fault(Removed(p), proc)
TearMarks(p) == pod[p].fin /\ Fault(IF pod[p].deleting /\ ~pod[p].bound THEN Removed(p)
                                    ELSE [api EXCEPT !.pod[p].fin = FALSE], proc)
Crash(p) == proc[p].run = "up" /\ pod[p].here /\ ~pod[p].deleting /\ pod[p].word = "none"
    /\ Fault([api EXCEPT !.pod[p].word = "crashed"], Runs(p, [proc[p] EXCEPT !.busy = FALSE, !.draining = FALSE]))
Reject(p) == pod[p].bound /\ ~pod[p].deleting /\ pod[p].word = "none"  \* a restarted kubelet refuses what ran before, too
    /\ LET told == [api EXCEPT !.pod[p].word = IF proc[p].run = "never" THEN "rejected" ELSE "failed"] IN
       Fault(told, Runs(p, [proc[p] EXCEPT !.run = "over", !.busy = FALSE])) \/ (Up(p) /\ Fault(told, proc))
Lose(p) == pod[p].bound /\ ~proc[p].lost /\ Fault(api, Runs(p, [proc[p] EXCEPT !.lost = TRUE]))
GarbageCollect(p) == pod[p].here /\ proc[p].lost /\ pod[p].word \in {"none", "crashed"}
    /\ Happens([api EXCEPT !.pod[p].word = "lost", !.pod[p].deleting = TRUE], proc)
TearLease == lease # None /\ Fault([api EXCEPT !.lease = None], proc)
DropClaim(c) == claim[c].phase # "Free" /\ ~claim[c].going /\ Fault([api EXCEPT !.claim[c].going = TRUE], proc)
DropService(c) == service[c] # None /\ Fault([api EXCEPT !.service[c] = None], proc)
(* --- all of it ----------------------------------------------------------------------------------------------------- *)
Reconcile(b) ==
    \/ AddFinalizer(b) \/ RemoveFinalizer(b) \/ WriteStatus(b, NamesNow(b), TellsNow(b))
    \/ \E w \in sent : \/ w[1] = "WriteStatus" /\ w[3] = b /\ WriteStatus(b, w[4], w[5])
                       \/ w[1] = "CreatePod" /\ w[3][1] = b /\ CreatePod(w[3], w[4], w[5])
    \/ \E i \in {b} \X Ordinals, c \in Ports \cup {None} :
        LET free == {n \in Incarnations : Unused(<<i[1], i[2], n>>)} IN
        free # {} /\ CreatePod(i, c, CHOOSE n \in free : \A m \in free : n <= m)
    \/ \E i \in {b} \X Ordinals, c \in Ports : CreateClaim(i, c) \/ CreateService(i, c)
    \/ \E c \in {c \in Ports : claim[c].of \in {b} \X Ordinals} :
        ReserveClaim(c) \/ WithholdClaim(c) \/ CoolClaim(c) \/ DeleteClaim(c) \/ RemoveClaimFinalizer(c)
    \/ \E c \in {c \in Ports : service[c] \in {b} \X Ordinals} : DeleteService(c)
    \/ \E p \in {p \in Pods : p[1] = b} :
        \/ Ungate(p) \/ SetServing(p, TRUE) \/ SetServing(p, FALSE) \/ RestoreMarks(p) \/ \E c \in Ports : BindClaim(c, p)
        \/ AcquireLease(p) \/ \E whose \in {"ours", "foreign", "yielded"}, due \in BOOLEAN : WriteStopRecord(p, whose, due)
        \/ DrainServer(p) \/ DeletePod(p) \/ AbortServer(p) \/ HandOver(p) \/ RemovePodFinalizer(p) \/ ReleaseLease(p)
Cluster(p) == \/ Schedule(p) \/ Start(p) \/ End(p) \/ Recover(p) \/ Vanish(p) \/ KillOrphan(p) \/ Collect(p)
              \/ DeadlinePasses(p) \/ Return(p) \/ Vouch(p)
Whim == \/ \E b \in Backends : Delete(b) \/ TearFinalizer(b) \/ \E some \in SUBSET Ordinals : Scale(b, some)
        \/ \E p \in Pods : \/ Request(p) \/ Finish(p) \/ Die(p) \/ GarbageCollect(p) \/ Outgrow(p) \/ Evict(p) \/ TearPod(p)
                           \/ TearMarks(p) \/ Crash(p) \/ Reject(p) \/ Lose(p)
        \/ TearLease \/ \E c \in Ports : DropClaim(c) \/ DropService(c)
Next == (\E b \in Backends : Reconcile(b)) \/ (\E p \in Pods : Cluster(p)) \/ Whim
Spec == Init /\ [][Next]_vars
=============================================================================
