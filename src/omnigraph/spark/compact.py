"""Compaction on Spark: the tasks that optimize plans, each in a worker; the driver commits what they wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.spark.session import get_session
from omnigraph.spark.tasks import run_tasks
from omnigraph.storage.tables import PinnedTable, Rewriter, TablePlace, run_rewrite_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rewriter(place: TablePlace, existing: SparkSession | None = None) -> Rewriter:
    """Runs the tasks of one table side by side, in the session that is given or in the shared one."""

    def rewrite(base: PinnedTable, tasks: Sequence[str]) -> list[str]:
        session = get_session(existing=existing)
        table, version, texts = base.table, base.version, list(tasks)

        def one(number: int) -> list[dict[str, str]]:
            return [{"result": run_rewrite_task(place.open().open(table, version), texts[number])}]

        return [found["result"] for found in run_tasks(session, len(texts), one)]

    return rewrite
