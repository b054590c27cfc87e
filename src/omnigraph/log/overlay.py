"""The overlay: row images and tombstones that are part of the commit record because no table version holds them yet.

The entries of one table are an Arrow table: `id`, `_rid` (of the record that placed the entry in this stream), `_del`
(true for a tombstone), then the columns of the type. An entry is always a full image. Tables and their encoded bytes
are immutable and shared between records, so that a commit re-encodes only what it touches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.lance.arrow_fit import make_nullable, select_and_cast

RID, DEL = "_rid", "_del"
_MARKS = (RID, DEL)


class OverlayTable:
    """All overlay entries of one table: at most one per id."""

    def __init__(self, table: pa.Table, encoded: bytes | None = None) -> None:
        self._table = table
        self._encoded = encoded

    @classmethod
    def decode(cls, data: bytes | memoryview) -> OverlayTable:
        return cls(pa.ipc.open_stream(pa.py_buffer(data)).read_all(), bytes(data))

    @classmethod
    def of_change(cls, schema: pa.Schema, rows: pa.Table | None, deleted: Collection[str], rid: str) -> OverlayTable:
        """The entries of one change: images of `rows`, tombstones for `deleted`."""
        parts = []
        if rows is not None and rows.num_rows:
            parts.append(_mark_entries(select_and_cast(rows, schema), rid, deleted=False))
        if deleted:
            tombs = {column.name: pa.nulls(len(deleted), column.type) for column in schema}
            tombs["id"] = pa.array(list(deleted), pa.utf8())
            parts.append(_mark_entries(pa.table(tombs, schema=make_nullable(schema)), rid, deleted=True))
        return cls(_concat(parts) if parts else _mark_entries(schema.empty_table(), rid, deleted=False))

    @property
    def table(self) -> pa.Table:
        return self._table

    @cached_property
    def as_bytes(self) -> bytes:
        if self._encoded is not None:
            return self._encoded
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table.combine_chunks())
        return bytes(sink.getvalue())

    @cached_property
    def index(self) -> Mapping[str, int]:
        return {row_id: position for position, row_id in enumerate(self._table["id"].to_pylist())}

    @property
    def entries(self) -> int:
        return int(self._table.num_rows)

    @property
    def size_bytes(self) -> int:
        return len(self.as_bytes)

    @property
    def hidden_ids(self) -> Collection[str]:
        """Ids whose row in the pin, if there is one, is hidden from readers."""
        return self.index.keys()

    @cached_property
    def rows(self) -> pa.Table:
        """The row images: what a reader sees of this overlay."""
        return self._table.filter(pc.invert(self._table[DEL])).drop_columns(list(_MARKS))

    @cached_property
    def tombstones(self) -> frozenset[str]:
        return frozenset(self._table.filter(self._table[DEL])["id"].to_pylist())

    @cached_property
    def entry_keys(self) -> frozenset[tuple[str, str]]:
        """Every entry as (id, rid): what a fold of this overlay removes. A newer entry of the id has another rid."""
        return frozenset(zip(self._table["id"].to_pylist(), self._table[RID].to_pylist(), strict=True))

    def rows_of(self, ids: Iterable[str]) -> pa.Table:
        positions = [self.index[row_id] for row_id in dict.fromkeys(ids) if row_id in self.index]
        entries = self._table.take(pa.array(positions, pa.int64()))
        return entries.filter(pc.invert(entries[DEL])).drop_columns(list(_MARKS))

    def own(self, rid: str) -> OverlayTable:
        """The entries that the record with this rid placed: its own change."""
        return OverlayTable(self._table.filter(pc.equal(self._table[RID], rid)))

    def with_entries(self, newer: OverlayTable) -> OverlayTable:
        """The overlay with the entries of `newer`, which replace older entries of the same ids."""
        if not newer.entries:
            return self
        remaining = self.without_ids(newer.index.keys())
        return OverlayTable(_concat([remaining.table, newer.table])) if remaining.entries else newer

    def without_ids(self, ids: Collection[str]) -> OverlayTable:
        positions = [self.index[row_id] for row_id in ids if row_id in self.index]
        return self._without_positions(positions)

    def without_entry_keys(self, entry_keys: Collection[tuple[str, str]]) -> OverlayTable:
        """The overlay without exactly these (id, rid) entries; an entry that was replaced since stays."""
        rids = self._table[RID].to_pylist()
        positions = [
            self.index[row_id] for row_id, rid in entry_keys if row_id in self.index and rids[self.index[row_id]] == rid
        ]
        return self._without_positions(positions)

    def with_rid_on_new(self, known_keys: Collection[tuple[str, str]], rid: str) -> OverlayTable:
        """The same entries; those whose (id, rid) is not in `known_keys` get the new `rid`."""
        entry_keys = zip(self._table["id"].to_pylist(), self._table[RID].to_pylist(), strict=True)
        rids = pa.array([old if (row_id, old) in known_keys else rid for row_id, old in entry_keys], pa.utf8())
        position = self._table.column_names.index(RID)
        return OverlayTable(self._table.set_column(position, self._table.schema.field(position), rids))

    def _without_positions(self, dropped_positions: list[int]) -> OverlayTable:
        if not dropped_positions:
            return self
        drop = set(dropped_positions)
        keep = [position for position in range(self._table.num_rows) if position not in drop]
        return OverlayTable(self._table.take(pa.array(keep, pa.int64())))


Overlay = Mapping[str, OverlayTable]


def overlay_size(overlay: Overlay) -> tuple[int, int]:
    """(bytes, entries) of a whole overlay: what the bounds of folding are compared with."""
    return sum(entries.size_bytes for entries in overlay.values()), sum(entries.entries for entries in overlay.values())


def _mark_entries(rows: pa.Table, rid: str, *, deleted: bool) -> pa.Table:
    count = rows.num_rows
    marked: Any = rows.append_column(RID, pa.array([rid] * count, pa.utf8()))
    marked = marked.append_column(DEL, pa.array([deleted] * count, pa.bool_()))
    return marked.select(["id", RID, DEL, *[name for name in rows.column_names if name != "id"]])


def _concat(parts: list[pa.Table]) -> pa.Table:
    """The parts as one table; a column that only some parts have is null in the rows of the others."""
    loose = [part.cast(make_nullable(part.schema)) for part in parts]
    return pa.concat_tables(loose, promote_options="default").combine_chunks()
