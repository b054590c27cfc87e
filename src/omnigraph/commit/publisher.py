"""The publisher: the only code that makes a change visible.

A process has one publisher per stream. Writers of the process queue their plans here and never race each other for a
seq. While one commit record is being written, the waiting plans gather, and those whose footprints do not meet share
the next record. There is no publisher thread: a writer that finds no leader leads one round for all waiting plans,
then looks whether its own plan has an outcome.

One round, in `Publisher._lead_one_round`:

    wait_for_turn     leave other processes a chance (`pacing.py`)
    _choose_members   answer the plans that cannot be published on the head; choose those that share the next record
    _compose          build that record from the head and the chosen plans (`next_record.py`)
    _put              store it with put-if-absent and learn the outcome (`put_record.py`)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Condition

from omnigraph.commit.footprint import OPS_SCOPE, PlanConflict, find_footprint_conflict
from omnigraph.commit.group import CommitGroup
from omnigraph.commit.next_record import keep_applicable, next_record
from omnigraph.commit.pacing import Pacing
from omnigraph.commit.publish_plan import PublishPlan, TableAction
from omnigraph.commit.put_record import RecordLanded, put_record
from omnigraph.errors import Contention, OmnigraphError, Unknown, WriterFenced
from omnigraph.log.commit_record import CommitRecord, Stub
from omnigraph.log.stream import RecordStream, StreamEntry, branch_closed
from omnigraph.storage.backend import Backend


@dataclass(frozen=True, slots=True)
class PlanPublished:
    """The plan is part of `record`. Cleanup may have collected that record since, so it can be a stub."""

    record: StreamEntry


@dataclass(frozen=True, slots=True)
class PlanStale:
    """The plan does not hold on the newest record, because of `conflict`; it must be prepared again from there."""

    conflict: PlanConflict


@dataclass(frozen=True, slots=True)
class TableMoved:
    """The change holds on the record `tested`, but a table that it staged has a newer pin there.

    The staged files can be committed again on top of that pin.
    """

    table: str
    tested: CommitRecord


@dataclass(frozen=True, slots=True)
class NothingToFold:
    """No pin replacement of the plan can be used any more: the pins moved, or the folded entries are gone."""


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The error for the caller: an `OmnigraphError`, unless the plan itself is defective."""

    error: Exception


PublishOutcome = PlanPublished | PlanStale | TableMoved | NothingToFold | PlanFailed

#: The prefix of the pause points around a record of this kind; for every other kind it is "write".
_POINTS = {"fold": "fold", "physical": "optimize", "gc": "cleanup"}


class _Ticket:
    """One plan that waits in the queue for its record.

    `rounds` counts the seqs that the plan lost to other records. `must_go_alone` is set after a record with several
    members could not be composed, so that a defective plan fails without the others. `is_in_flight` is true while a
    record with the plan may be on its way to the store. `is_withdrawn` means that the caller no longer waits.
    """

    def __init__(self, plan: PublishPlan, deadline: float) -> None:
        self.plan = plan
        self.deadline = deadline
        self.rounds = 0
        self.is_in_flight = False
        self.must_go_alone = False
        self.is_withdrawn = False
        self.outcome: PublishOutcome | None = None


class Publisher:
    """Publishes plans on one stream, and holds the newest record of the stream that this process has seen."""

    def __init__(self, backend: Backend, records: RecordStream, head: CommitRecord) -> None:
        self.records = records
        self._backend = backend
        self._head = head
        self._recent: deque[StreamEntry] = deque(maxlen=backend.config.walk_limit)
        self._turn = Condition()
        self._queue: list[_Ticket] = []
        self._leader: _Ticket | None = None
        self._own_rids: deque[str] = deque(maxlen=backend.config.walk_limit)
        self._pacing = Pacing(backend.clock, backend.ids)

    @property
    def head(self) -> CommitRecord:
        """The newest record that this process has seen. Only `refresh` asks the store for a newer one."""
        return self._head

    def refresh(self) -> CommitRecord:
        """Read newer records: one GET if there are none, and never many more than `walk_limit` records."""
        self._take_over_entries(self.records.after(self._head.seq, self._backend.config.walk_limit))
        return self._head

    def publish(self, plan: PublishPlan, deadline: float) -> PublishOutcome:
        """Publish `plan`, in one record with other waiting plans where possible. Blocks until the outcome is known."""
        ticket = _Ticket(plan, deadline)
        try:
            with self._turn:
                self._queue.append(ticket)
            return self._wait_for(ticket)
        except BaseException:
            self._withdraw(ticket)
            raise

    def _wait_for(self, ticket: _Ticket) -> PublishOutcome:
        while True:
            try:
                with self._turn:
                    while ticket.outcome is None and self._leader is not None:
                        self._turn.wait()
                    if ticket.outcome is not None:
                        return ticket.outcome
                    self._leader = ticket
                self._lead_one_round()
            finally:
                # An interrupt may strike at any step, also before the round has begun: another thread must lead then.
                self._step_down(ticket)

    def _step_down(self, ticket: _Ticket) -> None:
        """End the round that the owner of `ticket` leads, if it leads. No queued plan is in flight afterwards."""
        with self._turn:
            if self._leader is not ticket:
                return
            self._leader = None
            for queued_ticket in list(self._queue):
                queued_ticket.is_in_flight = False
                if queued_ticket.is_withdrawn:
                    queued_ticket.outcome = PlanFailed(_interrupted_error(queued_ticket.plan))
                    self._queue.remove(queued_ticket)
            self._turn.notify_all()

    def _withdraw(self, ticket: _Ticket) -> None:
        """Remove the plan of a caller that was interrupted while waiting, unless its record is in flight.

        If the record in flight is refused, its leader drops the plan: nobody waits for the plan, so it is not tried
        again.
        """
        with self._turn:
            ticket.is_withdrawn = True
            if ticket in self._queue and not ticket.is_in_flight:
                self._queue.remove(ticket)

    def _lead_one_round(self) -> None:
        self._pacing.wait_for_turn(self._head.seq + 1)
        head, members = self._choose_members()
        record = self._compose(head, members) if members else None
        if record is None:
            return
        try:
            self._put(record, members)
        except OmnigraphError as error:
            for ticket in members:
                self._settle(ticket, PlanFailed(_error_for_member(error, ticket.plan)))
        except BaseException:
            for ticket in members:
                self._settle(ticket, PlanFailed(_interrupted_error(ticket.plan)))
            raise

    def _choose_members(self) -> tuple[CommitRecord, list[_Ticket]]:
        """Settle the plans that cannot be published on the head; of the others choose those that share a record."""
        config = self._backend.config
        with self._turn:
            waiting, head, recent = list(self._queue), self._head, list(self._recent)
        group = CommitGroup(config.group_max_members, config.overlay_soft_entries)
        members: list[_Ticket] = []
        for ticket in waiting:
            outcome = self._find_outcome_or_defect(ticket, head, recent)
            if outcome is not None:
                self._settle(ticket, outcome)
            elif not (ticket.must_go_alone and members) and group.admits(ticket.plan):
                # The plan holds on this head, so a later round need not test the records up to it again.
                ticket.plan = replace(ticket.plan, base=head)
                group.add(ticket.plan)
                members.append(ticket)
                if ticket.must_go_alone:
                    break
            elif not ticket.plan.is_groupable:
                break  # this plan needs a record of its own, and no plan behind it may overtake it
            if group.is_full:
                break
        with self._turn:
            members = [ticket for ticket in members if ticket in self._queue]
            for ticket in members:
                ticket.is_in_flight = True
        return head, members

    def _compose(self, head: CommitRecord, members: Sequence[_Ticket]) -> CommitRecord | None:
        """The record that publishes these members; None if it cannot be built.

        A single member then fails. Several members go into records of their own in the next rounds, so that only the
        defective one fails.
        """
        plans = [_drop_stale_replacements(ticket.plan, head) for ticket in members]
        try:
            record = next_record(head, plans, self._backend.ids.token(16), self._backend.clock.now())
            assert record.as_bytes
        except Exception as error:  # noqa: BLE001 - nothing was sent, and the other members must go on
            for ticket in members:
                ticket.must_go_alone = True
                if len(members) == 1:
                    self._settle(ticket, PlanFailed(error))
            return None
        self._own_rids.append(record.rid)
        return record

    def _put(self, record: CommitRecord, members: Sequence[_Ticket]) -> None:
        backend = self._backend
        point = _POINTS.get(record.kind, "write")
        backend.pauses.reach(f"{point}.before-record")
        started = backend.clock.monotonic()
        outcome = put_record(backend, self.records, record, max(ticket.deadline for ticket in members))
        backend.pauses.reach(f"{point}.after-record")
        if isinstance(outcome, RecordLanded):
            self._pacing.note_landed_record(backend.clock.monotonic() - started)
            self._advance([record])
            for ticket in members:
                self._settle(ticket, PlanPublished(record))
            return
        for ticket in members:
            ticket.rounds += 1
        self._pacing.note_lost_round(backend.clock.monotonic() - started)
        newer = list(outcome.entries)
        if len(newer) == backend.config.read_ahead:
            newer += self.records.after_many(newer[-1].seq, limit=backend.config.walk_limit)
        self._take_over_entries(newer)

    def _find_outcome_or_defect(
        self, ticket: _Ticket, head: CommitRecord, recent: Sequence[StreamEntry]
    ) -> PublishOutcome | None:
        try:
            return self._find_outcome(ticket, head, recent)
        except Exception as error:  # noqa: BLE001 - the error belongs to the plan's caller, not to the leader
            return PlanFailed(error)

    def _find_outcome(
        self, ticket: _Ticket, head: CommitRecord, recent: Sequence[StreamEntry]
    ) -> PublishOutcome | None:
        """The outcome of a plan that cannot be published on `head`; None if the plan can be."""
        plan, config = ticket.plan, self._backend.config
        records_since = _entries_since(plan.base, head, recent, config.walk_limit)
        landed = next((entry for entry in records_since or () if is_published_in(entry, plan.op_id)), None)
        if landed is not None:
            return PlanPublished(landed)
        fences = (find_fence(plan, entry) for entry in (head, *(records_since or ())))
        fence = next((error for error in fences if error is not None), None)
        if fence is not None:
            return PlanFailed(fence)
        if ticket.rounds >= config.publish_max_rounds or self._backend.clock.monotonic() >= ticket.deadline:
            return PlanFailed(_contention_error(ticket.rounds))
        if records_since is None:
            return PlanStale(PlanConflict(None, "too many commits landed in between"))
        conflict = first_conflict(plan, records_since)
        if conflict is not None:
            return PlanStale(conflict)
        if plan.pin_replacements and not keep_applicable(head, plan.pin_replacements):
            return NothingToFold()
        return next((TableMoved(action.table, head) for action in plan.actions if _has_pin_moved(action, head)), None)

    def _take_over_entries(self, entries: list[StreamEntry]) -> None:
        """Move the head over records that were read from the store."""
        if not entries:
            return
        if any(entry.rid not in self._own_rids for entry in entries):
            self._pacing.note_foreign_record()
        if len(entries) > self._backend.config.walk_limit or isinstance(entries[-1], Stub):
            # Raises BranchClosed if the branch has ended and its last record was collected.
            newest = self.records.newest()
            assert newest is not None
            entries = [newest]
        self._advance(entries)

    def _advance(self, entries: Sequence[StreamEntry]) -> None:
        """Move the head forward, never back: several threads refresh and publish, in any order.

        `_recent` stays an unbroken sequence of entries that ends at the head.
        """
        with self._turn:
            for entry in entries:
                if entry.seq <= self._head.seq:
                    continue
                if entry.seq != self._head.seq + 1 and not (self._recent and self._recent[-1].seq + 1 == entry.seq):
                    self._recent.clear()
                self._recent.append(entry)
                if isinstance(entry, CommitRecord):
                    self._head = entry

    def _settle(self, ticket: _Ticket, outcome: PublishOutcome) -> None:
        with self._turn:
            if ticket.outcome is None:
                ticket.outcome = outcome
                if ticket in self._queue:  # an interrupted caller has removed its ticket
                    self._queue.remove(ticket)


def find_fence(plan: PublishPlan, record: StreamEntry) -> OmnigraphError | None:
    """The error if `record` forbids the writer of `plan` to publish: the branch was closed, or another writer holds it.

    A writer that becomes the holder takes over from any other; a release must still hold the branch.
    """
    if record.header.kind == "close":
        return branch_closed(record.stream)
    if isinstance(record, Stub):
        return None
    if plan.kind == "epoch" and plan.holder is None:
        return None
    holder = record.epoch.holder
    if holder != plan.holder and (holder is not None or plan.holder is not None):
        return WriterFenced(
            "another writer has claimed this branch" if holder else "this writer's claim on the branch has ended",
            advice="Open the graph again; with exclusive=True to take the branch over",
            epoch=record.epoch.n,
        )
    return None


def first_conflict(plan: PublishPlan, records: Iterable[StreamEntry]) -> PlanConflict | None:
    """The first conflict of `plan` with `records`, which landed after its base; None if it holds after all of them."""
    conflicts = (find_plan_conflict(plan, record) for record in records)
    return next((conflict for conflict in conflicts if conflict is not None), None)


def find_plan_conflict(plan: PublishPlan, record: StreamEntry) -> PlanConflict | None:
    """Why `plan`, prepared before `record` landed, does not hold after it; None if the plan holds."""
    if isinstance(record, CommitRecord) and record.kind == "gc":
        honoured = plan.op_id in (record.gc or {}).get("honours", ())
        # Cleanup may have deleted files that were staged before its record; an inline change names no file.
        return (
            PlanConflict(None, "cleanup ran since the change was staged") if plan.is_staged and not honoured else None
        )
    if plan.options.if_commit is not None and isinstance(record, CommitRecord) and record.is_logical:
        return PlanConflict(None, "a commit landed after the one that the change was bound to")
    if plan.conflict_check is not None and isinstance(record, CommitRecord) and record.schema == plan.base.schema:
        # The plan's own check does not see claims on `_ops`: the same client key, or recovery that ended the operation.
        claim_conflict = find_footprint_conflict(plan.footprint.claims_only(OPS_SCOPE), plan.base.schema, record)
        return claim_conflict or (plan.conflict_check(record) if record.is_logical else None)
    return find_footprint_conflict(plan.footprint, plan.base.schema, record)


def _entries_since(
    base: CommitRecord, head: CommitRecord, recent: Sequence[StreamEntry], walk_limit: int
) -> list[StreamEntry] | None:
    """Entries after `base` up to `head`; None if there are too many, or if `recent` no longer holds all of them."""
    count = head.seq - base.seq
    if count > walk_limit:
        return None
    if count == 0:
        return []
    entries = list(recent[-count:])
    is_complete = len(entries) == count and entries[0].seq == base.seq + 1 and entries[-1].seq == head.seq
    return entries if is_complete else None


def _has_pin_moved(action: TableAction, head: CommitRecord) -> bool:
    if action.move is None:
        return False
    pin = head.pins.get(action.table)
    return (pin.version if pin else None) != action.move.expected


def _drop_stale_replacements(plan: PublishPlan, head: CommitRecord) -> PublishPlan:
    """The plan without the replacements of pins that moved since, and of folds whose entries are gone."""
    return (
        replace(plan, pin_replacements=keep_applicable(head, plan.pin_replacements)) if plan.pin_replacements else plan
    )


def is_published_in(record: StreamEntry, op_id: str) -> bool:
    """Whether the operation is a member of the record."""
    return any(member.op_id == op_id for member in record.header.members)


def _contention_error(rounds: int) -> Contention:
    return Contention(
        f"the write lost {rounds} rounds against other writers and was given up; nothing was written",
        advice="Retry later, or send fewer writers to this branch",
        attempts=rounds,
    )


def _error_for_member(error: OmnigraphError, plan: PublishPlan) -> OmnigraphError:
    """The same failure with the op id and the client key of this member, where the error names them."""
    if not isinstance(error, Unknown):
        return error
    return Unknown(error.message, advice=error.advice, op_id=plan.op_id, client_key=plan.options.client_key)


def _interrupted_error(plan: PublishPlan) -> Unknown:
    return Unknown(
        "the write was interrupted while its record was on the way",
        advice="Repeat the write with the same client key, or read the graph, before anything else",
        op_id=plan.op_id,
        client_key=plan.options.client_key,
    )
