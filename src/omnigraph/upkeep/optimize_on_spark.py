"""Runs the long work of optimize (compaction, indexes) in tasks of Spark. The driver commits what they wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.spark.session import get_session
from omnigraph.spark.tasks import run_tasks
from omnigraph.storage.lance import (
    IndexPlan,
    PinnedTable,
    TableLocation,
    build_segment,
    run_rewrite_task,
    split_index_plan,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: An index over more than ROWS_PER_PART rows is built in up to MOST_PARTS segments; each costs every lookup a read.
ROWS_PER_PART = 1 << 22
MOST_PARTS = 4


class SparkRewriteExecutor:
    """The `RewriteExecutor` that the api hands to `Optimizer` if optimize runs on Spark.

    It runs the tasks of one table in parallel, in the session of the caller or in the shared one.
    """

    def __init__(
        self, location: TableLocation, existing: SparkSession | None = None, *, rows_per_part: int = ROWS_PER_PART
    ) -> None:
        self._location = location
        self._existing = existing
        self._rows_per_part = rows_per_part

    def rewrite(self, base: PinnedTable, tasks: Sequence[str]) -> list[str]:
        location, table, version, texts = self._location, base.table, base.version, list(tasks)

        def rewrite_fragments(number: int) -> list[dict[str, str]]:
            return [{"result": run_rewrite_task(location.open().open(table, version), texts[number])}]

        return [result["result"] for result in self._run(len(texts), rewrite_fragments)]

    def index(self, base: PinnedTable, plans: Sequence[IndexPlan]) -> list[dict[str, Any]]:
        """One task per segment. A vector index without rows to train on has no segment."""
        rows = {fragment.id: fragment.num_rows for fragment in base.metadata}
        parts = [
            part
            for plan in plans
            for part in split_index_plan(plan, rows, most_rows=self._rows_per_part, most_parts=MOST_PARTS)
        ]
        location, table, version = self._location, base.table, base.version

        def build(number: int) -> list[dict[str, Any]]:
            return [{"index": build_segment(location, table, version, parts[number])}]

        return [result["index"] for result in self._run(len(parts), build) if result["index"] is not None]

    def _run(self, count: int, work: Callable[[int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Starts a session only if there is a task to run."""
        return run_tasks(get_session(existing=self._existing), count, work) if count else []
