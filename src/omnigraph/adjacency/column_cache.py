"""What queries keep of a table between runs: whole columns, and structures derived from them.

Everything is keyed by the table's version and by the content of the overlay on top, so that nothing here is ever
stale. The image of a table with an overlay is made from that of its version, which a small write leaves as it is: its
rows keep their places, with newer images in the places of older ones, and new rows come behind them. Least recently
used entries go first when the bound in bytes is reached.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
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

#: Bytes kept per graph and process.
DEFAULT_BYTES = 768 << 20


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True)
class CachedTableKey:
    """One table at one state."""

    table: str
    version: str | None
    overlay: str | None

    @classmethod
    def of(cls, table: str, view: TableView) -> CachedTableKey:
        overlay = xxhash.xxh3_128_hexdigest(view.overlay.as_bytes) if view.overlay is not None else None
        return cls(table, view.pinned.version if view.pinned is not None else None, overlay)

    @property
    def base(self) -> CachedTableKey:
        """The version without the overlay."""
        return replace(self, overlay=None)


@dataclass(frozen=True)
class OverlayLayer:
    """An overlay on top of a version's image.

    `order` are the places of the rows in those of the version followed by those of the overlay; None if nothing in the
    version is replaced or gone. `added` are the overlay's rows that replace none. `stable`: the version's rows keep
    their places.
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
        found = view.pinned.find(list(view.overlay.hidden_ids), ["id"])["id"]
        places = pa.array(np.arange(rows.num_rows))
        if not len(found):
            return cls(rows, view.pinned.rows, None, places, True)
        ids = base_ids()
        at = np.flatnonzero(pc.is_in(ids, value_set=found.combine_chunks()))
        newer = pc.index_in(ids.take(pa.array(at)), value_set=rows["id"].combine_chunks())
        newer = newer.fill_null(-1).combine_chunks().to_numpy(zero_copy_only=False)
        order = np.arange(len(ids))
        order[at] = np.where(newer >= 0, len(ids) + newer, -1)
        added = np.setdiff1d(np.arange(rows.num_rows), newer)
        order = np.concatenate([order[order >= 0], len(ids) + added])
        return cls(rows, len(ids), pa.array(order), pa.array(added), bool((newer >= 0).all()))

    @property
    def changed_positions(self) -> npt.NDArray[np.int64]:
        """The places whose rows are the overlay's; only if the version's rows keep theirs."""
        assert self.is_stable
        if self.order is None:
            return np.arange(self.base_rows, self.base_rows + self.rows.num_rows)
        return np.flatnonzero(np.asarray(self.order) >= self.base_rows)

    def merge_column(self, base: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """A column of the version with the overlay on top."""
        own = self.rows[name]
        if self.order is None:
            return pa.chunked_array([*base.chunks, *own.chunks], base.type)
        return pa.chunked_array([*base.chunks, *own.chunks], base.type).take(self.order)


class ByteCache:
    """Values by key, bounded by the sum of their sizes. A value larger than half of the bound is not kept."""

    def __init__(self, bound_bytes: int = DEFAULT_BYTES) -> None:
        self.bound_bytes = bound_bytes
        self._entries: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], S]) -> S:
        """The value of the key, made if it is not here. Two threads may make it at once; one of both stays."""
        found = self.peek(key)
        if found is not None:
            return cast(S, found)
        made = make()
        self.put(key, made)
        return made

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
                _, (_, gone) = self._entries.popitem(last=False)
                self._used -= gone

    @property
    def used_bytes(self) -> int:
        return self._used

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._used = 0


class ColumnCache:
    """Whole columns of tables, all in the same order of rows, and what is derived from them."""

    def __init__(self, cache: ByteCache | None = None) -> None:
        self.byte_cache = cache or ByteCache()

    def columns(self, key: CachedTableKey, view: TableView, names: Sequence[str]) -> pa.Table:
        """These columns of every row. Missing ones are read together, in one scan."""
        wanted = list(dict.fromkeys(names))
        found = {name: self.byte_cache.peek((key, "column", name)) for name in wanted}
        missing = [name for name, column in found.items() if column is None]
        if not missing:
            return pa.table(found)
        if view.overlay is None or view.pinned is None:
            rows = view.scan(missing)
            found |= {name: rows[name] for name in missing}
            for name in missing:
                self.byte_cache.put((key, "column", name), rows[name])
            return pa.table(found)
        layer = self.layer(key, view)
        base = self.columns(key.base, replace(view, overlay=None), missing)
        for name in missing:
            found[name] = column = layer.merge_column(base[name], name)
            # Without an order it is the version's own memory, which must not be counted twice.
            if layer.order is not None:
                self.byte_cache.put((key, "column", name), column)
        return pa.table({name: found[name] for name in wanted})

    def layer(self, key: CachedTableKey, view: TableView) -> OverlayLayer:
        """How the overlay lies on the version; only for a view that has both."""

        def base_ids() -> pa.ChunkedArray:
            return self.columns(key.base, replace(view, overlay=None), ["id"])["id"]

        return self.derive(key, "layer", lambda: OverlayLayer.of(view, base_ids))

    def derive(self, key: CachedTableKey, what: Any, make: Callable[[], S]) -> S:
        return self.byte_cache.get((key, what), make)


_CACHES: WeakKeyDictionary[TableStore, ColumnCache] = WeakKeyDictionary()
_LOCK = threading.Lock()


def column_cache_of(tables: TableStore) -> ColumnCache:
    """The images of one graph in this process."""
    with _LOCK:
        found = _CACHES.get(tables)
        if found is None:
            found = _CACHES[tables] = ColumnCache()
        return found
