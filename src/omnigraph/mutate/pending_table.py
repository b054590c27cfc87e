"""One table inside a running mutation: committed rows, pending changes, and both read as one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.publish_plan import TableAction
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.table_view import TableView
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef

Row = dict[str, Any]
"""A full row image: stored values by column id."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row before and after a change; None if the row does not exist."""

    id: str
    before: Row | None
    after: Row | None


class TooManyRows(Exception):
    """A mutation would change more rows than it may."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class PendingTable:
    """One table as a mutation reads it: pending rows hide the committed rows of the same ids."""

    def __init__(self, type_def: TypeDef, view: TableView) -> None:
        self.type = type_def
        self.schema = arrow_schema(type_def)
        self._view = view
        self._committed: dict[str, Row | None] = {}
        self._pending: dict[str, Row | None] = {}
        self._minted: set[str] = set()
        self._existence: dict[str, bool] = {}
        self._overlay: OverlayTable | None = None
        self.is_overwritten = False
        self.must_leave_no_edges = False  # no cascade: a removed node that still has edges is refused

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    @property
    def dependency_ids(self) -> set[str]:
        """Ids whose committed state the mutation depends on, also if its changes to them cancel out."""
        return self._pending.keys() - self._minted

    def fetch(self, ids: Iterable[str]) -> None:
        """Read the committed images of these ids, in one request for all that were not read before."""
        unknown = [
            row_id for row_id in dict.fromkeys(ids) if row_id not in self._committed and row_id not in self._minted
        ]
        if not unknown:
            return
        rows_by_id = {row["id"]: row for row in self._view.find(unknown).to_pylist()}
        self._committed.update({row_id: rows_by_id.get(row_id) for row_id in unknown})

    def remember_committed(self, images: Mapping[str, Row | None]) -> None:
        """Take over committed images that the caller has read already, in the columns of this table."""
        self._committed.update(images)

    def fetch_existence(self, ids: Iterable[str]) -> None:
        """Read which of these ids exist, without their rows."""
        resolved_sets = (self._committed, self._existence, self._minted, self._pending)
        unknown = [row_id for row_id in dict.fromkeys(ids) if not any(row_id in part for part in resolved_sets)]
        if unknown:
            existing = set(self._view.find(unknown, ["id"])["id"].to_pylist())
            self._existence.update({row_id: row_id in existing for row_id in unknown})

    def exists(self, row_id: str) -> bool:
        """Whether the row exists now; `fetch_existence` must have run for its id."""
        if row_id in self._pending:
            return self._pending[row_id] is not None
        if row_id in self._committed:
            return self._committed[row_id] is not None
        return row_id not in self._minted and self._existence[row_id]

    def find_unchanged_ids(self, ids: Sequence[str]) -> list[str]:
        """Select the ids of committed rows that this mutation does not change."""
        self.fetch_existence(ids)
        return [row_id for row_id in ids if row_id not in self._pending and self.exists(row_id)]

    def read_committed(self, row_id: str) -> Row | None:
        if row_id in self._minted:
            return None
        self.fetch([row_id])
        return self._committed[row_id]

    def current_row(self, row_id: str) -> Row | None:
        return self._pending[row_id] if row_id in self._pending else self.read_committed(row_id)

    def put(self, row: Row, *, minted: bool = False) -> None:
        if minted:
            self._minted.add(row["id"])
        self._pending[row["id"]] = row
        self._overlay = None

    def remove(self, row_id: str) -> None:
        self._pending[row_id] = None
        self._overlay = None

    def remove_all(self, most: int | None = None) -> None:
        """Remove every row; rows put afterwards are the whole content. Raises TooManyRows above `most` rows."""
        self._remember_unchanged(self._read(None, most))
        self._pending = {row_id: None for row_id, row in self._committed.items() if row is not None}
        self._overlay = None
        self.is_overwritten = self.must_leave_no_edges = True

    def select(self, where: pc.Expression, most: int) -> list[Row]:
        """Rows that match now, committed and pending. Raises TooManyRows above `most` rows."""
        rows = self._read(where, most)
        self._remember_unchanged(rows)
        return rows

    def select_by(self, column: str, values: Sequence[Any], most: int) -> list[Row]:
        """Rows whose column equals one of the values now. Raises TooManyRows above `most` rows."""
        rows = self._pending_view().find_by(column, values)
        if rows.num_rows > most:
            raise TooManyRows(rows.num_rows)
        matches: list[Row] = rows.to_pylist()
        self._remember_unchanged(matches)
        return matches

    def _read(self, where: pc.Expression | None, most: int | None) -> list[Row]:
        """Read at most `most` rows into memory: a condition may select a table of any size."""
        view = self._pending_view()
        rows: list[Row] = []
        for batch in view.batches(where=where):
            if most is not None and len(rows) + batch.num_rows > most:
                raise TooManyRows(view.count(where))
            rows += batch.to_pylist()
        return rows

    def filter_rows(self, rows: Sequence[Row], where: pc.Expression) -> list[Row]:
        """Select the rows that match, of rows already read."""
        if not rows:
            return []
        matching = set(pa.Table.from_pylist(list(rows), self.schema).filter(where)["id"].to_pylist())
        return [row for row in rows if row["id"] in matching]

    def find_unchanged_rows(self, column: str, values: Sequence[Any], columns: Sequence[str]) -> list[Row]:
        """Look up committed rows by a column, without those that this mutation changes."""
        rows = self._view.find_by(column, values, list(dict.fromkeys(["id", *columns]))).to_pylist()
        return [row for row in rows if row["id"] not in self._pending]

    def changes(self) -> Iterator[RowChange]:
        """The net changes of the table. A row that the mutation inserts and removes again is no change."""
        self.fetch(self._pending)
        for row_id, after in self._pending.items():
            before = self.read_committed(row_id)
            if before is not None or after is not None:
                yield RowChange(row_id, before, after)

    def action(self, changes: Sequence[RowChange]) -> TableAction:
        rows = [change.after for change in changes if change.after is not None]
        deleted = tuple(change.id for change in changes if change.after is None)
        inserted = sum(change.before is None for change in changes)
        return TableAction(
            table=self.type.id,
            schema=self.schema,
            rows=pa.Table.from_pylist(rows, self.schema) if rows else None,
            deleted=deleted,
            inserted=inserted,
            updated=len(rows) - inserted,
            removed=len(deleted),
            overwrite=self.is_overwritten,
            present_ids=self._present_ids(changes),
            never_inline=self.type.has_blob,
        )

    def _present_ids(self, changes: Sequence[RowChange]) -> tuple[str, ...] | None:
        """The ids of changed rows that the pinned version holds; None if the reads of the mutation do not tell.

        For an id in the overlay, the pinned version may hold an older row or none.
        """
        overlay = self._view.overlay
        if overlay is not None and any(change.id in overlay.index for change in changes):
            return None
        return tuple(change.id for change in changes if change.before is not None)

    def _pending_view(self) -> TableView:
        return self._view.with_overlay(self.pending_entries()) if self._pending else self._view

    def pending_entries(self) -> OverlayTable:
        """Pending rows and removals in the form of an overlay."""
        if self._overlay is None:
            rows = [row for row in self._pending.values() if row is not None]
            removed_ids = [row_id for row_id, row in self._pending.items() if row is None]
            table = pa.Table.from_pylist(rows, self.schema) if rows else None
            self._overlay = OverlayTable.of_change(self.schema, table, removed_ids, "")
        return self._overlay

    def _remember_unchanged(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep rows just read as their images before the change, which then need no second read."""
        for row in rows:
            if row["id"] not in self._pending:
                self._committed.setdefault(row["id"], dict(row))
