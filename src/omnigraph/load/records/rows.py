"""Builds parsed tables from record drafts, and checks the constraints that concern a single row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.load.records.batches import FILE_COLUMN, FRESH_ID_COLUMN, LINE_COLUMN, MENTIONED_COLUMN, RecordProblem
from omnigraph.load.records.fresh_ids import fresh_ids
from omnigraph.load.records.mentioned import bitmap_width, build_bitmap, mentioned_mask
from omnigraph.load.records.parse_record import RecordDraft
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.schema.row_constraints import Violation, row_violations
from omnigraph.schema.values import default_value


def parsed_schema(type_def: TypeDef) -> pa.Schema:
    """Returns the schema of a parsed table: physical columns, then bookkeeping columns."""
    bookkeeping = [
        pa.field(FILE_COLUMN, pa.int32()),
        pa.field(LINE_COLUMN, pa.int64()),
        pa.field(MENTIONED_COLUMN, pa.binary(bitmap_width(type_def))),
        pa.field(FRESH_ID_COLUMN, pa.bool_()),
    ]
    return pa.schema([*arrow_schema(type_def), *bookkeeping])


@lru_cache(maxsize=1024)
def defaults_of(type_def: TypeDef) -> Mapping[str, Any]:
    """Returns the value of each property that a new row does not mention."""
    return {prop.id: default_value(prop) for prop in type_def.properties}


def build_table(type_def: TypeDef, seed: str, file: int, drafts: Sequence[tuple[int, RecordDraft]]) -> pa.Table:
    """Builds the parsed table of drafts, each of which comes with its line."""
    lines = np.array([line for line, _ in drafts], np.int64)
    has_fresh_id = [draft.id is None for _, draft in drafts]
    generated_ids = fresh_ids(seed, file, lines).to_pylist() if any(has_fresh_id) else []
    defaults = defaults_of(type_def)
    rows = [
        {**defaults, **draft.mentioned, **draft.ends, "id": draft.id if draft.id is not None else generated_ids[index]}
        for index, (_, draft) in enumerate(drafts)
    ]
    table = pa.Table.from_pylist(rows, arrow_schema(type_def))
    bitmap_by_names: dict[tuple[str, ...], bytes] = {}  # most records mention the same properties
    bitmaps = []
    for _, draft in drafts:
        names = tuple(draft.mentioned)
        if names not in bitmap_by_names:
            bitmap_by_names[names] = build_bitmap(type_def, names)
        bitmaps.append(bitmap_by_names[names])
    bookkeeping = [
        pa.array(np.full(len(drafts), file, np.int32)),
        pa.array(lines),
        pa.array(bitmaps, pa.binary(bitmap_width(type_def))),
        pa.array(has_fresh_id, pa.bool_()),
    ]
    return pa.Table.from_arrays([*table.columns, *bookkeeping], schema=parsed_schema(type_def))


def find_value_problems(
    type_def: TypeDef, rows: pa.Table, *, partial: bool = False
) -> dict[int, tuple[RecordProblem, ...]]:
    """Returns, by position in a parsed table, all problems of each row that violates a value constraint.

    `partial` ignores required properties that the record does not mention: the row onto which it is merged may have
    them.
    """
    checked_type = _make_all_nullable(type_def) if partial else type_def
    violations_by_position: dict[int, list[Violation]] = {}
    if row_violations(checked_type, rows, limit=1):
        for violation in row_violations(checked_type, _replace_ids_by_position(rows)):
            violations_by_position.setdefault(int(violation.id), []).append(violation)
    if partial:
        for position, violation in _find_named_nulls(type_def, rows):
            violations_by_position.setdefault(position, []).append(violation)
    return {
        position: tuple(
            RecordProblem(violation.rule, violation.message, violation.property) for violation in violations
        )
        for position, violations in sorted(violations_by_position.items())
    }


def drop_rows(rows: pa.Table, positions: Mapping[int, object]) -> pa.Table:
    keep = np.ones(rows.num_rows, bool)
    keep[list(positions)] = False
    return rows.filter(pa.array(keep))


def _replace_ids_by_position(rows: pa.Table) -> pa.Table:
    """Replaces each id by the row's position, since two records of one batch may have the same id."""
    positions = pc.cast(pa.array(range(rows.num_rows), pa.int64()), pa.utf8())
    return rows.set_column(rows.schema.get_field_index("id"), "id", positions)


@lru_cache(maxsize=1024)
def _make_all_nullable(type_def: TypeDef) -> TypeDef:
    return replace(type_def, properties=tuple(replace(prop, nullable=True) for prop in type_def.properties))


def _find_named_nulls(type_def: TypeDef, rows: pa.Table) -> list[tuple[int, Violation]]:
    """Returns a violation for each required property that a record explicitly sets to null."""
    violations = []
    for prop in type_def.properties:
        if prop.nullable:
            continue
        nulls = np.asarray(pc.is_null(rows.column(prop.id)).to_numpy(zero_copy_only=False), bool)
        if nulls.any():
            is_named_null = nulls & mentioned_mask(type_def, rows.column(MENTIONED_COLUMN), prop.id)
            message = f"property '{prop.name}' of {type_def.table_key} is required"
            violations += [
                (int(position), Violation("required", type_def.table_key, "", prop.name, None, message))
                for position in np.flatnonzero(is_named_null)
            ]
    return violations
