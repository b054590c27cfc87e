"""A large merge on Spark: one shuffle brings the rows of an id together, workers decide and write, one commit follows.

Only what differs between base and source, and between base and target, is read. The row decision and the constraints
are those of a merge in this process. The files are staged like those of a load, under an intent. If the target moves on
meanwhile, the merge is prepared again on its newest commit record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.commit.footprint import Footprint, FootprintBuilder
from omnigraph.commit.publish_plan import PublishPlan, StagedMove, TableAction, WriteOptions
from omnigraph.commit.staging import base_table, version_in_record
from omnigraph.errors import Unsupported
from omnigraph.history.adoption import adopt_tables, can_adopt
from omnigraph.history.merge import MergeEngine, MergeInput, merge_conflict
from omnigraph.history.spark.check_merged import MergeChecker, MergedTable
from omnigraph.history.spark.decide_bucket import (
    BASE,
    BASE_OF_TARGET,
    CONFLICT,
    DECIDED,
    REMOVAL,
    SOURCE,
    STAGED,
    TARGET,
    TARGET_ADDRESS,
    UNSETTLED,
    Bucket,
    TableMerge,
)
from omnigraph.intents.scope import IntentScope
from omnigraph.mutate.changed_rows import open_pinned_table
from omnigraph.progress import Progress
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.spark.shuffle_by_id import (
    LookupRead,
    RowsBySide,
    ShuffleById,
    ShuffleRead,
    ValuesRead,
    compare_overlay_ids,
    plan_difference_reads,
)
from omnigraph.spark.table_rows import BaseTable
from omnigraph.spark.tasks import RESULT, collect_results, encode_results, spark_errors
from omnigraph.spark.watch_tasks import watch_tasks
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import Removal, TableLocation, delete_offsets
from omnigraph.storage.lance.version_difference import fragment_differences, map_shared_fragments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: An error lists this many conflicts, the first in their order, and counts all.
CONFLICTS_MAX = 10_000
#: A virtual base is made in this process. It may differ from the commits that it is made of in this many rows.
VIRTUAL_ROWS_MAX = 100_000


class SparkMergeExecutor:
    """Plans one merge on Spark, under an intent; for use in a `with` block around the run of the merge."""

    def __init__(
        self,
        backend: Backend,
        write: WriteOptions,
        engine: MergeEngine,
        open_session: Callable[[], SparkSession],
        progress: Progress,
    ) -> None:
        self._backend = backend
        self._engine = engine
        self._open_session = open_session
        self._progress = progress
        self._intent = IntentScope(backend, "merge", write)
        self._has_accepted = False

    def __enter__(self) -> SparkMergeExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._intent.__exit__(kind, error, trace)

    def accepts(self, merge: MergeInput) -> bool:
        bound = self._backend.config.merge_spark_rows
        self._has_accepted = self._engine == "spark" or _changes_more_rows(merge, bound)
        return self._has_accepted

    def plan(self, merge: MergeInput) -> PublishPlan:
        if len(merge.base.rows) > VIRTUAL_ROWS_MAX:
            raise Unsupported(
                f"the branches were merged crosswise, and their bases differ in {len(merge.base.rows)} rows",
                code="merge_too_crossed",
                advice="Merge with engine='local' on a machine that holds those rows in memory",
            )
        session = self._open_session()
        adopts_all = all(
            can_adopt(type_def.id, merge.base, merge.source, merge.target, merge.catalog) for type_def in merge.types
        )
        if not adopts_all:
            # A plan that only adopts pins of the source stages no files, so it needs no intent.
            self._intent.open(merge.op_id, merge.txn.record)
        with spark_errors():
            plan = _MergeAttempt(self._backend, session, merge, self._progress).plan()
        if not adopts_all:
            return plan
        return adopt_tables(plan, merge.base, merge.source, merge.target, merge.catalog, merge.source_stream)

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        if not self._intent.is_open or not self._has_accepted:
            return plan
        # Recovery can only finish a plan that names staged files, and no adopted pins.
        are_staged = [action.adopted is None for action in plan.actions if action.move is not None]
        return self._intent.confirm(plan) if are_staged and all(are_staged) else plan

    def end(self, commit_id: str | None) -> None:
        """The merge has landed, or there was nothing to do."""
        if commit_id is not None:
            self._intent.end(commit_id)


def _changes_more_rows(merge: MergeInput, bound: int) -> bool:
    """Whether the source may have changed more rows than `bound`, as far as pins and manifests tell."""
    tables = [type_def.id for type_def in merge.types]
    snapshots = (merge.base.snapshot, merge.source)
    pinned_rows = [
        sum(snapshot.record.pins[table].rows for table in tables if table in snapshot.record.pins)
        for snapshot in snapshots
    ]
    if max(pinned_rows) <= bound:
        return False
    rows = 0
    for table in tables:
        before, after = (open_pinned_table(snapshot, table) for snapshot in snapshots)
        removed, added = (
            sum(difference.rows for difference in fragment_differences(*pair))
            for pair in ((before, after), (after, before))
        )
        differing_ids, _ = compare_overlay_ids(*(snapshot.record.overlay.get(table) for snapshot in snapshots))
        rows += max(removed, added) + len(differing_ids)
    return rows > bound


@dataclass(frozen=True)
class _MergeAttempt:
    """One attempt, on one commit record of the target."""

    backend: Backend
    session: SparkSession
    merge: MergeInput
    progress: Progress

    def plan(self) -> PublishPlan:
        """Shuffle and decide, stage, check, and plan the commit. Raises MergeConflict."""
        merge = self.merge
        with self.progress.step("merge", watch_tasks(self.session)):
            decided = self._decide().persist()
        try:
            with self.progress.step("stage", watch_tasks(self.session)):
                merged = self._stage(decided)
            self.backend.pauses.reach("merge.staged")
            with self.progress.step("check", watch_tasks(self.session)):
                self._refuse_conflicts(decided, self._check(merged))
        finally:
            decided.unpersist()
        self.backend.pauses.reach("merge.checked")
        return PublishPlan(
            kind="merge",
            op_id=merge.op_id,
            base=merge.txn.record,
            footprint=self._footprint(merged),
            actions=tuple(self._plan_table(merged_table) for merged_table in merged.values()),
            catalog=merge.new_catalog,
            merged_header=merge.source.record.header,
            result={"outcome": merge.outcome},
        )

    # --- the rows of one id meet in one bucket -----------------------------------------------------------------

    def _decide(self) -> DataFrame:
        """One shuffle of all tables; a frame of `DECIDED`."""
        types, location = self.merge.types, self.backend.tables.location
        tables = tuple(map(self._describe_table, types))
        reads = (read for number, type_def in enumerate(types) for read in self._plan_reads(number, type_def))

        def decide(table_number: int, sides: RowsBySide) -> pa.Table:
            return Bucket(tables[table_number], sides).decide(location, table_number)

        return ShuffleById.of_tables(location, reads, len(types)).apply(self.session, decide, DECIDED)

    def _describe_table(self, type_def: TypeDef) -> TableMerge:
        base, target, options = self.merge.base, self.merge.target, self.merge.options
        table = type_def.id
        overlay = target.record.overlay.get(table)
        resolutions = {
            entity: resolution for entity, resolution in options.per_entity.items() if entity[0] == type_def.table_key
        }
        return TableMerge(
            type_def=type_def,
            is_born=version_in_record(target.record, table) is not None,
            target_fragments=map_shared_fragments(
                open_pinned_table(base.snapshot, table), open_pinned_table(target, table)
            ),
            overlay_ids=frozenset(overlay.index) if overlay is not None else frozenset(),
            unsettled=self._ids_without_base(table),
            options=replace(options, per_entity=resolutions),
        )

    def _ids_without_base(self, table: str) -> frozenset[str]:
        return frozenset(row_id for changed_table, row_id in self.merge.base.unsettled if changed_table == table)

    def _plan_reads(self, table_number: int, type_def: TypeDef) -> Iterator[ShuffleRead]:
        """What is read of a table. Ids with overlay entries, and rows of a virtual base, are looked up apart."""
        table, base = type_def.id, self.merge.base
        snapshots = (base.snapshot, self.merge.source, self.merge.target)
        differing_ids, overlay_ids = compare_overlay_ids(
            *(snapshot.record.overlay.get(table) for snapshot in snapshots)
        )
        virtual_rows = {row_id: row for (changed_table, row_id), row in base.rows.items() if changed_table == table}
        unsettled = self._ids_without_base(table)
        lookup_ids = tuple(sorted({*differing_ids, *virtual_rows, *unsettled}))
        excluded_ids = sorted({*overlay_ids, *lookup_ids})
        base_pin, source_pin, target_pin = (open_pinned_table(snapshot, table) for snapshot in snapshots)
        for side, version, baseline in (
            (BASE, base_pin, source_pin),
            (SOURCE, source_pin, base_pin),
            (BASE_OF_TARGET, base_pin, target_pin),
            (TARGET, target_pin, base_pin),
        ):
            yield from plan_difference_reads(table_number, side, type_def, version, baseline, excluded_ids)
        if not lookup_ids:
            return
        base_ids = tuple(row_id for row_id in lookup_ids if row_id not in virtual_rows and row_id not in unsettled)
        in_base, in_source, in_target = (BaseTable.of(snapshot, table) for snapshot in snapshots)
        yield LookupRead(table_number, (BASE, BASE_OF_TARGET), type_def, in_base, base_ids)
        yield LookupRead(table_number, (SOURCE,), type_def, in_source, lookup_ids)
        yield LookupRead(table_number, (TARGET,), type_def, in_target, lookup_ids, TARGET_ADDRESS)
        rows = tuple(row for row in virtual_rows.values() if row is not None)
        yield ValuesRead(table_number, (BASE, BASE_OF_TARGET), type_def, rows, UNSETTLED, tuple(sorted(unsettled)))

    # --- staged versions of what was decided -------------------------------------------------------------------

    def _stage(self, decided: DataFrame) -> dict[str, MergedTable]:
        """A staged version of every table that changes."""
        types = self.merge.types
        rows = decided.filter(f"what = '{STAGED}'").select("at", "data").collect()
        buckets: dict[int, list[dict[str, Any]]] = {}
        for number, text in sorted((row["at"], bytes(row["data"]).decode()) for row in rows):
            buckets.setdefault(number, []).append(json.loads(text))
        tables = {number: self._stage_table(types[number], results) for number, results in buckets.items()}
        versions = {number: table.staged.version or "" for number, table in tables.items() if table.staged is not None}
        removals = self._write_removals(decided, versions) if versions else {}
        return {
            table.type_def.id: self._apply_removals(table, removals.get(number, ()))
            for number, table in tables.items()
            if table.inserted or table.updated or table.removed
        }

    def _stage_table(self, type_def: TypeDef, bucket_results: list[dict[str, Any]]) -> MergedTable:
        bulk, commit_record = self.backend.tables.bulk, self.merge.target.record
        fragments = [json.dumps(fragment) for result in bucket_results for fragment in result["fragments"]]
        overlay_only = tuple(sorted(row_id for result in bucket_results for row_id in result["bare"]))
        counts = {name: sum(result[name] for result in bucket_results) for name in ("inserted", "updated", "removed")}
        staged = None
        if fragments or counts["removed"] > len(overlay_only):
            _, pinned = base_table(self.backend, commit_record, type_def.id, type_def.kind)
            staged = replace(bulk.stage(pinned, arrow_schema(type_def), fragments), delete_ids=overlay_only)
        return MergedTable(
            type_def=type_def,
            base=BaseTable.of(self.merge.target, type_def.id),
            staged=staged,
            written_fragments=tuple(bulk.ids_of_new_fragments(staged)) if staged is not None else (),
            superseded=frozenset(row_id for result in bucket_results for row_id in result["superseded"]),
            overlay_only=overlay_only,
            **counts,
        )

    def _write_removals(self, decided: DataFrame, versions: Mapping[int, str]) -> dict[int, list[Removal]]:
        """Deletion files for rows that are replaced or removed, by one task per fragment."""
        location = self.backend.tables.location
        tables = [type_def.id for type_def in self.merge.types]

        def remove(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
            number, fragment = key[0].as_py(), key[1].as_py()

            def write() -> list[dict[str, Any]]:
                removal = _write_removal(location, tables[number], versions[number], fragment, rows)
                return [{"at": number, "removal": [removal.fragment_id, removal.fragment]}]

            return pa.Table.from_batches(encode_results(write))

        offsets = decided.filter(f"what = '{REMOVAL}'").select("at", "fragment", "data")
        removals: dict[int, list[Removal]] = {}
        for result in collect_results(offsets.groupBy("at", "fragment").applyInArrow(remove, RESULT)):
            removals.setdefault(result["at"], []).append(Removal(*result["removal"]))
        return removals

    def _apply_removals(self, table: MergedTable, removals: Iterable[Removal]) -> MergedTable:
        if table.staged is None:
            return table
        bulk = self.backend.tables.bulk
        staged = bulk.remove(table.staged, sorted(removals, key=lambda removal: removal.fragment_id))
        return replace(table, staged=staged, written_fragments=tuple(bulk.ids_of_new_fragments(staged)))

    # --- constraints and conflicts -----------------------------------------------------------------------------

    def _check(self, merged: Mapping[str, MergedTable]) -> list[dict[str, Any]] | DataFrame:
        catalog = self.merge.catalog
        bases = {type_def.id: BaseTable.of(self.merge.target, type_def.id) for type_def in catalog.types}
        return MergeChecker(self.backend, self.session, catalog, bases, merged).find_conflicts()

    def _refuse_conflicts(self, decided: DataFrame, violations: list[dict[str, Any]] | DataFrame) -> None:
        """Raise MergeConflict if there is any: the first of them listed, all of them counted."""
        frame = decided.filter(f"what = '{CONFLICT}'")
        conflicts: list[dict[str, Any]] = []
        if isinstance(violations, list):
            conflicts += violations
        else:
            frame = frame.unionAll(violations)
        count = frame.count()
        if count:
            first = frame.orderBy("name").limit(CONFLICTS_MAX).select("data").collect()
            conflicts += [json.loads(bytes(row["data"]).decode()) for row in first]
        total = count + (len(violations) if isinstance(violations, list) else 0)
        if not isinstance(violations, list):
            violations.unpersist()
        if total:
            error = merge_conflict(conflicts, total)
            error.details["merge_conflicts"] = error.conflicts[:CONFLICTS_MAX]
            raise error

    # --- the plan ----------------------------------------------------------------------------------------------

    def _plan_table(self, table: MergedTable) -> TableAction:
        action = TableAction(
            table.type_def.id,
            arrow_schema(table.type_def),
            inserted=table.inserted,
            updated=table.updated,
            removed=table.removed,
            superseded=tuple(sorted(table.superseded)),
        )
        if table.staged is None:
            # Without a new version, a fold that took these rows could still land: only tombstones hide them then.
            return replace(action, superseded=(), deleted=table.overlay_only)
        version = self.backend.tables.bulk.open_staged(table.staged)
        expected = version_in_record(self.merge.target.record, table.type_def.id)
        move = StagedMove(expected, table.staged, version.version, version.size_bytes, version.fragments)
        return replace(action, move=move)

    def _footprint(self, merged: Mapping[str, MergedTable]) -> Footprint:
        """Claims everything in the tables that were read, and in those that their constraints read.

        A fast-forward relies on the target having no changes of its own, so it claims every table.
        """
        claims, catalog, types = FootprintBuilder(), self.merge.catalog, self.merge.types
        for table in merged.values():
            claims.write_all(table.type_def.id)
            for end in (table.type_def.source, table.type_def.target):
                if end is not None:
                    claims.write_all(end, "inc")
        is_fast_forward = self.merge.outcome == "fast_forward"
        tables_read = {type_def.id for type_def in (catalog.types if is_fast_forward else types)}
        for type_def in types:
            tables_read |= {end for end in (type_def.source, type_def.target) if end is not None}
            if type_def.kind == "node":
                tables_read |= {edge.id for edge in catalog.edges_at(type_def.id)}
        for table_id in tables_read:
            claims.read_all(table_id)
        return claims.build()


def _write_removal(location: TableLocation, table: str, version: str, fragment: int, rows: pa.Table) -> Removal:
    offsets = np.concatenate([np.frombuffer(data.as_buffer(), "<u4") for data in rows["data"]]).astype(np.uint64)
    return delete_offsets(location.open().open(table, version), fragment, np.unique(offsets))
