"""Decides one bucket of a merge, inside a worker: the three-way row decision, and data files of its outcome.

What a bucket decides is a pure function of its rows. Its files are named only by the returned rows, so a bucket that
is decided twice leaves files that no commit names, and returns the same otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.history.decide_row import MergeOptions, RowVersions, as_conflict, conflict_sort_key, decide_row
from omnigraph.mutate.changed_rows import columns_to_compare, is_same_row
from omnigraph.mutate.pending_table import Row
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.schema.row_constraints import find_row_violations
from omnigraph.spark.shuffle_by_id import RowsBySide, map_positions, take_rows
from omnigraph.storage.lance import TableLocation
from omnigraph.storage.lance.arrow_fit import select_and_cast
from omnigraph.storage.lance.row_address import NO_ADDRESS, ROW_ADDRESS, group_by_fragment, pack_address, split_address

#: Sides of the shuffle: base and source where those two differ; base and target where those two differ; addresses of
#: ids in the target's pinned version, whatever the overlay hides; ids that must be decided, whatever rows they have.
BASE, SOURCE, BASE_OF_TARGET, TARGET, TARGET_ADDRESS, UNSETTLED = range(6)

STAGED, REMOVAL, CONFLICT = "staged", "removal", "conflict"
#: What a bucket returns: what it wrote; rows of the target to remove, by fragment; conflicts with their sort key.
DECIDED = "what string, at int, name string, fragment bigint, data binary"
_SCHEMA = pa.schema(
    [
        ("what", pa.utf8()),
        ("at", pa.int32()),
        ("name", pa.utf8()),
        ("fragment", pa.int64()),
        ("data", pa.binary()),
    ]
)
#: Rows that are Python values at a time.
_ROWS_AT_ONCE = 4_096


@dataclass(frozen=True)
class TableMerge:
    """What a worker needs to know about one table of a merge. Picklable.

    `target_fragments` maps fragments of the base to the same fragments in the target; `overlay_ids` have an entry in
    the target's overlay; `unsettled` ids have no base value.
    """

    type_def: TypeDef
    is_born: bool
    target_fragments: Mapping[int, int]
    overlay_ids: frozenset[str]
    unsettled: frozenset[str]
    options: MergeOptions


@dataclass
class _Outcome:
    """What a bucket changes in the target."""

    source_positions: list[int] = field(default_factory=list)  # rows of the source to write
    merged_rows: list[Row] = field(default_factory=list)  # rows to write that neither side has
    removed_addresses: list[int] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    overlay_only: list[str] = field(default_factory=list)  # removed ids that only the overlay has
    conflicts: list[Mapping[str, Any]] = field(default_factory=list)
    inserted: int = 0
    updated: int = 0
    removed: int = 0


class Bucket:
    """The rows of one bucket, by side and id."""

    def __init__(self, table: TableMerge, sides: RowsBySide) -> None:
        self._table = table
        no_rows = arrow_schema(table.type_def).append(pa.field(ROW_ADDRESS, pa.int64())).empty_table()
        self._rows = {side: sides.get(side, no_rows) for side in range(UNSETTLED + 1)}
        self._positions = {side: map_positions(rows) for side, rows in self._rows.items()}
        self._addresses = {side: rows[ROW_ADDRESS].to_numpy() for side, rows in self._rows.items()}
        self._outcome = _Outcome()

    def decide(self, location: TableLocation, table_number: int) -> pa.Table:
        """Decide all ids, write the rows that the target gets, and return rows of `DECIDED`."""
        contested = [row_id for row_id in self._ids_to_decide() if not self._decide_uncontested(row_id)]
        for start in range(0, len(contested), _ROWS_AT_ONCE):
            self._decide_contested(contested[start : start + _ROWS_AT_ONCE])
        outcome = self._outcome
        rows = self._rows_to_write()
        fragments: list[Any] = []
        if rows is not None:
            fragments = [json.loads(fragment) for fragment in self._write(location, rows)]
            violations, _ = find_row_violations(self._table.type_def, rows)
            outcome.conflicts += [as_conflict(violation.to_json()) for violation in violations]
        staged = {
            "fragments": fragments,
            "inserted": outcome.inserted,
            "updated": outcome.updated,
            "removed": outcome.removed,
            "superseded": outcome.superseded,
            "bare": outcome.overlay_only,
        }
        decided = [_build_row(STAGED, table_number, data=json.dumps(staged).encode())]
        for fragment, offsets in group_by_fragment(np.array(outcome.removed_addresses, np.uint64)):
            data = offsets.astype("<u4").tobytes()
            decided.append(_build_row(REMOVAL, table_number, fragment=fragment, data=data))
        decided += [_conflict_row(table_number, conflict) for conflict in outcome.conflicts]
        return pa.Table.from_pylist(decided, _SCHEMA)

    def _ids_to_decide(self) -> list[str]:
        positions = self._positions
        return sorted(positions[BASE].keys() | positions[SOURCE].keys() | positions[UNSETTLED].keys())

    def _may_differ_in_target(self, row_id: str) -> bool:
        """Whether the target's row may differ from the base's."""
        return row_id in self._positions[BASE_OF_TARGET] or row_id in self._positions[TARGET]

    def _decide_uncontested(self, row_id: str) -> bool:
        """Rows that only the source inserted or removed need no comparison; whether this is one of them."""
        if row_id in self._table.unsettled or self._may_differ_in_target(row_id):
            return False
        if row_id not in self._positions[BASE]:
            self._take_from_source(row_id)
            return True
        if row_id not in self._positions[SOURCE]:
            self._remove(row_id)
            return True
        return False

    def _decide_contested(self, ids: Sequence[str]) -> None:
        type_def, columns = self._table.type_def, columns_to_compare(self._table.type_def)
        base_rows, source_rows, target_rows = (
            take_rows(self._rows[side], self._positions[side], ids) for side in (BASE, SOURCE, TARGET)
        )
        for row_id in ids:
            target = (target_rows if self._may_differ_in_target(row_id) else base_rows).get(row_id)
            is_settled = row_id not in self._table.unsettled
            versions = RowVersions(base_rows.get(row_id), source_rows.get(row_id), target, is_settled)
            decision = decide_row(type_def, columns, self._table.options, row_id, versions)
            if decision.conflict is not None:
                self._outcome.conflicts.append(decision.conflict)
            if not decision.keep and not is_same_row(decision.row, target, columns):
                self._apply(row_id, decision.row, versions)

    def _apply(self, row_id: str, row: Row | None, versions: RowVersions) -> None:
        if row is None:
            self._remove(row_id)
        elif row is versions.source:
            self._take_from_source(row_id)
        else:
            self._outcome.merged_rows.append(row)
            self._replace(row_id)

    def _take_from_source(self, row_id: str) -> None:
        self._outcome.source_positions.append(self._positions[SOURCE][row_id])
        self._replace(row_id)

    def _replace(self, row_id: str) -> None:
        if self._is_in_target(row_id):
            self._outcome.updated += 1
        else:
            self._outcome.inserted += 1
        self._clear(row_id)

    def _remove(self, row_id: str) -> None:
        self._outcome.removed += 1
        if not self._clear(row_id):
            self._outcome.overlay_only.append(row_id)

    def _is_in_target(self, row_id: str) -> bool:
        return row_id in self._positions[TARGET if self._may_differ_in_target(row_id) else BASE]

    def _clear(self, row_id: str) -> bool:
        """Remove the id from the target's overlay and pinned version; whether the pinned version has it."""
        if row_id in self._table.overlay_ids:
            self._outcome.superseded.append(row_id)
        address = self._target_address(row_id)
        if address == NO_ADDRESS:
            return False
        self._outcome.removed_addresses.append(address)
        return True

    def _target_address(self, row_id: str) -> int:
        """Where the target's version has the id. A row that it shares with the base lies in a shared fragment."""
        if row_id in self._positions[TARGET_ADDRESS]:
            return self._address_on(TARGET_ADDRESS, row_id)
        if self._may_differ_in_target(row_id):
            return self._address_on(TARGET, row_id)
        base_address = self._address_on(BASE, row_id)
        if base_address == NO_ADDRESS:
            return NO_ADDRESS
        fragment_id, offset = split_address(base_address)
        return pack_address(self._table.target_fragments[fragment_id], offset)

    def _address_on(self, side: int, row_id: str) -> int:
        position = self._positions[side].get(row_id)
        return int(self._addresses[side][position]) if position is not None else NO_ADDRESS

    def _rows_to_write(self) -> pa.Table | None:
        outcome, schema = self._outcome, arrow_schema(self._table.type_def)
        parts = []
        if outcome.source_positions:
            source_rows = self._rows[SOURCE].take(pa.array(outcome.source_positions, pa.int64()))
            parts.append(select_and_cast(source_rows, schema))
        if outcome.merged_rows:
            merged = [{name: row.get(name) for name in schema.names} for row in outcome.merged_rows]
            parts.append(pa.Table.from_pylist(merged, schema))
        if not parts:
            return None
        keys = ["id"] if self._table.type_def.kind == "node" else ["src", "id"]
        return pa.concat_tables(parts).sort_by([(name, "ascending") for name in keys])

    def _write(self, location: TableLocation, rows: pa.Table) -> list[str]:
        store, type_def = location.open(), self._table.type_def
        if not self._table.is_born:
            store.birth(type_def.id, type_def.kind)  # several workers may do so: all end with the same empty version
        return store.write_rows(type_def.id, rows)


def conflict_batch(conflicts: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Conflicts that constraints found, as rows of `DECIDED`."""
    return pa.RecordBatch.from_pylist([_conflict_row(NO_ADDRESS, conflict) for conflict in conflicts], _SCHEMA)


def _conflict_row(table_number: int, conflict: Mapping[str, Any]) -> dict[str, Any]:
    sort_key = "\0".join(conflict_sort_key(conflict))
    return _build_row(CONFLICT, table_number, name=sort_key, data=json.dumps(dict(conflict)).encode())


def _build_row(
    row_kind: str, table_number: int, *, name: str | None = None, fragment: int | None = None, data: bytes = b""
) -> dict[str, Any]:
    return {"what": row_kind, "at": table_number, "name": name, "fragment": fragment, "data": data}
