"""Rows in which versions of tables differ, brought together by id: one shuffle for all tables.

Workers read what only one of two versions has, cut it by a hash of the id, and send the cuts on as opaque bytes in
Arrow's own format. So rows cross the JVM unseen and in their very types, and the rows of one id, whatever table
version they come from, arrive at one worker together. How many cuts a table is given follows from the sizes of what
is read, so that one of them fits into a worker's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from omnigraph.commit.staging import version_in_record
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.pending_table import Row
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.table_rows import BaseTable
from omnigraph.storage.lance import FragmentDifference, PinnedTable, TableLocation, differing_rows, fragment_differences
from omnigraph.storage.lance.arrow_fit import fit_table
from omnigraph.storage.lance.row_address import ROW_ADDRESS, SIGNED_ROW_ADDRESS_FIELD, no_addresses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKET_ROWS = 100_000
BUCKET_BYTES = 64 << 20
#: What one worker reads: pieces together as long as they stay within both.
_UNIT_ROWS = 500_000
_UNIT_BYTES = 64 << 20
#: What is cut at a time: enough that the cuts are not tiny, little enough to be held.
_CUT_ROWS = 100_000
_CUT_BYTES = 32 << 20
_PARTS = "at int, bucket int, side int, rows binary"
_PARTS_SCHEMA = pa.schema(
    [pa.field("at", pa.int32()), pa.field("bucket", pa.int32()), pa.field("side", pa.int32()), ("rows", pa.binary())]
)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")

BySide = Mapping[int, pa.Table]
Work = Callable[[int, BySide], pa.Table]
"""What is made of the rows of one bucket: the number of their table, and the rows by side."""


class Unit(Protocol):
    """What one task reads of one table: rows, each part of them on a side."""

    @property
    def at(self) -> int: ...

    def read(self, place: TableLocation) -> Iterator[tuple[int, pa.Table]]: ...


@dataclass(frozen=True, slots=True)
class PieceUnit:
    """Rows of some pieces of a version that the other version does not have, but for those that are asked for apart."""

    at: int
    side: int
    type: TypeDef
    version: str
    other: str | None
    pieces: tuple[FragmentDifference, ...]
    apart: tuple[str, ...]

    def read(self, place: TableLocation) -> Iterator[tuple[int, pa.Table]]:
        store, table = place.open(), self.type.id
        here = store.open(table, self.version)
        there = store.open(table, self.other) if self.other is not None else None
        schema = arrow_schema(self.type)
        names = [name for name in schema.names if name in here.schema.names]
        apart = pa.array(self.apart, pa.utf8())
        batches = (batch for piece in self.pieces for batch in differing_rows(here, there, piece, names))
        for rows in _gathered(batches):
            shown = rows.filter(pc.invert(pc.is_in(rows["id"], apart))) if len(apart) else rows
            if shown.num_rows:
                yield self.side, fit_table(shown, schema.append(SIGNED_ROW_ADDRESS_FIELD))


@dataclass(frozen=True, slots=True)
class LookupUnit:
    """Some ids as one state of the table has them, on each of the sides; on `placed`, where the pin has them.

    The pin may have a row under an id that the overlay hides.
    """

    at: int
    sides: tuple[int, ...]
    type: TypeDef
    base: BaseTable
    ids: tuple[str, ...]
    placed: int | None = None

    def read(self, place: TableLocation) -> Iterator[tuple[int, pa.Table]]:
        schema = arrow_schema(self.type)
        view = self.base.view(place, schema, self.type.id)
        rows = view.find(self.ids)
        if rows.num_rows:
            for side in self.sides:
                yield side, _without_addresses(rows, schema)
        if self.placed is not None and view.pinned is not None:
            found = view.pinned.addresses(self.ids)
            if found.num_rows:
                yield self.placed, pa.table({"id": found["id"], ROW_ADDRESS: found[ROW_ADDRESS].cast(pa.int64())})


@dataclass(frozen=True, slots=True)
class GivenUnit:
    """Rows that are in no table, and ids without rows."""

    at: int
    sides: tuple[int, ...]
    type: TypeDef
    rows: tuple[Row, ...]
    marked: int
    ids: tuple[str, ...]

    def read(self, place: TableLocation) -> Iterator[tuple[int, pa.Table]]:
        schema = arrow_schema(self.type)
        if self.rows:
            rows = [{name: row.get(name) for name in schema.names} for row in self.rows]
            for side in self.sides:
                yield side, _without_addresses(pa.Table.from_pylist(rows, schema), schema)
        if self.ids:
            yield self.marked, pa.table({"id": pa.array(self.ids, pa.utf8()), ROW_ADDRESS: no_addresses(len(self.ids))})


@dataclass(frozen=True)
class Parting:
    """The units of all tables, and into how many buckets each table is cut."""

    place: TableLocation
    units: tuple[Unit, ...]
    buckets: tuple[int, ...]

    def made(self, session: SparkSession, work: Work, schema: str) -> DataFrame:
        """What `work` makes of every bucket, as rows of `schema`. Nothing runs before the frame is asked."""
        if not self.units:
            return session.createDataFrame([], schema)
        count = len(self.units)

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    unit = self.units[number]
                    for side, rows in unit.read(self.place):
                        yield _cut(unit.at, side, rows, self.buckets[unit.at])

        def make(key: tuple[Any, ...], parts: pa.Table) -> pa.Table:
            return work(key[0].as_py(), _opened(parts))

        parts = session.range(0, count, 1, count).mapInArrow(read, _PARTS)
        return parts.groupBy("at", "bucket").applyInArrow(make, schema)


def piece_units(
    at: int, side: int, one: TypeDef, here: PinnedTable | None, there: PinnedTable | None, apart: Sequence[str]
) -> list[PieceUnit]:
    """What only `here` has."""
    units: list[PieceUnit] = []
    group: list[FragmentDifference] = []

    def close() -> None:
        if group:
            assert here is not None
            other = there.version if there is not None else None
            units.append(PieceUnit(at, side, one, here.version, other, tuple(group), tuple(apart)))
            group.clear()

    for piece in fragment_differences(here, there):
        rows, size = sum(one.rows for one in group), sum(one.size_bytes for one in group)
        if rows + piece.rows > _UNIT_ROWS or size + piece.size_bytes > _UNIT_BYTES:
            close()
        group.append(piece)
    close()
    return units


def bucket_count(units: Iterable[Unit], at: int) -> int:
    """So many that a bucket of the table stays within its bounds, if ids are spread evenly."""
    pieces = [piece for one in units if isinstance(one, PieceUnit) and one.at == at for piece in one.pieces]
    rows, size = sum(one.rows for one in pieces), sum(one.size_bytes for one in pieces)
    return 1 + max(rows // BUCKET_ROWS, size // BUCKET_BYTES)


def entry_ids(*overlays: OverlayTable | None) -> tuple[list[str], list[str]]:
    """(ids whose entries are not the same in all, all ids with an entry)."""
    stamps = [one.stamps if one is not None else frozenset() for one in overlays]
    every = frozenset[tuple[str, str]]().union(*stamps)
    shared = every.intersection(*stamps)
    return sorted({row_id for row_id, _ in every - shared}), sorted({row_id for row_id, _ in every})


def state_of(snapshot: Snapshot, table: str) -> BaseTable:
    """A table of a snapshot, as workers read it."""
    entries = snapshot.record.overlay.get(table)
    return BaseTable(version_in_record(snapshot.record, table), entries.as_bytes if entries is not None else None)


def images_at(rows: pa.Table, places: dict[str, int], ids: Sequence[str]) -> dict[str, Row]:
    """Rows as Python values, by id, of those that are there."""
    wanted = [places[one] for one in ids if one in places]
    return {row["id"]: row for row in rows.take(pa.array(wanted, pa.int64())).to_pylist()}


def _without_addresses(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows that lie in no fragment, with all columns of `schema` and an address column that says so."""
    return fit_table(rows, schema.append(SIGNED_ROW_ADDRESS_FIELD), {ROW_ADDRESS: no_addresses(rows.num_rows)})


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _CUT_ROWS or size >= _CUT_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _cut(at: int, side: int, rows: pa.Table, buckets: int) -> pa.RecordBatch:
    hashes = (xxhash.xxh32_intdigest(one) for one in rows["id"].cast(pa.binary()).to_pylist())
    numbers = np.fromiter(hashes, np.int64, rows.num_rows) % buckets
    order = np.argsort(numbers, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    found, starts = np.unique(numbers[order], return_index=True)
    ends = [*starts[1:].tolist(), rows.num_rows]
    cuts = [_encoded(sorted_rows.slice(start, end - start)) for start, end in zip(starts.tolist(), ends, strict=True)]
    count = len(found)
    columns = [pa.repeat(pa.scalar(at, pa.int32()), count), pa.array(found, pa.int32())]
    columns += [pa.repeat(pa.scalar(side, pa.int32()), count), pa.array(cuts, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_PARTS_SCHEMA)


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _opened(parts: pa.Table) -> dict[int, pa.Table]:
    found: dict[int, list[pa.Table]] = {}
    for side, rows in zip(parts["side"].to_pylist(), parts["rows"], strict=True):
        found.setdefault(side, []).append(pa.ipc.open_stream(rows.as_buffer()).read_all())
    return {side: pa.concat_tables(tables) for side, tables in found.items()}
