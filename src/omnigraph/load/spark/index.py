"""Index: workers build indexes over the staged rows, so that search and traversal are fast right after the commit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.load.spark.check import CheckedLoad
from omnigraph.log.indexes import list_schema_indexes
from omnigraph.spark.tasks import run_tasks
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import build_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
