"""A set of row changes on one snapshot: collected by an operation, checked as a whole, turned into a publish plan."""

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
from omnigraph.mutate.pending_table import PendingTable, Row, RowChange
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.storage.backend import Backend


class ChangeSet:
    """The row changes of a mutation or a merge. `catalog` is the snapshot's own unless the operation changes it."""

    def __init__(self, backend: Backend, txn: WriteTxn, catalog: Catalog | None = None) -> None:
        self.claims = FootprintBuilder()
        self.catalog = catalog or txn.catalog
        self._backend = backend
        self._txn = txn
        self._tables: dict[str, PendingTable] = {}

    def pending_table(self, type_def: TypeDef) -> PendingTable:
        if type_def.id not in self._tables:
            self._tables[type_def.id] = PendingTable(type_def, self._txn.view(type_def))
        return self._tables[type_def.id]

    @property
    def row_count(self) -> int:
        return sum(pending.pending_count for pending in self._tables.values())

    def pending_snapshot(self) -> Snapshot:
        """The snapshot with the changes so far as an overlay: what the next statement reads."""
        snapshot = self._txn.snapshot
        overlay = dict(snapshot.record.overlay)
        for table, pending in self._tables.items():
            if pending.pending_count:
                entries = pending.pending_entries()
                overlay[table] = overlay[table].with_entries(entries) if table in overlay else entries
        return replace(snapshot, record=replace(snapshot.record, overlay=overlay), pending=True)

    def put_all(self, table: str, images: Mapping[str, Row | None]) -> None:
        """Replace rows by these images; None removes a row. Edges of removed nodes must be among the changes."""
        pending = self.pending_table(self.catalog.by_id[table])
        pending.must_leave_no_edges = True
        for row_id, row in images.items():
            if row is None:
                pending.remove(row_id)
            else:
                columns = pending.schema.names
                pending.put({**dict.fromkeys(columns), **{name: row[name] for name in row if name in columns}})

    def remember_committed(self, table: str, images: Mapping[str, Row | None]) -> None:
        """Take over rows of the snapshot that the caller has read, unless this change gives the table another shape."""
        type_def = self.catalog.by_id[table]
        if self._txn.catalog.by_id.get(table) == type_def:
            self.pending_table(type_def).remember_committed(images)

    def depend_on(self, ids_by_table: Mapping[str, Iterable[str]]) -> None:
        """Claim rows that a decision was based on, whether or not they change."""
        for table, ids in ids_by_table.items():
            for row_id in ids:
                self.claims.read(table, "row", row_id)

    @cached_property
    def changes(self) -> dict[str, list[RowChange]]:
        """The changes by table. Reading this property ends the collection: later changes are ignored."""
        changes_by_table = {table: list(pending.changes()) for table, pending in list(self._tables.items())}
        return {table: rows for table, rows in changes_by_table.items() if rows}

    @cached_property
    def actions(self) -> tuple[TableAction, ...]:
        return tuple(self._tables[table].action(rows) for table, rows in self.changes.items())

    def check(self) -> None:
        """Raise ConstraintViolation if the changes violate constraints of the schema."""
        check_changes(self._backend, self.catalog, self.pending_table, self.changes, self.actions)

    def plan(
        self,
        kind: CommitKind,
        op_id: str,
        *,
        catalog: Catalog | None = None,
        merged_header: Header | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> PublishPlan:
        for table, pending in self._tables.items():
            for row_id in pending.dependency_ids:
                self.claims.read(table, "row", row_id)
        claim_changes(self.claims, self.catalog, self.changes)
        return PublishPlan(
            kind=kind,
            op_id=op_id,
            base=self._txn.record,
            footprint=self.claims.build(),
            actions=self.actions,
            catalog=catalog,
            merged_header=merged_header,
            result=result or {},
        )
