"""The writer: takes an operation from the captured snapshot to its receipt.

One attempt captures the newest known record, prepares a plan on that snapshot, stages large changes as table versions,
and publishes the plan (`Writer._attempt`). An operation is a function of the state it runs on. So when another commit
conflicts with its plan, the writer runs the operation again on the newest record, unless the caller asked to decide
itself. Every answer that makes no commit is given only after the store has said that no newer record exists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

from omnigraph.commit.back_pressure import NEEDS_OPTIMIZE, pressure_wait_s
from omnigraph.commit.birth import create_object
from omnigraph.commit.fold import Folder, must_fold_first
from omnigraph.commit.footprint import PlanConflict
from omnigraph.commit.idempotency import check_client_key, find_earlier_receipt, find_intent_outcome, with_key_claim
from omnigraph.commit.publish_plan import PublishPlan, Receipt, WriteOptions, WriteTxn
from omnigraph.commit.publisher import (
    PlanFailed,
    PlanPublished,
    PlanStale,
    Publisher,
    PublishOutcome,
    TableMoved,
    find_fence,
)
from omnigraph.commit.staging import restage_moved, rides_inline, stage_actions
from omnigraph.errors import (
    Conflict,
    Contention,
    Corruption,
    IntentEnded,
    InvalidInput,
    NotFound,
    OmnigraphError,
    PreconditionFailed,
    ReadSetChanged,
    WriterFenced,
)
from omnigraph.log.commit_record import CommitKind, CommitRecord, parse_commit_id
from omnigraph.log.snapshot import Catalogs, Snapshot, schema_key
from omnigraph.log.stream import StreamEntry
from omnigraph.storage.backend import Backend

_SNAPSHOT_ERRORS = (Conflict, InvalidInput, NotFound, PreconditionFailed, WriterFenced, Corruption)
"""Errors that are only true of the snapshot they were found on. Corruption is one of them: cleanup may have collected
the files that an old snapshot names."""


class Operation(Protocol):
    """A verb with its arguments, as a function from a snapshot to the change it would make."""

    kind: CommitKind
    op_id: str

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        """The plan, or a receipt without a commit if there is nothing to do. Has no effects."""


@runtime_checkable
class RecoverableOperation(Protocol):
    """An operation under an intent: it stores its staged plan before the plan is published.

    If this process dies in between, recovery can publish the stored plan.
    """

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        """Store the staged plan; returns the plan to publish. Raises IntentEnded if recovery ended the operation."""


class PreparedOperation:
    """An operation whose plan was prepared before, by a transaction that the caller ran step by step."""

    def __init__(self, plan: PublishPlan) -> None:
        self.kind = plan.kind
        self.op_id = plan.op_id
        self._plan = plan

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        assert txn.record is self._plan.base
        return self._plan


class Writer:
    """Runs operations on one branch. All handles of a process share it; each handle passes its own `holder`.

    `holder` is the token of a handle that holds the branch exclusively; None for any other handle.
    """

    def __init__(self, backend: Backend, catalogs: Catalogs, publisher: Publisher, folder: Folder) -> None:
        self._backend = backend
        self._catalogs = catalogs
        self._publisher = publisher
        self._folder = folder

    def run(self, operation: Operation, options: WriteOptions, holder: str | None = None) -> Receipt:
        """Run the operation until it is published or has nothing to do; raises Contention when the budget is spent."""
        if options.client_key is not None:
            check_client_key(options.client_key, self._backend.clock.now(), self._backend.config.idempotency_days)
        attempts = _Attempts(self._backend)
        while True:
            self._make_room(holder)
            head = attempts.newest_seen or self._publisher.head
            answer = self._attempt(operation, options, holder, head, attempts)
            if isinstance(answer, Receipt):
                return answer
            if isinstance(answer, PlanStale):
                self._decide_stale(answer.conflict, options, head)
            attempts.add(table_work=attempts.has_staged)

    def begin(self, options: WriteOptions, holder: str | None = None) -> tuple[WriteTxn, Receipt | None]:
        """Capture the newest state for a transaction that the caller runs step by step.

        The second value is the receipt of an earlier write with the same client key, if there was one.
        """
        if options.client_key is not None:
            check_client_key(options.client_key, self._backend.clock.now(), self._backend.config.idempotency_days)
        head = self._publisher.refresh()
        self._check_fence("mutate", "", head, holder)
        replay = self._replay(head, options)
        if replay is None and options.if_commit is not None:
            _check_precondition(head, options.if_commit)
        return WriteTxn(self._snapshot(head)), replay

    def preview(self, operation: Operation) -> PublishPlan | Receipt:
        """What the operation would do to the newest state. Nothing is written."""
        return operation.prepare(WriteTxn(self._snapshot(self._publisher.refresh())))

    def run_once(self, plan: PublishPlan, options: WriteOptions, holder: str | None = None) -> Receipt:
        """Publish a plan that was prepared on a captured state, in one attempt.

        Raises ReadSetChanged instead of trying again, because the caller has acted on what it read there.
        """
        base = plan.base
        prepared = PreparedOperation(plan)
        answer = self._attempt(prepared, options, holder, base, _Attempts(self._backend))
        if isinstance(answer, Receipt):
            return answer
        head = self._publisher.refresh()
        replay = self._replay(head, options)
        if replay is not None:
            return replay
        if options.if_commit is not None:
            _check_precondition(head, options.if_commit)
        conflict = answer.conflict if answer else PlanConflict(None, "other commits landed since the transaction began")
        raise _read_set_changed_error(conflict, self._catalogs, base, head)

    def _attempt(
        self, operation: Operation, options: WriteOptions, holder: str | None, head: CommitRecord, attempts: _Attempts
    ) -> Receipt | PlanStale | None:
        """Prepare, stage and publish once from `head`. None means that `head` was not the newest record: try again."""
        try:
            prepared = self._prepare(operation, options, holder, head)
            if isinstance(prepared, Receipt):
                return prepared if prepared.replayed or self._holds_now(head, attempts) else None
            self._wait_under_pressure(prepared, head, attempts)
            plan = self._stage(prepared, attempts)
        except OmnigraphError as error:
            if not _depends_on_snapshot(error) or self._holds_now(head, attempts):
                raise
            return None
        attempts.newest_seen = None
        if isinstance(operation, RecoverableOperation):
            plan = operation.confirm(plan)
            ended_in = find_intent_outcome(self._snapshot(plan.base), plan.op_id) if plan.ops_row_ids else None
            if ended_in is not None:
                return _answer_for_ended(plan, *ended_in)
        outcome = _publish(self._backend, self._publisher, plan, attempts)
        if isinstance(outcome, PlanFailed):
            raise outcome.error
        if isinstance(outcome, PlanPublished):
            self._fold_after(outcome.record, holder)
            return _make_receipt(plan, outcome.record, attempts)
        assert isinstance(outcome, PlanStale)
        return outcome

    def _make_room(self, holder: str | None) -> None:
        """Fold first if the overlay has reached the hard bound.

        A fold that misses files is an error only if the head is still the newest record: cleanup may have collected
        the files of an older one.
        """
        head = self._publisher.head
        if not must_fold_first(head, self._backend.config):
            return
        try:
            self._folder.fold_if_over(holder)
        except (Corruption, NotFound):
            if self._publisher.refresh() is head:
                raise

    def _wait_under_pressure(self, plan: PublishPlan, head: CommitRecord, attempts: _Attempts) -> None:
        """Let a small write wait, once, if its tables need an optimize. Bulk work makes no small fragments."""
        if plan.kind != "mutate" or attempts.waited_s:
            return
        attempts.waited_s = pressure_wait_s(head, (action.table for action in plan.actions), self._backend.config)
        if attempts.waited_s:
            self._backend.clock.sleep(attempts.waited_s)

    def _holds_now(self, head: CommitRecord, attempts: _Attempts) -> bool:
        """Whether `head` was the newest record at some moment since the call began.

        If so, an answer that was found on `head` is right, though no commit proves it. If not, the next attempt runs
        on the record that was read here, and its answer needs no further read.
        """
        if attempts.newest_seen is head:
            return True
        attempts.newest_seen = self._publisher.refresh()
        return attempts.newest_seen is head

    def _prepare(
        self, operation: Operation, options: WriteOptions, holder: str | None, head: CommitRecord
    ) -> PublishPlan | Receipt:
        snapshot = self._snapshot(head)
        self._backend.pauses.reach("write.captured")
        self._check_fence(operation.kind, operation.op_id, head, holder)
        replay = self._replay(head, options)
        if replay is not None:
            return replay
        if options.if_commit is not None:
            _check_precondition(head, options.if_commit)
        plan = operation.prepare(WriteTxn(snapshot))
        self._backend.pauses.reach("write.validated")
        if isinstance(plan, Receipt):
            return plan
        plan = replace(plan, options=options, holder=holder)
        if options.client_key is not None:
            plan = replace(plan, footprint=with_key_claim(plan.footprint, head.stream, options.client_key))
        return plan

    def _check_fence(self, kind: CommitKind, op_id: str, head: CommitRecord, holder: str | None) -> None:
        fence = find_fence(PublishPlan(kind, op_id, head, holder=holder), head)
        if fence is not None:
            raise fence

    def _stage(self, plan: PublishPlan, attempts: _Attempts) -> PublishPlan:
        if plan.catalog is not None:
            create_object(self._backend, schema_key(plan.catalog.hash), plan.catalog.encode())
            self._catalogs.remember(plan.catalog)
        has_staged_files = any(action.move is not None and action.adopted is None for action in plan.actions)
        stageable = [action for action in plan.actions if action.adopted is None]
        if not stageable or (not has_staged_files and rides_inline(stageable, self._backend.config)):
            return plan
        attempts.has_staged = True
        plan = replace(plan, actions=stage_actions(self._backend, plan.base, plan.actions))
        self._backend.pauses.reach("write.staged")
        return plan

    def _decide_stale(self, conflict: PlanConflict, options: WriteOptions, base: CommitRecord) -> None:
        """Raise ReadSetChanged if the caller asked for it; return if the operation is to run again.

        With `if_commit` the next attempt raises PreconditionFailed, unless the client key has a receipt already.
        """
        head = self._publisher.head
        if options.on_conflict == "fail" and options.if_commit is None and self._replay(head, options) is None:
            raise _read_set_changed_error(conflict, self._catalogs, base, head)

    def _replay(self, head: CommitRecord, options: WriteOptions) -> Receipt | None:
        """The receipt of an earlier write with the same client key, if there was one."""
        if options.client_key is None:
            return None
        return find_earlier_receipt(self._snapshot(head), options.client_key)

    def _snapshot(self, head: CommitRecord) -> Snapshot:
        return Snapshot(self._backend, head, self._catalogs.get(head.schema))

    def _fold_after(self, record: StreamEntry, holder: str | None) -> None:
        """Fold if this process volunteers. The write is acknowledged whether or not the fold succeeds."""
        if not (isinstance(record, CommitRecord) and self._folder.wants_volunteer(record)):
            return
        if self._backend.config.fold == "auto":
            self._backend.in_background(lambda: self._folder.fold_if_free(holder))
            return
        try:
            self._folder.fold(holder)
        except OmnigraphError:
            return


def publish_staged(backend: Backend, publisher: Publisher, plan: PublishPlan) -> PublishOutcome:
    """Publish a plan that was prepared and staged before, perhaps by another process. Raises Contention."""
    attempts = _Attempts(backend)
    attempts.has_staged = True
    return _publish(backend, publisher, plan, attempts)


def _publish(backend: Backend, publisher: Publisher, plan: PublishPlan, attempts: _Attempts) -> PublishOutcome:
    """Publish the plan; while only pins of its tables moved, commit the staged files on the new pins and try again."""
    while True:
        outcome = publisher.publish(plan, attempts.deadline_to_publish())
        if not isinstance(outcome, TableMoved):
            return outcome
        if any(action.needs_exact_pin for action in plan.actions):
            return PlanStale(PlanConflict(outcome.table, "a fold or compaction moved the table"))
        attempts.add(table_work=True)
        actions = restage_moved(backend, outcome.tested, plan.actions)
        plan = replace(plan, base=outcome.tested, actions=actions)
        backend.pauses.reach("write.restaged")


class _Attempts:
    """The budget of one write: how often it was tried, and until when it may be tried again."""

    def __init__(self, backend: Backend) -> None:
        self._clock = backend.clock
        self._config = backend.config
        self._deadline: float | None = None
        self.attempt_number = 1
        self.table_work_count = 0
        self.has_staged = False
        self.waited_s = 0.0
        self.newest_seen: CommitRecord | None = None  # was the newest record at some moment since the call began

    def deadline_to_publish(self) -> float:
        """The deadline of the next publish. Time spent on staging does not count, time spent on lost races does."""
        if self._deadline is None or self.has_staged:
            self._deadline = self._clock.monotonic() + self._config.publish_deadline_s
        return self._deadline

    def add(self, *, table_work: bool) -> None:
        """Count a further attempt. Raises Contention if the budget does not allow it."""
        self.attempt_number += 1
        self.table_work_count += table_work
        too_many = (
            self.attempt_number > self._config.publish_max_rounds
            or self.table_work_count > self._config.publish_max_prepares
        )
        too_late = self._deadline is not None and not self.has_staged and self._clock.monotonic() >= self._deadline
        if too_many or too_late:
            raise Contention(
                f"the write was prepared {self.attempt_number - 1} times and other writers were faster each time; "
                "nothing was written",
                advice="Retry later, or send fewer writers to the same rows",
                attempts=self.attempt_number - 1,
            )


def _depends_on_snapshot(error: OmnigraphError) -> bool:
    return isinstance(error, _SNAPSHOT_ERRORS) or error.code == NEEDS_OPTIMIZE


def _check_precondition(head: CommitRecord, if_commit: str) -> None:
    """Raise PreconditionFailed unless `if_commit` is still the state of the branch: no later commit changed any row."""
    stream, seq = parse_commit_id(if_commit)
    if stream != head.stream or not head.content_seq <= seq <= head.seq:
        raise PreconditionFailed(
            f"the branch is at {head.commit_id}, not at {if_commit}",
            advice="Read again and decide anew",
            expected=if_commit,
            actual=head.commit_id,
        )


def _read_set_changed_error(
    conflict: PlanConflict, catalogs: Catalogs, base: CommitRecord, head: CommitRecord
) -> ReadSetChanged:
    if conflict.table is None:
        return ReadSetChanged(f"{conflict.reason}; refresh and retry")
    expected, actual = (
        record.pins[conflict.table].changed_seq if conflict.table in record.pins else 0 for record in (base, head)
    )
    type_def = catalogs.get(base.schema).by_id.get(conflict.table)
    return ReadSetChanged.on_table(type_def.table_key if type_def else conflict.table, expected, actual)


def _make_receipt(plan: PublishPlan, record: StreamEntry, attempts: _Attempts) -> Receipt:
    return Receipt(
        record.commit_id, plan.counts, plan.result, attempts=attempts.attempt_number, waited_s=attempts.waited_s
    )


def _answer_for_ended(plan: PublishPlan, writer: str, commit_id: str) -> Receipt:
    """The receipt of an operation that recovery has published. Raises IntentEnded if recovery rolled it back."""
    if writer == plan.op_id:
        return Receipt(commit_id, plan.counts, plan.result, replayed=True)
    raise IntentEnded(
        f"the operation was rolled back by recovery in commit {commit_id}; nothing of it is visible",
        advice="Run it again; if it was merely slow, raise OMNIGRAPH_RECOVERY_GRACE",
        op_id=plan.op_id,
        commit_id=commit_id,
    )
