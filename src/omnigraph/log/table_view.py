"""`TableView`: one table at one commit, its pin and overlay together. Callers do not see which row is in which."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.log.overlay import OverlayTable
from omnigraph.storage.lance import PinnedTable
from omnigraph.storage.lance.arrow_fit import fit_table, make_nullable


@dataclass(frozen=True)
class TableView:
    """One table at one commit: pin and overlay, read as one. Immutable.

    `schema` is the type's physical schema at this commit; a column that the pin lacks is null in its rows.
    """

    schema: pa.Schema
    pinned: PinnedTable | None
    overlay: OverlayTable | None = None

    @cached_property
    def _names_in_pin(self) -> frozenset[str]:
        return frozenset(self.pinned.schema.names) if self.pinned else frozenset()

    @property
    def _hidden(self) -> Collection[str]:
        return self.overlay.hidden_ids if self.overlay else ()

    def with_overlay(self, newer: OverlayTable) -> TableView:
        """The same table with further entries on top: so a mutation sees its own pending rows."""
        return TableView(self.schema, self.pinned, self.overlay.with_entries(newer) if self.overlay else newer)

    def find(self, ids: Sequence[str], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows with these ids, in no particular order. Rows of the overlay cost no request."""
        names = self._names(columns)
        parts = [self.overlay.rows_of(ids)] if self.overlay else []
        pinned_ids = [row_id for row_id in dict.fromkeys(ids) if row_id not in self._hidden]
        if self.pinned and pinned_ids:
            parts.append(self.pinned.find(pinned_ids, self._physical(names)))
        return self._concat_as(parts, names)

    def find_by(self, column: str, values: Sequence[Any], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows whose `column` equals one of `values`."""
        names = self._names(columns)
        if not values:
            return self._concat_as([], names)
        parts = []
        if self.overlay and column in self.overlay.rows.column_names:
            rows = self.overlay.rows
            value_set = pa.array(list(values), rows.schema.field(column).type)
            parts.append(rows.filter(pc.is_in(rows[column], value_set)))
        if self.pinned and column in self._names_in_pin:
            pinned_rows = self.pinned.find_by(column, values, self._physical([*names, "id"] if self._hidden else names))
            parts.append(self._unhidden(pinned_rows))
        return self._concat_as(parts, names)

    def scan(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None, limit: int | None = None
    ) -> pa.Table:
        """Rows that match `where`, at most `limit`. Rows that the overlay hides do not count towards the limit."""
        names = self._names(columns)
        parts = []
        if self.overlay:
            rows = self._with_all_columns(self.overlay.rows)
            parts.append(rows.filter(where) if where is not None else rows)
        missing = limit - sum(part.num_rows for part in parts) if limit is not None else None
        if self.pinned and (missing is None or missing > 0):
            parts.append(self._scan_pinned(names, where, missing))
        rows_in_order = self._concat_as(parts, names)
        return rows_in_order.slice(0, limit) if limit is not None else rows_in_order

    def batches(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The same rows as `scan`, without holding the whole table in memory."""
        names = self._names(columns)
        if self.overlay:
            rows = self._with_all_columns(self.overlay.rows)
            yield from self._concat_as([rows.filter(where) if where is not None else rows], names).to_batches()
        if self.pinned is None:
            return
        if self._absent_in_filter(where):
            yield from self._scan_pinned(names, where, None).to_batches()
            return
        for batch in self.pinned.batches(self._physical(names), where, self._hidden):
            yield from self._concat_as([pa.Table.from_batches([batch])], names).to_batches()

    def count(self, where: pc.Expression | None = None) -> int:
        if self.pinned and not self._hidden and not self._absent_in_filter(where):
            return self.pinned.count(where)
        return sum(batch.num_rows for batch in self.batches(["id"], where))

    def _scan_pinned(self, names: Sequence[str], where: pc.Expression | None, limit: int | None) -> pa.Table:
        assert self.pinned is not None
        if not self._absent_in_filter(where):
            return self.pinned.scan(self._physical(names), where, limit, self._hidden)
        # A column that this table version does not have is null in all its rows. Lance cannot filter by it, Arrow can.
        rows = self._with_all_columns(self.pinned.scan(None, None, None, self._hidden)).filter(where)
        return rows.slice(0, limit) if limit is not None else rows

    def _absent_in_filter(self, where: pc.Expression | None) -> bool:
        if where is None or self._names_in_pin >= set(self.schema.names):
            return False
        text = str(where)
        return any(name in text for name in self.schema.names if name not in self._names_in_pin)

    def _unhidden(self, rows: pa.Table) -> pa.Table:
        if not self._hidden:
            return rows
        return rows.filter(pc.invert(pc.is_in(rows["id"], pa.array(list(self._hidden), pa.utf8()))))

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        return list(columns) if columns is not None else list(self.schema.names)

    def _physical(self, names: Sequence[str]) -> list[str]:
        """The columns to read of the pin; `id` if there are none, since the number of rows is needed."""
        return [name for name in dict.fromkeys(names) if name in self._names_in_pin] or ["id"]

    def _with_all_columns(self, rows: pa.Table) -> pa.Table:
        return fit_table(rows, make_nullable(self.schema))

    def _concat_as(self, parts: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
        schema = pa.schema([self.schema.field(name).with_nullable(True) for name in names])
        shaped = [fit_table(part, schema) for part in parts if part.num_rows]
        if len(shaped) == 1:
            return shaped[0]
        return pa.concat_tables(shaped) if shaped else schema.empty_table()
