"""What queries keep of a table between runs: whole columns, and structures derived from them.

Everything is keyed by the table's version and by the content of the overlay on top, so that nothing here is ever
stale. Least recently used entries go first when the bound in bytes is reached.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
import xxhash

from omnigraph.log.view import TableView
from omnigraph.storage.tables import TableStore

#: Bytes kept per graph and process.
DEFAULT_BYTES = 768 << 20


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True)
class ImageKey:
    """One table at one state."""

    table: str
    version: str | None
    overlay: str | None

    @classmethod
    def of(cls, table: str, view: TableView) -> ImageKey:
        overlay = xxhash.xxh3_128_hexdigest(view.overlay.encoded) if view.overlay is not None else None
        return cls(table, view.pinned.version if view.pinned is not None else None, overlay)


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


class Images:
    """Whole columns of tables, all in the same order of rows, and what is derived from them."""

    def __init__(self, cache: ByteCache | None = None) -> None:
        self.cache = cache or ByteCache()

    def columns(self, key: ImageKey, view: TableView, names: Sequence[str]) -> pa.Table:
        """These columns of every row. Missing ones are read together, in one scan."""
        wanted = list(dict.fromkeys(names))
        found = {name: self.cache.peek((key, "column", name)) for name in wanted}
        missing = [name for name, column in found.items() if column is None]
        if missing:
            rows = view.scan(missing)
            for name in missing:
                found[name] = rows[name]
                self.cache.put((key, "column", name), rows[name])
        return pa.table({name: found[name] for name in wanted})

    def holds(self, key: ImageKey, names: Sequence[str]) -> bool:
        return all(self.cache.peek((key, "column", name)) is not None for name in names)

    def derived(self, key: ImageKey, what: Any, make: Callable[[], S]) -> S:
        return self.cache.get((key, what), make)


_IMAGES: WeakKeyDictionary[TableStore, Images] = WeakKeyDictionary()
_LOCK = threading.Lock()


def images_of(tables: TableStore) -> Images:
    """The images of one graph in this process."""
    with _LOCK:
        found = _IMAGES.get(tables)
        if found is None:
            found = _IMAGES[tables] = Images()
        return found
