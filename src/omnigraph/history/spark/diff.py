"""`diff` as a frame: the changes between two commits, found and written out by workers. Nothing passes the driver."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.history.diff import differing_types, image, op_of
from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.changed_rows import ComparedColumns, columns_to_compare, is_same_row, open_pinned_table
from omnigraph.mutate.pending_table import Row, RowChange
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.shuffle_by_id import (
    BySide,
    LookupUnit,
    Parting,
    Unit,
    bucket_count,
    entry_ids,
    images_at,
    piece_units,
    state_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "op string, kind string, type string, id string, before string, after string"
_SCHEMA = pa.schema([(part.split()[0], pa.utf8()) for part in COLUMNS.split(", ")])
_OLD, _NEW = range(2)
#: Rows of both sides that are Python values at a time.
_IMAGES = 4_096


@dataclass(frozen=True)
class DiffedType:
    """One table: its type on either side, if that has it."""

    old: TypeDef | None
    new: TypeDef | None

    @property
    def known(self) -> TypeDef:
        one = self.new or self.old
        assert one is not None
        return one


def diff_frame(
    session: SparkSession,
    old: Snapshot,
    new: Snapshot,
    *,
    kinds: Collection[str] = (),
    types: Collection[str] = (),
    ops: Collection[str] = (),
) -> DataFrame:
    """Rows of `COLUMNS`, in no order, `before` and `after` as JSON; the same changes as `diff` gives, pinned."""
    tables = tuple(
        DiffedType(old.catalog.by_id.get(one.id), new.catalog.by_id.get(one.id))
        for one in differing_types(old, new, kinds=kinds, types=types)
    )
    units = tuple(unit for at, one in enumerate(tables) for unit in _units(at, one, old, new))
    buckets = tuple(bucket_count(units, at) for at in range(len(tables)))
    wanted = frozenset(ops)

    def work(at: int, sides: BySide) -> pa.Table:
        found = [row for row in _changes(tables[at], sides) if not wanted or row["op"] in wanted]
        return pa.Table.from_pylist(found, _SCHEMA)

    return Parting(old.backend.tables.location, units, buckets).made(session, work, COLUMNS)


def _units(at: int, one: DiffedType, old: Snapshot, new: Snapshot) -> Iterator[Unit]:
    table = one.known.id
    asked, apart = entry_ids(old.record.overlay.get(table), new.record.overlay.get(table))
    pins = {side: open_pinned_table(state, table) for side, state in ((_OLD, old), (_NEW, new))}
    for side, kind, state in ((_OLD, one.old, old), (_NEW, one.new, new)):
        if kind is None:
            continue
        yield from piece_units(at, side, kind, pins[side], pins[1 - side], apart)
        if asked:
            yield LookupUnit(at, (side,), kind, state_of(state, table), tuple(asked))


def _changes(one: DiffedType, sides: BySide) -> Iterator[dict[str, Any]]:
    nothing = pa.table({"id": pa.array([], pa.utf8())})
    before, after = sides.get(_OLD, nothing), sides.get(_NEW, nothing)
    was = {row_id: at for at, row_id in enumerate(before["id"].to_pylist())}
    is_ = {row_id: at for at, row_id in enumerate(after["id"].to_pylist())}
    ids = sorted(was.keys() | is_.keys())
    columns = columns_to_compare(one.new)
    for start in range(0, len(ids), _IMAGES):
        some = ids[start : start + _IMAGES]
        yield from _changed(one, columns, some, images_at(before, was, some), images_at(after, is_, some))


def _changed(
    one: DiffedType, columns: ComparedColumns, ids: list[str], before: dict[str, Row], after: dict[str, Row]
) -> Iterator[dict[str, Any]]:
    for row_id in ids:
        change = RowChange(row_id, before.get(row_id), after.get(row_id))
        if is_same_row(change.before, change.after, columns):
            continue
        yield {
            "op": op_of(change),
            "kind": one.known.kind,
            "type": one.known.name,
            "id": row_id,
            "before": _text(one.old, change.before),
            "after": _text(one.new, change.after),
        }


def _text(one: TypeDef | None, row: Row | None) -> str | None:
    return None if row is None or one is None else json.dumps(image(one, row), ensure_ascii=False)
