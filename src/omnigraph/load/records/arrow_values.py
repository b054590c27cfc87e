"""Converts whole Arrow columns of an input to stored values.

Rows whose value is not plainly right are set in the mask `bad`, and then parsed one by one by `parse_record`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import Property, PropType, Scalar, TypeDef
from omnigraph.schema.values import derive_id

Mask = np.ndarray

_DATE = r"^(000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-\d\d-\d\d$"
_DATETIME = _DATE[:-1] + r"T\d\d:\d\d:\d\d(\.\d{3})?Z$"
_FIRST_MILLI = -62_135_596_800_000  # 0001-01-01T00:00:00Z
_END_MILLI = 253_402_300_800_000  # the year 10000
_FIRST_DAY, _END_DAY = _FIRST_MILLI // 86_400_000, _END_MILLI // 86_400_000
_INTEGERS = {Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64}


def as_mask(array: pa.Array | pa.ChunkedArray) -> Mask:
    """Converts a column of booleans to a mask; null is false."""
    return np.asarray(pc.fill_null(array, False).to_numpy(zero_copy_only=False), bool)


def valid_mask(array: pa.Array) -> Mask:
    return as_mask(pc.is_valid(array)) if array.null_count else np.ones(len(array), bool)


def to_single_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def to_stored_column(prop: Property, column: pa.Array, bad: Mask) -> pa.Array | None:
    """Converts a column to its stored form and sets unusual rows in `bad`; None if it cannot be converted at all."""
    kind = prop.type
    if kind.scalar is Scalar.BLOB:
        return None
    if kind.vector_size is not None:
        return _to_vectors(column, kind.vector_size, bad)
    if kind.is_list:
        return _to_lists(column, kind.scalar, bad)
    if kind.scalar is Scalar.STRING:
        return _to_text(prop, column, bad)
    if kind.scalar is Scalar.BOOL:
        return column if pa.types.is_boolean(column.type) else None
    if kind.scalar in _INTEGERS:
        return _to_integers(column, arrow_type(kind))
    if kind.scalar in (Scalar.F32, Scalar.F64):
        return _to_floats(column, arrow_type(kind), bad)
    return _to_dates(column, bad) if kind.scalar is Scalar.DATE else _to_datetimes(column, bad)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _to_text(prop: Property, column: pa.Array, bad: Mask) -> pa.Array | None:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _is_text(column.type):
        return None
    if prop.type.enum_values:
        is_enum_value = pc.is_in(column, value_set=pa.array(prop.type.enum_values, column.type))
        bad |= valid_mask(column) & ~as_mask(is_enum_value)
    return column.cast(pa.utf8())


def _to_integers(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    if not pa.types.is_integer(column.type):
        return None
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return None


def _to_floats(column: pa.Array, kind: pa.DataType, bad: Mask) -> pa.Array | None:
    if not (pa.types.is_float32(column.type) or pa.types.is_float64(column.type)):
        return None
    floats = column.cast(kind, safe=False)
    numbers = floats.to_numpy(zero_copy_only=False)
    bad |= valid_mask(floats) & (~np.isfinite(numbers) | _negative_zero(numbers))
    return floats


def _negative_zero(numbers: np.ndarray) -> Mask:
    """Returns which numbers are -0.0. In JSON the integer -0 is 0 and the float -0.0 is not: only the text tells."""
    return np.asarray((numbers == 0) & np.signbit(numbers))


def _to_dates(column: pa.Array, bad: Mask) -> pa.Array | None:
    if pa.types.is_date32(column.type):
        days = column.cast(pa.int32())
        inside = pc.and_(pc.greater_equal(days, _FIRST_DAY), pc.less(days, _END_DAY))
        bad |= valid_mask(column) & ~as_mask(inside)
        return column
    return _parse_text(column, _DATE, pa.date32(), bad)


def _to_datetimes(column: pa.Array, bad: Mask) -> pa.Array | None:
    kind = pa.timestamp("ms", "UTC")
    if not pa.types.is_timestamp(column.type):
        return _parse_text(column, _DATETIME, kind, bad)
    if column.type.unit in ("us", "ns"):
        column = pc.floor_temporal(column, unit="millisecond")
    elif column.type.unit == "s":
        return None
    millis = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    inside = pc.and_(pc.greater_equal(millis, _FIRST_MILLI), pc.less(millis, _END_MILLI))
    bad |= valid_mask(column) & ~as_mask(inside)
    return millis.cast(pa.timestamp("ms")).cast(kind, safe=False) if column.type.tz is None else millis.cast(kind)


def _parse_text(column: pa.Array, pattern: str, kind: pa.DataType, bad: Mask) -> pa.Array | None:
    """Parses texts of the most common form; `parse_record` knows the other forms."""
    if not _is_text(column.type):
        return None
    fits = as_mask(pc.match_substring_regex(column, pattern))
    odd = valid_mask(column) & ~fits
    bad |= odd
    if odd.any():
        column = pc.if_else(pa.array(odd), pa.scalar(None, column.type), column)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # such as a 31st of April among them
        return None


def _to_lists(column: pa.Array, scalar: Scalar, bad: Mask) -> pa.Array | None:
    if not _is_list(column.type):
        return None
    items = column.flatten()
    if items.null_count:
        parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
        bad[parents[~valid_mask(items)]] = True
    item_bad = np.zeros(len(items), bool)
    values = to_stored_column(Property("", "", PropType(scalar)), items, item_bad)
    if values is None:
        return None
    if item_bad.any():
        bad[pc.list_parent_indices(column).to_numpy(zero_copy_only=False)[item_bad]] = True
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = pa.array(~valid_mask(column)) if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def _to_vectors(column: pa.Array, size: int, bad: Mask) -> pa.Array | None:
    if not _is_list(column.type):
        return None
    is_present = valid_mask(column)
    lengths = pc.fill_null(pc.list_value_length(column), size).to_numpy(zero_copy_only=False)
    wrong = is_present & (lengths != size)
    if wrong.any():
        bad |= wrong
        column = pc.if_else(pa.array(wrong), pa.scalar(None, column.type), column)
        is_present &= ~wrong
    items = column.flatten()
    if items.null_count or not (pa.types.is_floating(items.type) or pa.types.is_integer(items.type)):
        return None
    numbers = np.asarray(items.to_numpy(zero_copy_only=False), np.float64)
    with np.errstate(over="ignore"):
        singles = numbers.astype(np.float32).reshape(-1, size)
    vectors = np.zeros((len(column), size), np.float32)
    vectors[is_present] = singles
    bad |= (~np.isfinite(vectors) | _negative_zero(vectors)).any(axis=1)
    flat = pa.array(vectors.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, size, mask=None if is_present.all() else pa.array(~is_present))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


# --- ids -----------------------------------------------------------------------------------------------------------


def derive_key_ids(type_def: TypeDef, columns: Mapping[str, pa.Array], bad: Mask) -> pa.Array:
    """Derives the ids from the key; rows with a null in the key are set in `bad`."""
    parts = [columns[name] for name in type_def.key]
    for part in parts:
        bad |= ~valid_mask(part)
    scalar = type_def.by_id[type_def.key[0]].type.scalar
    if len(parts) == 1 and scalar is Scalar.STRING:
        return parts[0]
    if len(parts) == 1 and (scalar in _INTEGERS or scalar is Scalar.BOOL):
        return parts[0].cast(pa.utf8())
    return pa.array(_derive_ids(type_def, [part.to_pylist() for part in parts], bad), pa.utf8())


def _derive_ids(type_def: TypeDef, parts: Sequence[list[Any]], bad: Mask) -> list[str | None]:
    rows = zip(*parts, strict=True)
    return [
        None if broken else derive_id(type_def, dict(zip(type_def.key, row, strict=True)))
        for row, broken in zip(rows, bad, strict=True)
    ]
