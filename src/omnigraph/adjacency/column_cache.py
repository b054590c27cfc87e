"""The column cache: whole columns of tables, and structures derived from them, kept between queries.

Entries are keyed by the table's version and by the content of the overlay on top, so that nothing is ever stale. A
table with an overlay is derived from the cached table of its version: rows of the version keep their positions, a newer
row image takes the position of the older row, and new rows follow behind. When the bound in bytes is reached, least
recently used entries are dropped first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from omnigraph.log.table_view import TableView
from omnigraph.storage.lance import TableStore

#: Bytes cached per graph and process.
DEFAULT_BYTES = 768 << 20


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True)
class CachedTableKey:
    """One table in one state: a version and the content of an overlay."""

    table: str
    version: str | None
    overlay: str | None

    @classmethod
    def of(cls, table: str, view: TableView) -> CachedTableKey:
        overlay = xxhash.xxh3_128_hexdigest(view.overlay.as_bytes) if view.overlay is not None else None
        return cls(table, view.pinned.version if view.pinned is not None else None, overlay)

    @property
    def base(self) -> CachedTableKey:
        """The key of the version without the overlay."""
        return replace(self, overlay=None)


@dataclass(frozen=True)
class OverlayLayer:
    """An overlay on top of the cached table of a version.

    `order` selects the rows from those of the version followed by those of the overlay; None if the overlay replaces or
    deletes no row of the version. `added_rows` are the overlay's rows that replace none. `is_stable`: the overlay
    deletes no row of the version, so that all of them keep their positions.
    """

    rows: pa.Table
    base_rows: int
    order: pa.Array | None
    added_rows: pa.Array
    is_stable: bool

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.added_rows.nbytes + (self.order.nbytes if self.order is not None else 0))

    @classmethod
    def of(cls, view: TableView, base_ids: Callable[[], pa.ChunkedArray]) -> OverlayLayer:
        assert view.pinned is not None
        assert view.overlay is not None
        rows = replace(view, pinned=None).scan()
        hidden = view.pinned.find(list(view.overlay.hidden_ids), ["id"])["id"]
        if not len(hidden):
            return cls(rows, view.pinned.rows, None, pa.array(np.arange(rows.num_rows)), True)
        ids = base_ids()
        hidden_positions = np.flatnonzero(pc.is_in(ids, value_set=hidden.combine_chunks()))
        hidden_ids = ids.take(pa.array(hidden_positions))
        newer = pc.index_in(hidden_ids, value_set=rows["id"].combine_chunks())
        newer = newer.fill_null(-1).combine_chunks().to_numpy(zero_copy_only=False)
        order = np.arange(len(ids))
        order[hidden_positions] = np.where(newer >= 0, len(ids) + newer, -1)
        added = np.setdiff1d(np.arange(rows.num_rows), newer)
        order = np.concatenate([order[order >= 0], len(ids) + added])
        return cls(rows, len(ids), pa.array(order), pa.array(added), bool((newer >= 0).all()))

    @property
    def overlay_positions(self) -> npt.NDArray[np.int64]:
        """The positions whose rows come from the overlay; only for a stable layer."""
        assert self.is_stable
        if self.order is None:
            return np.arange(self.base_rows, self.base_rows + self.rows.num_rows)
        return np.flatnonzero(np.asarray(self.order) >= self.base_rows)

    def merge_column(self, base: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """Returns a column of the version with the overlay on top."""
        column = pa.chunked_array([*base.chunks, *self.rows[name].chunks], base.type)
        return column if self.order is None else column.take(self.order)


class ByteCache:
    """Values by key, bounded by the sum of their sizes. A value larger than half of the bound is not cached."""

    def __init__(self, bound_bytes: int = DEFAULT_BYTES) -> None:
        self.bound_bytes = bound_bytes
        self._entries: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], S]) -> S:
        """Returns the value of the key, calling `make` if it is missing. Two threads may both make it; one stays."""
        cached = self.peek(key)
        if cached is not None:
            return cast(S, cached)
        value = make()
        self.put(key, value)
        return value

    def peek(self, key: Any) -> Any | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Any, value: Sized) -> None:
        size = int(value.nbytes)
        if size * 2 > self.bound_bytes:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            self._used += size - (old[1] if old is not None else 0)
            self._entries[key] = (value, size)
            while self._used > self.bound_bytes:
                _, (_, dropped_bytes) = self._entries.popitem(last=False)
                self._used -= dropped_bytes

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._used = 0


class ColumnCache:
    """Whole columns of tables, all columns of a table in the same order of rows, and what is derived from them."""

    def __init__(self, cache: ByteCache | None = None) -> None:
        self.byte_cache = cache or ByteCache()

    def columns(self, key: CachedTableKey, view: TableView, names: Sequence[str]) -> pa.Table:
        """Returns these columns of every row. Columns that are not cached are read together, in one scan."""
        unique_names = list(dict.fromkeys(names))
        columns = {name: self.byte_cache.peek((key, "column", name)) for name in unique_names}
        missing = [name for name, column in columns.items() if column is None]
        if not missing:
            return pa.table(columns)
        if view.overlay is None or view.pinned is None:
            rows = view.scan(missing)
            columns |= {name: rows[name] for name in missing}
            for name in missing:
                self.byte_cache.put((key, "column", name), rows[name])
            return pa.table(columns)
        layer = self.layer(key, view)
        base = self.columns(key.base, replace(view, overlay=None), missing)
        for name in missing:
            columns[name] = column = layer.merge_column(base[name], name)
            # Without an order the column shares the memory of the version's column, which is counted already.
            if layer.order is not None:
                self.byte_cache.put((key, "column", name), column)
        return pa.table(columns)

    def layer(self, key: CachedTableKey, view: TableView) -> OverlayLayer:
        """Returns the layer of the overlay on the version; only for a view that has both."""

        def base_ids() -> pa.ChunkedArray:
            return self.columns(key.base, replace(view, overlay=None), ["id"])["id"]

        return self.derive(key, "layer", lambda: OverlayLayer.of(view, base_ids))

    def derive(self, key: CachedTableKey, name: Hashable, make: Callable[[], S]) -> S:
        """Returns the structure `name` derived from the table, calling `make` if it is not cached."""
        return self.byte_cache.get((key, name), make)


_CACHES: WeakKeyDictionary[TableStore, ColumnCache] = WeakKeyDictionary()
_LOCK = threading.Lock()


def column_cache_of(tables: TableStore) -> ColumnCache:
    """Returns the column cache of one graph in this process."""
    with _LOCK:
        cache = _CACHES.get(tables)
        if cache is None:
            cache = _CACHES[tables] = ColumnCache()
        return cache
