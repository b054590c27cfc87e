"""The end of both fast ways: stored columns, ids and marks to a parsed table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.load.records.arrow_values import Mask, as_mask, key_ids, stored, valid
from omnigraph.load.records.fresh_ids import fresh_ids
from omnigraph.load.records.mentioned import bitmaps
from omnigraph.load.records.rows import defaults_of, parsed_schema
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import Scalar, TypeDef


@dataclass(frozen=True, slots=True)
class RawColumns:
    """What was read of some records of one type: columns by stored name, absent ones left out.

    `given` says of each property which records mention it; True: all.
    """

    columns: Mapping[str, pa.Array]
    given: Mapping[str, Mask | bool]
    lines: np.ndarray


def has_fast_way(one: TypeDef) -> bool:
    """Whether whole columns of this type can be read. Blobs, lists of dates and their defaults cannot."""
    defaults = defaults_of(one)
    for prop in one.properties:
        kind = prop.type
        many = kind.is_list or kind.vector_size is not None
        if kind.scalar is Scalar.BLOB or (kind.is_list and kind.scalar in (Scalar.DATE, Scalar.DATETIME)):
            return False
        if many and defaults[prop.id] is not None:
            return False
    return True


def parsed_table(one: TypeDef, seed: str, file: int, raw: RawColumns, bad: Mask) -> pa.Table | None:
    """The rows that are plainly right; the places of the others are set in `bad`. None: no row could be read so."""
    count = len(raw.lines)
    columns: dict[str, pa.Array] = {}
    for prop in one.properties:
        column = raw.columns.get(prop.id)
        made = pa.nulls(count, arrow_type(prop.type)) if column is None else stored(prop, column, bad)
        if made is None:
            return None
        columns[prop.id] = made
    ids, minted = _ids(one, seed, file, raw, columns, bad)
    if ids is None:
        return None
    ends = [raw.columns[name] for name in ("src", "dst")] if one.kind == "edge" else []
    for end in ends:
        if not (pa.types.is_string(end.type) or pa.types.is_large_string(end.type)):
            return None
        bad |= ~valid(end)
    _fill_defaults(one, raw, columns)
    schema = parsed_schema(one)
    made_columns = [
        ids,
        *(end.cast(pa.utf8()) for end in ends),
        *columns.values(),
        pa.array(np.full(count, file, np.int32)),
        pa.array(raw.lines),
        bitmaps(one, raw.given, count),
        pa.array(minted),
    ]
    table = pa.Table.from_arrays(made_columns, schema=schema)
    return table.filter(pa.array(~bad)) if bad.any() else table


def _ids(
    one: TypeDef, seed: str, file: int, raw: RawColumns, columns: Mapping[str, pa.Array], bad: Mask
) -> tuple[pa.Array | None, Mask]:
    count = len(raw.lines)
    named = raw.columns.get("id")
    if named is not None and named.null_count == count:
        named = None
    if named is not None and not (pa.types.is_string(named.type) or pa.types.is_large_string(named.type)):
        return None, np.zeros(count, bool)
    if named is not None:
        named = named.cast(pa.utf8())
        bad |= as_mask(pc.equal(named, ""))
    if one.key:
        derived = key_ids(one, columns, bad)
        if named is not None:
            bad |= valid(named) & ~as_mask(pc.equal(named, derived))
        return derived, np.zeros(count, bool)
    made = fresh_ids(seed, file, raw.lines)
    if named is None:
        return made, np.ones(count, bool)
    return pc.coalesce(named, made), ~valid(named)


def _fill_defaults(one: TypeDef, raw: RawColumns, columns: dict[str, pa.Array]) -> None:
    """Defaults where a record does not mention the property; a null that it does mention stays."""
    for name, default in defaults_of(one).items():
        mask = raw.given.get(name, False)
        if default is None or mask is True:
            continue
        column = columns[name]
        filled = pa.scalar(default, column.type)
        if mask is False:
            columns[name] = pa.repeat(filled, len(column))
        else:
            columns[name] = pc.if_else(pa.array(mask), column, filled)
