"""`python -m tests.spark.cluster_driver`: a load on a cluster, one task of which is disturbed; prints what Spark saw.

A process of its own, and its main module: what is defined here goes to the executors by value.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.load.spark import publish as index_module
from omnigraph.load.spark import split as split_module
from omnigraph.load.spark.parse import StageJob
from omnigraph.load.spark.stage import stage_split
from omnigraph.spark.session import get_session
from omnigraph.spark.settings import SparkSettings
from omnigraph.storage.lance import build_segment

_CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.efficiency.enabled": "false",
}
_STATUS_POLLS, _STATUS_POLL_S = 120, 0.5
_SLOW_S = 120.0


@dataclass(frozen=True)
class Disturbance:
    """What befalls the first task that comes to it: its executor is killed, or it hangs until Spark ends it."""

    way: str
    folder: str

    def befall(self) -> None:
        """Called when the files of a task are written, and its result is not."""
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        executor = _parent(os.getppid())
        facts = {"stage": task.stageId(), "task": task.taskAttemptId(), "index": task.partitionId(), "pid": executor}
        try:
            mark = os.open(os.path.join(self.folder, "first"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        with os.fdopen(mark, "w") as out:
            json.dump(facts, out)
        if self.way != "slow":
            os.kill(executor, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(_SLOW_S)


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def _stage(disturbance: Disturbance) -> Callable[[StageJob, int], Iterator[dict[str, Any]]]:
    def stage(job: StageJob, number: int) -> Iterator[dict[str, Any]]:
        results = list(stage_split(job, number))
        disturbance.befall()
        yield from results

    return stage


def _build(disturbance: Disturbance) -> Callable[..., Any]:
    def build(*plan: Any) -> Any:
        built = build_segment(*plan)
        disturbance.befall()
        return built

    return build


def _read_status(session: Any, first: dict[str, int]) -> dict[str, Any]:
    """Of Spark's own book-keeping: executors that are gone, and every attempt at the task that was disturbed."""
    spark = session.sparkContext._jsc.sc()
    spark.listenerBus().waitUntilEmpty()  # what happened is told to the book-keeping a little later
    store = spark.statusStore()
    tries: list[Any] = []
    for _ in range(_STATUS_POLLS):  # an attempt that was told to end is running until its worker has ended
        tries = [one for one in _to_list(store.taskList(first["stage"], 0, 1_000)) if one.index() == first["index"]]
        if not any(one.status() == "RUNNING" for one in tries):
            break
        time.sleep(_STATUS_POLL_S)
    return {
        "lost": [one.id() for one in _to_list(store.executorList(False)) if not one.isActive()],
        "tries": [
            {"task": one.taskId(), "executor": one.executorId(), "end": one.status(), "copy": one.speculative()}
            for one in tries
        ],
    }


def _to_list(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]


def main(way: str, master: str, root: str, people: str, knows: str, folder: str) -> None:
    import omnigraph as og
    from tests.load.spark.loading import load

    disturbance = Disturbance(way, folder)
    module, name, work = (
        (index_module, "build_segment", _build(disturbance))
        if way == "killed indexing"
        else (split_module, "stage_split", _stage(disturbance))
    )
    setattr(module, name, work)
    conf = {**_CONF, **(_SPECULATION if way == "slow" else {})}
    session = get_session(SparkSettings(master=master, conf=conf, driver_memory="512m"))
    report = load(og.open(root), {"Person": people, "Knows": knows}, mode="append", split_bytes=100_000)
    with open(os.path.join(folder, "first")) as file:
        first = json.load(file)
    print(json.dumps({"loaded": report.loaded, "first": first, **_read_status(session, first)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
