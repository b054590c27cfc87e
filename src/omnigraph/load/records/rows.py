"""From drafts to tables, and the rules that a row must hold by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.load.records.fresh_ids import fresh_ids
from omnigraph.load.records.mentioned import bitmap, given_mask, given_width
from omnigraph.load.records.model import FILE_COLUMN, GIVEN_COLUMN, LINE_COLUMN, MINTED_COLUMN, Problem
from omnigraph.load.records.reference import Draft
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.schema.row_constraints import Violation, row_violations
from omnigraph.schema.values import default_of


def parsed_schema(one: TypeDef) -> pa.Schema:
    """The columns of a parsed table: physical, then bookkeeping."""
    extra = [
        pa.field(FILE_COLUMN, pa.int32()),
        pa.field(LINE_COLUMN, pa.int64()),
        pa.field(GIVEN_COLUMN, pa.binary(given_width(one))),
        pa.field(MINTED_COLUMN, pa.bool_()),
    ]
    return pa.schema([*arrow_schema(one), *extra])


@lru_cache(maxsize=1024)
def defaults_of(one: TypeDef) -> Mapping[str, Any]:
    """What properties have that a new row does not mention."""
    return {prop.id: default_of(prop) for prop in one.properties}


def table_of_drafts(one: TypeDef, seed: str, file: int, drafts: Sequence[tuple[int, Draft]]) -> pa.Table:
    """Drafts with their lines, as a parsed table."""
    lines = np.array([line for line, _ in drafts], np.int64)
    minted = [draft.id is None for _, draft in drafts]
    made = fresh_ids(seed, file, lines).to_pylist() if any(minted) else []
    defaults = defaults_of(one)
    rows = [
        {**defaults, **draft.given, **draft.ends, "id": draft.id if draft.id is not None else made[at]}
        for at, (_, draft) in enumerate(drafts)
    ]
    table = pa.Table.from_pylist(rows, arrow_schema(one))
    bits: dict[tuple[str, ...], bytes] = {}
    given = []
    for _, draft in drafts:
        names = tuple(draft.given)
        if names not in bits:
            bits[names] = bitmap(one, names)
        given.append(bits[names])
    extra = [
        pa.array(np.full(len(drafts), file, np.int32)),
        pa.array(lines),
        pa.array(given, pa.binary(given_width(one))),
        pa.array(minted, pa.bool_()),
    ]
    schema = parsed_schema(one)
    return pa.Table.from_arrays([*table.columns, *extra], schema=schema)


def rule_problems(one: TypeDef, rows: pa.Table, *, partial: bool = False) -> dict[int, tuple[Problem, ...]]:
    """The rows of a parsed table that break value rules, by place, each with all that it breaks.

    `partial` leaves out required properties that the record does not mention: call again without it once the rows
    are full images.
    """
    judged = _without_required(one) if partial else one
    found: dict[int, list[Violation]] = {}
    if row_violations(judged, rows, limit=1):
        for violation in row_violations(judged, _numbered(rows)):
            found.setdefault(int(violation.id), []).append(violation)
    if partial:
        for at, violation in _given_nulls(one, rows):
            found.setdefault(at, []).append(violation)
    return {
        at: tuple(Problem(one.rule, one.message, one.property) for one in violations)
        for at, violations in sorted(found.items())
    }


def without_rows(rows: pa.Table, gone: Mapping[int, object]) -> pa.Table:
    keep = np.ones(rows.num_rows, bool)
    keep[list(gone)] = False
    return rows.filter(pa.array(keep))


def _numbered(rows: pa.Table) -> pa.Table:
    """The rows with their place for an id: two records of one batch may have the same id."""
    places = pc.cast(pa.array(range(rows.num_rows), pa.int64()), pa.utf8())
    return rows.set_column(rows.schema.get_field_index("id"), "id", places)


@lru_cache(maxsize=1024)
def _without_required(one: TypeDef) -> TypeDef:
    return replace(one, properties=tuple(replace(prop, nullable=True) for prop in one.properties))


def _given_nulls(one: TypeDef, rows: pa.Table) -> list[tuple[int, Violation]]:
    """Required properties that a record sets to null by name."""
    found = []
    for prop in one.properties:
        if prop.nullable:
            continue
        nulls = np.asarray(pc.is_null(rows.column(prop.id)).to_numpy(zero_copy_only=False), bool)
        if nulls.any():
            named = nulls & given_mask(one, rows.column(GIVEN_COLUMN), prop.id)
            message = f"property '{prop.name}' of {one.table_key} is required"
            found += [
                (int(at), Violation("required", one.table_key, "", prop.name, None, message))
                for at in np.flatnonzero(named)
            ]
    return found
