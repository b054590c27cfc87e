"""Versions that this process has open: one Lance session for all tables, one handle per version, and their I/O."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.storage.lance.errors import lance_call
from omnigraph.storage.lance.known_ids import KnownIds
from omnigraph.storage.lance.pinned_table import PinnedTable

if TYPE_CHECKING:
    import lance

_KEPT_VERSIONS = 512
_KEPT_FRAGMENTS = 100_000
"""Fragments of all kept versions together: each takes 1.4 kB in every handle that has been read through."""

_ALWAYS_KEPT = 64
"""Versions kept however large they are, so that a graph of several large tables does not open them repeatedly."""


@dataclass(frozen=True, slots=True)
class IoStats:
    """Requests and bytes of Lance, which does its own I/O past the object-store seam, since the store was opened.

    Listing and HEAD count as reads.
    """

    read_iops: int
    write_iops: int
    read_bytes: int
    write_bytes: int

    @classmethod
    def of(cls, lance_stats: Any) -> IoStats:
        return cls(lance_stats.read_iops, lance_stats.write_iops, lance_stats.read_bytes, lance_stats.written_bytes)

    def __add__(self, other: IoStats) -> IoStats:
        return IoStats(
            self.read_iops + other.read_iops,
            self.write_iops + other.write_iops,
            self.read_bytes + other.read_bytes,
            self.write_bytes + other.write_bytes,
        )

    def __sub__(self, other: IoStats) -> IoStats:
        return IoStats(
            self.read_iops - other.read_iops,
            self.write_iops - other.write_iops,
            self.read_bytes - other.read_bytes,
            self.write_bytes - other.write_bytes,
        )


class OpenVersions:
    """A thread-safe cache of handles. A version never changes, so its handle never becomes stale."""

    def __init__(
        self, address: str, options: Mapping[str, str] | None, *, index_cache_bytes: int, metadata_cache_bytes: int
    ) -> None:
        self.ids = KnownIds()
        self._address = address
        self._options = dict(options) if options else None
        self._cache_bytes = (index_cache_bytes, metadata_cache_bytes)
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], PinnedTable] = OrderedDict()
        self._fragments = 0
        self._session: lance.Session | None = None
        self._outside = IoStats(0, 0, 0, 0)
        self._meter: lance.LanceDataset | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def uri(self, table: str) -> str:
        return f"{self._address}/tables/{table}"

    def open(self, table: str, version: str) -> PinnedTable:
        """The version, from memory if this process opened or committed it. Raises ObjectMissing if there is none."""
        with self._lock:
            cached = self._kept.get((table, version))
            if cached is not None:
                self._kept.move_to_end((table, version))
                return cached
        import lance

        with lance_call(f"open version {version} of table {table}"):
            dataset = lance.LanceDataset(
                self.uri(table), int(version), storage_options=self._options, session=self._get_session()
            )
        return self.keep(PinnedTable(table, dataset, self.ids))

    def get_cached(self, table: str, version: str) -> PinnedTable | None:
        """The version if it is in memory, else None."""
        with self._lock:
            return self._kept.get((table, version))

    def keep(self, opened: PinnedTable) -> PinnedTable:
        """Keep a version in memory and return its handle: the first one, if the version was kept before."""
        with self._lock:
            if self._meter is None:
                self._meter = opened.lance()
            key = opened.table, opened.version
            if key not in self._kept:
                self._kept[key] = opened
                self._fragments += opened.fragments
            self._kept.move_to_end(key)
            while len(self._kept) > (_KEPT_VERSIONS if self._fragments <= _KEPT_FRAGMENTS else _ALWAYS_KEPT):
                self._fragments -= self._kept.popitem(last=False)[1].fragments
            return self._kept[key]

    def adopt(self, table: str, dataset: lance.LanceDataset) -> lance.LanceDataset:
        """Reopen a dataset of another Lance session in the shared session, without a request."""
        with self._lock:
            self._outside = self._outside + IoStats.of(dataset.io_stats_snapshot())
        return self._handle(table, dataset)

    def reopen(self, base: PinnedTable) -> PinnedTable:
        """The same version under a new handle: building an index locks the handle against all other use."""
        return PinnedTable(base.table, self._handle(base.table, base.lance()), self.ids)

    def io_stats(self) -> IoStats:
        with self._lock:
            meter, outside = self._meter, self._outside
        return outside if meter is None else outside + IoStats.of(meter.io_stats_snapshot())

    def forget(self) -> None:
        with self._lock:
            self._kept.clear()
            self._fragments = 0

    def _handle(self, table: str, dataset: lance.LanceDataset) -> lance.LanceDataset:
        import lance

        return lance.LanceDataset(
            self.uri(table),
            dataset.version,
            storage_options=self._options,
            session=self._get_session(),
            serialized_manifest=bytes(dataset._ds.serialized_manifest()),
        )

    def _get_session(self) -> lance.Session:
        with self._lock:
            if self._session is None:
                import lance

                index_bytes, metadata_bytes = self._cache_bytes
                self._session = lance.Session(
                    index_cache_size_bytes=index_bytes, metadata_cache_size_bytes=metadata_bytes
                )
            return self._session
