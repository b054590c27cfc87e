"""The last steps of a load on Spark: index segments on its staged versions, then the publish plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.commit.publish_plan import PublishPlan, Receipt, StagedMove, TableAction
from omnigraph.commit.staging import version_in_record
from omnigraph.load.report import build_load_result
from omnigraph.load.spark.check import CheckedLoad
from omnigraph.load.spark.rebase import LoadConflicts
from omnigraph.load.spark.stage import StagedInput
from omnigraph.log.indexes import list_schema_indexes
from omnigraph.log.snapshot import Snapshot
from omnigraph.spark.tasks import run_tasks
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import build_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINE = "spark"


def build_indexes(backend: Backend, session: SparkSession, checked: CheckedLoad) -> CheckedLoad:
    """The same load with indexes on its staged versions; one task per index segment."""
    bulk, location = backend.tables.bulk, checked.job.location
    specs_by_table = {
        table: list_schema_indexes(staged_input.type_def, bulk.open_staged(staged_input.staged))
        for table, staged_input in checked.tables.items()
    }
    segments = [
        (table, checked.tables[table].staged.version or "", plan)
        for table, specs in specs_by_table.items()
        for plan in bulk.index_plans(checked.tables[table].staged, specs)
        if plan.fragments
    ]

    def build(number: int) -> list[dict[str, Any]]:
        table, version, plan = segments[number]
        return [{"type": table, "index": build_segment(location, table, version, plan)}]

    built = run_tasks(session, len(segments), build)
    tables = dict(checked.tables)
    for table, specs in specs_by_table.items():
        indexes = [result["index"] for result in built if result["type"] == table and result["index"] is not None]
        tables[table] = replace(tables[table], staged=bulk.put_indexes(tables[table].staged, specs, indexes))
    return replace(checked, tables=tables)


def plan_load(backend: Backend, op_id: str, checked: CheckedLoad) -> PublishPlan | Receipt:
    """The plan that publishes the staged versions; a receipt if the load changes nothing."""
    actions = [
        action
        for staged_input in checked.tables.values()
        if (action := _plan_table(backend, checked, staged_input)) is not None
    ]
    counts = {
        checked.snapshot.catalog.by_id[action.table].table_key: {
            "inserted": action.inserted,
            "updated": action.updated,
            "deleted": action.removed,
        }
        for action in actions
    }
    result = build_load_result(
        counts, checked.summary, duplicates=checked.duplicates, rejects_path=checked.rejects_path, engine=ENGINE
    )
    if not actions:
        return Receipt(None, {"inserted": 0, "updated": 0, "deleted": 0}, result)
    conflicts = LoadConflicts(checked.snapshot.catalog, backend.tables, checked.tables)
    return PublishPlan(
        kind="load",
        op_id=op_id,
        base=checked.snapshot.record,
        footprint=conflicts.footprint,
        actions=tuple(actions),
        conflict_check=conflicts.find_conflict,
        result=result,
    )


def _plan_table(backend: Backend, checked: CheckedLoad, staged_input: StagedInput) -> TableAction | None:
    if not staged_input.has_rows and not staged_input.is_overwritten:
        return None
    table, staged, commit_record = staged_input.type_def.id, staged_input.staged, checked.snapshot.record
    version = backend.tables.bulk.open_staged(staged)
    expected = version_in_record(commit_record, table)
    move = StagedMove(expected, staged, version.version, version.size_bytes, version.fragments)
    action = TableAction(table, staged.schema, overwrite=staged_input.is_overwritten, move=move)
    if staged_input.is_overwritten:
        updated = checked.rewritten_rows.get(table, 0)
        rows_before = commit_record.pins[table].rows if table in commit_record.pins else 0
        return replace(action, inserted=staged.rows_written - updated, updated=updated, removed=rows_before - updated)
    superseded, updated = _find_superseded(backend, checked.snapshot, staged_input)
    return replace(action, inserted=staged.rows_written - updated, updated=updated, superseded=tuple(superseded))


def _find_superseded(backend: Backend, snapshot: Snapshot, staged_input: StagedInput) -> tuple[list[str], int]:
    """Ids of overlay entries that the staged rows replace; and how many rows that a reader sees are replaced in all."""
    table, staged = staged_input.type_def.id, staged_input.staged
    overlay = snapshot.record.overlay.get(table)
    if overlay is None:
        return [], staged.rows_removed
    version = backend.tables.bulk.open_staged(staged)
    ids = version.find_in(set(staged_input.input_fragments), "id", list(overlay.index), ["id"])["id"].to_pylist()
    pinned = version_in_record(snapshot.record, table)
    hidden = backend.tables.open(table, pinned).addresses(ids).num_rows if pinned and ids else 0
    images = sum(row_id not in overlay.tombstones for row_id in ids)
    return ids, staged.rows_removed - hidden + images
