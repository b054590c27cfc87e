"""Brings the rows in which versions of tables differ together by id: one shuffle for all tables, for merge and diff.

Workers read the rows that only one of two versions has, cut them into buckets by a hash of the id, and send the cuts
on as opaque bytes in Arrow's format. So Spark does not convert the rows, and all rows of one id, whatever version they
come from, arrive at one worker. The number of buckets of a table follows from the size of what is read, so that a
bucket fits into the memory of a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from omnigraph.log.overlay import OverlayTable
from omnigraph.mutate.pending_table import Row
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.table_rows import BaseTable
from omnigraph.storage.lance import PinnedTable, TableLocation
from omnigraph.storage.lance.arrow_fit import fit_table
from omnigraph.storage.lance.row_address import ROW_ADDRESS, SIGNED_ROW_ADDRESS_FIELD, no_addresses
from omnigraph.storage.lance.version_difference import FragmentDifference, differing_rows, fragment_differences

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKET_ROWS = 100_000
BUCKET_BYTES = 64 << 20
#: What one task reads: several fragments as long as they stay within both bounds.
_TASK_ROWS = 500_000
_TASK_BYTES = 64 << 20
#: Rows that are cut at a time: enough that the cuts are not tiny, few enough to be held in memory.
_CUT_ROWS = 100_000
_CUT_BYTES = 32 << 20
_CUTS = "at int, bucket int, side int, rows binary"
_CUTS_SCHEMA = pa.schema(
    [pa.field("at", pa.int32()), pa.field("bucket", pa.int32()), pa.field("side", pa.int32()), ("rows", pa.binary())]
)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")

RowsBySide = Mapping[int, pa.Table]
"""The rows of one bucket. A side says which version of the table, or which list of ids, they come from."""
WorkOnBucket = Callable[[int, RowsBySide], pa.Table]
"""Turns the number of a table and the rows of one of its buckets into rows of a result."""


class ShuffleRead(Protocol):
    """What one task reads of one table: rows, with the number of their side (see `RowsBySide`)."""

    @property
    def table_number(self) -> int: ...

    def read(self, location: TableLocation) -> Iterator[tuple[int, pa.Table]]: ...


@dataclass(frozen=True, slots=True)
class DifferenceRead:
    """The rows that `version` has and `baseline` lacks, in some fragments. Rows of `excluded_ids` are read apart."""

    table_number: int
    side: int
    type_def: TypeDef
    version: str
    baseline: str | None
    differences: tuple[FragmentDifference, ...]
    excluded_ids: tuple[str, ...]

    def read(self, location: TableLocation) -> Iterator[tuple[int, pa.Table]]:
        store, table = location.open(), self.type_def.id
        version = store.open(table, self.version)
        baseline = store.open(table, self.baseline) if self.baseline is not None else None
        schema = arrow_schema(self.type_def)
        names = [name for name in schema.names if name in version.schema.names]
        excluded_ids = pa.array(self.excluded_ids, pa.utf8())
        batches = (
            batch for difference in self.differences for batch in differing_rows(version, baseline, difference, names)
        )
        for rows in _collect_batches(batches):
            included = rows.filter(pc.invert(pc.is_in(rows["id"], excluded_ids))) if len(excluded_ids) else rows
            if included.num_rows:
                yield self.side, fit_table(included, schema.append(SIGNED_ROW_ADDRESS_FIELD))


@dataclass(frozen=True, slots=True)
class LookupRead:
    """Some ids as one snapshot of the table has them, on each of `sides`.

    On `address_side` are the addresses at which the pinned version has them, even if the overlay hides them.
    """

    table_number: int
    sides: tuple[int, ...]
    type_def: TypeDef
    base: BaseTable
    ids: tuple[str, ...]
    address_side: int | None = None

    def read(self, location: TableLocation) -> Iterator[tuple[int, pa.Table]]:
        schema = arrow_schema(self.type_def)
        view = self.base.view(location, schema, self.type_def.id)
        rows = view.find(self.ids)
        if rows.num_rows:
            for side in self.sides:
                yield side, _without_addresses(rows, schema)
        if self.address_side is not None and view.pinned is not None:
            addresses = view.pinned.addresses(self.ids)
            if addresses.num_rows:
                signed = addresses[ROW_ADDRESS].cast(pa.int64())
                yield self.address_side, pa.table({"id": addresses["id"], ROW_ADDRESS: signed})


@dataclass(frozen=True, slots=True)
class ValuesRead:
    """Rows that no table version has, passed along by the driver: `rows` on each of `sides`, `ids` on `id_side`."""

    table_number: int
    sides: tuple[int, ...]
    type_def: TypeDef
    rows: tuple[Row, ...]
    id_side: int
    ids: tuple[str, ...]

    def read(self, location: TableLocation) -> Iterator[tuple[int, pa.Table]]:
        schema = arrow_schema(self.type_def)
        if self.rows:
            rows = [{name: row.get(name) for name in schema.names} for row in self.rows]
            for side in self.sides:
                yield side, _without_addresses(pa.Table.from_pylist(rows, schema), schema)
        if self.ids:
            ids = pa.array(self.ids, pa.utf8())
            yield self.id_side, pa.table({"id": ids, ROW_ADDRESS: no_addresses(len(self.ids))})


@dataclass(frozen=True)
class ShuffleById:
    """One shuffle of what `reads` return; `buckets` says into how many buckets each table is cut."""

    location: TableLocation
    reads: tuple[ShuffleRead, ...]
    buckets: tuple[int, ...]

    @classmethod
    def of_tables(cls, location: TableLocation, reads: Iterable[ShuffleRead], table_count: int) -> ShuffleById:
        all_reads = tuple(reads)
        return cls(location, all_reads, tuple(_count_buckets(all_reads, number) for number in range(table_count)))

    def apply(self, session: SparkSession, work: WorkOnBucket, schema: str) -> DataFrame:
        """What `work` returns for every bucket, as rows of `schema`. Nothing runs before the frame is collected."""
        if not self.reads:
            return session.createDataFrame([], schema)
        count = len(self.reads)

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    task = self.reads[number]
                    for side, rows in task.read(self.location):
                        yield _cut_by_bucket(task.table_number, side, rows, self.buckets[task.table_number])

        def work_on_bucket(key: tuple[Any, ...], cuts: pa.Table) -> pa.Table:
            return work(key[0].as_py(), _decode_cuts(cuts))

        cuts = session.range(0, count, 1, count).mapInArrow(read, _CUTS)
        return cuts.groupBy("at", "bucket").applyInArrow(work_on_bucket, schema)


def plan_difference_reads(
    table_number: int,
    side: int,
    type_def: TypeDef,
    version: PinnedTable | None,
    baseline: PinnedTable | None,
    excluded_ids: Sequence[str],
) -> list[DifferenceRead]:
    """The tasks that read what only `version` has."""
    reads: list[DifferenceRead] = []
    group: list[FragmentDifference] = []

    def close_group() -> None:
        if group:
            assert version is not None
            baseline_version = baseline.version if baseline is not None else None
            reads.append(
                DifferenceRead(
                    table_number,
                    side,
                    type_def,
                    version.version,
                    baseline_version,
                    tuple(group),
                    tuple(excluded_ids),
                )
            )
            group.clear()

    for difference in fragment_differences(version, baseline):
        rows, size_bytes = _measure(group)
        if rows + difference.rows > _TASK_ROWS or size_bytes + difference.size_bytes > _TASK_BYTES:
            close_group()
        group.append(difference)
    close_group()
    return reads


def compare_overlay_ids(*overlays: OverlayTable | None) -> tuple[list[str], list[str]]:
    """(ids whose entries are not the same in all overlays, all ids with an entry)."""
    entry_keys = [overlay.entry_keys if overlay is not None else frozenset() for overlay in overlays]
    all_keys = frozenset[tuple[str, str]]().union(*entry_keys)
    shared = all_keys.intersection(*entry_keys)
    return sorted({row_id for row_id, _ in all_keys - shared}), sorted({row_id for row_id, _ in all_keys})


def take_rows(rows: pa.Table, positions: Mapping[str, int], ids: Sequence[str]) -> dict[str, Row]:
    """The rows of those `ids` that have a position, as Python values by id."""
    row_positions = [positions[row_id] for row_id in ids if row_id in positions]
    return {row["id"]: row for row in rows.take(pa.array(row_positions, pa.int64())).to_pylist()}


def map_positions(rows: pa.Table) -> dict[str, int]:
    """The position of every row in the table, by id."""
    return {row_id: position for position, row_id in enumerate(rows["id"].to_pylist())}


def _count_buckets(reads: Iterable[ShuffleRead], table_number: int) -> int:
    """As many as keep a bucket of the table within its bounds, if ids are spread evenly."""
    differences = [
        difference
        for task in reads
        if isinstance(task, DifferenceRead) and task.table_number == table_number
        for difference in task.differences
    ]
    rows, size_bytes = _measure(differences)
    return 1 + max(rows // BUCKET_ROWS, size_bytes // BUCKET_BYTES)


def _measure(differences: Sequence[FragmentDifference]) -> tuple[int, int]:
    """(rows, bytes)."""
    rows = sum(difference.rows for difference in differences)
    return rows, sum(difference.size_bytes for difference in differences)


def _without_addresses(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows that lie in no fragment, with all columns of `schema` and an address column that says so."""
    return fit_table(rows, schema.append(SIGNED_ROW_ADDRESS_FIELD), {ROW_ADDRESS: no_addresses(rows.num_rows)})


def _collect_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Several batches as one table, as long as it stays within bounds."""
    collected: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        collected.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= _CUT_ROWS or size_bytes >= _CUT_BYTES:
            yield pa.Table.from_batches(collected)
            collected, rows, size_bytes = [], 0, 0
    if collected:
        yield pa.Table.from_batches(collected)


def _cut_by_bucket(table_number: int, side: int, rows: pa.Table, bucket_count: int) -> pa.RecordBatch:
    """The rows cut by bucket, one row of `_CUTS` for each bucket that has any."""
    hashes = (xxhash.xxh32_intdigest(row_id) for row_id in rows["id"].cast(pa.binary()).to_pylist())
    bucket_of_row = np.fromiter(hashes, np.int64, rows.num_rows) % bucket_count
    order = np.argsort(bucket_of_row, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    buckets, starts = np.unique(bucket_of_row[order], return_index=True)
    ends = [*starts[1:].tolist(), rows.num_rows]
    cuts = [_encode(sorted_rows.slice(start, end - start)) for start, end in zip(starts.tolist(), ends, strict=True)]
    count = len(buckets)
    columns = [pa.repeat(pa.scalar(table_number, pa.int32()), count), pa.array(buckets, pa.int32())]
    columns += [pa.repeat(pa.scalar(side, pa.int32()), count), pa.array(cuts, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_CUTS_SCHEMA)


def _encode(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _decode_cuts(cuts: pa.Table) -> dict[int, pa.Table]:
    by_side: dict[int, list[pa.Table]] = {}
    for side, rows in zip(cuts["side"].to_pylist(), cuts["rows"], strict=True):
        by_side.setdefault(side, []).append(pa.ipc.open_stream(rows.as_buffer()).read_all())
    return {side: pa.concat_tables(tables) for side, tables in by_side.items()}
