"""Rows of typed files, column by column, where the types of the file fit those of the schema."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.load.records.arrow_values import Mask, one_chunk
from omnigraph.load.records.columns import ColumnPlan
from omnigraph.load.records.fast_rows import RawColumns, has_fast_way, parsed_table
from omnigraph.load.records.model import ColumnBatch
from omnigraph.schema.catalog import TypeDef


def read_columns(one: TypeDef, seed: str, file: int, plan: ColumnPlan, raw: ColumnBatch) -> pa.Table | None:
    """The rows that are plainly right, or None. A column that the file has is given in every row, null or not."""
    if not has_fast_way(one):
        return None
    columns: dict[str, pa.Array] = {}
    for name, stored_name in plan.columns.items():
        column = one_chunk(raw.table.column(name))
        if pa.types.is_null(column.type) and stored_name in one.by_id:
            continue
        columns[stored_name] = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    given: dict[str, Mask | bool] = {name: True for name in plan.columns.values() if name in one.by_id}
    count = raw.table.num_rows
    lines = np.arange(raw.first_line, raw.first_line + count, dtype=np.int64)
    return parsed_table(one, seed, file, RawColumns(columns, given, lines), np.zeros(count, bool))
