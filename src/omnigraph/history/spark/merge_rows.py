"""A merge, bucket by bucket, inside a worker: the row rule on the rows that meet, and data files of what it decides.

What a bucket decides is a pure function of its rows. Its files are named only by what it returns, so a bucket that is
worked out twice leaves files that nobody names and says the same of everything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.history.decide_row import MergeOptions, Sides, as_conflict, conflict_order, decide
from omnigraph.mutate.changed_rows import ComparedColumns, columns_to_compare, is_same_row
from omnigraph.mutate.pending_table import Row
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.schema.row_constraints import find_row_violations
from omnigraph.spark.shuffle_by_id import BySide, images_at
from omnigraph.storage.lance import TableLocation
from omnigraph.storage.lance.arrow_fit import select_and_cast
from omnigraph.storage.lance.row_address import NO_ADDRESS, ROW_ADDRESS, group_by_fragment, pack_address, split_address

#: Sides of a part: base and source where those two differ, base and target where those do; then where the target's
#: version has an id that its overlay hides; then ids that must be looked at, whatever rows they have.
BASE, SOURCE, BASE_OF_TARGET, TARGET, PLACED, MARKED = range(6)

STAGED, REMOVAL, CONFLICT = "staged", "removal", "conflict"
#: What a bucket says: what it wrote; rows of the target to remove, by fragment; conflicts, by what they sort by.
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
#: Rows of which all images are Python values at a time.
_IMAGES = 4_096


@dataclass(frozen=True)
class TableMerge:
    """What a worker needs to know of one table.

    `twins` are fragments of the base by their number in the target; `overlay_ids` have an entry in the target's
    record; `unsettled` ids have no base value.
    """

    type: TypeDef
    is_born: bool
    twins: Mapping[int, int]
    overlay_ids: frozenset[str]
    unsettled: frozenset[str]
    options: MergeOptions


@dataclass
class _Decided:
    """What becomes of the target's rows: rows of the source by their place, others as values, and ids that go."""

    taken: list[int] = field(default_factory=list)
    made: list[Row] = field(default_factory=list)
    gone_at: list[int] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)  # removed, and only the overlay has them
    conflicts: list[Mapping[str, Any]] = field(default_factory=list)
    inserted: int = 0
    updated: int = 0
    removed: int = 0


class Bucket:
    """The rows of one bucket, by side and id."""

    def __init__(self, table: TableMerge, sides: BySide) -> None:
        self._table = table
        nothing = arrow_schema(table.type).append(pa.field(ROW_ADDRESS, pa.int64())).empty_table()
        self._rows = {side: sides.get(side, nothing) for side in range(MARKED + 1)}
        self._at = {
            side: {row_id: at for at, row_id in enumerate(rows["id"].to_pylist())} for side, rows in self._rows.items()
        }
        self._addresses = {side: rows[ROW_ADDRESS].to_numpy() for side, rows in self._rows.items()}
        self._found = _Decided()

    def settle(self, place: TableLocation, number: int) -> pa.Table:
        """Decide, write what is to be written, and say so as rows of `DECIDED`."""
        hard = [row_id for row_id in self._candidates() if not self._settle_alone(row_id)]
        for start in range(0, len(hard), _IMAGES):
            self._settle_by_images(hard[start : start + _IMAGES])
        found = self._found
        rows = self._written_rows()
        fragments: list[Any] = []
        if rows is not None:
            fragments = [json.loads(one) for one in self._write(place, rows)]
            listed, _ = find_row_violations(self._table.type, rows)
            found.conflicts += [as_conflict(one.to_json()) for one in listed]
        told = {
            "fragments": fragments,
            "inserted": found.inserted,
            "updated": found.updated,
            "removed": found.removed,
            "superseded": found.superseded,
            "bare": found.bare,
        }
        records = [_record(STAGED, number, data=json.dumps(told).encode())]
        for fragment, offsets in group_by_fragment(np.array(found.gone_at, np.uint64)):
            records.append(_record(REMOVAL, number, fragment=fragment, data=offsets.astype("<u4").tobytes()))
        records += [conflict_record(number, one) for one in found.conflicts]
        return pa.Table.from_pylist(records, _SCHEMA)

    def _candidates(self) -> list[str]:
        return sorted(self._at[BASE].keys() | self._at[SOURCE].keys() | self._at[MARKED].keys())

    def _meets(self, row_id: str) -> bool:
        """Whether the target's row may be another than the base's."""
        return row_id in self._at[BASE_OF_TARGET] or row_id in self._at[TARGET]

    def _settle_alone(self, row_id: str) -> bool:
        """Rows that the source alone inserted or removed need no comparison; whether this is one."""
        if row_id in self._table.unsettled or self._meets(row_id):
            return False
        if row_id not in self._at[BASE]:
            self._put(row_id, self._at[SOURCE][row_id])
            return True
        if row_id not in self._at[SOURCE]:
            self._remove(row_id)
            return True
        return False

    def _settle_by_images(self, ids: Sequence[str]) -> None:
        one, columns = self._table.type, columns_to_compare(self._table.type)
        base, source, target = (images_at(self._rows[side], self._at[side], ids) for side in (BASE, SOURCE, TARGET))
        for row_id in ids:
            ours = target.get(row_id) if self._meets(row_id) else base.get(row_id)
            sides = Sides(base.get(row_id), source.get(row_id), ours, row_id not in self._table.unsettled)
            found = decide(one, columns, self._table.options, row_id, sides)
            if found.conflict is not None:
                self._found.conflicts.append(found.conflict)
            if not found.keep and not is_same_row(found.row, ours, columns):
                self._apply(row_id, found.row, sides, columns)

    def _apply(self, row_id: str, row: Row | None, sides: Sides, columns: ComparedColumns) -> None:
        if row is None:
            self._remove(row_id)
        elif row is sides.source:
            self._put(row_id, self._at[SOURCE][row_id])
        else:
            self._found.made.append(row)
            self._replace(row_id)

    def _put(self, row_id: str, at: int) -> None:
        self._found.taken.append(at)
        self._replace(row_id)

    def _replace(self, row_id: str) -> None:
        if self._is_in_target(row_id):
            self._found.updated += 1
        else:
            self._found.inserted += 1
        self._clear(row_id)

    def _remove(self, row_id: str) -> None:
        self._found.removed += 1
        if not self._clear(row_id):
            self._found.bare.append(row_id)

    def _is_in_target(self, row_id: str) -> bool:
        return row_id in self._at[TARGET if self._meets(row_id) else BASE]

    def _clear(self, row_id: str) -> bool:
        """Take the id out of the target, overlay and pin; whether the pin has it."""
        if row_id in self._table.overlay_ids:
            self._found.superseded.append(row_id)
        address = self._address(row_id)
        if address == NO_ADDRESS:
            return False
        self._found.gone_at.append(address)
        return True

    def _address(self, row_id: str) -> int:
        """Where the target's version has the id: a row that target and base share is where the base has it."""
        if row_id in self._at[PLACED]:
            return self._address_on(PLACED, row_id)
        if self._meets(row_id):
            return self._address_on(TARGET, row_id) if row_id in self._at[TARGET] else NO_ADDRESS
        if row_id not in self._at[BASE]:
            return NO_ADDRESS
        address = self._address_on(BASE, row_id)
        if address == NO_ADDRESS:
            return NO_ADDRESS
        fragment_id, offset = split_address(address)
        return pack_address(self._table.twins[fragment_id], offset)

    def _address_on(self, side: int, row_id: str) -> int:
        return int(self._addresses[side][self._at[side][row_id]])

    def _written_rows(self) -> pa.Table | None:
        found, schema = self._found, arrow_schema(self._table.type)
        parts = []
        if found.taken:
            parts.append(select_and_cast(self._rows[SOURCE].take(pa.array(found.taken, pa.int64())), schema))
        if found.made:
            made = [{name: row.get(name) for name in schema.names} for row in found.made]
            parts.append(pa.Table.from_pylist(made, schema))
        if not parts:
            return None
        by = ["id"] if self._table.type.kind == "node" else ["src", "id"]
        return pa.concat_tables(parts).sort_by([(name, "ascending") for name in by])

    def _write(self, place: TableLocation, rows: pa.Table) -> list[str]:
        store, one = place.open(), self._table.type
        if not self._table.is_born:
            store.birth(one.id, one.kind)  # by many at once, if need be: all end with the same empty version
        return store.write_rows(one.id, rows)


def conflict_record(number: int, one: Mapping[str, Any]) -> dict[str, Any]:
    return _record(CONFLICT, number, name="\0".join(conflict_order(one)), data=json.dumps(dict(one)).encode())


def conflict_batch(conflicts: Iterator[Mapping[str, Any]]) -> pa.RecordBatch:
    """Conflicts that were found elsewhere, as rows of `DECIDED`."""
    return pa.RecordBatch.from_pylist([conflict_record(NO_ADDRESS, one) for one in conflicts], _SCHEMA)


def _record(
    what: str, number: int, *, name: str | None = None, fragment: int | None = None, data: bytes = b""
) -> dict[str, Any]:
    return {"what": what, "at": number, "name": name, "fragment": fragment, "data": data}
