"""The publisher: the only code that makes anything visible.

One per process and stream. Writers of one process queue here and never race each other for a seq; while one
record is on its way the waiting plans gather, and those that do not meet go into the next record together.
Whichever thread finds nobody leading leads one round, then looks whether its own plan is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Condition

from omnigraph.commit.footprint import OPS_SCOPE, PlanConflict, find_footprint_conflict
from omnigraph.commit.group import CommitGroup
from omnigraph.commit.next_record import live_folds, next_record
from omnigraph.commit.pacing import Pacing
from omnigraph.commit.publish_plan import PublishPlan, TableAction
from omnigraph.commit.put_record import RecordLanded, put_record
from omnigraph.errors import Contention, OmnigraphError, Unknown, WriterFenced
from omnigraph.log.commit_record import CommitRecord, Stub
from omnigraph.log.stream import RecordStream, StreamEntry, branch_closed
from omnigraph.storage.backend import Backend


@dataclass(frozen=True, slots=True)
class PlanPublished:
    """The plan is part of this record, which may have been collected since."""

    record: StreamEntry


@dataclass(frozen=True, slots=True)
class PlanStale:
    """The plan does not hold on the newest record; prepare it anew from there."""

    hit: PlanConflict


@dataclass(frozen=True, slots=True)
class TableMoved:
    """The change holds on `tested`, but a table it staged has a newer pin there: re-commit the staged files on that."""

    table: str
    tested: CommitRecord


@dataclass(frozen=True, slots=True)
class NothingToFold:
    """A fold whose entries are gone: nothing to do, nothing lost."""


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """An answer for the caller, typed unless the plan itself is defective."""

    error: Exception


PublishOutcome = PlanPublished | PlanStale | TableMoved | NothingToFold | PlanFailed

#: What the pause points around a record of this kind are called; all others are writes.
_POINTS = {"fold": "fold", "physical": "optimize", "gc": "cleanup"}


class _Ticket:
    """One waiting plan."""

    def __init__(self, plan: PublishPlan, deadline: float) -> None:
        self.plan = plan
        self.deadline = deadline
        self.rounds = 0
        self.in_flight = False
        self.alone = False
        self.withdrawn = False
        self.outcome: PublishOutcome | None = None


class Publisher:
    """Publishes plans on one stream, and knows its newest record as far as this process has seen it."""

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
        """The newest record this process has seen. Only `refresh` says whether there is a newer one."""
        return self._head

    def refresh(self) -> CommitRecord:
        """Ask the store for newer records: one GET when there are none, and never more than may be walked."""
        self._follow(self.records.after(self._head.seq, self._backend.config.walk_limit))
        return self._head

    def publish(self, plan: PublishPlan, deadline: float) -> PublishOutcome:
        """Publish `plan`, together with others where possible. Blocks until its outcome is known."""
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
                # An interrupt may strike at any step, also before the round has begun: somebody else leads then.
                self._step_down(ticket)

    def _step_down(self, ticket: _Ticket) -> None:
        """The round of this leader, if it leads, is over, and nothing that is still queued is on its way any more."""
        with self._turn:
            if self._leader is not ticket:
                return
            self._leader = None
            for one in list(self._queue):
                one.in_flight = False
                if one.withdrawn:
                    one.outcome = PlanFailed(_interrupted(one.plan))
                    self._queue.remove(one)
            self._turn.notify_all()

    def _withdraw(self, ticket: _Ticket) -> None:
        """A caller that was interrupted while waiting leaves nothing behind, unless its record is on the way.

        If that record is refused, its leader drops the plan: nobody waits for it, so nobody may try it again.
        """
        with self._turn:
            ticket.withdrawn = True
            if ticket in self._queue and not ticket.in_flight:
                self._queue.remove(ticket)

    def _lead_one_round(self) -> None:
        self._pacing.wait_for_turn(self._head.seq + 1)
        head, members = self._choose()
        record = self._compose(head, members) if members else None
        if record is None:
            return
        try:
            self._put(record, members)
        except OmnigraphError as error:
            for ticket in members:
                self._settle(ticket, PlanFailed(_for_member(error, ticket.plan)))
        except BaseException:
            for ticket in members:
                self._settle(ticket, PlanFailed(_interrupted(ticket.plan)))
            raise

    def _choose(self) -> tuple[CommitRecord, list[_Ticket]]:
        """Answer the plans that cannot go on; of the others take as many as may share the record after the head."""
        config = self._backend.config
        with self._turn:
            waiting, head, recent = list(self._queue), self._head, list(self._recent)
        group = CommitGroup(config.group_max_members, config.overlay_soft_entries)
        members: list[_Ticket] = []
        for ticket in waiting:
            verdict = self._verdict_or_defect(ticket, head, recent)
            if verdict is not None:
                self._settle(ticket, verdict)
            elif not (ticket.alone and members) and group.admits(ticket.plan):
                # It holds on this head, so a lost round need not test what came before again.
                ticket.plan = replace(ticket.plan, base=head)
                group.add(ticket.plan)
                members.append(ticket)
                if ticket.alone:
                    break
            elif not ticket.plan.groupable:
                break  # it goes next, and nobody behind it may pass
            if group.is_full:
                break
        with self._turn:
            members = [ticket for ticket in members if ticket in self._queue]
            for ticket in members:
                ticket.in_flight = True
        return head, members

    def _compose(self, head: CommitRecord, members: Sequence[_Ticket]) -> CommitRecord | None:
        """The record for these members. A defective plan fails by itself: a group goes on one by one."""
        plans = [_trimmed(ticket.plan, head) for ticket in members]
        try:
            record = next_record(head, plans, self._backend.ids.token(16), self._backend.clock.now())
            assert record.encoded
        except Exception as error:  # noqa: BLE001 - nothing was sent, and it must not stop the others
            for ticket in members:
                ticket.alone = True
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
            self._pacing.landed(backend.clock.monotonic() - started)
            self._advance([record])
            for ticket in members:
                self._settle(ticket, PlanPublished(record))
            return
        for ticket in members:
            ticket.rounds += 1
        self._pacing.lost(backend.clock.monotonic() - started)
        newer = list(outcome.entries)
        if len(newer) == backend.config.read_ahead:
            newer += self.records.after_many(newer[-1].seq, limit=backend.config.walk_limit)
        self._follow(newer)

    def _verdict_or_defect(
        self, ticket: _Ticket, head: CommitRecord, recent: Sequence[StreamEntry]
    ) -> PublishOutcome | None:
        try:
            return self._verdict(ticket, head, recent)
        except Exception as error:  # noqa: BLE001 - it answers its own caller, not whoever happens to lead
            return PlanFailed(error)

    def _verdict(self, ticket: _Ticket, head: CommitRecord, recent: Sequence[StreamEntry]) -> PublishOutcome | None:
        """Why the plan cannot be published on `head`; None if it can."""
        plan, config = ticket.plan, self._backend.config
        since = _since(plan.base, head, recent, config.walk_limit)
        landed = next((one for one in since or () if is_published_in(one, plan.op_id)), None)
        if landed is not None:
            return PlanPublished(landed)
        fence = find_fence(plan, head) or next((fence for one in since or () if (fence := find_fence(plan, one))), None)
        if fence is not None:
            return PlanFailed(fence)
        if ticket.rounds >= config.publish_max_rounds or self._backend.clock.monotonic() >= ticket.deadline:
            return PlanFailed(_contention(ticket.rounds))
        if since is None:
            return PlanStale(PlanConflict(None, "too many commits landed in between"))
        hit = next((hit for one in since if (hit := find_plan_conflict(plan, one))), None)
        if hit is not None:
            return PlanStale(hit)
        if plan.folds and not live_folds(head, plan.folds):
            return NothingToFold()
        return next((TableMoved(one.table, head) for one in plan.actions if _pin_moved(one, head)), None)

    def _follow(self, entries: list[StreamEntry]) -> None:
        """Take over records of other processes."""
        if not entries:
            return
        if any(one.rid not in self._own_rids for one in entries):
            self._pacing.saw_foreign()
        if len(entries) > self._backend.config.walk_limit or isinstance(entries[-1], Stub):
            # The end of a branch may have been collected as well; then this says that the branch is gone.
            newest = self.records.newest()
            assert newest is not None
            entries = [newest]
        self._advance(entries)

    def _advance(self, entries: Sequence[StreamEntry]) -> None:
        """Move the head forward, never back: refreshes and rounds of several threads may arrive in any order."""
        with self._turn:
            for one in entries:
                if one.seq <= self._head.seq:
                    continue
                if one.seq != self._head.seq + 1 and not (self._recent and self._recent[-1].seq + 1 == one.seq):
                    self._recent.clear()
                self._recent.append(one)
                if isinstance(one, CommitRecord):
                    self._head = one

    def _settle(self, ticket: _Ticket, outcome: PublishOutcome) -> None:
        with self._turn:
            if ticket.outcome is None:
                ticket.outcome = outcome
                if ticket in self._queue:  # its caller may have been interrupted meanwhile
                    self._queue.remove(ticket)


def find_fence(plan: PublishPlan, record: StreamEntry) -> OmnigraphError | None:
    """Whether `record` forbids this writer to go on: the branch was closed, or somebody holds it exclusively."""
    if record.header.kind == "close":
        return branch_closed(record.stream)
    if isinstance(record, Stub):
        return None
    if plan.kind == "epoch" and plan.holder is None:
        return None  # a claim takes over from anybody; a release must still hold what it releases
    holder = record.epoch.holder
    if holder != plan.holder and (holder is not None or plan.holder is not None):
        return WriterFenced(
            "another writer has claimed this branch" if holder else "this writer's claim on the branch has ended",
            advice="Open the graph again; with exclusive=True to take the branch over",
            epoch=record.epoch.n,
        )
    return None


def find_plan_conflict(plan: PublishPlan, record: StreamEntry) -> PlanConflict | None:
    """Why `plan`, made before `record`, does not hold after it; None if it does."""
    if isinstance(record, CommitRecord) and record.kind == "gc":
        honoured = plan.op_id in (record.gc or {}).get("honours", ())
        # What was staged before the fence may have been swept by now; inline changes name no file.
        return (
            PlanConflict(None, "cleanup ran since the change was staged") if plan.is_staged and not honoured else None
        )
    if plan.options.if_commit is not None and isinstance(record, CommitRecord) and record.is_logical:
        return PlanConflict(None, "a commit landed after the one that the change was bound to")
    if plan.conflict_check is not None and isinstance(record, CommitRecord) and record.schema == plan.base.schema:
        # What it claims in `_ops` is not the judge's to know: the same client key, or recovery that ended it.
        claimed = find_footprint_conflict(plan.footprint.claims_only(OPS_SCOPE), plan.base.schema, record)
        return claimed or (plan.conflict_check(record) if record.is_logical else None)
    return find_footprint_conflict(plan.footprint, plan.base.schema, record)


def _since(
    base: CommitRecord, head: CommitRecord, recent: Sequence[StreamEntry], walk_limit: int
) -> list[StreamEntry] | None:
    """Records after `base` up to `head`; None if they are too many or no longer at hand."""
    count = head.seq - base.seq
    if count > walk_limit:
        return None
    if count == 0:
        return []
    found = list(recent[-count:])
    whole = len(found) == count and found[0].seq == base.seq + 1 and found[-1].seq == head.seq
    return found if whole else None


def _pin_moved(action: TableAction, head: CommitRecord) -> bool:
    if action.move is None:
        return False
    pin = head.pins.get(action.table)
    return (pin.version if pin else None) != action.move.expected


def _trimmed(plan: PublishPlan, head: CommitRecord) -> PublishPlan:
    """A fold drops the tables that moved on without it."""
    return replace(plan, folds=live_folds(head, plan.folds)) if plan.folds else plan


def is_published_in(record: StreamEntry, op_id: str) -> bool:
    """Whether the operation is part of the record."""
    return any(member.op_id == op_id for member in record.header.members)


def _contention(rounds: int) -> Contention:
    return Contention(
        f"the write lost {rounds} rounds against other writers and was given up; nothing was written",
        advice="Retry later, or send fewer writers to this branch",
        attempts=rounds,
    )


def _for_member(error: OmnigraphError, plan: PublishPlan) -> OmnigraphError:
    """The same failure, told with this member's own operation."""
    if not isinstance(error, Unknown):
        return error
    return Unknown(error.message, advice=error.advice, op_id=plan.op_id, client_key=plan.options.client_key)


def _interrupted(plan: PublishPlan) -> Unknown:
    return Unknown(
        "the write was interrupted while its record was on the way",
        advice="Repeat the write with the same client key, or read the graph, before anything else",
        op_id=plan.op_id,
        client_key=plan.options.client_key,
    )
