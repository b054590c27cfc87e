"""From an operation to its answer: capture, prepare, stage, publish; again from the newest record if it must be.

An operation is a function of the state it runs on. So when another commit invalidates its plan, running it again
is serial and right, unless the caller asked to decide for itself. Every answer that makes no commit is given only
after the store has said that no newer record exists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

from omnigraph.commit.back_pressure import NEEDS_OPTIMIZE, pressure_wait_s
from omnigraph.commit.birth import create_object
from omnigraph.commit.fold import Folder, must_fold_first
from omnigraph.commit.footprint import PlanConflict
from omnigraph.commit.idempotency import check_client_key, earlier_answer, intent_answer, with_key_claim
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

_NEGATIVE = (Conflict, InvalidInput, NotFound, PreconditionFailed, WriterFenced, Corruption)
"""Answers that are only true of the snapshot they were found on: what an old one lacks may have been collected."""


class Operation(Protocol):
    """A verb with its arguments: what it would do to a given snapshot."""

    kind: CommitKind
    op_id: str

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        """The plan, or a receipt without commit if there is nothing to do. Raises typed errors. No effects."""


@runtime_checkable
class RecoverableOperation(Protocol):
    """An operation that leaves its staged plan behind before it is published, so that its work outlives it."""

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        """The plan to publish. Raises if somebody has ended the operation meanwhile."""


class PreparedOperation:
    """A plan that was made already, as an operation."""

    def __init__(self, plan: PublishPlan) -> None:
        self.kind = plan.kind
        self.op_id = plan.op_id
        self._plan = plan

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        assert txn.record is self._plan.base
        return self._plan


class Writer:
    """Runs operations on one branch. Shared by all handles of a process; `holder` differs by handle."""

    def __init__(self, backend: Backend, catalogs: Catalogs, publisher: Publisher, folder: Folder) -> None:
        self._backend = backend
        self._catalogs = catalogs
        self._publisher = publisher
        self._folder = folder

    def run(self, operation: Operation, options: WriteOptions, holder: str | None = None) -> Receipt:
        """The operation's answer, after as many attempts as the budget allows."""
        if options.client_key is not None:
            check_client_key(options.client_key, self._backend.clock.now(), self._backend.config.idempotency_days)
        attempts = _Attempts(self._backend)
        while True:
            self._make_room(holder)
            head = attempts.confirmed or self._publisher.head
            answer = self._attempt(operation, options, holder, head, attempts)
            if isinstance(answer, Receipt):
                return answer
            if isinstance(answer, PlanStale):
                self._decide_stale(answer.hit, options, head)
            attempts.count(table_work=attempts.staged)

    def begin(self, options: WriteOptions, holder: str | None = None) -> tuple[WriteTxn, Receipt | None]:
        """The newest state, for a transaction that the caller runs step by step; or the answer its key had before."""
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
        """Publish what was prepared on a captured state, or raise: the caller acted on what it read there."""
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
        hit = answer.hit if answer else PlanConflict(None, "other commits landed since the transaction began")
        raise _read_set_changed(hit, self._catalogs, base, head)

    def _attempt(
        self, operation: Operation, options: WriteOptions, holder: str | None, head: CommitRecord, attempts: _Attempts
    ) -> Receipt | PlanStale | None:
        """One try from `head`. None means: the head was old, look again."""
        try:
            prepared = self._prepare(operation, options, holder, head)
            if isinstance(prepared, Receipt):
                return prepared if prepared.replayed or self._holds_now(head, attempts) else None
            self._wait_under_pressure(prepared, head, attempts)
            plan = self._staged(prepared, attempts)
        except OmnigraphError as error:
            if not _is_negative(error) or self._holds_now(head, attempts):
                raise
            return None
        attempts.confirmed = None
        if isinstance(operation, RecoverableOperation):
            plan = operation.confirm(plan)
            known = intent_answer(self._snapshot(plan.base), plan.op_id) if plan.answers else None
            if known is not None:
                return _ended_elsewhere(plan, *known)
        outcome = _publish(self._backend, self._publisher, plan, attempts)
        if isinstance(outcome, PlanFailed):
            raise outcome.error
        if isinstance(outcome, PlanPublished):
            self._fold_after(outcome.record, holder)
            return _receipt(plan, outcome.record, attempts)
        assert isinstance(outcome, PlanStale)
        return outcome

    def _make_room(self, holder: str | None) -> None:
        """Fold first if the overlay is full. What an old record names may be gone: then the newest one counts."""
        head = self._publisher.head
        if not must_fold_first(head, self._backend.config):
            return
        try:
            self._folder.fold_if_over(holder)
        except (Corruption, NotFound):
            if self._publisher.refresh() is head:
                raise

    def _wait_under_pressure(self, plan: PublishPlan, head: CommitRecord, attempts: _Attempts) -> None:
        """Small writes wait, once, on tables that optimize should look after; bulk work makes no small fragments."""
        if plan.kind != "mutate" or attempts.waited_s:
            return
        attempts.waited_s = pressure_wait_s(head, (one.table for one in plan.actions), self._backend.config)
        if attempts.waited_s:
            self._backend.clock.sleep(attempts.waited_s)

    def _holds_now(self, head: CommitRecord, attempts: _Attempts) -> bool:
        """Whether `head` was the newest record at some moment since the call began.

        Then an answer found on it is right, though no commit proves it. If not, the newest record is what the next
        attempt runs on, and its answer needs no further look.
        """
        if attempts.confirmed is head:
            return True
        attempts.confirmed = self._publisher.refresh()
        return attempts.confirmed is head

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

    def _staged(self, plan: PublishPlan, attempts: _Attempts) -> PublishPlan:
        if plan.catalog is not None:
            create_object(self._backend, schema_key(plan.catalog.hash), plan.catalog.encode())
            self._catalogs.remember(plan.catalog)
        elsewhere = any(one.move is not None and one.adopted is None for one in plan.actions)
        own = [one for one in plan.actions if one.adopted is None]
        if not own or (not elsewhere and rides_inline(own, self._backend.config)):
            return plan
        attempts.staged = True
        plan = replace(plan, actions=stage_actions(self._backend, plan.base, plan.actions))
        self._backend.pauses.reach("write.staged")
        return plan

    def _decide_stale(self, hit: PlanConflict, options: WriteOptions, base: CommitRecord) -> None:
        """Raise if the caller wanted to decide; return to run the operation again.

        A lost precondition is found by the next attempt, after it has looked whether the client key was answered.
        """
        head = self._publisher.head
        if options.on_conflict == "fail" and options.if_commit is None and self._replay(head, options) is None:
            raise _read_set_changed(hit, self._catalogs, base, head)

    def _replay(self, head: CommitRecord, options: WriteOptions) -> Receipt | None:
        """The answer that this client key had before, if any."""
        if options.client_key is None:
            return None
        known = earlier_answer(self._snapshot(head), options.client_key)
        return Receipt(known["commit_id"], known["counts"], known["result"], replayed=True) if known else None

    def _snapshot(self, head: CommitRecord) -> Snapshot:
        return Snapshot(self._backend, head, self._catalogs.get(head.schema))

    def _fold_after(self, record: StreamEntry, holder: str | None) -> None:
        """Fold if it is time to. The write is acknowledged whatever becomes of the fold."""
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
    attempts.staged = True
    return _publish(backend, publisher, plan, attempts)


def _publish(backend: Backend, publisher: Publisher, plan: PublishPlan, attempts: _Attempts) -> PublishOutcome:
    """Publish, re-committing staged files as long as only pins moved."""
    while True:
        outcome = publisher.publish(plan, attempts.deadline_to_publish())
        if not isinstance(outcome, TableMoved):
            return outcome
        if any(one.is_bound for one in plan.actions):
            return PlanStale(PlanConflict(outcome.table, "a fold or compaction moved the table"))
        attempts.count(table_work=True)
        actions = restage_moved(backend, outcome.tested, plan.actions)
        plan = replace(plan, base=outcome.tested, actions=actions)
        backend.pauses.reach("write.restaged")


class _Attempts:
    """The budget of one write."""

    def __init__(self, backend: Backend) -> None:
        self._clock = backend.clock
        self._config = backend.config
        self._deadline: float | None = None
        self.made = 1
        self.with_tables = 0
        self.staged = False
        self.waited_s = 0.0
        self.confirmed: CommitRecord | None = None  # known to have been the newest record since the call began

    def deadline_to_publish(self) -> float:
        """Preparing and staging may take as long as they take; the clock runs while others win the race."""
        if self._deadline is None or self.staged:
            self._deadline = self._clock.monotonic() + self._config.publish_deadline_s
        return self._deadline

    def count(self, *, table_work: bool) -> None:
        self.made += 1
        self.with_tables += table_work
        too_many = self.made > self._config.publish_max_rounds or self.with_tables > self._config.publish_max_prepares
        too_late = self._deadline is not None and not self.staged and self._clock.monotonic() >= self._deadline
        if too_many or too_late:
            raise Contention(
                f"the write was prepared {self.made - 1} times and other writers were faster each time; "
                "nothing was written",
                advice="Retry later, or send fewer writers to the same rows",
                attempts=self.made - 1,
            )


def _is_negative(error: OmnigraphError) -> bool:
    return isinstance(error, _NEGATIVE) or error.code == NEEDS_OPTIMIZE


def _check_precondition(head: CommitRecord, if_commit: str) -> None:
    """The named commit must still be the state of this branch: nothing logical may have landed after it."""
    stream, seq = parse_commit_id(if_commit)
    if stream != head.stream or not head.content_seq <= seq <= head.seq:
        raise PreconditionFailed(
            f"the branch is at {head.commit_id}, not at {if_commit}",
            advice="Read again and decide anew",
            expected=if_commit,
            actual=head.commit_id,
        )


def _read_set_changed(hit: PlanConflict, catalogs: Catalogs, base: CommitRecord, head: CommitRecord) -> ReadSetChanged:
    if hit.table is None:
        return ReadSetChanged(f"{hit.reason}; refresh and retry")
    expected, actual = (one.pins[hit.table].changed_seq if hit.table in one.pins else 0 for one in (base, head))
    known = catalogs.get(base.schema).by_id.get(hit.table)
    return ReadSetChanged.on_table(known.table_key if known else hit.table, expected, actual)


def _receipt(plan: PublishPlan, record: StreamEntry, attempts: _Attempts) -> Receipt:
    return Receipt(record.commit_id, plan.counts, plan.result, attempts=attempts.made, waited_s=attempts.waited_s)


def _ended_elsewhere(plan: PublishPlan, writer: str, commit_id: str) -> Receipt:
    """The answer for an operation that others have ended: published in its name, or rolled back."""
    if writer == plan.op_id:
        return Receipt(commit_id, plan.counts, plan.result, replayed=True)
    raise IntentEnded(
        f"the operation was rolled back by recovery in commit {commit_id}; nothing of it is visible",
        advice="Run it again; if it was merely slow, raise OMNIGRAPH_RECOVERY_GRACE",
        op_id=plan.op_id,
        commit_id=commit_id,
    )
