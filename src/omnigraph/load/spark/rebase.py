"""Rebase: the staged files of a load on a newer commit record, unless commits that landed meanwhile conflict with it.

A load of millions of rows claims no keys that it read. Instead, the rows that each newer commit wrote are looked up in
what the load staged: a commit conflicts if the load has the same id, needs a node that was removed, shares a unique
value, or counts edges of the same source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from omnigraph.commit.footprint import Footprint, FootprintBuilder, PlanConflict
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import ConflictCheck
from omnigraph.commit.staging import base_table, version_in_record
from omnigraph.intents.plan_codec import SavedPlan
from omnigraph.load.spark.check import CheckedLoad
from omnigraph.load.spark.stage import StagedInput
from omnigraph.log.commit_record import CommitRecord, Stub
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stream import RecordStream
from omnigraph.mutate.changed_rows import find_changed_rows
from omnigraph.mutate.claims import unique_key
from omnigraph.progress import Progress
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.spark.table_rows import BaseTable
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import StagedTable, TableStore

#: More rows written by others than this are not compared row by row: the load is staged again.
FOREIGN_ROWS_MAX = 50_000


@dataclass(frozen=True)
class ForeignChange:
    """What others did to one table: rows as they are now, and ids that they removed."""

    table: str
    rows: Sequence[Mapping[str, Any]]
    removed_ids: Sequence[str]


def rebase(
    backend: Backend, op_id: str, stream: RecordStream, checked: CheckedLoad, snapshot: Snapshot, progress: Progress
) -> CheckedLoad | None:
    """The same staged files on a newer commit record; None if they cannot be used there."""
    old = checked.snapshot
    if snapshot.record.schema != old.record.schema:
        return None
    records_since = _records_between(op_id, stream, old.record, snapshot.record)
    conflicts = LoadConflicts(snapshot.catalog, backend.tables, checked.tables)
    if records_since is None or conflicts.find_conflict_since(records_since, old, snapshot) is not None:
        return None
    backend.pauses.reach("load.rebasing")
    with progress.step("rebase"):
        tables = {
            table: _restage(backend, staged_input, old, snapshot) for table, staged_input in checked.tables.items()
        }
    return replace(checked, snapshot=snapshot, tables=tables)


def _records_between(
    op_id: str, stream: RecordStream, old: CommitRecord, new: CommitRecord
) -> list[CommitRecord] | None:
    """The commit records after `old` up to `new`; None if cleanup may have collected what was staged before."""
    commit_records: list[CommitRecord] = []
    for entry in stream.after_many(old.seq):
        if entry.seq > new.seq:
            break
        if isinstance(entry, Stub) or (entry.kind == "gc" and op_id not in (entry.gc or {}).get("honours", ())):
            return None
        commit_records.append(entry)
    return commit_records if old.seq + len(commit_records) == new.seq else None


def _restage(backend: Backend, staged_input: StagedInput, old: Snapshot, new: Snapshot) -> StagedInput:
    table = staged_input.type_def.id
    base = BaseTable.of(new, table)
    if version_in_record(old.record, table) == version_in_record(new.record, table):
        return replace(staged_input, base=base)
    _, pinned = base_table(backend, new.record, table, staged_input.type_def.kind)
    staged = backend.tables.restage(staged_input.staged, pinned)
    input_fragments = tuple(backend.tables.bulk.ids_of_new_fragments(staged))
    return replace(staged_input, base=base, staged=staged, input_fragments=input_fragments)


def restore_conflict_check(runtime: GraphRuntime, saved: SavedPlan) -> ConflictCheck:
    """The conflict check of a confirmed load whose process is gone. Raises ObjectMissing if its files are gone."""
    catalog = runtime.catalogs.get(saved.schema)
    tables = runtime.backend.tables
    staged_inputs = {}
    for action in saved.actions:
        assert action.move is not None
        staged = action.move.staged
        assert isinstance(staged, StagedTable)
        staged_inputs[action.table] = StagedInput(
            type_def=catalog.by_id[action.table],
            base=BaseTable(action.move.expected, None),
            staged=staged,
            input_fragments=tuple(tables.bulk.ids_of_new_fragments(staged)),
            is_overwritten=action.overwrite,
            may_replace_existing_ids=action.overwrite or action.updated > 0,
            may_repeat_ids=False,
        )
    return LoadConflicts(catalog, tables, staged_inputs).find_conflict


@dataclass(frozen=True)
class LoadConflicts:
    """Finds conflicts between the staged rows of a load and commits of others."""

    catalog: Catalog
    tables: TableStore
    staged_inputs: Mapping[str, StagedInput]

    def find_conflict(self, commit_record: CommitRecord) -> PlanConflict | None:
        """A conflict with one record after the base. A record that staged a table always conflicts here."""
        for table, touched in commit_record.touched.items():
            if table not in self.concerned_tables:
                continue
            entries = commit_record.own_entries(table)
            if touched.staged or entries is None:
                return PlanConflict(table, "a bulk change wrote the table")
            conflict = self._compare(ForeignChange(table, entries.rows.to_pylist(), sorted(entries.tombstones)))
            if conflict is not None:
                return conflict
        return None

    def find_conflict_since(
        self, commit_records: Iterable[CommitRecord], old: Snapshot, new: Snapshot
    ) -> PlanConflict | None:
        """A conflict with the records that lead from `old` to `new`. Tables that they staged are compared once."""
        staged_tables: set[str] = set()
        for commit_record in commit_records:
            if not commit_record.is_logical:
                continue
            concerned = {
                table: touched for table, touched in commit_record.touched.items() if table in self.concerned_tables
            }
            if any(touched.staged for touched in concerned.values()):
                staged_tables |= concerned.keys()  # even those of which the rows are in the record
                continue
            conflict = self.find_conflict(commit_record)
            if conflict is not None:
                return conflict
        return self._compare_snapshots(old, new, sorted(staged_tables))

    @cached_property
    def concerned_tables(self) -> frozenset[str]:
        """Tables whose changes can disturb the load: those it writes, and those at the ends of what it writes."""
        concerned: set[str] = set(self.staged_inputs)
        for table, staged_input in self.staged_inputs.items():
            type_def = staged_input.type_def
            if type_def.kind == "edge":
                concerned |= {end for end in (type_def.source, type_def.target) if end is not None}
                continue
            for edge in self.catalog.edges_at(table):
                if staged_input.is_overwritten or (edge.source == table and edge.cardinality.low > 0):
                    concerned.add(edge.id)
        return frozenset(concerned)

    @property
    def footprint(self) -> Footprint:
        """The claims of the load.

        It writes everything in its tables, and adds edges at any node of their ends. A process that publishes the load
        after its own process is gone has no conflict check: it requires that nothing in `concerned_tables` changed.
        """
        claims = FootprintBuilder()
        for table, staged_input in self.staged_inputs.items():
            claims.write_all(table)
            for end in (staged_input.type_def.source, staged_input.type_def.target):
                if end is not None:
                    claims.write_all(end, "inc")
        for table in self.concerned_tables:
            claims.read_all(table)
        return claims.build()

    def _compare_snapshots(self, old: Snapshot, new: Snapshot, tables: Sequence[str]) -> PlanConflict | None:
        for table in tables:
            if self._count_rows_in_new_files(old.record, new.record, table) > FOREIGN_ROWS_MAX:
                return PlanConflict(table, "a large change wrote the table")
            changes = find_changed_rows(old, new, table).values()
            rows = [change.after for change in changes if change.after is not None]
            removed_ids = [change.id for change in changes if change.after is None]
            conflict = self._compare(ForeignChange(table, rows, removed_ids))
            if conflict is not None:
                return conflict
        return None

    def _count_rows_in_new_files(self, old: CommitRecord, new: CommitRecord, table: str) -> int:
        versions = [commit_record.pins[table].version for commit_record in (old, new) if table in commit_record.pins]
        if len(set(versions)) < 2 or versions[1] is None:
            return 0
        rows_by_file = [
            {str(part.files[0].path): part.num_rows for part in self.tables.open(table, version).metadata}
            for version in versions
            if version is not None
        ]
        old_files = rows_by_file[0] if len(rows_by_file) > 1 else {}
        return sum(rows for path, rows in rows_by_file[-1].items() if path not in old_files)

    def _compare(self, change: ForeignChange) -> PlanConflict | None:
        if not change.rows and not change.removed_ids:
            return None
        return next((PlanConflict(change.table, reason) for reason in self._reasons(change)), None)

    def _reasons(self, change: ForeignChange) -> Iterator[str]:
        type_def = self.catalog.by_id[change.table]
        staged_input = self.staged_inputs.get(type_def.id)
        if staged_input is not None:
            yield from self._same_table_reasons(staged_input, change)
        if type_def.kind == "node":
            yield from self._node_reasons(type_def, change)
        else:
            yield from self._edge_reasons(type_def, change)

    def _same_table_reasons(self, staged_input: StagedInput, change: ForeignChange) -> Iterator[str]:
        type_def = staged_input.type_def
        if staged_input.is_overwritten:
            yield "the table was written, and the load replaces all of it"
        ids = [*(row["id"] for row in change.rows), *change.removed_ids]
        if self._count(staged_input, "id", ids):
            yield "a row that the load writes was written"
        for columns in type_def.uniques:
            if self._shares_unique_value(staged_input, columns, change.rows):
                yield "a unique value of the load was taken"
        if type_def.cardinality.is_bounded:
            if staged_input.may_replace_existing_ids:
                yield "edges whose number is limited were written, and the load moves some"
            if self._count(staged_input, "src", [row["src"] for row in change.rows]):
                yield "an edge was written at a source whose edges the load adds to"

    def _node_reasons(self, node: TypeDef, change: ForeignChange) -> Iterator[str]:
        for edge in self.catalog.edges_at(node.id):
            staged_edges = self.staged_inputs.get(edge.id)
            if staged_edges is None:
                continue
            for column, end in (("src", edge.source), ("dst", edge.target)):
                if end == node.id and self._count(staged_edges, column, change.removed_ids):
                    yield "a node was removed that an edge of the load needs"
            needs_edges = edge.source == node.id and edge.cardinality.low > 0
            if change.rows and needs_edges and staged_edges.is_overwritten:
                yield "a node was written that needs edges, and the load replaces all of them"

    def _edge_reasons(self, edge: TypeDef, change: ForeignChange) -> Iterator[str]:
        for column, end in (("src", edge.source), ("dst", edge.target)):
            staged_nodes = self.staged_inputs.get(end) if end is not None else None
            if staged_nodes is None:
                continue
            end_ids = sorted({row[column] for row in change.rows})
            if staged_nodes.is_overwritten and self._count(staged_nodes, "id", end_ids) < len(end_ids):
                yield "an edge was written to a node that the load removes"
        staged_sources = self.staged_inputs.get(edge.source) if edge.source is not None else None
        if staged_sources is not None and edge.cardinality.low > 0 and change.removed_ids:
            yield "edges were removed that nodes of the load may need"

    def _shares_unique_value(
        self, staged_input: StagedInput, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]
    ) -> bool:
        type_def = staged_input.type_def
        keys = {unique_key(type_def, columns, dict(row)) for row in rows} - {None}
        if not keys:
            return False
        staged_rows = self._find(staged_input, columns[0], [row[columns[0]] for row in rows], ["id", *columns])
        return any(unique_key(type_def, columns, row) in keys for row in staged_rows.to_pylist())

    def _count(self, staged_input: StagedInput, column: str, values: Sequence[Any]) -> int:
        return int(self._find(staged_input, column, values, ["id"]).num_rows)

    def _find(self, staged_input: StagedInput, column: str, values: Sequence[Any], columns: Sequence[str]) -> pa.Table:
        """Rows that the load staged and that have one of these values in `column`."""
        version = self.tables.bulk.open_staged(staged_input.staged)
        return version.find_in(set(staged_input.input_fragments), column, values, columns)
