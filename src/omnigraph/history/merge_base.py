"""The base of a merge: one commit, or after criss-cross merges a virtual state made of several.

A virtual base is the merge of the bases themselves. A row on which they disagree has no base value: it is *unsettled*,
and whoever changed it must be looked at by the row rule, unless both sides agree.
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
    """A snapshot, and the rows in which the virtual base, made of it and of `others`, differs from it."""

    snapshot: Snapshot
    others: tuple[CommitRecord, ...] = ()
    rows: dict[tuple[str, str], Row | None] = field(default_factory=dict)
    unsettled: frozenset[tuple[str, str]] = frozenset()

    @property
    def records(self) -> tuple[CommitRecord, ...]:
        return (self.snapshot.record, *self.others)

    @property
    def own_tables(self) -> set[str]:
        """Tables in which a virtual base differs from the snapshot."""
        return {table for table, _ in (*self.rows, *self.unsettled)}

    def is_state_of(self, other: Snapshot, table: str) -> bool:
        """Whether `other` has the table exactly as this base does, pin and overlay."""
        return table not in self.own_tables and is_same_table(self.snapshot, other, table)

    def is_settled(self, table: str, row_id: str) -> bool:
        return (table, row_id) not in self.unsettled

    def tables_changed_in(self, other: Snapshot) -> list[str]:
        return sorted(self.own_tables.union(find_changed_tables(self.snapshot, other)))

    def changes_in(self, other: Snapshot, table: str, columns: ComparedColumns) -> dict[str, RowChange]:
        """Rows that are another in `other` than in this base, as far as `columns` tell."""
        found = find_changed_rows(self.snapshot, other, table, columns)
        mine = {row_id for name, row_id in (*self.rows, *self.unsettled) if name == table}
        images = read_rows(other, table, mine)
        for row_id in sorted(mine):
            before, after = self.rows.get((table, row_id)), images.get(row_id)
            if is_same_row(before, after, columns) and self.is_settled(table, row_id):
                found.pop(row_id, None)
            else:
                found[row_id] = RowChange(row_id, before, after)
        return found


def build_merge_base(
    backend: Backend, catalogs: Catalogs, records: RecordCache, bases: Sequence[CommitRecord]
) -> MergeBase:
    """The state that both sides are compared with."""
    first, *others = bases
    start = MergeBase(Snapshot(backend, first, catalogs.get(first.schema)))
    return reduce(lambda state, other: _join_base(backend, catalogs, records, state, other), others, start)


def _join_base(
    backend: Backend, catalogs: Catalogs, records: RecordCache, state: MergeBase, other: CommitRecord
) -> MergeBase:
    """`state` merged with one more base, by the row rule, disagreement kept as unsettled rows."""
    theirs = Snapshot(backend, other, catalogs.get(other.schema))
    below = build_merge_base(backend, catalogs, records, merge_bases(records, state.records, other))
    rows, unsettled = dict(state.rows), set(state.unsettled)
    for table in below.tables_changed_in(theirs):
        for row_id, change in below.changes_in(theirs, table, None).items():
            place = (table, row_id)
            ours = rows[place] if place in rows else read_rows(state.snapshot, table, [row_id]).get(row_id)
            if is_same_row(ours, change.after):
                continue
            if is_same_row(ours, change.before) and below.is_settled(table, row_id):
                rows[place] = change.after
            else:
                unsettled.add(place)
                rows[place] = None
    return MergeBase(state.snapshot, (*state.others, other), rows, frozenset(unsettled))
