"""Rows of CSV, column by column: texts of the plain form of each type. Any other text is read by the reference."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.load.records.arrow_values import Mask, as_mask, valid
from omnigraph.load.records.columns import ColumnPlan
from omnigraph.load.records.fast_rows import RawColumns, has_fast_way, parsed_table
from omnigraph.load.records.model import ItemBatch
from omnigraph.schema.catalog import PropType, Scalar, TypeDef

_INTEGER = r"^-?\d{1,18}$"
_NUMBER = r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$"
_NUMBERS = {
    Scalar.I32: (_INTEGER, pa.int64()),
    Scalar.I64: (_INTEGER, pa.int64()),
    Scalar.U32: (_INTEGER, pa.int64()),
    Scalar.U64: (_INTEGER, pa.int64()),
    Scalar.F32: (_NUMBER, pa.float64()),
    Scalar.F64: (_NUMBER, pa.float64()),
}


def read_fields(one: TypeDef, seed: str, file: int, plan: ColumnPlan, raw: ItemBatch) -> pa.Table | None:
    """The rows that are plainly right, or None. A column that the file has is given in every row, null or not."""
    if not raw.items or not has_fast_way(one):
        return None
    bad = np.zeros(len(raw.items), bool)
    columns: dict[str, pa.Array] = {}
    for (name, stored_name), texts in zip(plan.columns.items(), zip(*raw.items, strict=True), strict=True):
        column = _typed(plan.props[name].type, pa.array(texts, pa.utf8()), bad)
        if column is None:
            return None
        columns[stored_name] = column
    given: dict[str, Mask | bool] = {name: True for name in columns if name in one.by_id}
    lines = np.array(raw.lines, np.int64)
    return parsed_table(one, seed, file, RawColumns(columns, given, lines), bad)


def _typed(kind: PropType, texts: pa.Array, bad: Mask) -> pa.Array | None:
    """Texts as the values that they mean; dates stay text, which is read where they are stored."""
    if kind.is_list or kind.vector_size is not None:
        return pa.nulls(len(texts), pa.list_(pa.float64())) if texts.null_count == len(texts) else None
    if kind.scalar is Scalar.BOOL:
        bad |= valid(texts) & ~as_mask(pc.is_in(texts, value_set=pa.array(["true", "false"])))
        return pc.equal(texts, "true")
    if kind.scalar not in _NUMBERS:
        return texts
    pattern, read_as = _NUMBERS[kind.scalar]
    odd = valid(texts) & ~as_mask(pc.match_substring_regex(texts, pattern))
    if odd.any():
        bad |= odd
        texts = pc.if_else(pa.array(odd), pa.scalar(None, texts.type), texts)
    try:
        return texts.cast(read_as)
    except pa.ArrowInvalid:
        return None
