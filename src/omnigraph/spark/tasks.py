"""Spark as a scheduler: numbered tasks in Python workers, whose results come back as short texts.

Only what a task returns counts, never a file that it leaves behind: a task that is repeated, or runs twice at once,
returns one result. A typed error that repeating cannot mend comes back as a result as well, so that Spark does not try
the task four times and the driver raises the same error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph import errors
from omnigraph.errors import OmnigraphError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Work = Callable[[int], Iterable[dict[str, Any]]]
Batches = Iterable[pa.RecordBatch]

RESULT = "result string"
_ERROR = "__error__"
_REASON_CHARS = 500
_JVM_TRACE = "JVM stacktrace:"  # what Spark Connect adds to a message, with exceptions of its own
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)(?:: |$)")


def run_tasks(session: SparkSession, count: int, work: Work, at_once: int | None = None) -> list[dict[str, Any]]:
    """The results of `work(0)` … `work(count - 1)`, in the order of the numbers; one task each.

    `at_once` bounds how many tasks run at the same time: then a task does several numbers, one after the other.
    """
    if not count:
        return []

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from encode_results(lambda number=number: work(number))  # type: ignore[misc]

    frame = session.range(0, count, 1, min(count, at_once) if at_once else count)
    return collect_results(frame.mapInArrow(run, RESULT))


def encode_results(work: Callable[[], Iterable[dict[str, Any]]]) -> Iterator[pa.RecordBatch]:
    """Inside a worker: the results of `work` as rows of `RESULT`, and errors that repeating cannot mend."""
    try:
        for result in work():
            yield _encode_result(result)
    except OmnigraphError as error:
        if error.retryable:
            raise
        facts = {"class": type(error).__name__, "message": error.message, "code": error.code, "advice": error.advice}
        yield _encode_result({_ERROR: {**facts, "details": error.details}})


def collect_results(frame: DataFrame) -> list[dict[str, Any]]:
    """Run the job, once, and decode its results; raises the first error that a worker returned."""
    with spark_errors():
        task_results = [json.loads(row[0]) for row in frame.collect()]
    for result in task_results:
        if _ERROR in result:
            raise _decode_error(result[_ERROR])
    return task_results


class spark_errors:
    """Failures of Spark itself, and of workers that gave up, as one typed error."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, OmnigraphError) or not isinstance(error, Exception):
            return
        if type(error).__module__.startswith(("pyspark", "py4j", "grpc")):
            raise Unavailable(
                f"Spark gave up: {_find_reason(error)}",
                code="spark_failed",
                advice="Nothing was written; see the cause, then repeat it",
            ) from error


def _encode_result(result: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"result": [json.dumps(result)]})


def _decode_error(raw: dict[str, Any]) -> OmnigraphError:
    kind: type[OmnigraphError] = getattr(errors, raw["class"], OmnigraphError)
    return kind(raw["message"], code=raw["code"], advice=raw["advice"], **raw["details"])


def _find_reason(error: Exception) -> str:
    """The worker's last line, which names the exception, rather than the JVM's first."""
    message = str(error).partition(_JVM_TRACE)[0]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    python = [line for line in lines if _RAISED.match(line)]
    return (python[-1] if python else lines[0] if lines else type(error).__name__)[:_REASON_CHARS]
