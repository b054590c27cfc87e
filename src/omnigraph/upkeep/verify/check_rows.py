"""Rows: counts, ids that are there once, overlays that fit, edges whose ends exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.idempotency import OPS_SCHEMA, OPS_TYPE
from omnigraph.errors import OmnigraphError, Unavailable
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.overlay import DEL, RID, OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.storage.backend import Backend
from omnigraph.upkeep.verify.findings import Findings

_NAMED = 5


class RowCheck:
    """Checks whole commits; a table state that several commits share is looked at once."""

    def __init__(self, backend: Backend, catalogs: Mapping[str, Catalog], findings: Findings) -> None:
        self._backend = backend
        self._catalogs = catalogs
        self._findings = findings
        self._counted: dict[tuple[str, str | None, bytes], int] = {}

    def check(self, record: CommitRecord, *, whole: bool) -> None:
        """Counts and overlays of a commit; with `whole` also its edges' ends."""
        catalog = self._catalogs.get(record.schema)
        if catalog is None:
            return  # the schema was reported already
        snapshot = Snapshot(self._backend, record, catalog)
        self._findings.checked["commits"] += 1
        for table in sorted(record.overlay.keys() | record.pins.keys()):
            one = OPS_TYPE if table == OPS_TYPE.id else snapshot.catalog.by_id.get(table)
            if one is None:
                self._findings.error("table_unknown", table, f"{record.commit_id} holds it, its schema does not")
                continue
            self._check_table(snapshot, one)
        for one in snapshot.catalog.types if whole else ():
            if one.kind == "edge":
                self._check_ends(snapshot, one)

    def _check_table(self, snapshot: Snapshot, one: TypeDef) -> None:
        record = snapshot.record
        pin = record.pins.get(one.id)
        where = f"{record.commit_id} {one.table_key}"
        overlay = record.overlay.get(one.id)
        if pin is None:
            self._findings.error("pin_missing", where, "the commit holds rows of a table that it does not name")
            return
        if overlay is not None and not self._check_overlay(overlay, one, where):
            return
        state = (one.id, pin.version, overlay.as_bytes if overlay else b"")
        if state not in self._counted:
            found = self._count(snapshot, one, where)
            if found is None:
                return
            self._counted[state] = found
        if self._counted[state] != pin.rows:
            text = f"the commit says {pin.rows} rows, there are {self._counted[state]}"
            self._findings.error("rows_wrong", where, text)

    def _check_overlay(self, overlay: OverlayTable, one: TypeDef, where: str) -> bool:
        table = overlay.table
        schema = arrow_schema(one)
        wrong = [
            field.name
            for field in table.schema
            if field.name not in (RID, DEL)
            and (field.name not in schema.names or schema.field(field.name).type != field.type)
        ]
        twice = _twice(table["id"])
        if wrong:
            self._findings.error("overlay_wrong", where, f"the overlay's columns {wrong} do not fit the schema")
        if twice:
            self._findings.error("overlay_wrong", where, f"the overlay holds {twice} twice")
        if table[RID].null_count or table[DEL].null_count:
            self._findings.error("overlay_wrong", where, "the overlay has entries without their origin")
        return not wrong and not twice

    def _count(self, snapshot: Snapshot, one: TypeDef, where: str) -> int | None:
        ids = self._column(snapshot, one, "id", where)
        if ids is None:
            return None
        self._findings.checked["rows"] += len(ids)
        twice = _twice(ids)
        if twice:
            self._findings.error("id_twice", where, f"the table holds {twice} twice")
        return len(ids)

    def _check_ends(self, snapshot: Snapshot, one: TypeDef) -> None:
        where = f"{snapshot.commit_id} {one.table_key}"
        for column, end in (("src", one.source), ("dst", one.target)):
            node = snapshot.catalog.by_id.get(end or "")
            if node is None:
                self._findings.error("schema_damaged", where, f"its {column} has no type")
                continue
            ends, alive = self._column(snapshot, one, column, where), self._column(snapshot, node, "id", where)
            if ends is None or alive is None:
                continue
            lost = ends.filter(pc.invert(pc.is_in(ends, alive.combine_chunks()))).unique().to_pylist()
            if lost:
                shown = ", ".join(map(repr, lost[:_NAMED]))
                text = f"edges point to {len(lost)} rows of {node.table_key} that are not there: {shown}"
                self._findings.error("edge_end_missing", where, text)

    def _column(self, snapshot: Snapshot, one: TypeDef, column: str, where: str) -> pa.ChunkedArray | None:
        try:
            return _view(snapshot, one).scan([column])[column]
        except Unavailable:
            raise
        except OmnigraphError as error:
            self._findings.error("rows_unreadable", where, error.message)
            return None


def _view(snapshot: Snapshot, one: TypeDef) -> TableView:
    return snapshot.view_of(one.id, OPS_SCHEMA) if one.id == OPS_TYPE.id else snapshot.view(one)


def _twice(ids: pa.ChunkedArray) -> list[str]:
    if len(ids.unique()) == len(ids):
        return []
    return [one for one, count in Counter(ids.to_pylist()).most_common(_NAMED) if count > 1]
