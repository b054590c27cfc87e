"""Recovery: ends the bulk operations whose process is gone. It publishes a plan or gives it up; it deletes nothing.

| an intent that                                            | is                                                    |
|-----------------------------------------------------------|-------------------------------------------------------|
| gave a sign of life within the grace, by the store's clock | live: left alone                                      |
| has its row in `_ops`, or its op id in a record            | published: ended, audited as rolled forward           |
| is confirmed and holds on the newest record                | published now, by the publisher like any other plan   |
| is confirmed and does not hold                             | rolled back: a plan is never prepared without its input |
| is not confirmed                                           | aborted and rolled back                               |
| cannot be read                                             | left in place, and raised as an error                 |

Any number of processes may recover at once. Publishing and rolling back both claim the operation's row in `_ops`, so
only one of them can land. The audit is a record under the client key `recovery:<op id>`, so only one audit can land.

The walk of one intent: `Recovery.run` reads it, `_recover` leaves it alone or ends it, `_end` decides how, and
`_roll_forward`, `_close_as_published` or `_give_up` carry the decision out.
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
from omnigraph.commit.idempotency import find_intent_outcome, with_intent_claim
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
    """What recovery did with one intent. `waiting` means that it could not be ended yet, for the reason given."""

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
    """Ends the intents of a graph whose drivers are gone. `holders` are the caller's holder tokens by stream.

    `restore_conflict_check` makes the conflict check of a saved plan again, if its operation had one. Without it the
    footprint decides, which refuses more plans.
    """

    def __init__(
        self,
        runtime: GraphRuntime,
        holders: Mapping[str, str] | None = None,
        *,
        restore_conflict_check: RestoreConflictCheck | None = None,
    ) -> None:
        self._runtime = runtime
        self._holders = dict(holders or {})
        self._restore_conflict_check = restore_conflict_check

    @property
    def _backend(self) -> Backend:
        return self._runtime.backend

    def run(self, *, now: str | None = None, folders: list[IntentFolder] | None = None) -> list[RecoveryResult]:
        """End every intent that can be ended. `now` names an intent to end at once, even if its driver seems alive.

        Raises Corruption or Unsupported for an intent that cannot be read, after all others were dealt with.
        """
        listed_folders = list_intents(self._backend.store) if folders is None else folders
        opened = [folder for folder in listed_folders if folder.has_opening]
        pending = [folder for folder in opened if not folder.has_ended or folder.op_id == now]
        if now is not None and not any(folder.op_id == now for folder in pending):
            raise NotFound(f"there is no intent {now}", code="intent_not_found", advice="See `recover --list`", id=now)
        if not pending:
            return []
        moment = store_now(self._backend)
        results: list[RecoveryResult] = []
        unreadable: list[Corruption | Unsupported] = []
        for folder in pending:
            try:
                state = read_intent(self._backend, folder)
            except (Corruption, Unsupported) as error:
                unreadable.append(_unreadable_intent_error(folder, error))
                continue
            results.append(self._recover(state, moment, forced=folder.op_id == now))
        if unreadable:
            raise unreadable[0]
        return results

    def _recover(self, state: IntentState, moment: datetime, *, forced: bool) -> RecoveryResult:
        if state.ending is not None:
            return _make_result(state, "ended", "ended", state.ending.reason, state.ending.commit_id)
        if not forced and state.is_live(moment, self._backend.config.recovery_grace):
            return _make_result(state, "live", "live")
        try:
            return self._end(state, forced=forced)
        except (WriterFenced, Contention) as error:
            return _make_result(state, "waiting", _class_so_far(state), error.message)

    def _end(self, state: IntentState, *, forced: bool) -> RecoveryResult:
        op_id = state.opening.op_id
        stream = _OpenStream.open(self._runtime, state.opening.stream, self._holders)
        logged_outcome = find_intent_outcome(stream.snapshot(), op_id) if stream else None
        if logged_outcome is not None:
            writer, commit_id = logged_outcome
            if writer == op_id:
                return self._close_as_published(state, stream, "published", commit_id)
            return self._give_up(state, stream, _class_so_far(state), "it was rolled back before")
        decision = self._decide(state)
        if isinstance(decision, IntentAborted):
            return self._give_up(state, stream, "unconfirmed", decision.reason)
        if state.decision is None and not forced:
            return _make_result(
                state, "live", "live"
            )  # the driver confirmed the plan after recovery had read the intent
        self._backend.pauses.reach("recovery.decided")
        if stream is None:
            return self._give_up(state, None, "branch_deleted", f"branch {state.opening.branch!r} was deleted")
        if take_over(self._backend, op_id, "recovery") == "driver":
            return self._give_up(state, stream, "given_up", "its driver gave it up")
        return self._roll_forward(state, decision, stream)

    def _decide(self, state: IntentState) -> IntentDecision:
        if state.decision is not None:
            return state.decision
        reason = f"nothing was confirmed, and no sign of life since {state.folder.last_sign_at.isoformat()}"
        return decide_aborted(self._backend, state.opening.op_id, reason, RECOVERY_ACTOR)

    def _roll_forward(self, state: IntentState, decision: IntentConfirmed, stream: _OpenStream) -> RecoveryResult:
        """Publish the stored plan on the newest record; again if another commit was faster and the plan still holds."""
        saved, stale = decision.plan, PlanConflict(None, "other commits were faster each time")
        for _ in range(_TRIES):
            head = stream.publisher.refresh()
            tested = stream.find_outcome(self._with_conflict_check(saved, head))
            if isinstance(tested, str):
                return self._close_as_published(state, stream, "published", tested)
            if tested is not None:
                return self._give_up(state, stream, "conflicting", tested.reason)
            self._backend.pauses.reach("recovery.tested")
            outcome = publish_staged(self._backend, stream.publisher, self._plan(saved, state.opening, head))
            self._backend.pauses.reach("recovery.published")
            if isinstance(outcome, PlanPublished):
                return self._close_as_published(state, stream, "confirmed", outcome.record.commit_id)
            if isinstance(outcome, NothingToFold):
                return self._give_up(state, stream, "conflicting", "all tables have moved on without it")
            if isinstance(outcome, PlanFailed) and isinstance(outcome.error, BranchClosed):
                return self._give_up(state, None, "branch_deleted", outcome.error.message)
            if isinstance(outcome, PlanFailed):
                raise outcome.error
            assert isinstance(outcome, PlanStale)
            stale = outcome.conflict
        return self._give_up(state, stream, "conflicting", stale.reason)

    def _with_conflict_check(self, saved: SavedPlan, head: CommitRecord) -> tuple[SavedPlan, PublishPlan]:
        """The plan on `head`, with the conflict check of its operation if it had one.

        If the check finds that the staged files are gone, that is a conflict as well.
        """
        plan = saved.on(head, self._runtime.catalogs)
        if self._restore_conflict_check is None or not saved.has_conflict_check or head.schema != saved.schema:
            return saved, plan
        restore_check = cache(partial(self._restore_conflict_check, self._runtime, saved))

        def check_conflict(record: CommitRecord) -> PlanConflict | None:
            try:
                return restore_check()(record)
            except NotFound as error:
                return PlanConflict(None, f"what it staged is gone: {error.message}")

        return saved, replace(plan, conflict_check=check_conflict)

    def _plan(self, saved: SavedPlan, opening: IntentOpening, head: CommitRecord) -> PublishPlan:
        plan = saved.on(head, self._runtime.catalogs)
        recovery_facts = {"recovery_for": opening.actor, "operation_id": opening.op_id}
        return replace(
            plan,
            options=replace(plan.options, actor=RECOVERY_ACTOR),
            holder=self._holders.get(head.stream),
            extra={**(plan.extra or {}), **recovery_facts},
        )

    def _close_as_published(
        self, state: IntentState, stream: _OpenStream | None, class_: IntentClass, commit_id: str
    ) -> RecoveryResult:
        """Audit, once, that the operation was published, and end the intent."""
        facts = self._facts(state, "rolled_forward", class_, None, commit_id)
        audit = self._audit(stream, state.opening, facts)
        write_end(self._backend, state.opening.op_id, IntentEnding("done", commit_id, None))
        return _make_result(state, "rolled_forward", class_, None, commit_id, audit)

    def _give_up(
        self, state: IntentState, stream: _OpenStream | None, class_: IntentClass, reason: str
    ) -> RecoveryResult:
        """Audit that the operation was rolled back, after which the log refuses its plan, and end the intent."""
        facts = self._facts(state, "rolled_back", class_, reason, None)
        try:
            audit = self._audit(stream, state.opening, facts)
        except _LandedAfterAll as landed:
            return self._close_as_published(state, stream, "published", landed.commit_id)
        write_end(self._backend, state.opening.op_id, IntentEnding("abandoned", None, reason))
        return _make_result(state, "rolled_back", class_, reason, None, audit)

    def _audit(self, stream: _OpenStream | None, opening: IntentOpening, facts: Mapping[str, Any]) -> str | None:
        """Publish the audit; returns its commit id. The audit of an operation whose branch is gone goes to `main`."""
        self._backend.pauses.reach("recovery.before-audit")
        audit_stream = stream or _OpenStream.open(self._runtime, self._runtime.stamp.main_stream, self._holders)
        assert audit_stream is not None
        options = WriteOptions(
            actor=RECOVERY_ACTOR,
            message=f"{opening.operation} {opening.op_id} {facts['recovery_kind'].replace('_', ' ')}",
            client_key=f"recovery:{opening.op_id}",
        )
        operation = _AuditOperation(self._backend, opening.op_id, facts, own_stream=stream is not None)
        receipt = audit_stream.writer.run(operation, options, audit_stream.holder)
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
        """What became of every table of the plan. An intent without a confirmed plan names no table."""
        if not isinstance(state.decision, IntentConfirmed):
            return {}
        saved = state.decision.plan
        names = self._runtime.catalogs.get(saved.catalog or saved.schema).by_id
        moves, actions = saved.moves, {action.table: action for action in saved.actions}
        return {
            names[table].table_key if table in names else table: {
                "outcome": "published" if published else "unnamed",
                "staged_version": moves[table].version if table in moves else None,
                **_counts(actions.get(table)),
            }
            for table in sorted({*moves, *actions})
        }


class _OpenStream:
    """One open stream with its publisher and writer. `holder` is the caller's holder token, if it holds the branch."""

    def __init__(self, runtime: GraphRuntime, publisher: Publisher, holder: str | None) -> None:
        self._runtime = runtime
        self.publisher = publisher
        self.holder = holder
        folder = Folder(runtime.backend, publisher, runtime.schema_of)
        self.writer = Writer(runtime.backend, runtime.catalogs, publisher, folder)

    @classmethod
    def open(cls, runtime: GraphRuntime, stream: str, holders: Mapping[str, str]) -> _OpenStream | None:
        """None if the stream has ended or does not exist."""
        try:
            head = runtime.records(stream).newest()
        except BranchClosed:
            return None
        if head is None or head.kind == "close":
            return None
        publisher = runtime.publisher(head)
        publisher.refresh()
        return cls(runtime, publisher, holders.get(stream))

    def snapshot(self) -> Snapshot:
        head = self.publisher.head
        return Snapshot(self._runtime.backend, head, self._runtime.catalogs.get(head.schema))

    def find_outcome(self, saved_and_plan: tuple[SavedPlan, PublishPlan]) -> str | PlanConflict | None:
        """The id of the commit that published the plan, or its conflict with a later commit, or None if it holds.

        Every record since the plan's base is read, however many there are, because the plan cannot be prepared again.
        A commit that published the plan counts even if another record conflicts with it.
        """
        saved, plan = saved_and_plan
        head = plan.base
        conflict = PlanConflict(None, "the schema changed") if head.schema != saved.schema else None
        for entry in self._since(saved.base.seq, head):
            if is_published_in(entry, saved.op_id):
                return entry.commit_id
            conflict = conflict or find_plan_conflict(plan, entry)
        return conflict

    def _since(self, seq: int, head: CommitRecord) -> Iterator[StreamEntry]:
        while seq < head.seq:
            ahead = self.publisher.records.read_ahead(seq + 1)
            if not ahead:
                raise Corruption(f"record {head.stream}.{seq + 1} is missing", advice="Run `omnigraph verify`")
            yield from (entry for entry in ahead if entry.seq <= head.seq)
            seq = ahead[-1].seq


class _LandedAfterAll(Exception):
    """The operation was published by another process while its roll-back was being prepared."""

    def __init__(self, commit_id: str) -> None:
        super().__init__(commit_id)
        self.commit_id = commit_id


class _AuditOperation:
    """Publishes the audit record of a recovery. The audit of a roll-back claims the operation's row in `_ops`.

    With that claim the operation can never land afterwards. An audit on another stream than the operation's needs none.
    """

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
        logged_outcome = find_intent_outcome(txn.snapshot, self._intent)
        if logged_outcome is not None and logged_outcome[0] == self._intent:
            raise _LandedAfterAll(logged_outcome[1])
        return with_intent_claim(plan, self._intent)


def _counts(action: TableAction | None) -> dict[str, int]:
    if action is None:
        return {}
    return {"inserted": action.inserted, "updated": action.updated, "deleted": action.removed}


def _class_so_far(state: IntentState) -> IntentClass:
    return "confirmed" if isinstance(state.decision, IntentConfirmed) else "unconfirmed"


def _make_result(
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


def _unreadable_intent_error(folder: IntentFolder, error: Corruption | Unsupported) -> Corruption | Unsupported:
    """The error with the id of the intent, whose operation cannot be ended while the intent is unreadable."""
    return type(error)(
        f"the intent {folder.op_id} of a bulk operation cannot be read: {error.message}",
        code="intent_unreadable",
        advice="Open the graph with read_only=True, or restore the object; moving it away gives the operation up",
        **{"id": folder.op_id, **error.details},
    )
