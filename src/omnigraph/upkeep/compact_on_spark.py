"""The long work of optimize in tasks of Spark: compaction and indexes. The driver commits what they wrote."""

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

#: A sorted index over more rows is built in parts, but few: every lookup asks each of them.
ROWS_PER_PART = 1 << 22
MOST_PARTS = 4


class SparkWorkers:
    """Runs the tasks of one table side by side, in the session that is given or in the shared one."""

    def __init__(
        self, place: TableLocation, existing: SparkSession | None = None, *, rows_per_part: int = ROWS_PER_PART
    ) -> None:
        self._place = place
        self._existing = existing
        self._rows_per_part = rows_per_part

    def rewrite(self, base: PinnedTable, tasks: Sequence[str]) -> list[str]:
        place, table, version, texts = self._place, base.table, base.version, list(tasks)

        def one(number: int) -> list[dict[str, str]]:
            return [{"result": run_rewrite_task(place.open().open(table, version), texts[number])}]

        return [found["result"] for found in self._run(len(texts), one)]

    def index(self, base: PinnedTable, plans: Sequence[IndexPlan]) -> list[dict[str, Any]]:
        """One task per segment. A vector index that has nothing to learn from gives none."""
        rows = {one.id: one.num_rows for one in base.metadata}
        parts = [
            part
            for plan in plans
            for part in split_index_plan(plan, rows, most_rows=self._rows_per_part, most_parts=MOST_PARTS)
        ]
        place, table, version = self._place, base.table, base.version

        def one(number: int) -> list[dict[str, Any]]:
            return [{"index": build_segment(place, table, version, parts[number])}]

        return [found["index"] for found in self._run(len(parts), one) if found["index"] is not None]

    def _run(self, count: int, work: Callable[[int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """A session is only asked for if there is something to do."""
        return run_tasks(get_session(existing=self._existing), count, work) if count else []
