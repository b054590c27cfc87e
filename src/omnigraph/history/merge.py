"""Three-way merge of one branch into another, decided row by row and validated like any other change.

The heads are captured once for the source; the target may move, and then the merge is prepared again on its newest
record. Only rows that the source changed since the base are looked at, and of those only the ones that the target
changed too need all three images. A merge of many changed rows may be handed to another plane, which decides by the
same row rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from omnigraph.commit.publish_plan import PublishPlan, Receipt, WriteTxn
from omnigraph.errors import ConstraintViolation, MergeConflict
from omnigraph.history.adoption import adopting
from omnigraph.history.decide_row import MergeOptions, Sides, as_conflict, conflict_order, decide
from omnigraph.history.merge_base import BaseState, base_state
from omnigraph.history.merge_schemas import merged_catalog
from omnigraph.log.commit_record import CommitKind, CommitRecord
from omnigraph.log.lineage import OpenStream, RecordCache, find_content_commit, merge_bases
from omnigraph.log.snapshot import Catalogs, Snapshot
from omnigraph.log.stream import RecordStream
from omnigraph.mutate.change_set import ChangeSet
from omnigraph.mutate.changed_rows import columns_to_compare, is_same_row, read_rows
from omnigraph.mutate.pending_table import Row, RowChange
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.storage.backend import Backend

MergeEngine = Literal["auto", "local", "spark"]
"""Where the rows of a merge are decided: by their number, in this process, or by Spark."""


@dataclass(frozen=True)
class MergeInput:
    """One attempt of a merge: what is merged, into what, since when, and under which schema."""

    op_id: str
    txn: WriteTxn
    source: Snapshot
    base: BaseState
    catalog: Catalog
    outcome: str
    options: MergeOptions
    records: RecordStream  # the source's

    @property
    def target(self) -> Snapshot:
        return self.txn.snapshot

    @property
    def new_catalog(self) -> Catalog | None:
        """The schema that the merge gives to the target; None if it keeps its own."""
        return self.catalog if self.catalog.hash != self.target.catalog.hash else None

    @property
    def types(self) -> list[TypeDef]:
        """The types that the source may have changed rows of, as far as the merged graph has them."""
        known = self.catalog.by_id
        return [known[table] for table in self.base.tables_changed_in(self.source) if table in known]


class OtherPlane(Protocol):
    """Another way to do the work of a merge that is too large for this process."""

    def takes(self, merge: MergeInput) -> bool:
        """Whether this attempt is for it."""

    def plan(self, merge: MergeInput) -> PublishPlan:
        """The merge as a plan. Raises MergeConflict."""

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        """The staged plan as it is to be published."""


class Merge:
    """The operation: a function of the target's state, with the source fixed."""

    kind: CommitKind = "merge"

    def __init__(
        self,
        backend: Backend,
        catalogs: Catalogs,
        open_stream: OpenStream,
        source: CommitRecord,
        options: MergeOptions,
        plane: OtherPlane | None = None,
    ) -> None:
        self.op_id = backend.ids.ulid()
        self._backend = backend
        self._catalogs = catalogs
        self._open_stream = open_stream
        self._source = Snapshot(backend, source, catalogs.get(source.schema))
        self._options = options
        self._plane = plane

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        merge = self._input(txn)
        if merge is None:
            return Receipt(None, result={"outcome": "already_up_to_date"})
        if self._plane is not None and self._plane.takes(merge):
            return self._plane.plan(merge)
        return self._plan(merge)

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        return self._plane.confirm(plan) if self._plane is not None else plan

    def _input(self, txn: WriteTxn) -> MergeInput | None:
        """None if the target has everything already."""
        target = txn.snapshot
        # The bases of the very heads, not of the commits whose state they repeat: nearest in layout as well.
        records = RecordCache(self._open_stream, [target.record, self._source.record])
        bases = merge_bases(records, [target.record], self._source.record)
        ours, theirs, *common = (
            find_content_commit(records, one) for one in (target.record, self._source.record, *bases)
        )
        if theirs in common:
            return None
        base = base_state(self._backend, self._catalogs, records, bases)
        known = [self._catalogs.get(one.schema) for one in base.records]
        return MergeInput(
            op_id=self.op_id,
            txn=txn,
            source=self._source,
            base=base,
            catalog=merged_catalog(known, self._source.catalog, target.catalog),
            outcome="fast_forward" if ours in common else "merged",
            options=self._options,
            records=self._open_stream(self._source.record.stream),
        )

    def _plan(self, merge: MergeInput) -> PublishPlan:
        rows = _Rows(merge)
        merged = rows.merge()
        changes = ChangeSet(self._backend, merge.txn, merge.catalog)
        for table, images in merged.items():
            changes.remember_committed(table, rows.ours[table])
            changes.put_all(table, images)
        changes.depend_on(rows.looked_at)
        if merge.outcome == "fast_forward":
            # That the target has nothing of its own is part of the answer: any change there means another attempt.
            for one in merge.catalog.types:
                changes.claims.read_all(one.id)
        conflicts = [*rows.conflicts, *_violations(changes)]
        if conflicts:
            raise merge_conflict(conflicts)
        plan = changes.plan(
            kind=self.kind,
            op_id=self.op_id,
            catalog=merge.new_catalog,
            merged=merge.source.record.header,
            result={"outcome": merge.outcome},
        )
        return adopting(plan, merge.base, merge.source, merge.target, merge.catalog, merge.records)


class _Rows:
    """The row rule over every table that the source changed."""

    def __init__(self, merge: MergeInput) -> None:
        self._merge = merge
        self.conflicts: list[Mapping[str, Any]] = []
        self.looked_at: dict[str, set[str]] = {}
        self.ours: dict[str, dict[str, Row | None]] = {}

    def merge(self) -> dict[str, dict[str, Row | None]]:
        """By table, the rows of the target that become another, None for those that go."""
        return {one.id: self._merge_table(one) for one in self._merge.types}

    def _merge_table(self, one: TypeDef) -> dict[str, Row | None]:
        columns, base = columns_to_compare(one), self._merge.base
        theirs = base.changes_in(self._merge.source, one.id, columns)
        self.looked_at[one.id] = set(theirs)
        ours = self.ours[one.id] = self._ours(one.id, theirs)
        merged: dict[str, Row | None] = {}
        for row_id, change in theirs.items():
            target = ours.get(row_id)
            sides = Sides(change.before, change.after, target, base.is_settled(one.id, row_id))
            found = decide(one, columns, self._merge.options, row_id, sides)
            if found.conflict is not None:
                self.conflicts.append(found.conflict)
            if not found.keep and not is_same_row(found.row, target, columns):
                merged[row_id] = found.row
        return merged

    def _ours(self, table: str, theirs: Mapping[str, RowChange]) -> dict[str, Row | None]:
        """The target's rows that the source changed. A table that the target left alone is not read again."""
        if self._merge.base.is_state_of(self._merge.target, table):
            return {row_id: change.before for row_id, change in theirs.items()}
        found = read_rows(self._merge.target, table, theirs)
        return {row_id: found.get(row_id) for row_id in theirs}


def _violations(changes: ChangeSet) -> list[dict[str, Any]]:
    """What the merged change would break, as conflicts."""
    try:
        changes.check()
    except ConstraintViolation as error:
        return [as_conflict(one) for one in error.violations]
    return []


def merge_conflict(conflicts: Iterable[Mapping[str, Any]], count: int | None = None) -> MergeConflict:
    """All conflicts, or the first of `count` in all."""
    ordered = sorted(conflicts, key=conflict_order)
    total = len(ordered) if count is None else count
    more = f" (and {total - 1} more)" if total > 1 else ""
    details: dict[str, Any] = {"merge_conflicts": [dict(one) for one in ordered]}
    if total > len(ordered):
        details["conflict_count"] = total
    return MergeConflict(
        f"the branches cannot be merged: {ordered[0]['message']}{more}",
        advice="Nothing was written; settle the conflicts with a resolution, or change the source branch",
        **details,
    )
