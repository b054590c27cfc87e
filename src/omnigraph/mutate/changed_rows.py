"""Finds the rows in which two states of a table differ, at a cost that is proportional to the difference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.pending_table import Row, RowChange
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.storage.lance import PinnedTable
from omnigraph.storage.lance.version_difference import candidate_ids

ComparedColumns = frozenset[str] | None
"""The columns by which rows are compared; None compares all columns."""


def find_changed_rows(
    old: Snapshot, new: Snapshot, table: str, columns: ComparedColumns = None
) -> dict[str, RowChange]:
    """The rows of `table` (an identity) that differ in `columns`, with their images, by id."""
    ids = find_candidate_ids(old, new, table)
    before, after = read_rows(old, table, ids), read_rows(new, table, ids)
    return {
        row_id: RowChange(row_id, before.get(row_id), after.get(row_id))
        for row_id in sorted(ids)
        if not is_same_row(before.get(row_id), after.get(row_id), columns)
    }


def find_candidate_ids(old: Snapshot, new: Snapshot, table: str) -> set[str]:
    """Ids whose rows can differ: overlay entries of only one side, and candidates from comparing the table versions."""
    entries = _entry_keys(old.record.overlay.get(table)) ^ _entry_keys(new.record.overlay.get(table))
    return {row_id for row_id, _ in entries} | candidate_ids(
        open_pinned_table(old, table), open_pinned_table(new, table)
    )


def read_rows(snapshot: Snapshot, table: str, ids: Iterable[str]) -> dict[str, Row]:
    """Row images by id; empty if the snapshot's schema does not have the type."""
    type_def = snapshot.catalog.by_id.get(table)
    row_ids = list(ids)
    if type_def is None or not row_ids:
        return {}
    return {row["id"]: row for row in snapshot.view(type_def).find(row_ids).to_pylist()}


def columns_to_compare(type_def: TypeDef | None) -> ComparedColumns:
    """The columns of the type: a property that the type no longer has makes no difference."""
    return frozenset(arrow_schema(type_def).names) if type_def is not None else None


def is_same_row(before: Row | None, after: Row | None, columns: ComparedColumns = None) -> bool:
    """Compare by type and value, lists item by item. A missing column counts as null."""
    if before is None or after is None:
        return before is after
    return not find_changed_columns(before, after, columns)


def is_same_value(before: Any, after: Any) -> bool:
    """Compare by type and value: 1 is not 1.0, and null equals only null.

    NaN equals NaN, and -0.0 equals 0.0. Lists have the same length and the same items in the same order.
    """
    if isinstance(before, float) and isinstance(after, float) and math.isnan(before) and math.isnan(after):
        return True
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(is_same_value, before, after))
    return type(before) is type(after) and bool(before == after)


def find_changed_columns(before: Row, after: Row, columns: ComparedColumns = None) -> set[str]:
    names = before.keys() | after.keys() if columns is None else columns
    return {name for name in names if not is_same_value(before.get(name), after.get(name))}


def find_changed_tables(old: Snapshot, new: Snapshot) -> list[str]:
    """Tables whose pin or overlay differs; rows of other tables cannot differ."""
    names = old.record.pins.keys() | new.record.pins.keys()
    return sorted(table for table in names if not table.startswith("_") and not is_same_table(old, new, table))


def is_same_table(old: Snapshot, new: Snapshot, table: str) -> bool:
    """Whether pin and overlay are identical. No row is read, so a fold alone counts as a difference."""
    if _version(old, table) != _version(new, table):
        return False
    return _entry_keys(old.record.overlay.get(table)) == _entry_keys(new.record.overlay.get(table))


def _version(snapshot: Snapshot, table: str) -> str | None:
    pin = snapshot.record.pins.get(table)
    return pin.version if pin else None


def open_pinned_table(snapshot: Snapshot, table: str) -> PinnedTable | None:
    """Open the version that the snapshot pins; None without a pin."""
    version = _version(snapshot, table)
    return snapshot.backend.tables.open(table, version) if version else None


def _entry_keys(entries: OverlayTable | None) -> frozenset[tuple[str, str]]:
    return entries.entry_keys if entries else frozenset()
