"""Counts the tasks of Spark jobs for the progress display.

Spark Connect clients have no status tracker, so with them only the steps of an operation are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from omnigraph.clock import IdSource
from omnigraph.progress import CountTasks, WatchTasks
from omnigraph.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def watch_tasks(session: SparkSession | None) -> WatchTasks | None:
    """Counts the tasks of the jobs that one thread starts in this session; None if the session cannot tell."""
    if session is None or is_connect(session):
        return None

    def watch(ids: IdSource) -> AbstractContextManager[CountTasks]:
        return _count_job_group(session, ids)

    return watch


@contextmanager
def _count_job_group(session: SparkSession, ids: IdSource) -> Iterator[CountTasks]:
    context = session.sparkContext
    group = f"omnigraph-{ids.token(8)}"
    before = context.getLocalProperty("spark.jobGroup.id"), context.getLocalProperty("spark.job.description")
    context.setJobGroup(group, before[1] or "omnigraph")
    tracker = context.statusTracker()

    def count_tasks() -> tuple[int, int, int]:
        stage_ids = {
            stage_id
            for job_id in tracker.getJobIdsForGroup(group)
            if (job := tracker.getJobInfo(job_id)) is not None
            for stage_id in job.stageIds
        }
        stages = [stage for stage in map(tracker.getStageInfo, sorted(stage_ids)) if stage is not None]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages), len(stages)

    try:
        yield count_tasks
    finally:
        for name, value in zip(("spark.jobGroup.id", "spark.job.description"), before, strict=True):
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it
