"""Frames over table versions for the checks of a load: some columns and the address of every row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.log.overlay import OverlayTable
from omnigraph.spark.table_scan import fragment_groups
from omnigraph.spark.types import spark_arrow_schema, spark_schema, to_spark
from omnigraph.storage.lance import PinnedTable, TablePlace
from omnigraph.storage.lance.arrow_fit import fit_batch
from omnigraph.storage.lance.row_address import ROW_ADDRESS, SIGNED_ROW_ADDRESS_FIELD, no_addresses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PART_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table: of some fragments of a version, and of an overlay that hides what it replaces."""

    place: TablePlace
    table: str
    schema: pa.Schema
    version: str | None
    groups: tuple[tuple[int, ...], ...]
    overlay: bytes | None = None

    @classmethod
    def of_fragments(
        cls, place: TablePlace, schema: pa.Schema, pinned: PinnedTable, fragments: Iterable[int]
    ) -> TableRows:
        wanted = set(fragments)
        groups = (tuple(one for one in group if one in wanted) for group in fragment_groups(pinned, _PART_BYTES))
        return cls(place, pinned.table, schema, pinned.version, tuple(group for group in groups if group))

    def frame(self, session: SparkSession, columns: Sequence[str]) -> DataFrame:
        """The columns and `_rowaddr`, one task per group of fragments and one for the overlay."""
        names = tuple(columns)
        wanted = spark_arrow_schema(self.schema_of(names))
        count = self._parts
        if not count:
            return session.createDataFrame([], spark_schema(wanted))

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for rows in self._rows(number, names):
                        yield to_spark(rows, wanted)

        return session.range(0, count, 1, count).mapInArrow(read, spark_schema(wanted))

    def schema_of(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([*(self.schema.field(name) for name in columns), SIGNED_ROW_ADDRESS_FIELD])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The same rows in one process."""
        return (batch for number in range(self._parts) for batch in self._rows(number, columns))

    @property
    def _parts(self) -> int:
        return len(self.groups) + (self.overlay is not None)

    def _rows(self, number: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if number == len(self.groups):
            yield from self._overlay_rows(names)
            return
        assert self.version is not None
        pinned = self.place.open().open(self.table, self.version)
        hidden = pa.array(self._entries().hidden_ids, pa.utf8()) if self.overlay is not None else None
        read = [name for name in names if name in pinned.schema.names]
        asked = read if hidden is None or "id" in read else ["id", *read]
        for batch in pinned.id_batches(self.groups[number], asked):
            shown = batch if hidden is None else batch.filter(pc.invert(pc.is_in(batch.column("id"), hidden)))
            yield fit_batch(shown, self.schema_of(names))

    def _overlay_rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self._entries().rows.combine_chunks().to_batches():
            yield self.fit_overlay(batch, names)

    def _entries(self) -> OverlayTable:
        assert self.overlay is not None
        return OverlayTable.decode(self.overlay)

    def fit_overlay(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Row images of the overlay in the shape of `schema_of`."""
        return fit_batch(batch, self.schema_of(names), {ROW_ADDRESS: no_addresses(batch.num_rows)})
