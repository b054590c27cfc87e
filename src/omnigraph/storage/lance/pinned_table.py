"""Reading one immutable table version."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Unsupported
from omnigraph.storage.lance.arrow_fit import ReadShape, with_columns
from omnigraph.storage.lance.errors import lance_call, lance_read
from omnigraph.storage.lance.field_ids import read_proto
from omnigraph.storage.lance.filters import all_of, can_lance_evaluate, columns_in_filter, equals_any, to_substrait
from omnigraph.storage.lance.known_ids import KnownIds
from omnigraph.storage.lance.row_address import (
    ROW_ADDRESS,
    ROW_ADDRESS_FIELD,
    offsets_of,
    pack_address,
    pack_addresses,
    split_address,
)
from omnigraph.storage.lance.staged_table import data_bytes, fragment_files

if TYPE_CHECKING:
    import lance
    from lance.dataset import LanceScanner
    from lance.fragment import FragmentMetadata

#: Values per pushed-down `isin`; longer lists become several filters.
_VALUES_PER_FILTER = 2_000
#: A lookup of more than one row in this many scans the column instead of asking the index for each value.
_SCAN_INSTEAD_RATIO = 50
_FEW_VALUES = 200
_ROWS_PER_TAKE = 8_192

#: Property of a Lance transaction: the version on which the commit was prepared.
BASE_PROPERTY = "base"

_MANIFEST_MAX_FRAGMENT = 11
_MANIFEST_TRANSACTION = 12
_BIRTH_MANIFEST = "_versions/18446744073709551614.manifest"
_DETACHED = 1 << 63
_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """One index: all segments of one name. Lookups scan the fragments outside `covered_fragments`."""

    name: str
    kind: str
    columns: tuple[str, ...]
    covered_fragments: frozenset[int]
    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """One built part of an index in one version; `fragments` may name fragments that no longer exist."""

    uuid: str
    name: str
    kind: str
    field_ids: tuple[int, ...]
    columns: tuple[str, ...]
    fragments: frozenset[int]


def plain_kind(kind: str) -> str:
    """One spelling for `BTree` and `BTREE`, `LabelList` and `LABEL_LIST`."""
    return kind.replace("_", "").upper()


class PinnedTable:
    """One version of one table. Immutable and thread-safe; opening it costs its manifest, reading costs the data.

    Reads take an optional `schema`, the columns and types that the caller knows; it may be older or newer than the
    version. Columns of the schema that this version lacks come as nulls; other columns of the version are not read.
    """

    def __init__(self, table: str, dataset: lance.LanceDataset, known_ids: KnownIds | None = None) -> None:
        self.table = table
        self.version = str(dataset.version)
        self._dataset = dataset
        self._known_ids = known_ids or KnownIds()

    def __repr__(self) -> str:
        return f"PinnedTable({self.table!r}, {self.version!r})"

    def lance(self) -> lance.LanceDataset:
        """The raw Lance handle, for engines that scan it. Nothing may commit through it."""
        return self._dataset

    @cached_property
    def schema(self) -> pa.Schema:
        return self._dataset.schema

    @cached_property
    def metadata(self) -> tuple[FragmentMetadata, ...]:
        """Fragments as the manifest describes them; costs no request."""
        return tuple(fragment.metadata for fragment in self._dataset.get_fragments())

    @cached_property
    def rows(self) -> int:
        return sum(fragment.num_rows for fragment in self.metadata)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the data files, removed rows included."""
        return data_bytes(self.metadata)

    @cached_property
    def fragments(self) -> int:
        return int(self._dataset._ds.count_fragments())

    @cached_property
    def manifest(self) -> dict[int, Any]:
        """Single-valued fields of the Lance manifest, by protobuf field number."""
        return {tag: value for tag, _, value in read_proto(bytes(self._dataset._ds.serialized_manifest()))}

    @property
    def max_fragment_id(self) -> int:
        """Greatest fragment id ever used in this line of versions, -1 if none; ids are not used again."""
        return int(self.manifest.get(_MANIFEST_MAX_FRAGMENT, -1))

    def find(
        self, ids: Sequence[str], columns: Sequence[str] | None = None, *, schema: pa.Schema | None = None
    ) -> pa.Table:
        """The rows with these ids, in any order."""
        possible = self._may_hold(ids)
        if possible is not None and not possible:
            return self._shape(columns, schema).out.empty_table()
        return self._find_by("id", ids, columns, schema, possible)

    def find_by(
        self,
        column: str,
        values: Sequence[Any],
        columns: Sequence[str] | None = None,
        *,
        schema: pa.Schema | None = None,
    ) -> pa.Table:
        """Rows whose `column` equals one of `values`; nulls never match. Uses the column's index if there is one."""
        return self._find_by(column, values, columns, schema, None)

    def _find_by(
        self,
        column: str,
        values: Sequence[Any],
        columns: Sequence[str] | None,
        schema: pa.Schema | None,
        fragment_ids: Collection[int] | None,
    ) -> pa.Table:
        shape = self._shape(columns, schema)
        distinct = list(dict.fromkeys(value for value in values if value is not None))
        if not distinct or column not in self.schema.names:
            return shape.out.empty_table()
        if (
            not self._reads_whole_column(len(distinct))
            and equals_any(self.schema.field(column), distinct[:1]) is not None
        ):
            return shape.fit(self._matches(column, distinct, shape.physical, fragment_ids))
        matches = self._hash_matches(column, distinct, fragment_ids)
        return shape.fit(self._take(matches[ROW_ADDRESS], shape.physical))

    def _may_hold(self, ids: Sequence[str]) -> set[int] | None:
        """The fragments that may hold one of the ids, None for all. Reads the ids of small fragments once per process.

        Otherwise every lookup would read every fragment that folds have added since the last compaction.
        """
        unread = self._known_ids.unknown_small(self.metadata)
        if unread:
            self._known_ids.remember_read(unread, self._ids_by_fragment([fragment.id for fragment in unread]))
        return self._known_ids.may_hold(self.metadata, ids)

    def _ids_by_fragment(self, fragment_ids: Sequence[int]) -> dict[int, list[str]]:
        ids_by_fragment: dict[int, list[str]] = {fragment_id: [] for fragment_id in fragment_ids}
        for batch in self._batches_of(self._scanner(["id"], None, ids_by_fragment.keys(), address=True)):
            for row_id, address in zip(batch["id"].to_pylist(), batch[ROW_ADDRESS].to_pylist(), strict=True):
                ids_by_fragment[split_address(address)[0]].append(row_id)
        return ids_by_fragment

    def addresses(self, ids: Sequence[str], fragment_ids: Collection[int] | None = None) -> pa.Table:
        """`id` and `_rowaddr` of those ids that this version holds, optionally only in some fragments."""
        possible = self._may_hold(ids)
        if possible is not None:
            fragment_ids = possible if fragment_ids is None else possible & set(fragment_ids)
        if fragment_ids is not None and not fragment_ids:
            return pa.schema([self.schema.field("id"), ROW_ADDRESS_FIELD]).empty_table()
        if self._reads_whole_column(len(ids)):
            return self._hash_matches("id", ids, fragment_ids)
        return self._matches("id", ids, ["id"], fragment_ids, address=True)

    def ids_of_fragments(self, fragment_ids: Collection[int]) -> Iterator[str]:
        """Every id in these fragments."""
        for batch in self._batches_of(self._scanner(["id"], None, fragment_ids)):
            yield from batch.column("id").to_pylist()

    def find_in(
        self, fragment_ids: Collection[int], column: str, values: Sequence[Any], columns: Sequence[str] = ("id",)
    ) -> pa.Table:
        """Rows of these fragments whose `column` equals one of `values`, with these columns and `_rowaddr`."""
        distinct = list(dict.fromkeys(value for value in values if value is not None))
        names = [name for name in columns if name in self.schema.names]
        if not distinct or not fragment_ids or column not in self.schema.names:
            distinct = []
        return self._matches(column, distinct, names, fragment_ids, address=True)

    def id_batches(self, fragment_ids: Collection[int], columns: Sequence[str] = ("id",)) -> Iterator[pa.RecordBatch]:
        """These columns and `_rowaddr` of every row in these fragments."""
        return self._batches_of(self._scanner(list(columns), None, fragment_ids, address=True))

    def row_at(self, fragment_id: int, offset: int) -> pa.Table:
        """All columns of the row at this offset of a fragment."""
        return self._take(pa.chunked_array([[pack_address(fragment_id, offset)]], pa.uint64()), self.schema.names)

    def offsets_of(self, fragment_id: int) -> npt.NDArray[np.uint64]:
        """The offsets of a fragment that hold a row; costs its deletion file and no data."""
        parts = [
            offsets_of(batch.column(ROW_ADDRESS).to_numpy())
            for batch in self._batches_of(self._scanner([], None, [fragment_id], address=True))
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    def ids_at(self, fragment_id: int, offsets: npt.NDArray[np.uint64]) -> list[str]:
        """The ids at these offsets of a fragment."""
        addresses = pa.chunked_array([pa.array(pack_addresses(fragment_id, offsets))])
        return list(self._take(addresses, ["id"])["id"].to_pylist())

    def rows_at(
        self, fragment_id: int, offsets: npt.NDArray[np.uint64], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """These columns and `_rowaddr` of the rows at these offsets of a fragment."""
        for start in range(0, len(offsets), _ROWS_PER_TAKE):
            addresses = pa.array(pack_addresses(fragment_id, offsets[start : start + _ROWS_PER_TAKE]))
            rows = self._take(pa.chunked_array([addresses]), list(columns))
            assert rows.num_rows == len(addresses), "an offset without a row was asked for"
            yield from (
                rows.append_column(ROW_ADDRESS_FIELD, pa.chunked_array([addresses])).combine_chunks().to_batches()
            )

    def read_fragment(self, fragment_id: int) -> int:
        """Read all of one fragment, to see that it is readable, and return its number of rows."""
        scanner = self._scanner(list(self.schema.names), None, [fragment_id])
        return sum(batch.num_rows for batch in self._batches_of(scanner))

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        limit: int | None = None,
        hidden_ids: Collection[str] = (),
        *,
        schema: pa.Schema | None = None,
    ) -> pa.Table:
        """Rows that satisfy `where` and are not hidden; the limit applies to those (H10)."""
        shape = self._shape(columns, schema)
        batches: list[pa.RecordBatch] = []
        remaining = limit
        for batch in self._stream(shape, where, hidden_ids, limit):
            part = batch if remaining is None else batch.slice(0, remaining)
            batches.append(part)
            if remaining is not None:
                remaining -= part.num_rows
                if remaining <= 0:
                    break
        return pa.Table.from_batches(batches, shape.out)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        hidden_ids: Collection[str] = (),
        *,
        schema: pa.Schema | None = None,
        fragment_ids: Collection[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Like `scan`, in bounded memory, optionally of some fragments only."""
        return self._stream(self._shape(columns, schema), where, hidden_ids, None, fragment_ids)

    def count(self, where: pc.Expression | None = None, *, schema: pa.Schema | None = None) -> int:
        if where is None:
            return self.rows
        scanner = self._try_push_down(self._shape(["id"], schema), where, None)
        if scanner is None:
            return sum(batch.num_rows for batch in self.batches(["id"], where, schema=schema))
        with lance_call(f"count rows of table {self.table}"):
            return int(scanner.count_rows())

    def indices(self) -> list[IndexInfo]:
        """Indexes by name, with the fragments of this version that each covers."""
        fragment_ids = {fragment.id for fragment in self.metadata}
        segments_by_name: dict[str, list[Segment]] = {}
        for segment in self.segments():
            segments_by_name.setdefault(segment.name, []).append(segment)
        return [
            IndexInfo(
                name=name,
                kind=parts[0].kind,
                columns=parts[0].columns,
                covered_fragments=frozenset(
                    fragment for segment in parts for fragment in segment.fragments & fragment_ids
                ),
                segments=tuple(segment.uuid for segment in parts),
            )
            for name, parts in segments_by_name.items()
        ]

    def segments(self) -> list[Segment]:
        """Every segment of every index; costs at most one request, and none if there is no index."""
        with lance_call(f"list indexes of table {self.table}"):
            return [
                Segment(
                    uuid=str(part.uuid),
                    name=index.name,
                    kind=plain_kind(index.index_type),
                    field_ids=tuple(index.fields),
                    columns=tuple(index.field_names),
                    fragments=frozenset(part.fragment_ids),
                )
                for index in self._dataset.describe_indices()
                for part in index.segments
            ]

    def base_version(self) -> str | None:
        """The version that this one was committed on, from its transaction (one request); None for a birth."""
        with lance_call(f"read the transaction of version {self.version} of table {self.table}"):
            transaction = self._dataset.read_transaction(int(self.version))
        base = (transaction.transaction_properties or {}).get(BASE_PROPERTY)
        return None if base == "0" else base

    def files(self) -> set[str]:
        """Every file this version names, by key relative to the graph's root; a key ending in '/' is a folder.

        Includes the manifest of version 1: without that manifest a second birth would create the table anew.
        """
        names = {_BIRTH_MANIFEST, self.manifest_file}
        names.update(name for fragment in self.metadata for name in fragment_files(fragment))
        names.update(f"_indices/{segment.uuid}/" for segment in self.segments())
        transaction = self.manifest.get(_MANIFEST_TRANSACTION)
        if transaction:
            names.add(f"_transactions/{bytes(transaction).decode()}")
        return {f"tables/{self.table}/{name}" for name in names}

    @property
    def manifest_file(self) -> str:
        """Path of the manifest, relative to the table."""
        number = int(self.version)
        return f"_versions/d{number}.manifest" if number >= _DETACHED else f"_versions/{_U64 - number}.manifest"

    def _shape(self, columns: Sequence[str] | None, schema: pa.Schema | None) -> ReadShape:
        return ReadShape.of(columns, schema if schema is not None else self.schema, self.schema)

    def _reads_whole_column(self, values: int) -> bool:
        return values > _FEW_VALUES and values * _SCAN_INSTEAD_RATIO > self.rows

    def _stream(
        self,
        shape: ReadShape,
        where: pc.Expression | None,
        hidden_ids: Collection[str],
        limit: int | None,
        fragment_ids: Collection[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if not self.rows:
            return
        is_visible = ~pc.field("id").isin(pa.array(hidden_ids, pa.utf8())) if hidden_ids else None
        scanner = self._try_push_down(shape, all_of(where, is_visible), limit, fragment_ids)
        if scanner is not None:
            for batch in self._batches_of(scanner):
                yield shape.fit_batch(batch)
            return
        # Lance cannot evaluate the filter, or does not store a column of it, which is null in all these rows.
        wider = self._shape(with_columns(shape.out.names, "id", *columns_in_filter(where, shape.known)), shape.known)
        for batch in self._batches_of(self._scanner(wider.physical, is_visible, fragment_ids)):
            with lance_call(f"filter table {self.table}"):
                matching = pa.Table.from_batches([wider.fit_batch(batch)]).filter(where)
            yield from shape.fit(matching).to_batches()

    def _try_push_down(
        self,
        shape: ReadShape,
        where: pc.Expression | None,
        limit: int | None,
        fragment_ids: Collection[int] | None = None,
    ) -> LanceScanner | None:
        """A scanner in which Lance evaluates the filter, or None if Lance cannot."""
        if where is not None and not can_lance_evaluate(where, shape.known, self.schema):
            return None
        try:
            return self._scanner(shape.physical, where, fragment_ids, limit=limit)
        except Unsupported:
            return None

    def _scanner(
        self,
        columns: list[str],
        where: pc.Expression | str | None,
        fragment_ids: Collection[int] | None = None,
        *,
        address: bool = False,
        limit: int | None = None,
    ) -> LanceScanner:
        from lance.dataset import ScannerBuilder

        with lance_read(self.table):
            builder = ScannerBuilder(self._dataset).columns(columns).with_row_address(address)
            if isinstance(where, str):
                builder.filter(where)
            elif where is not None:
                builder._substrait_filter = to_substrait(where, self.schema)
            if limit is not None:
                builder.limit(limit)
            if fragment_ids is not None:
                builder.with_fragments(
                    [fragment for fragment in self._dataset.get_fragments() if fragment.fragment_id in fragment_ids]
                )
            return builder.to_scanner()

    def _batches_of(self, scanner: LanceScanner) -> Iterator[pa.RecordBatch]:
        with lance_read(self.table):
            yield from scanner.to_batches()

    def _matches(
        self,
        column: str,
        values: Sequence[Any],
        columns: list[str],
        fragment_ids: Collection[int] | None = None,
        *,
        address: bool = False,
    ) -> pa.Table:
        """Rows whose `column` is one of the values, through an index if there is one; long lists take several scans."""
        fields = [self.schema.field(name) for name in columns]
        schema = pa.schema([*fields, ROW_ADDRESS_FIELD] if address else fields)
        batches: list[pa.RecordBatch] = []
        for start in range(0, len(values) if self.rows else 0, _VALUES_PER_FILTER):
            where = equals_any(self.schema.field(column), values[start : start + _VALUES_PER_FILTER])
            batches += self._batches_of(self._scanner(columns, where, fragment_ids, address=address))
        return pa.Table.from_batches(batches, schema)

    def _hash_matches(self, column: str, values: Sequence[Any], fragment_ids: Collection[int] | None) -> pa.Table:
        """Like `_matches`, by one scan of the whole column: cheaper for a large share of its values."""
        value_set = pa.array(values, self.schema.field(column).type)
        schema = pa.schema([self.schema.field(column), ROW_ADDRESS_FIELD])
        matching = (
            batch.filter(pc.is_in(batch.column(column), value_set))
            for batch in self._batches_of(self._scanner([column], None, fragment_ids, address=True))
        )
        return pa.Table.from_batches(matching, schema)

    def _take(self, addresses: pa.ChunkedArray, columns: list[str]) -> pa.Table:
        address_list = addresses.to_pylist()
        with lance_read(self.table):
            parts = [
                self._dataset._take_rows(address_list[start : start + _ROWS_PER_TAKE], columns=columns)
                for start in range(0, len(address_list), _ROWS_PER_TAKE)
            ]
        return pa.concat_tables(parts) if parts else pa.schema(map(self.schema.field, columns)).empty_table()
