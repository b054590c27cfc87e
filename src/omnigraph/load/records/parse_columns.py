"""Parses whole columns at once: rows of typed files, fields of CSV, and what Arrow's JSON reader returns.

Only values that are plainly right are parsed this way. All other records are marked as bad, and `parse` reads them one
by one with `parse_record`, which knows every accepted form and says what is wrong with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.load.records.arrow_values import (
    Mask,
    as_mask,
    derive_key_ids,
    to_single_chunk,
    to_stored_column,
    valid_mask,
)
from omnigraph.load.records.batches import ColumnBatch, ItemBatch
from omnigraph.load.records.fresh_ids import fresh_ids
from omnigraph.load.records.match_columns import ColumnMatch
from omnigraph.load.records.mentioned import build_bitmaps
from omnigraph.load.records.rows import defaults_of, parsed_schema
from omnigraph.schema.arrow import arrow_type
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


@dataclass(frozen=True, slots=True)
class RawColumns:
    """Columns of records of one type by stored name, before conversion; columns that no record has are left out.

    `mentioned` says for each property which records mention it; True means all of them.
    """

    columns: Mapping[str, pa.Array]
    mentioned: Mapping[str, Mask | bool]
    lines: np.ndarray


def can_parse_by_column(type_def: TypeDef) -> bool:
    """Whether records of this type can be parsed by column: not with blobs, lists of dates, or defaults of lists."""
    defaults = defaults_of(type_def)
    for prop in type_def.properties:
        is_list, scalar = prop.type.is_list, prop.type.scalar
        if scalar is Scalar.BLOB or (is_list and scalar in (Scalar.DATE, Scalar.DATETIME)):
            return False
        if (is_list or prop.type.vector_size is not None) and defaults[prop.id] is not None:
            return False
    return True


def parse_columns(type_def: TypeDef, seed: str, file: int, match: ColumnMatch, raw: ColumnBatch) -> pa.Table | None:
    """Parses rows of a typed file (Parquet, Arrow) by column; None if the types of its columns do not fit the schema.

    A typed file has a value or null in every column of every row, so every row mentions every property of the file.
    """
    if not can_parse_by_column(type_def):
        return None
    columns: dict[str, pa.Array] = {}
    for name, stored_name in match.columns.items():
        column = to_single_chunk(raw.table.column(name))
        if pa.types.is_null(column.type) and stored_name in type_def.by_id:
            continue
        columns[stored_name] = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    mentioned: dict[str, Mask | bool] = {name: True for name in match.columns.values() if name in type_def.by_id}
    count = raw.table.num_rows
    lines = np.arange(raw.first_line, raw.first_line + count, dtype=np.int64)
    return build_parsed_table(type_def, seed, file, RawColumns(columns, mentioned, lines), np.zeros(count, bool))


def parse_fields(type_def: TypeDef, seed: str, file: int, match: ColumnMatch, raw: ItemBatch) -> pa.Table | None:
    """Parses the rows of a CSV batch that are plainly right; None if a column cannot be parsed at all.

    Every row mentions every column of the file, null or not.
    """
    if not raw.items or not can_parse_by_column(type_def):
        return None
    bad = np.zeros(len(raw.items), bool)
    columns: dict[str, pa.Array] = {}
    for (name, stored_name), texts in zip(match.columns.items(), zip(*raw.items, strict=True), strict=True):
        column = _parse_field_texts(match.properties[name].type, pa.array(texts, pa.utf8()), bad)
        if column is None:
            return None
        columns[stored_name] = column
    mentioned: dict[str, Mask | bool] = {name: True for name in columns if name in type_def.by_id}
    lines = np.array(raw.lines, np.int64)
    return build_parsed_table(type_def, seed, file, RawColumns(columns, mentioned, lines), bad)


def _parse_field_texts(prop_type: PropType, texts: pa.Array, bad: Mask) -> pa.Array | None:
    """Converts texts to values; dates stay text, which `to_stored_column` parses."""
    if prop_type.is_list or prop_type.vector_size is not None:
        return pa.nulls(len(texts), pa.list_(pa.float64())) if texts.null_count == len(texts) else None
    if prop_type.scalar is Scalar.BOOL:
        bad |= valid_mask(texts) & ~as_mask(pc.is_in(texts, value_set=pa.array(["true", "false"])))
        return pc.equal(texts, "true")
    if prop_type.scalar not in _NUMBERS:
        return texts
    pattern, arrow_kind = _NUMBERS[prop_type.scalar]
    is_unusual = valid_mask(texts) & ~as_mask(pc.match_substring_regex(texts, pattern))
    if is_unusual.any():
        bad |= is_unusual
        texts = pc.if_else(pa.array(is_unusual), pa.scalar(None, texts.type), texts)
    try:
        return texts.cast(arrow_kind)
    except pa.ArrowInvalid:
        return None


def build_parsed_table(type_def: TypeDef, seed: str, file: int, raw: RawColumns, bad: Mask) -> pa.Table | None:
    """Builds the parsed table of the rows that are plainly right, and sets the positions of the others in `bad`.

    Returns None if no row can be parsed by column.
    """
    count = len(raw.lines)
    columns: dict[str, pa.Array] = {}
    for prop in type_def.properties:
        column = raw.columns.get(prop.id)
        stored = pa.nulls(count, arrow_type(prop.type)) if column is None else to_stored_column(prop, column, bad)
        if stored is None:
            return None
        columns[prop.id] = stored
    ids, has_fresh_id = _resolve_ids(type_def, seed, file, raw, columns, bad)
    if ids is None:
        return None
    ends = [raw.columns[name] for name in ("src", "dst")] if type_def.kind == "edge" else []
    for end in ends:
        if not (pa.types.is_string(end.type) or pa.types.is_large_string(end.type)):
            return None
        bad |= ~valid_mask(end)
    _fill_defaults(type_def, raw, columns)
    schema = parsed_schema(type_def)
    arrays = [
        ids,
        *(end.cast(pa.utf8()) for end in ends),
        *columns.values(),
        pa.array(np.full(count, file, np.int32)),
        pa.array(raw.lines),
        build_bitmaps(type_def, raw.mentioned, count),
        pa.array(has_fresh_id),
    ]
    table = pa.Table.from_arrays(arrays, schema=schema)
    return table.filter(pa.array(~bad)) if bad.any() else table


def _resolve_ids(
    type_def: TypeDef, seed: str, file: int, raw: RawColumns, columns: Mapping[str, pa.Array], bad: Mask
) -> tuple[pa.Array | None, Mask]:
    count = len(raw.lines)
    named_ids = raw.columns.get("id")
    if named_ids is not None and named_ids.null_count == count:
        named_ids = None
    if named_ids is not None and not (pa.types.is_string(named_ids.type) or pa.types.is_large_string(named_ids.type)):
        return None, np.zeros(count, bool)
    if named_ids is not None:
        named_ids = named_ids.cast(pa.utf8())
        bad |= as_mask(pc.equal(named_ids, ""))
    if type_def.key:
        derived = derive_key_ids(type_def, columns, bad)
        if named_ids is not None:
            bad |= valid_mask(named_ids) & ~as_mask(pc.equal(named_ids, derived))
        return derived, np.zeros(count, bool)
    generated = fresh_ids(seed, file, raw.lines)
    if named_ids is None:
        return generated, np.ones(count, bool)
    return pc.coalesce(named_ids, generated), ~valid_mask(named_ids)


def _fill_defaults(type_def: TypeDef, raw: RawColumns, columns: dict[str, pa.Array]) -> None:
    """Sets defaults where a record does not mention the property; a null that it mentions stays null."""
    for name, default in defaults_of(type_def).items():
        mask = raw.mentioned.get(name, False)
        if default is None or mask is True:
            continue
        column = columns[name]
        filled = pa.scalar(default, column.type)
        if mask is False:
            columns[name] = pa.repeat(filled, len(column))
        else:
            columns[name] = pc.if_else(pa.array(mask), column, filled)
