"""A table's whole content in another shape: columns filled with one value, or cast to a wider type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.storage.lance.pinned_table import PinnedTable


def reshaped(base: PinnedTable, schema: pa.Schema, fills: Mapping[str, Any]) -> pa.RecordBatchReader:
    """Every row of `base` in the shape of `schema`, read and converted batch by batch."""
    kept = [one.name for one in schema if one.name in base.schema.names]

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in base.batches(kept):
            yield _converted(batch, schema, fills)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _converted(batch: pa.RecordBatch, schema: pa.Schema, fills: Mapping[str, Any]) -> pa.RecordBatch:
    columns = []
    for one in schema:
        if one.name in batch.schema.names:
            columns.append(batch.column(one.name).cast(one.type))
        elif one.name in fills:
            columns.append(pa.repeat(pa.scalar(fills[one.name], one.type), batch.num_rows))
        else:
            columns.append(pa.nulls(batch.num_rows, one.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
