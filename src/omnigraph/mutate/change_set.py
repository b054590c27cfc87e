"""A set of row changes on one snapshot: gathered by a verb, then checked as a whole and made a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from omnigraph.commit.footprint import FootprintBuilder
from omnigraph.commit.publish_plan import PublishPlan, TableAction, WriteTxn
from omnigraph.log.commit_record import CommitKind, Header
from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.check_changes import check_changes
from omnigraph.mutate.claims import claim_changes
from omnigraph.mutate.table_state import PendingTable, Row, RowChange
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.storage.backend import Backend


class ChangeSet:
    """What a mutation or a merge does, under `catalog`, which is the snapshot's own unless the verb changes it."""

    def __init__(self, backend: Backend, txn: WriteTxn, catalog: Catalog | None = None) -> None:
        self.claims = FootprintBuilder()
        self.catalog = catalog or txn.catalog
        self._backend = backend
        self._txn = txn
        self._states: dict[str, PendingTable] = {}

    def state(self, type_def: TypeDef) -> PendingTable:
        if type_def.id not in self._states:
            self._states[type_def.id] = PendingTable(type_def, self._txn.view(type_def))
        return self._states[type_def.id]

    @property
    def row_count(self) -> int:
        return sum(state.pending_count for state in self._states.values())

    def pending_snapshot(self) -> Snapshot:
        """The snapshot with what was changed so far on top, as the next statement sees it."""
        snapshot = self._txn.snapshot
        overlay = dict(snapshot.record.overlay)
        for table, state in self._states.items():
            if state.pending_count:
                pending = state.pending_entries()
                overlay[table] = overlay[table].with_entries(pending) if table in overlay else pending
        return replace(snapshot, record=replace(snapshot.record, overlay=overlay), pending=True)

    def put_all(self, table: str, images: Mapping[str, Row | None]) -> None:
        """Replace rows by these images, None removes. Edges of removed nodes must be among the changes."""
        state = self.state(self.catalog.by_id[table])
        state.must_leave_no_edges = True
        for row_id, row in images.items():
            if row is None:
                state.remove(row_id)
            else:
                state.put({**dict.fromkeys(state.schema.names), **{k: row[k] for k in row if k in state.schema.names}})

    def remember_committed(self, table: str, images: Mapping[str, Row | None]) -> None:
        """Rows of the snapshot as they were read before; of no use if this change gives the table another shape."""
        type_def = self.catalog.by_id[table]
        if self._txn.catalog.by_id.get(table) == type_def:
            self.state(type_def).remember_committed(images)

    def depend_on(self, ids_by_table: Mapping[str, Iterable[str]]) -> None:
        """Rows that were read to decide, whether or not they change."""
        for table, ids in ids_by_table.items():
            for row_id in ids:
                self.claims.read(table, "row", row_id)

    @cached_property
    def changes(self) -> dict[str, list[RowChange]]:
        """The changes by table; nothing may be added after this was asked for."""
        changes_by_table = {table: list(state.changes()) for table, state in list(self._states.items())}
        return {table: rows for table, rows in changes_by_table.items() if rows}

    @cached_property
    def actions(self) -> tuple[TableAction, ...]:
        return tuple(self._states[table].action(rows) for table, rows in self.changes.items())

    def check(self) -> None:
        """Raise ConstraintViolation with everything that the changes would break."""
        check_changes(self._backend, self.catalog, self.state, self.changes, self.actions)

    def plan(
        self,
        kind: CommitKind,
        op_id: str,
        *,
        catalog: Catalog | None = None,
        merged: Header | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> PublishPlan:
        for table, state in self._states.items():
            for row_id in state.dependency_ids:
                self.claims.read(table, "row", row_id)
        claim_changes(self.claims, self.catalog, self.changes)
        return PublishPlan(
            kind=kind,
            op_id=op_id,
            base=self._txn.record,
            footprint=self.claims.build(),
            actions=self.actions,
            catalog=catalog,
            merged=merged,
            result=result or {},
        )
