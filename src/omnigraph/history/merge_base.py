"""The base of a merge: one commit, or after criss-cross merges a virtual state made of several.

A virtual base is the merge of the bases themselves. A row on which they disagree has no base value: it is *unsettled*,
and the row decision must look at it unless source and target agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.lineage import RecordCache, merge_bases
from omnigraph.log.snapshot import Catalogs, Snapshot
from omnigraph.mutate.changed_rows import (
    ComparedColumns,
    find_changed_rows,
    find_changed_tables,
    is_same_row,
    is_same_table,
    read_rows,
)
from omnigraph.mutate.pending_table import Row, RowChange
from omnigraph.storage.backend import Backend


@dataclass(frozen=True)
class MergeBase:
    """The snapshot of one base, and the rows in which the virtual base differs from it.

    The virtual base is made of the snapshot and of `further_bases`.
    """

    snapshot: Snapshot
    further_bases: tuple[CommitRecord, ...] = ()
    #: The rows that differ from the snapshot, by (table, id); None: no row, or unsettled.
    rows: dict[tuple[str, str], Row | None] = field(default_factory=dict)
    unsettled: frozenset[tuple[str, str]] = frozenset()

    @property
    def records(self) -> tuple[CommitRecord, ...]:
        return (self.snapshot.record, *self.further_bases)

    @property
    def virtual_tables(self) -> set[str]:
        """Tables in which a virtual base differs from the snapshot."""
        return {table for table, _ in (*self.rows, *self.unsettled)}

    def is_state_of(self, snapshot: Snapshot, table: str) -> bool:
        """Whether the snapshot has the table exactly as this base does, pin and overlay."""
        return table not in self.virtual_tables and is_same_table(self.snapshot, snapshot, table)

    def is_settled(self, table: str, row_id: str) -> bool:
        return (table, row_id) not in self.unsettled

    def tables_changed_in(self, snapshot: Snapshot) -> list[str]:
        return sorted(self.virtual_tables.union(find_changed_tables(self.snapshot, snapshot)))

    def changes_in(self, snapshot: Snapshot, table: str, columns: ComparedColumns) -> dict[str, RowChange]:
        """Rows that differ between this base and the snapshot in any of `columns`."""
        changes = find_changed_rows(self.snapshot, snapshot, table, columns)
        virtual_ids = {row_id for name, row_id in (*self.rows, *self.unsettled) if name == table}
        images = read_rows(snapshot, table, virtual_ids)
        for row_id in sorted(virtual_ids):
            before, after = self.rows.get((table, row_id)), images.get(row_id)
            if is_same_row(before, after, columns) and self.is_settled(table, row_id):
                changes.pop(row_id, None)
            else:
                changes[row_id] = RowChange(row_id, before, after)
        return changes


def build_merge_base(
    backend: Backend, catalogs: Catalogs, records: RecordCache, bases: Sequence[CommitRecord]
) -> MergeBase:
    """The state that both sides are compared with."""
    first, *further_bases = bases
    start = MergeBase(Snapshot(backend, first, catalogs.get(first.schema)))
    return reduce(
        lambda state, further_base: _join_base(backend, catalogs, records, state, further_base), further_bases, start
    )


def _join_base(
    backend: Backend, catalogs: Catalogs, records: RecordCache, state: MergeBase, further_base: CommitRecord
) -> MergeBase:
    """`state` merged with one more base. Rows on which the two disagree become unsettled."""
    further_snapshot = Snapshot(backend, further_base, catalogs.get(further_base.schema))
    # The base of the bases (recursive merge).
    common_base = build_merge_base(backend, catalogs, records, merge_bases(records, state.records, further_base))
    rows, unsettled = dict(state.rows), set(state.unsettled)
    for table in common_base.tables_changed_in(further_snapshot):
        for row_id, change in common_base.changes_in(further_snapshot, table, None).items():
            table_and_id = (table, row_id)
            row = rows[table_and_id] if table_and_id in rows else read_rows(state.snapshot, table, [row_id]).get(row_id)
            if is_same_row(row, change.after):
                continue
            if is_same_row(row, change.before) and common_base.is_settled(table, row_id):
                rows[table_and_id] = change.after
            else:
                unsettled.add(table_and_id)
                rows[table_and_id] = None
    return MergeBase(state.snapshot, (*state.further_bases, further_base), rows, frozenset(unsettled))
