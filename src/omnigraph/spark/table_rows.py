"""Rows of one table as a bulk operation reads them: in tasks of Spark or in one process, with their addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.staging import version_in_record
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.spark.table_scan import group_fragments
from omnigraph.spark.types import spark_arrow_schema, spark_schema, to_spark
from omnigraph.storage.lance import PinnedTable, TableLocation
from omnigraph.storage.lance.arrow_fit import fit_batch
from omnigraph.storage.lance.row_address import ROW_ADDRESS, SIGNED_ROW_ADDRESS_FIELD, no_addresses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PART_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class BaseTable:
    """One table as a bulk operation found it: the pinned version and the overlay of the commit record. Picklable."""

    version: str | None
    overlay: bytes | None

    @classmethod
    def of(cls, snapshot: Snapshot, table: str) -> BaseTable:
        overlay = snapshot.record.overlay.get(table)
        return cls(version_in_record(snapshot.record, table), overlay.as_bytes if overlay is not None else None)

    @property
    def is_empty(self) -> bool:
        return self.version is None and self.overlay is None

    def view(self, location: TableLocation, schema: pa.Schema, table: str) -> TableView:
        pinned = location.open().open(table, self.version) if self.version is not None else None
        return TableView(schema, pinned, OverlayTable.decode(self.overlay) if self.overlay is not None else None)


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table: of some fragments of a version, and of an overlay that hides the rows it replaces.

    One task reads one of `fragment_groups`; one more reads the overlay.
    """

    location: TableLocation
    table: str
    schema: pa.Schema
    version: str | None
    fragment_groups: tuple[tuple[int, ...], ...]
    overlay: bytes | None = None

    @classmethod
    def of_fragments(
        cls,
        location: TableLocation,
        schema: pa.Schema,
        pinned: PinnedTable,
        fragments: Iterable[int],
        overlay: bytes | None = None,
    ) -> TableRows:
        selected = set(fragments)
        groups = (
            tuple(fragment for fragment in group if fragment in selected)
            for group in group_fragments(pinned, _PART_BYTES)
        )
        non_empty = tuple(group for group in groups if group)
        return cls(location, pinned.table, schema, pinned.version, non_empty, overlay)

    def frame(self, session: SparkSession, columns: Sequence[str]) -> DataFrame:
        """The columns and the row address."""
        names = tuple(columns)
        arrow_columns = spark_arrow_schema(self.schema_of(names))
        count = self._part_count
        if not count:
            return session.createDataFrame([], spark_schema(arrow_columns))

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    for rows in self._read_part(part, names):
                        yield to_spark(rows, arrow_columns)

        return session.range(0, count, 1, count).mapInArrow(read, spark_schema(arrow_columns))

    def schema_of(self, columns: Sequence[str]) -> pa.Schema:
        return _with_address(self.schema, columns)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The same rows, read in this process."""
        return (batch for part in range(self._part_count) for batch in self._read_part(part, columns))

    @property
    def _part_count(self) -> int:
        return len(self.fragment_groups) + (self.overlay is not None)

    def _read_part(self, part: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if part == len(self.fragment_groups):
            for batch in self._decode_overlay().rows.combine_chunks().to_batches():
                yield self._fit_overlay(batch, columns)
            return
        assert self.version is not None
        pinned = self.location.open().open(self.table, self.version)
        batches = pinned.id_batches(self.fragment_groups[part], self._columns_to_read(pinned, columns))
        yield from self._fit_visible(batches, columns)

    def _columns_to_read(self, pinned: PinnedTable, columns: Sequence[str]) -> list[str]:
        """The columns that the version has, and the id if an overlay hides rows by it."""
        present = [name for name in columns if name in pinned.schema.names]
        return present if self.overlay is None or "id" in present else ["id", *present]

    def _fit_visible(self, batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of the version without those that the overlay hides."""
        hidden = pa.array(self._decode_overlay().hidden_ids, pa.utf8()) if self.overlay is not None else None
        for batch in batches:
            visible = batch if hidden is None else batch.filter(pc.invert(pc.is_in(batch.column("id"), hidden)))
            yield fit_batch(visible, self.schema_of(columns))

    def _decode_overlay(self) -> OverlayTable:
        assert self.overlay is not None
        return OverlayTable.decode(self.overlay)

    def _fit_overlay(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        return fit_batch(batch, self.schema_of(columns), {ROW_ADDRESS: no_addresses(batch.num_rows)})


def empty_frame(session: SparkSession, schema: pa.Schema, columns: Sequence[str]) -> DataFrame:
    """A frame like that of `TableRows.frame`, without rows."""
    return session.createDataFrame([], spark_schema(_with_address(schema, columns)))


def _with_address(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([*(schema.field(name) for name in columns), SIGNED_ROW_ADDRESS_FIELD])
