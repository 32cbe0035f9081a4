------------------------------- MODULE Replay -------------------------------
(* Is a recorded trace a behaviour of the specification? Each record holds what one backend's operator saw, and what it
   did. Between two records the cluster and its users may take hidden steps, but only towards what is seen next; what
   really runs was never recorded, so any that fits will do. A trace that is followed to its end says so. *)
EXTENDS ModelBackend, Sequences, TLC

CONSTANTS Traces,   \* a sequence of traces; of each, a sequence of [seen, act, outcome, successor]
          Paired,   \* an instance has two ports, of which the trace tells one
          Meddled   \* somebody else writes too, by no rule of ours: a person's hand, another operator that is not told
VARIABLES t, n   \* the trace that is followed, and its next record
replay == <<api, proc, sent, faults, t, n>>

Record == Traces[t][n]
(* What the generated traces are written in. *)
Backend(life, fin, wanted, named, told) ==
    [life |-> life, fin |-> fin, wanted |-> wanted, named |-> named, told |-> told]
Claim(phase, of, holder, going) == [phase |-> phase, of |-> of, pod |-> holder, going |-> going]
Pod(port, word, record, gated, bound, ready, outgrown, due, deleting, fin, witness) ==
    [here |-> TRUE, gated |-> gated, bound |-> bound, port |-> port, word |-> word, ready |-> ready,
     outgrown |-> outgrown, record |-> record, due |-> due, deleting |-> deleting, fin |-> fin, witness |-> witness]
Seen(own, claims, pods, services, holder, vouched) ==
    [backend |-> ("own" :> own) @@ ("neighbour" :> Backend("gone", FALSE, {}, {}, {})),
     claim |-> claims @@ [c \in Ports |-> NoClaim], pod |-> pods @@ [p \in Pods |-> NoPod],
     service |-> services @@ [c \in Ports |-> None], lease |-> holder, vouched |-> vouched]

(* By orders and mishaps of which the searched specification knows nothing. *)
Extend(p, whose) == /\ pod[p].record = whose /\ pod[p].due /\ ~pod[p].deleting  \* the user orders more time
                    /\ Becomes([api EXCEPT !.pod[p].due = FALSE], proc, sent) /\ UNCHANGED faults
GiveUpPort(p) == /\ Exposure = "NodePort" /\ pod[p].gated /\ ~pod[p].deleting  \* a stranger's Service has its port
                 /\ \E c \in Ports : claim[c].pod = p /\ service[c] = None
                 /\ Becomes(Deleted(p), proc, sent) /\ UNCHANGED faults
GiveBack(c, next) == /\ Paired /\ claim[c].phase \in {"Reserved", "Cooling"} /\ service[c] = None  \* there is no second port
                     /\ claim[c].pod \in Pods => ~pod[claim[c].pod].here
                     /\ Becomes([api EXCEPT !.claim[c] = next], proc, sent) /\ UNCHANGED faults
WithholdAgain(c) == /\ claim[c].phase = "Cooling" /\ claim[c].pod \notin api.vouched  \* a machine said to be removed is back
                    /\ Becomes([api EXCEPT !.claim[c].phase = "Withheld"], proc, sent) /\ UNCHANGED faults

Do(w) == CASE w[1] = "AddFinalizer" -> AddFinalizer(w[3]) [] w[1] = "RemoveFinalizer" -> RemoveFinalizer(w[3])
           [] w[1] = "WriteStatus" -> WriteStatus(w[3], w[4], w[5])
           [] w[1] = "CreateClaim" -> CreateClaim(w[3], w[4]) [] w[1] = "CreatePod" -> CreatePod(w[3], w[4], w[5])
           [] w[1] = "CreateService" -> CreateService(w[3], w[4]) [] w[1] = "BindClaim" -> BindClaim(w[3], w[4])
           [] w[1] = "ReserveClaim" -> ReserveClaim(w[3]) [] w[1] = "CoolClaim" -> CoolClaim(w[3])
           [] w[1] = "WithholdClaim" -> WithholdClaim(w[3]) \/ WithholdAgain(w[3])
           [] w[1] = "DeleteClaim" -> DeleteClaim(w[3]) \/ GiveBack(w[3], [claim[w[3]] EXCEPT !.going = TRUE])
           [] w[1] = "RemoveClaimFinalizer" -> RemoveClaimFinalizer(w[3]) \/ (claim[w[3]].going /\ GiveBack(w[3], NoClaim))
           [] w[1] = "DeleteService" -> DeleteService(w[3])
           [] w[1] = "Ungate" -> Ungate(w[3]) [] w[1] = "SetServing" -> SetServing(w[3], w[4])
           [] w[1] = "RestoreMarks" -> RestoreMarks(w[3]) [] w[1] = "AcquireLease" -> AcquireLease(w[3])
           [] w[1] = "WriteStopRecord" -> WriteStopRecord(w[3], w[4], w[5]) \/ (~w[5] /\ Extend(w[3], w[4]))
           [] w[1] = "DrainServer" -> DrainServer(w[3])
           [] w[1] = "DeletePod" -> DeletePod(w[3]) \/ GiveUpPort(w[3]) [] w[1] = "AbortServer" -> AbortServer(w[3])
           [] w[1] = "HandOver" -> HandOver(w[3]) [] w[1] = "RemovePodFinalizer" -> RemovePodFinalizer(w[3])
           [] w[1] = "ReleaseLease" -> ReleaseLease(w[3])
           [] w[1] = "Repair" -> UNCHANGED vars  \* what the specification leaves out: labels, words, which node

Follow == /\ n <= Len(Traces[t]) /\ api = Record.seen
          /\ CASE Record.outcome = "Settled" -> UNCHANGED vars
               [] Record.outcome = "Applied" -> Do(Record.act)
               [] Record.outcome = "Unknown" -> ENABLED Do(Record.act) /\ sent' = sent \cup {Record.act}
                                               /\ UNCHANGED <<api, proc, faults>>
               [] Record.outcome = "Perhaps" -> Do(Record.act) \/ UNCHANGED vars
               [] Record.outcome = "Landed" -> Do(Record.act)
               [] Record.outcome = "Void" -> UNCHANGED vars
               [] Record.outcome = "Refused" -> ENABLED Do(Record.act) /\ UNCHANGED vars
          /\ n' = n + 1 /\ t' = t
          /\ PrintT(<<"followed", t, n>>)

(* Objects may change only while they differ from what is seen next. *)
Towards == LET seen == Record.seen IN
    /\ n <= Len(Traces[t])
    /\ \A p \in Pods : api'.pod[p] = pod[p] \/ pod[p] # seen.pod[p]
    /\ \A c \in Ports : (api'.claim[c] = claim[c] \/ claim[c] # seen.claim[c])
                        /\ (api'.service[c] = service[c] \/ service[c] # seen.service[c])
    /\ \A b \in Backends : api'.backend[b] = backend[b] \/ backend[b] # seen.backend[b]
    /\ api'.lease = lease \/ lease # seen.lease
    /\ api'.vouched = api.vouched \/ api.vouched # seen.vouched
OfNeighbour(holder) == holder # None /\ holder[1] = "neighbour"
Jump(next) == api' = next /\ UNCHANGED <<proc, sent, faults>>
Hidden == /\ n <= Len(Traces[t])
          /\ \/ \E p \in Pods : \/ Cluster(p) \/ GarbageCollect(p) \/ Outgrow(p) \/ Evict(p) \/ TearPod(p) \/ TearMarks(p)
                                \/ Crash(p) \/ Reject(p) \/ (Record.seen.pod[p].word = "lost" /\ Lose(p))
             \/ \E b \in Backends : Delete(b) \/ TearFinalizer(b) \/ \E some \in SUBSET Ordinals : Scale(b, some)
             \/ TearLease \/ \E c \in Ports : DropClaim(c) \/ DropService(c)
             \* What is known of machines comes and goes.
             \/ api.vouched # Record.seen.vouched /\ Jump([api EXCEPT !.vouched = Record.seen.vouched])
             \/ \E p \in Pods : pod[p].outgrown /\ Jump([api EXCEPT !.pod[p].outgrown = FALSE])  \* the wish is taken back
             \/ \E w \in sent : Do(w)  \* what was in flight lands
             \/ OfNeighbour(Record.seen.lease) /\ Jump([api EXCEPT !.lease = Record.seen.lease])
             \/ OfNeighbour(lease) /\ Jump([api EXCEPT !.lease = None])
             \/ Record.successor /\ Reconcile("own")  \* what its predecessor did last, and did not live to tell
             \/ Meddled /\ api # Record.seen /\ Jump(Record.seen)
          /\ Towards /\ UNCHANGED <<t, n>>
Begin == /\ t \in DOMAIN Traces /\ n = 1 /\ sent = {} /\ faults = FaultsMax
         /\ api = Traces[t][1].seen
         /\ \E up \in SUBSET {p \in Pods : pod[p].bound} : \E draining \in SUBSET up :
             proc = [p \in Pods |-> IF p \in up THEN [NoProc EXCEPT !.run = "up", !.draining = p \in draining] ELSE NoProc]
         /\ \A p \in Pods : proc[p] = NoProc => ~pod[p].ready
Done == n > Len(Traces[t]) /\ UNCHANGED replay
Replays == Begin /\ [][Follow \/ Hidden \/ Done]_replay
=============================================================================
