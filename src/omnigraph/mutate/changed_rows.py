"""The rows in which two states of a table differ, at a cost that follows the difference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.table_state import Row, RowChange
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.storage.lance import PinnedTable, candidate_ids

Columns = frozenset[str] | None


def changed_rows(old: Snapshot, new: Snapshot, table: str, columns: Columns = None) -> dict[str, RowChange]:
    """Every row of `table` (by identity) that is not the same in both, as far as `columns` tell, with its images."""
    ids = changed_candidates(old, new, table)
    before, after = rows_of(old, table, ids), rows_of(new, table, ids)
    return {
        one: RowChange(one, before.get(one), after.get(one))
        for one in sorted(ids)
        if not same_row(before.get(one), after.get(one), columns)
    }


def changed_candidates(old: Snapshot, new: Snapshot, table: str) -> set[str]:
    """Ids whose rows can differ: overlay entries that are not in both, and what the table versions tell."""
    entries = _stamps(old.record.overlay.get(table)) ^ _stamps(new.record.overlay.get(table))
    return {row_id for row_id, _ in entries} | candidate_ids(pinned_of(old, table), pinned_of(new, table))


def rows_of(snapshot: Snapshot, table: str, ids: Iterable[str]) -> dict[str, Row]:
    """Row images by id; a type that the snapshot's schema does not have has no rows."""
    one = snapshot.catalog.by_id.get(table)
    wanted = list(ids)
    if one is None or not wanted:
        return {}
    return {row["id"]: row for row in snapshot.view(one).find(wanted).to_pylist()}


def columns_of(one: TypeDef | None) -> Columns:
    """What rows are compared by under this type: a property that it does not have any more is no difference."""
    return frozenset(arrow_schema(one).names) if one is not None else None


def same_row(one: Row | None, other: Row | None, columns: Columns = None) -> bool:
    """Typed and deep equality. A property that one side does not have is null there; None compares all columns."""
    if one is None or other is None:
        return one is other
    return not changed_columns(one, other, columns)


def same_value(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return type(one) is type(other) and bool(one == other)


def changed_columns(before: Row, after: Row, columns: Columns = None) -> set[str]:
    names = before.keys() | after.keys() if columns is None else columns
    return {name for name in names if not same_value(before.get(name), after.get(name))}


def tables_that_differ(old: Snapshot, new: Snapshot) -> list[str]:
    """Tables whose pin or overlay is not the same in both; the others need no look."""
    names = old.record.pins.keys() | new.record.pins.keys()
    return sorted(table for table in names if not table.startswith("_") and not is_same_table(old, new, table))


def is_same_table(old: Snapshot, new: Snapshot, table: str) -> bool:
    """Whether pin and overlay are the very same: no row is looked at, so folded rows make a difference."""
    if _version(old, table) != _version(new, table):
        return False
    return _stamps(old.record.overlay.get(table)) == _stamps(new.record.overlay.get(table))


def _version(snapshot: Snapshot, table: str) -> str | None:
    pin = snapshot.record.pins.get(table)
    return pin.version if pin else None


def pinned_of(snapshot: Snapshot, table: str) -> PinnedTable | None:
    """The version that the snapshot names, if it names one."""
    version = _version(snapshot, table)
    return snapshot.backend.tables.open(table, version) if version else None


def _stamps(entries: OverlayTable | None) -> frozenset[tuple[str, str]]:
    return entries.stamps if entries else frozenset()
