"""Fitting what a table version holds to the columns and types that a caller knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Shape:
    """`physical` columns to read, `out` the schema to return, `known` all columns the caller may name."""

    physical: list[str]
    out: pa.Schema
    known: pa.Schema

    @classmethod
    def of(cls, columns: Sequence[str] | None, known: pa.Schema, held: pa.Schema) -> Shape:
        """Columns of `known` that are not `held` come as nulls; columns that `known` lacks are not read."""
        names = list(columns) if columns is not None else known.names
        for name in names:
            if name not in known.names:
                raise InvalidInput(f"no column {name!r}", column=name)
        here = [name for name in names if name in held.names]
        return cls(here or ["id"], pa.schema([known.field(name) for name in names]), known)

    def fit(self, table: pa.Table) -> pa.Table:
        columns = [self._column(table, one) for one in self.out]
        return pa.Table.from_arrays(columns, schema=self.out)

    def fit_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.out):
            return batch
        columns = [self._column(batch, one) for one in self.out]
        return pa.RecordBatch.from_arrays(columns, schema=self.out)

    @staticmethod
    def _column(rows: pa.Table | pa.RecordBatch, wanted: pa.Field) -> pa.Array | pa.ChunkedArray:
        if wanted.name not in rows.schema.names:
            return pa.nulls(rows.num_rows, wanted.type)
        found = rows.column(wanted.name)
        return found if found.type.equals(wanted.type) else found.cast(wanted.type)


def with_columns(columns: Sequence[str] | None, *needed: str) -> list[str] | None:
    """`columns` with the needed ones among them; None, which means all, stays."""
    if columns is None:
        return None
    return [*(name for name in dict.fromkeys(needed) if name not in columns), *columns]
