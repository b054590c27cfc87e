"""`diff` as a Spark frame: workers find the changes between two commits and encode them. No row passes the driver."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.history.diff import differing_types, op_of, to_image
from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.changed_rows import ComparedColumns, columns_to_compare, is_same_row, open_pinned_table
from omnigraph.mutate.pending_table import Row, RowChange
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.shuffle_by_id import (
    LookupRead,
    RowsBySide,
    ShuffleById,
    ShuffleRead,
    compare_overlay_ids,
    map_positions,
    plan_difference_reads,
    take_rows,
)
from omnigraph.spark.table_rows import BaseTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "op string, kind string, type string, id string, before string, after string"
_SCHEMA = pa.schema([(column.split()[0], pa.utf8()) for column in COLUMNS.split(", ")])
_OLD, _NEW = range(2)
#: How many ids are turned into Python rows at once.
_ROWS_AT_ONCE = 4_096


@dataclass(frozen=True)
class DiffedType:
    """The definition of one type in the old and in the new schema; None in a schema that lacks it."""

    old: TypeDef | None
    new: TypeDef | None

    @property
    def newest(self) -> TypeDef:
        type_def = self.new or self.old
        assert type_def is not None
        return type_def


def diff_frame(
    session: SparkSession,
    old: Snapshot,
    new: Snapshot,
    *,
    kinds: Collection[str] = (),
    types: Collection[str] = (),
    ops: Collection[str] = (),
) -> DataFrame:
    """Rows of `COLUMNS` in no order, `before` and `after` as JSON.

    These are the same changes as those of `diff`; the frame keeps reading these two commits.
    """
    diffed_types = tuple(
        DiffedType(old.catalog.by_id.get(type_def.id), new.catalog.by_id.get(type_def.id))
        for type_def in differing_types(old, new, kinds=kinds, types=types)
    )
    reads = (read for number, table in enumerate(diffed_types) for read in _plan_reads(number, table, old, new))
    shuffle = ShuffleById.of_tables(old.backend.tables.location, reads, len(diffed_types))
    selected_ops = frozenset(ops)

    def find_changes(table_number: int, sides: RowsBySide) -> pa.Table:
        changes = _find_changes(diffed_types[table_number], sides)
        rows = [change for change in changes if not selected_ops or change["op"] in selected_ops]
        return pa.Table.from_pylist(rows, _SCHEMA)

    return shuffle.apply(session, find_changes, COLUMNS)


def _plan_reads(table_number: int, diffed: DiffedType, old: Snapshot, new: Snapshot) -> Iterator[ShuffleRead]:
    table = diffed.newest.id
    differing_ids, overlay_ids = compare_overlay_ids(old.record.overlay.get(table), new.record.overlay.get(table))
    pinned = {side: open_pinned_table(snapshot, table) for side, snapshot in ((_OLD, old), (_NEW, new))}
    for side, type_def, snapshot in ((_OLD, diffed.old, old), (_NEW, diffed.new, new)):
        if type_def is None:
            continue
        yield from plan_difference_reads(table_number, side, type_def, pinned[side], pinned[1 - side], overlay_ids)
        if differing_ids:
            base = BaseTable.of(snapshot, table)
            yield LookupRead(table_number, (side,), type_def, base, tuple(differing_ids))


def _find_changes(diffed: DiffedType, sides: RowsBySide) -> Iterator[dict[str, Any]]:
    no_rows = pa.table({"id": pa.array([], pa.utf8())})
    before, after = sides.get(_OLD, no_rows), sides.get(_NEW, no_rows)
    before_positions, after_positions = map_positions(before), map_positions(after)
    ids = sorted(before_positions.keys() | after_positions.keys())
    columns = columns_to_compare(diffed.new)
    for start in range(0, len(ids), _ROWS_AT_ONCE):
        some_ids = ids[start : start + _ROWS_AT_ONCE]
        old_rows = take_rows(before, before_positions, some_ids)
        new_rows = take_rows(after, after_positions, some_ids)
        yield from _compare_rows(diffed, columns, some_ids, old_rows, new_rows)


def _compare_rows(
    diffed: DiffedType, columns: ComparedColumns, ids: list[str], before: dict[str, Row], after: dict[str, Row]
) -> Iterator[dict[str, Any]]:
    for row_id in ids:
        change = RowChange(row_id, before.get(row_id), after.get(row_id))
        if is_same_row(change.before, change.after, columns):
            continue
        yield {
            "op": op_of(change),
            "kind": diffed.newest.kind,
            "type": diffed.newest.name,
            "id": row_id,
            "before": _encode_image(diffed.old, change.before),
            "after": _encode_image(diffed.new, change.after),
        }


def _encode_image(type_def: TypeDef | None, row: Row | None) -> str | None:
    return None if row is None or type_def is None else json.dumps(to_image(type_def, row), ensure_ascii=False)
