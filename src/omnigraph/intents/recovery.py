"""Recovery: ends the bulk operations whose process is gone. It publishes or it gives up; it deletes nothing.

| an intent that                                            | is                                                    |
|-----------------------------------------------------------|-------------------------------------------------------|
| gave a sign of life within the grace, by the store's clock | live: left alone                                      |
| has its row in `_ops`, or its op id in a record            | published: closed, audited as rolled forward          |
| is confirmed and holds on the newest record                | published now, by the code that publishes everything  |
| is confirmed and does not hold                             | rolled back: a plan is never prepared without its input |
| is not confirmed                                           | aborted and rolled back                               |
| cannot be read                                             | left in place, and told loudly                        |

Any number of processes may do this at once. Publishing and rolling back both claim the operation's row in `_ops`, so
the log takes one of them; the audit is a record under the client key `recovery:<op id>`, so there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Literal

from omnigraph.commit.fold import Folder
from omnigraph.commit.footprint import PlanConflict
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.idempotency import intent_answer, with_intent_claim
from omnigraph.commit.publish_plan import ConflictCheck, PublishPlan, TableAction, WriteOptions, WriteTxn
from omnigraph.commit.publisher import (
    NothingToFold,
    PlanFailed,
    PlanPublished,
    PlanStale,
    Publisher,
    find_plan_conflict,
    is_published_in,
)
from omnigraph.commit.writer import Writer, publish_staged
from omnigraph.errors import BranchClosed, Contention, Corruption, NotFound, Unsupported, WriterFenced
from omnigraph.intents.objects import (
    IntentAborted,
    IntentConfirmed,
    IntentDecision,
    IntentEnding,
    IntentOpening,
    decide_aborted,
    store_now,
    take_over,
    write_end,
)
from omnigraph.intents.plan_codec import SavedPlan
from omnigraph.intents.states import IntentFolder, IntentState, list_intents, read_intent
from omnigraph.log.commit_record import CommitKind, CommitRecord
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stream import StreamEntry
from omnigraph.storage.backend import Backend

RECOVERY_ACTOR = "omnigraph:recovery"
_TRIES = 8

RestoreConflictCheck = Callable[[GraphRuntime, SavedPlan], ConflictCheck]
RecoveryVerdict = Literal["live", "waiting", "ended", "rolled_forward", "rolled_back"]
IntentClass = Literal[
    "live", "published", "confirmed", "conflicting", "unconfirmed", "given_up", "branch_deleted", "ended"
]


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What recovery made of one intent. `waiting` means that it could not be ended yet, for the reason given."""

    op_id: str
    operation: str
    branch: str
    actor: str | None
    verdict: RecoveryVerdict
    class_: IntentClass
    reason: str | None = None
    commit_id: str | None = None
    audit: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.op_id,
            "operation": self.operation,
            "branch": self.branch,
            "actor": self.actor,
            "verdict": self.verdict,
            "class": self.class_,
            "reason": self.reason,
            "commit_id": self.commit_id,
            "audit": self.audit,
        }


class Recovery:
    """One look at all intents of a graph. `holders` are the claims of the caller, by stream.

    `judge_of` makes the judge of a saved plan anew, where its operation had one; without it the footprint decides,
    which refuses more.
    """

    def __init__(
        self,
        site: GraphRuntime,
        holders: Mapping[str, str] | None = None,
        *,
        judge_of: RestoreConflictCheck | None = None,
    ) -> None:
        self._site = site
        self._holders = dict(holders or {})
        self._judge_of = judge_of

    @property
    def _backend(self) -> Backend:
        return self._site.backend

    def run(self, *, now: str | None = None, listed: list[IntentFolder] | None = None) -> list[RecoveryResult]:
        """End what can be ended; `now` names an intent for which nobody need wait any longer.

        Raises Corruption or Unsupported for an intent that cannot be read, after all others were dealt with.
        """
        found = list_intents(self._backend.store) if listed is None else listed
        pending = [one for one in found if one.is_whole and (not one.has_ended or one.op_id == now)]
        if now is not None and not any(one.op_id == now for one in pending):
            raise NotFound(f"there is no intent {now}", code="intent_not_found", advice="See `recover --list`", id=now)
        if not pending:
            return []
        moment = store_now(self._backend)
        done: list[RecoveryResult] = []
        unreadable: list[Corruption | Unsupported] = []
        for one in pending:
            try:
                state = read_intent(self._backend, one)
            except (Corruption, Unsupported) as error:
                unreadable.append(_unreadable(one, error))
                continue
            done.append(self._recover(state, moment, forced=one.op_id == now))
        if unreadable:
            raise unreadable[0]
        return done

    def _recover(self, state: IntentState, moment: datetime, *, forced: bool) -> RecoveryResult:
        if state.ending is not None:
            return _told(state, "ended", "ended", state.ending.reason, state.ending.commit_id)
        if not forced and state.is_live(moment, self._backend.config.recovery_grace):
            return _told(state, "live", "live")
        try:
            return self._end(state, forced=forced)
        except (WriterFenced, Contention) as error:
            return _told(state, "waiting", _class_so_far(state), error.message)

    def _end(self, state: IntentState, *, forced: bool) -> RecoveryResult:
        op_id = state.opening.op_id
        line = _OpenStream.open(self._site, state.opening.stream, self._holders)
        known = intent_answer(line.snapshot(), op_id) if line else None
        if known is not None:
            writer, commit_id = known
            if writer == op_id:
                return self._close_as_published(state, line, "published", commit_id)
            return self._give_up(state, line, _class_so_far(state), "it was rolled back before")
        decision = self._decided(state)
        if isinstance(decision, IntentAborted):
            return self._give_up(state, line, "unconfirmed", decision.reason)
        if state.decision is None and not forced:
            return _told(state, "live", "live")  # its driver confirmed it this very moment
        self._backend.pauses.reach("recovery.decided")
        if line is None:
            return self._give_up(state, None, "branch_deleted", f"branch {state.opening.branch!r} was deleted")
        if take_over(self._backend, op_id, "recovery") == "driver":
            return self._give_up(state, line, "given_up", "its driver gave it up")
        return self._roll_forward(state, decision, line)

    def _decided(self, state: IntentState) -> IntentDecision:
        if state.decision is not None:
            return state.decision
        reason = f"nothing was confirmed, and no sign of life since {state.folder.last_sign_at.isoformat()}"
        return decide_aborted(self._backend, state.opening.op_id, reason, RECOVERY_ACTOR)

    def _roll_forward(self, state: IntentState, decision: IntentConfirmed, line: _OpenStream) -> RecoveryResult:
        """Publish the plan on the newest record, as often as others are faster and it still holds."""
        saved, stale = decision.plan, PlanConflict(None, "other commits were faster each time")
        for _ in range(_TRIES):
            head = line.publisher.refresh()
            tested = line.test(self._judged(saved, head))
            if isinstance(tested, str):
                return self._close_as_published(state, line, "published", tested)
            if tested is not None:
                return self._give_up(state, line, "conflicting", tested.reason)
            self._backend.pauses.reach("recovery.tested")
            outcome = publish_staged(self._backend, line.publisher, self._plan(saved, state.opening, head))
            self._backend.pauses.reach("recovery.published")
            if isinstance(outcome, PlanPublished):
                return self._close_as_published(state, line, "confirmed", outcome.record.commit_id)
            if isinstance(outcome, NothingToFold):
                return self._give_up(state, line, "conflicting", "all tables have moved on without it")
            if isinstance(outcome, PlanFailed) and isinstance(outcome.error, BranchClosed):
                return self._give_up(state, None, "branch_deleted", outcome.error.message)
            if isinstance(outcome, PlanFailed):
                raise outcome.error
            assert isinstance(outcome, PlanStale)
            stale = outcome.hit
        return self._give_up(state, line, "conflicting", stale.reason)

    def _judged(self, saved: SavedPlan, head: CommitRecord) -> tuple[SavedPlan, PublishPlan]:
        """The plan as it is to be tested. A judge that finds the staged files gone has found a reason as well."""
        plan = saved.on(head, self._site.catalogs)
        if self._judge_of is None or not saved.judged or head.schema != saved.schema:
            return saved, plan
        judge = cache(partial(self._judge_of, self._site, saved))

        def careful(record: CommitRecord) -> PlanConflict | None:
            try:
                return judge()(record)
            except NotFound as error:
                return PlanConflict(None, f"what it staged is gone: {error.message}")

        return saved, replace(plan, conflict_check=careful)

    def _plan(self, saved: SavedPlan, opening: IntentOpening, head: CommitRecord) -> PublishPlan:
        plan = saved.on(head, self._site.catalogs)
        told = {"recovery_for": opening.actor, "operation_id": opening.op_id}
        return replace(
            plan,
            options=replace(plan.options, actor=RECOVERY_ACTOR),
            holder=self._holders.get(head.stream),
            extra={**(plan.extra or {}), **told},
        )

    def _close_as_published(
        self, state: IntentState, line: _OpenStream | None, class_: IntentClass, commit_id: str
    ) -> RecoveryResult:
        """It is published: audit that, once, and end the intent."""
        facts = self._facts(state, "rolled_forward", class_, None, commit_id)
        audit = self._audit(line, state.opening, facts)
        write_end(self._backend, state.opening.op_id, IntentEnding("done", commit_id, None))
        return _told(state, "rolled_forward", class_, None, commit_id, audit)

    def _give_up(
        self, state: IntentState, line: _OpenStream | None, class_: IntentClass, reason: str
    ) -> RecoveryResult:
        """It will never be published: say so in the log, which from then on refuses it, and end the intent."""
        facts = self._facts(state, "rolled_back", class_, reason, None)
        try:
            audit = self._audit(line, state.opening, facts)
        except _LandedAfterAll as landed:
            return self._close_as_published(state, line, "published", landed.commit_id)
        write_end(self._backend, state.opening.op_id, IntentEnding("abandoned", None, reason))
        return _told(state, "rolled_back", class_, reason, None, audit)

    def _audit(self, line: _OpenStream | None, opening: IntentOpening, facts: Mapping[str, Any]) -> str | None:
        """The audit's commit. That of an operation whose branch is gone is kept on `main`."""
        self._backend.pauses.reach("recovery.before-audit")
        own = line or _OpenStream.open(self._site, self._site.stamp.main_stream, self._holders)
        assert own is not None
        options = WriteOptions(
            actor=RECOVERY_ACTOR,
            message=f"{opening.operation} {opening.op_id} {facts['recovery_kind'].replace('_', ' ')}",
            client_key=f"recovery:{opening.op_id}",
        )
        operation = _AuditOperation(self._backend, opening.op_id, facts, own_stream=line is not None)
        receipt = own.writer.run(operation, options, own.holder)
        self._backend.pauses.reach("recovery.audited")
        return receipt.commit_id

    def _facts(
        self, state: IntentState, kind: str, class_: IntentClass, reason: str | None, commit_id: str | None
    ) -> dict[str, Any]:
        opening = state.opening
        return {
            "recovery_kind": kind,
            "recovery_for_actor": opening.actor,
            "operation_id": opening.op_id,
            "operation": opening.operation,
            "class": class_,
            "reason": reason,
            "branch": opening.branch,
            "base": opening.base,
            "commit_id": commit_id,
            "tables": self._tables(state, published=commit_id is not None),
        }

    def _tables(self, state: IntentState, *, published: bool) -> dict[str, Any]:
        """What became of every table of the plan. A plan that was never confirmed had told of none."""
        if not isinstance(state.decision, IntentConfirmed):
            return {}
        saved = state.decision.plan
        names = self._site.catalogs.get(saved.catalog or saved.schema).by_id
        moves, actions = saved.moves, {one.table: one for one in saved.actions}
        return {
            names[table].table_key if table in names else table: {
                "outcome": "published" if published else "unnamed",
                "staged_version": moves[table].version if table in moves else None,
                **_counts(actions.get(table)),
            }
            for table in sorted({*moves, *actions})
        }


class _OpenStream:
    """One open stream, ready to be written to."""

    def __init__(self, site: GraphRuntime, publisher: Publisher, holder: str | None) -> None:
        self._site = site
        self.publisher = publisher
        self.holder = holder
        folder = Folder(site.backend, publisher, site.schema_of)
        self.writer = Writer(site.backend, site.catalogs, publisher, folder)

    @classmethod
    def open(cls, site: GraphRuntime, stream: str, holders: Mapping[str, str]) -> _OpenStream | None:
        """None if the stream has ended, or never was."""
        try:
            head = site.records(stream).newest()
        except BranchClosed:
            return None
        if head is None or head.kind == "close":
            return None
        publisher = site.publisher(head)
        publisher.refresh()
        return cls(site, publisher, holders.get(stream))

    def snapshot(self) -> Snapshot:
        head = self.publisher.head
        return Snapshot(self._site.backend, head, self._site.catalogs.get(head.schema))

    def test(self, tested: tuple[SavedPlan, PublishPlan]) -> str | PlanConflict | None:
        """The commit that published the plan, or why it does not hold on its new base, or None if it does.

        Every record since its base is looked at, however many: the plan cannot be made anew. One that published it
        counts also when a later one would have refused it.
        """
        saved, plan = tested
        head = plan.base
        hit = PlanConflict(None, "the schema changed") if head.schema != saved.schema else None
        for entry in self._since(saved.base.seq, head):
            if is_published_in(entry, saved.op_id):
                return entry.commit_id
            hit = hit or find_plan_conflict(plan, entry)
        return hit

    def _since(self, seq: int, head: CommitRecord) -> Iterator[StreamEntry]:
        while seq < head.seq:
            ahead = self.publisher.records.read_ahead(seq + 1)
            if not ahead:
                raise Corruption(f"record {head.stream}.{seq + 1} is missing", advice="Run `omnigraph verify`")
            yield from (one for one in ahead if one.seq <= head.seq)
            seq = ahead[-1].seq


class _LandedAfterAll(Exception):
    """The operation was published while its end was prepared."""

    def __init__(self, commit_id: str) -> None:
        super().__init__(commit_id)
        self.commit_id = commit_id


class _AuditOperation:
    """The record that tells what recovery did. One that tells of a roll-back also keeps the operation out for good."""

    kind: CommitKind = "recovery"

    def __init__(self, backend: Backend, intent: str, facts: Mapping[str, Any], *, own_stream: bool) -> None:
        self.op_id = backend.ids.ulid()
        self._intent = intent
        self._facts = facts
        self._fences = own_stream and facts["recovery_kind"] == "rolled_back"

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        plan = PublishPlan(self.kind, self.op_id, txn.record, extra=self._facts)
        if not self._fences:
            return plan
        known = intent_answer(txn.snapshot, self._intent)
        if known is not None and known[0] == self._intent:
            raise _LandedAfterAll(known[1])
        return with_intent_claim(plan, self._intent)


def _counts(action: TableAction | None) -> dict[str, int]:
    if action is None:
        return {}
    return {"inserted": action.inserted, "updated": action.updated, "deleted": action.removed}


def _class_so_far(state: IntentState) -> IntentClass:
    return "confirmed" if isinstance(state.decision, IntentConfirmed) else "unconfirmed"


def _told(
    state: IntentState,
    verdict: RecoveryVerdict,
    class_: IntentClass,
    reason: str | None = None,
    commit_id: str | None = None,
    audit: str | None = None,
) -> RecoveryResult:
    opening = state.opening
    return RecoveryResult(
        opening.op_id, opening.operation, opening.branch, opening.actor, verdict, class_, reason, commit_id, audit
    )


def _unreadable(found: IntentFolder, error: Corruption | Unsupported) -> Corruption | Unsupported:
    """The same, as a word about an intent: what its operation wrote cannot be judged until it is readable."""
    return type(error)(
        f"the intent {found.op_id} of a bulk operation cannot be read: {error.message}",
        code="intent_unreadable",
        advice="Open the graph with read_only=True, or restore the object; moving it away gives the operation up",
        **{"id": found.op_id, **error.details},
    )
