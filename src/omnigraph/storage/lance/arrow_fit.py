"""Fitting Arrow rows to a schema: which columns to read, which to fill with nulls, which to cast.

Versions of a table outlive changes of the schema, so rows often lack columns that a caller knows, or hold some that
the caller does not know. All such conversions in the code base are made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from omnigraph.errors import InvalidInput

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
NO_FILLS: Mapping[str, Column] = {}


def fit_column(column: Column, data_type: pa.DataType) -> Column:
    """The column in this type; casts only if the types differ, names of nested fields included."""
    return column if column.type.equals(data_type, check_metadata=True) else column.cast(data_type)


def fit_columns(
    rows: pa.Table | pa.RecordBatch, schema: pa.Schema, fills: Mapping[str, Column] = NO_FILLS
) -> list[Column]:
    """The columns of `schema`: from `rows`, else from `fills`, else nulls."""
    columns = []
    for field in schema:
        if field.name in rows.schema.names:
            columns.append(fit_column(rows.column(field.name), field.type))
        elif field.name in fills:
            columns.append(fills[field.name])
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return columns


def fit_table(rows: pa.Table, schema: pa.Schema, fills: Mapping[str, Column] = NO_FILLS) -> pa.Table:
    """`rows` with exactly the columns of `schema`; those that the rows lack come from `fills`, or are null."""
    return pa.Table.from_arrays(fit_columns(rows, schema, fills), schema=schema)


def fit_batch(batch: pa.RecordBatch, schema: pa.Schema, fills: Mapping[str, Column] = NO_FILLS) -> pa.RecordBatch:
    """Like `fit_table`, for one batch."""
    return pa.RecordBatch.from_arrays(fit_columns(batch, schema, fills), schema=schema)


def select_and_cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Exactly the columns of `schema`, all of which the rows must have, without nulls where it allows none."""
    return rows.select(schema.names).cast(schema)


def cast_by_position(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns in the same order, under the names and types of `schema`."""
    columns = [fit_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def make_nullable(schema: pa.Schema) -> pa.Schema:
    """The same fields, each of which may be null: Arrow forgets on some ways that a column never is."""
    return pa.schema([field.with_nullable(True) for field in schema])


def align_decimals(rows: pa.Table) -> pa.Table:
    """The same rows in buffers that Lance can read.

    Buffers that come from the JVM are aligned to 8 bytes, decimals need 16; a copy is aligned to 64.
    """
    for position, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type):
            chunks = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in rows.column(position).chunks]
            rows = rows.set_column(position, field, pa.chunked_array(chunks, field.type))
    return rows


@dataclass(frozen=True, slots=True)
class ReadShape:
    """What a read of a table version fetches and returns."""

    physical: list[str]  # columns to read from the version
    out: pa.Schema  # what the caller gets
    known: pa.Schema  # all columns that the caller may name, for example in a filter

    @classmethod
    def of(cls, columns: Sequence[str] | None, known: pa.Schema, stored: pa.Schema) -> ReadShape:
        """Columns of `known` that the version does not store come as nulls; columns outside `known` are not read."""
        names = list(columns) if columns is not None else known.names
        for name in names:
            if name not in known.names:
                raise InvalidInput(f"no column {name!r}", column=name)
        # Without any column there would be no number of rows.
        physical = [name for name in names if name in stored.names] or ["id"]
        return cls(physical, pa.schema([known.field(name) for name in names]), known)

    def fit(self, table: pa.Table) -> pa.Table:
        return fit_table(table, self.out)

    def fit_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if batch.schema.equals(self.out) else fit_batch(batch, self.out)


def with_columns(columns: Sequence[str] | None, *needed: str) -> list[str] | None:
    """`columns` and the needed columns that are not among them; None, which means all columns, stays None."""
    if columns is None:
        return None
    return [*(name for name in dict.fromkeys(needed) if name not in columns), *columns]
