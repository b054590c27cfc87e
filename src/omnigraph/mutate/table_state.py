"""One table inside a running mutation: what is committed, what is pending, and the two seen as one."""

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
    """One row, before and after; None is absence."""

    id: str
    before: Row | None
    after: Row | None


class TooManyRows(Exception):
    """More rows are concerned than a mutation may change."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class PendingTable:
    """Pending rows shadow committed rows of the same id: every read inside a mutation goes through here."""

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
        self.must_leave_no_edges = False  # removed nodes take no edges along, so none may be left

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    @property
    def dependency_ids(self) -> set[str]:
        """Ids whose state the mutation depends on, whether or not anything is left of what it did to them."""
        return self._pending.keys() - self._minted

    def fetch(self, ids: Iterable[str]) -> None:
        """Learn the committed images of these ids, in one read for all that are not known yet."""
        unknown = [row_id for row_id in dict.fromkeys(ids) if row_id not in self._committed and row_id not in self._minted]
        if not unknown:
            return
        rows_by_id = {row["id"]: row for row in self._view.find(unknown).to_pylist()}
        self._committed.update({row_id: rows_by_id.get(row_id) for row_id in unknown})

    def remember_committed(self, images: Mapping[str, Row | None]) -> None:
        """Committed images that the caller has read already, in the columns of this table."""
        self._committed.update(images)

    def fetch_existence(self, ids: Iterable[str]) -> None:
        """Learn which of these ids exist, without their rows."""
        known_sets = (self._committed, self._existence, self._minted, self._pending)
        unknown = [row_id for row_id in dict.fromkeys(ids) if not any(row_id in part for part in known_sets)]
        if unknown:
            existing = set(self._view.find(unknown, ["id"])["id"].to_pylist())
            self._existence.update({row_id: row_id in existing for row_id in unknown})

    def exists(self, row_id: str) -> bool:
        """Whether the row exists now; `fetch_alive` must have been told about it."""
        if row_id in self._pending:
            return self._pending[row_id] is not None
        if row_id in self._committed:
            return self._committed[row_id] is not None
        return row_id not in self._minted and self._existence[row_id]

    def find_unchanged_ids(self, ids: Sequence[str]) -> list[str]:
        """Of these ids, those of committed rows that this mutation does not change."""
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
        """Every row goes; the rows put afterwards are the whole content. Raises TooManyRows if that is more."""
        self._remember_unchanged(self._read(None, most))
        self._pending = {row_id: None for row_id, row in self._committed.items() if row is not None}
        self._overlay = None
        self.is_overwritten = self.must_leave_no_edges = True

    def select(self, where: pc.Expression, most: int) -> list[Row]:
        """Rows that match now, committed and pending. Raises TooManyRows if there are more."""
        rows = self._read(where, most)
        self._remember_unchanged(rows)
        return rows

    def select_by(self, column: str, values: Sequence[Any], most: int) -> list[Row]:
        """Rows whose column equals one of the values now. Raises TooManyRows if there are more."""
        rows = self._current_view().find_by(column, values)
        if rows.num_rows > most:
            raise TooManyRows(rows.num_rows)
        matches: list[Row] = rows.to_pylist()
        self._remember_unchanged(matches)
        return matches

    def _read(self, where: pc.Expression | None, most: int | None) -> list[Row]:
        """No more than `most` are ever in memory: a condition may select a table of any size."""
        view = self._current_view()
        rows: list[Row] = []
        for batch in view.batches(where=where):
            if most is not None and len(rows) + batch.num_rows > most:
                raise TooManyRows(view.count(where))
            rows += batch.to_pylist()
        return rows

    def filter_rows(self, rows: Sequence[Row], where: pc.Expression) -> list[Row]:
        """Of rows already read, those that match."""
        if not rows:
            return []
        matching = set(pa.Table.from_pylist(list(rows), self.schema).filter(where)["id"].to_pylist())
        return [row for row in rows if row["id"] in matching]

    def find_unchanged_rows(self, column: str, values: Sequence[Any], columns: Sequence[str]) -> list[Row]:
        """Committed rows by a column, without those that this mutation changes."""
        rows = self._view.find_by(column, values, list(dict.fromkeys(["id", *columns]))).to_pylist()
        return [row for row in rows if row["id"] not in self._pending]

    def changes(self) -> Iterator[RowChange]:
        """What the mutation does to this table in the end. A row made and removed within it is no change."""
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
        """Which changed rows the pin holds, as far as the reads of the mutation tell.

        An id in the overlay says nothing about the pin, where an older row may lie below it.
        """
        overlay = self._view.overlay
        if overlay is not None and any(change.id in overlay.index for change in changes):
            return None
        return tuple(change.id for change in changes if change.before is not None)

    def _current_view(self) -> TableView:
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
        """Rows just read need not be read again when their before-image is asked for."""
        for row in rows:
            if row["id"] not in self._pending:
                self._committed.setdefault(row["id"], dict(row))
