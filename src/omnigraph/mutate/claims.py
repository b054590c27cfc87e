"""The footprint of a set of row changes: implements the table of claims in `footprint.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.commit.footprint import FootprintBuilder, tuple_key
from omnigraph.mutate.pending_table import Row, RowChange
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.values import canonical_text


def unique_key(type_def: TypeDef, columns: Sequence[str], row: Row | None) -> str | None:
    """The values of a row under a unique constraint as one text; None if a null exempts the row."""
    if row is None or any(row[column] is None for column in columns):
        return None
    return tuple_key(_text(type_def, column, row[column]) for column in columns)


def unique_kind(columns: Sequence[str]) -> str:
    return "uniq:" + ",".join(columns)


def claim_changes(claims: FootprintBuilder, catalog: Catalog, changes: Mapping[str, Sequence[RowChange]]) -> None:
    """Add the claims of all changes, by table, to the footprint."""
    for table, rows in changes.items():
        type_def = catalog.by_id[table]
        for change in rows:
            claims.read_write(table, "row", change.id)
            _claim_uniques(claims, type_def, change)
            if type_def.kind == "node":
                _claim_node(claims, catalog, type_def, change)
            else:
                _claim_edge(claims, type_def, change)


def _claim_uniques(claims: FootprintBuilder, type_def: TypeDef, change: RowChange) -> None:
    for columns in type_def.uniques:
        old, new = unique_key(type_def, columns, change.before), unique_key(type_def, columns, change.after)
        if old == new:
            continue
        kind = unique_kind(columns)
        if old is not None:
            claims.write(type_def.id, kind, old)
        if new is not None:
            claims.read_write(type_def.id, kind, new)


def _claim_node(claims: FootprintBuilder, catalog: Catalog, type_def: TypeDef, change: RowChange) -> None:
    if change.after is None:
        claims.write(type_def.id, "live", change.id)
        claims.read(type_def.id, "inc", change.id)
    elif change.before is None:
        for edge in catalog.edges_at(type_def.id):
            if edge.source == type_def.id and edge.cardinality.low > 0:
                claims.read(edge.id, "card", change.id)


def _claim_edge(claims: FootprintBuilder, type_def: TypeDef, change: RowChange) -> None:
    before, after = _ends(change.before), _ends(change.after)
    if before == after:
        return
    assert type_def.source is not None
    assert type_def.target is not None
    for ends in (before, after):
        if ends is not None:
            claims.write(type_def.source, "inc", ends[0])
            claims.write(type_def.target, "inc", ends[1])
            if type_def.cardinality.is_bounded:
                claims.read_write(type_def.id, "card", ends[0])
    if after is not None:
        claims.read(type_def.source, "live", after[0])
        claims.read(type_def.target, "live", after[1])


def _ends(row: Row | None) -> tuple[str, str] | None:
    return (row["src"], row["dst"]) if row is not None else None


def _text(type_def: TypeDef, column: str, value: Any) -> str:
    prop = type_def.by_id.get(column)
    return canonical_text(prop, value) if prop is not None else str(value)
