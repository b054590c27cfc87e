------------------------------- MODULE commit -------------------------------
(***************************************************************************)
(* The commit protocol of docs/internals/protocol.md on one stream and one *)
(* table.  Actors: two writers, a fold, cleanup, an epoch holder, a branch *)
(* closer.  Every actor may stop for ever between any two steps, which is  *)
(* how a crash looks to the others.  A PUT is a message that arrives at    *)
(* any later time or never; an answer is never trusted, the key is read    *)
(* instead, so a lost acknowledgement, a time-out and a false "exists" are *)
(* the same thing here.                                                    *)
(*                                                                         *)
(* `Broken` is the set of rules left out.  The protocol is Broken = {}.    *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Actors,   \* subset of {"w1", "w2", "fold", "gc", "epoch", "close"}
  Script,   \* which pair of operations the writers run: a key of Scripts
  Broken

VARIABLES
  log,      \* log[s]: the record at seq s
  freed,    \* seqs whose name was deleted: always {} unless H23 is broken
  net,      \* PUTs on their way: [seq, rec]
  old,      \* the files that were there when the gc record landed
  swept,    \* files deleted by cleanup
  proc,     \* what each actor knows
  misled    \* an answer without a commit was wrong when it was given

vars == <<log, freed, net, old, swept, proc, misled>>

Rule(r) == r \notin Broken

Absent == -1   \* no such row
Dead   == -2   \* overlay entry: tombstone
Forget == -3   \* what a delete does when rule H2 is broken: drop the entry, leave no tombstone
None   == "none"

-----------------------------------------------------------------------------
(* Operations: functions of the state, as the verbs of the system are. *)

Keys == {"x", "y"}

Op(do, key, staged) == [do |-> do, key |-> key, staged |-> staged]

Scripts == [
  same     |-> [w1 |-> Op("put",  "x", TRUE),  w2 |-> Op("del",  "x", FALSE)],
  bump     |-> [w1 |-> Op("bump", "x", TRUE),  w2 |-> Op("bump", "x", FALSE)],
  disjoint |-> [w1 |-> Op("put",  "y", TRUE),  w2 |-> Op("bump", "x", FALSE)],
  staged   |-> [w1 |-> Op("put",  "y", TRUE),  w2 |-> Op("put",  "x", TRUE)],
  inline   |-> [w1 |-> Op("put",  "y", FALSE), w2 |-> Op("del",  "x", FALSE)],
  insert   |-> [w1 |-> Op("put",  "y", FALSE), w2 |-> Op("bump", "y", FALSE)]]

Writers == {"w1", "w2"} \cap Actors
OpOf(a) == Scripts[Script][a]

After(op, before) ==   \* the row's new value
  CASE op.do = "put"  -> 7
    [] op.do = "bump" -> IF before = Absent THEN Absent ELSE before + 1
    [] op.do = "del"  -> Absent

Matches(op, before) == op.do = "put" \/ before # Absent

-----------------------------------------------------------------------------
(* Versions, records, views. *)

Version(id, rows, of) == [id |-> id, rows |-> rows, files |-> of]

Birth == Version(<<"init", "m", 0>>, {}, {<<"init", "m", 0>>})

Row(version, key) ==
  IF \E r \in version.rows : r.key = key THEN (CHOOSE r \in version.rows : r.key = key).value ELSE Absent

View(rec, key) ==
  IF \E e \in rec.overlay : e.key = key
    THEN LET e == CHOOSE e \in rec.overlay : e.key = key IN IF e.value = Dead THEN Absent ELSE e.value
    ELSE Row(rec.pin, key)

\* Record 1 holds x in its overlay only: the interesting case for folds, tombstones and staged writes.
First == [rid |-> <<"init", 1>>, parent |-> <<"init", 0>>, kind |-> "init", crossed |-> FALSE, holder |-> None,
          pin |-> Birth, overlay |-> {[key |-> "x", value |-> 0, rid |-> <<"init", 1>>]}]

Newest == log[Len(log)]

\* seen: the newest record that the actor has read.  base: the one its change was computed on.
\* crossed: whether it went past a foreign claim of the epoch.  upsert: whether the pin held its rows at staging.
Idle == [pc |-> "idle", seen |-> 0, base |-> 0, crossed |-> FALSE, change |-> {}, frag |-> {}, upsert |-> FALSE,
         version |-> Birth, on |-> Birth.id]
Ended(how, seq) == [Idle EXCEPT !.pc = how, !.seen = seq]

Init ==
  /\ log = <<First>>
  /\ freed = {} /\ net = {} /\ old = {} /\ swept = {}
  /\ proc = [a \in Actors |-> Idle]
  /\ misled = FALSE

-----------------------------------------------------------------------------
(* next(previous record, change): what actor a, knowing p, puts on top of the record it has read last. *)

Rid(a, p) == <<a, p.seen + 1>>   \* one attempt per actor and seq, so this names the attempt

Staged(a) == a = "fold" \/ (a \in Writers /\ OpOf(a).staged)

Kind(a, p) ==
  CASE a \in Writers -> "write"
    [] a = "epoch"   -> IF p.pc = "release" THEN "release" ELSE "claim"
    [] OTHER         -> a

NextOverlay(a, p, prev) ==
  LET from == IF Rule("H6") THEN prev.overlay ELSE log[p.base].overlay
      touched == {c.key : c \in p.change}
      own == {[key |-> c.key, value |-> c.value, rid |-> Rid(a, p)] : c \in {d \in p.change : d.value # Forget}}
  IN CASE a \in Writers /\ ~Staged(a) -> {e \in from : e.key \notin touched} \cup own
       [] a \in Writers /\ Staged(a)  -> {e \in from : Rule("H3") => e.key \notin touched}
       [] a = "fold" -> {e \in from : ~\E f \in p.change : f.key = e.key /\ (Rule("H1") => f.rid = e.rid)}
       [] OTHER      -> prev.overlay

NextRecord(a, p) ==
  LET prev == log[p.seen] IN
  [rid     |-> Rid(a, p),
   parent  |-> prev.rid,
   kind    |-> Kind(a, p),
   crossed |-> p.crossed,
   holder  |-> CASE Kind(a, p) = "claim" -> a [] Kind(a, p) = "release" -> None [] OTHER -> prev.holder,
   pin     |-> IF Staged(a) THEN p.version ELSE prev.pin,
   overlay |-> NextOverlay(a, p, prev)]

\* a goes on as p.  A record that is ready is sent at once: not yet sent and not yet arrived look the same to all.
Become(a, p) ==
  IF p.pc \in {"ready", "release"}
    THEN /\ net' = net \cup {[seq |-> p.seen + 1, rec |-> NextRecord(a, p)]}
         /\ proc' = [proc EXCEPT ![a] = [p EXCEPT !.pc = IF @ = "ready" THEN "wait" ELSE "wait2"]]
    ELSE proc' = [proc EXCEPT ![a] = p] /\ UNCHANGED net

-----------------------------------------------------------------------------
(* Staging: first the data file, then the detached version on the pin of the record last read. *)

WithFile(a, p) ==
  [p EXCEPT !.pc = "commit", !.frag = {<<a, "f", p.seen>>},
            !.upsert = ~Rule("H4") /\ \E c \in p.change : Row(log[p.seen].pin, c.key) # Absent]

WithVersion(a, p) ==
  LET pin == log[p.seen].pin
      id == <<a, "m", p.seen>>
      touched == {c.key : c \in p.change}
      \* H4: ids that entered the table since staging are deleted too, not only those that were there then.
      kept == {r \in pin.rows : (Rule("H4") \/ p.upsert) => r.key \notin touched}
      new == {[key |-> c.key, value |-> c.value] : c \in {d \in p.change : d.value \notin {Dead, Forget}}}
  IN [p EXCEPT !.pc = "ready", !.on = pin.id,
               !.version = Version(id, kept \cup new, pin.files \cup p.frag \cup {id})]

-----------------------------------------------------------------------------
(* Capture and prepare. *)

\* The change, computed on the record p.seen.  Local, so one step together with the read before it.
PreparedWrite(a, p) ==
  LET op == OpOf(a)
      rec == log[p.seen]
      before == View(rec, op.key)
      after == After(op, before)
      value == CASE after # Absent -> after
                 [] ~Rule("H2") /\ Row(rec.pin, op.key) = Absent -> Forget
                 [] OTHER -> Dead
  IN IF ~Matches(op, before)
       THEN [Idle EXCEPT !.pc = "nothing", !.seen = p.seen, !.crossed = p.crossed]
       ELSE [Idle EXCEPT !.pc = IF op.staged THEN "stage" ELSE "ready", !.seen = p.seen, !.crossed = p.crossed,
                         !.base = IF Rule("H6") THEN 0 ELSE p.seen, !.change = {[key |-> op.key, value |-> value]}]

\* A fold stages in the same step: a pause in the middle of staging is left to the writers.
PreparedFold(p) ==
  LET entries == log[p.seen].overlay
  IN IF entries = {} THEN Ended("failed", 0)
     ELSE WithVersion("fold", WithFile("fold",
            [Idle EXCEPT !.seen = p.seen, !.crossed = p.crossed, !.base = IF Rule("H6") THEN 0 ELSE p.seen,
                         !.change = entries]))

Prepared(a, p) ==
  CASE a \in Writers -> PreparedWrite(a, p)
    [] a = "fold"    -> PreparedFold(p)
    [] OTHER         -> [p EXCEPT !.pc = "ready"]

Capture(a) ==
  /\ proc[a].pc = "idle"
  /\ Become(a, IF Newest.kind = "close" \/ Newest.holder \notin {None, a} THEN Ended("failed", 0)
               ELSE Prepared(a, [Idle EXCEPT !.seen = Len(log)]))
  /\ UNCHANGED <<log, freed, old, swept, misled>>

Stage(a) ==
  /\ proc[a].pc = "stage"
  /\ Become(a, WithFile(a, proc[a]))
  /\ UNCHANGED <<log, freed, old, swept, misled>>

CommitDetached(a) ==
  /\ proc[a].pc = "commit"
  /\ Become(a, WithVersion(a, proc[a]))
  /\ UNCHANGED <<log, freed, old, swept, misled>>

\* Nothing matches: an answer without a commit, given only when the next record is seen to be absent (H18).
AnswerNothing(a) ==
  /\ proc[a].pc = "nothing"
  /\ Rule("H18") => Len(log) = proc[a].seen
  /\ misled' = (misled \/ Matches(OpOf(a), View(Newest, OpOf(a).key)))
  /\ Become(a, Ended("failed", 0))
  /\ UNCHANGED <<log, freed, old, swept>>

-----------------------------------------------------------------------------
(* The record PUT. *)

\* The files that a record to come could name.  All others are garbage for ever, and left out of the model.
Known == UNION ({Newest.pin.files}
                \cup {proc[a].frag \cup proc[a].version.files : a \in Actors \ {"gc"}}
                \cup {log[proc[a].seen].pin.files : a \in {b \in Actors \ {"gc"} : proc[b].seen > 0}})

\* A PUT arrives.  Others to the same seq can then do nothing any more, and are forgotten at once.
Arrive(m) ==
  /\ m \in net
  /\ net' = IF Rule("put-if-absent") /\ Rule("H23") THEN {n \in net : n.seq # m.seq} ELSE net \ {m}
  /\ CASE m.seq = Len(log) + 1 ->
            /\ log' = Append(log, m.rec)
            /\ old' = IF m.rec.kind = "gc" THEN Known ELSE old
            /\ UNCHANGED freed
       [] m.seq \in freed \/ (~Rule("put-if-absent") /\ m.seq <= Len(log)) ->
            /\ log' = [log EXCEPT ![m.seq] = m.rec]
            /\ freed' = freed \ {m.seq}
            /\ UNCHANGED old
       [] OTHER -> UNCHANGED <<log, freed, old>>
  /\ UNCHANGED <<swept, proc, misled>>

-----------------------------------------------------------------------------
(* Learning the outcome: read the key that was written. *)

Taken(s) == s <= Len(log) /\ s \notin freed

Mine(a) == Taken(proc[a].seen + 1) /\ log[proc[a].seen + 1].rid = Rid(a, proc[a])

\* Fold and close need no acknowledgement: nothing follows for them.
Landed(a) ==
  /\ a \notin {"fold", "close"} /\ proc[a].pc \in {"wait", "wait2"} /\ Mine(a) /\ Rule("H25")
  /\ LET s == proc[a].seen + 1 IN
     Become(a, CASE a = "gc" -> Ended("mark", s)
                 [] a = "epoch" /\ proc[a].pc = "wait" -> Ended("release", s)
                 [] OTHER -> Ended("acked", s))
  /\ UNCHANGED <<log, freed, old, swept, misled>>

\* Absent: the same bytes again until the deadline (the message in `net` stands for that), then "unknown", which
\* is the same as stopping here and needs no step.  Only another rid proves that a PUT did not land (H24).
GiveUp(a) ==
  /\ ~Rule("H24")
  /\ proc[a].pc \in {"wait", "wait2"} /\ ~Taken(proc[a].seen + 1)
  /\ Become(a, Ended("failed", 0))
  /\ UNCHANGED <<log, freed, old, swept, misled>>

Conflicts(a, rec) == a \in Writers /\ rec.kind = "write" /\ OpOf(rec.rid[1]).key = OpOf(a).key

Rebased(a) ==   \* what becomes of a after it has read every record up to the newest
  LET between == {log[s] : s \in proc[a].seen + 1 .. Len(log)}
      foreign(r) == r.holder \notin {None, a}
      p == [proc[a] EXCEPT !.seen = Len(log), !.crossed = @ \/ \E r \in between : foreign(r)]
      moved == Staged(a) /\ p.on # Newest.pin.id
  IN CASE Rule("close") /\ \E r \in between : r.kind = "close" -> Ended("failed", 0)
       [] Rule("H30") /\ \E r \in (IF Rule("H30-each") THEN between ELSE {Newest}) : foreign(r) -> Ended("failed", 0)
       [] p.pc = "nothing" -> Prepared(a, p)
       [] Rule("footprint") /\ \E r \in between : Conflicts(a, r) -> Prepared(a, p)
       [] Rule("H35-fence") /\ Staged(a) /\ \E r \in between : r.kind = "gc" -> Prepared(a, p)
       [] Rule("H5") /\ moved /\ a = "fold" -> Ended("failed", 0)
       [] Rule("H5") /\ moved -> [p EXCEPT !.pc = "commit"]
       [] OTHER -> [p EXCEPT !.pc = IF @ = "wait2" THEN "release" ELSE "ready"]

Refused(a) ==
  /\ proc[a].pc \in {"wait", "wait2"} /\ Taken(proc[a].seen + 1) /\ (Rule("H25") => ~Mine(a))
  /\ Become(a, Rebased(a))
  /\ UNCHANGED <<log, freed, old, swept, misled>>

\* A writer about to answer "nothing matched" finds a next record.
LookAgain(a) ==
  /\ proc[a].pc = "nothing" /\ Len(log) > proc[a].seen
  /\ Become(a, Rebased(a))
  /\ UNCHANGED <<log, freed, old, swept, misled>>

-----------------------------------------------------------------------------
(* Cleanup, after its gc record landed at proc["gc"].seen.  It retains that record and all later ones. *)

Roots == {log[s] : s \in proc["gc"].seen .. Len(log)}
Marked == UNION {r.pin.files : r \in Roots}

Mark ==
  /\ "gc" \in Actors /\ proc["gc"].pc = "mark"
  /\ Become("gc", [proc["gc"] EXCEPT !.pc = "sweep", !.frag = (IF Rule("H35-age") THEN old ELSE Known) \ Marked])
  /\ old' = {}
  /\ UNCHANGED <<log, freed, swept, misled>>

Sweep ==
  /\ "gc" \in Actors /\ proc["gc"].pc = "sweep"
  /\ swept' = proc["gc"].frag
  /\ freed' = IF Rule("H23") THEN freed ELSE 2 .. proc["gc"].seen - 1
  /\ Become("gc", Ended("acked", proc["gc"].seen))
  /\ UNCHANGED <<log, old, misled>>

-----------------------------------------------------------------------------
Next ==
  \/ \E a \in Actors : Capture(a) \/ AnswerNothing(a) \/ LookAgain(a) \/ Stage(a) \/ CommitDetached(a)
                       \/ Landed(a) \/ Refused(a) \/ GiveUp(a)
  \/ Mark \/ Sweep
  \/ \E m \in net : Arrive(m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. *)

Seqs == 2 .. Len(log)

\* Every record stands on the one before it, and no operation is in the chain twice.
ChainLinear == \A s \in Seqs : log[s].parent = log[s - 1].rid
AtMostOnce == \A s, t \in Seqs : (s # t /\ log[s].kind = "write") => log[s].rid[1] # log[t].rid[1]

\* An acknowledged record is where it was acknowledged.
AckedIsThere == \A a \in Actors : proc[a].pc = "acked" => log[proc[a].seen].rid = <<a, proc[a].seen>>

\* A caller who was told "did not land" or "nothing to do" has no record.
FailedIsNotThere == \A a \in Actors : proc[a].pc = "failed" => \A s \in Seqs : log[s].rid[1] # a

\* Each record's state is its operation applied to the state before it; all other kinds change nothing.
\* With the two above: no acknowledged commit is lost.
Serial ==
  \A s \in Seqs : \A k \in Keys :
    LET rec == log[s]
        before == View(log[s - 1], k)
    IN View(rec, k) = IF rec.kind = "write" /\ OpOf(rec.rid[1]).key = k THEN After(OpOf(rec.rid[1]), before) ELSE before

OneRowPerKey == \A s \in 1 .. Len(log) : \A r, t \in log[s].pin.rows : r.key = t.key => r = t

\* Records that cleanup retains name no deleted file.
NoSweptFile == swept # {} => \A s \in proc["gc"].seen .. Len(log) : log[s].pin.files \cap swept = {}

NothingAfterClose == \A s \in Seqs : log[s - 1].kind # "close"

\* While a holder is set only it publishes, and whoever started before a claim never publishes after it.
OnlyHolder == \A s \in Seqs : ~log[s].crossed /\ log[s - 1].holder \in {None, log[s].rid[1]}

AnswersRight == ~misled

\* Not an invariant: `make model` expects this to be reached, so that nothing above holds only for want of histories.
NeverAllDone == ~(/\ \A a \in Writers : proc[a].pc = "acked"
                  /\ swept # {}
                  /\ \E s \in Seqs : log[s].kind = "fold"
                  /\ \E s \in Seqs : log[s].kind = "write" /\ s > proc["gc"].seen)
=============================================================================
