"""What is told when Spark gives up: the cause as the worker or Spark names it."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from omnigraph.errors import NotFound, Unavailable
from omnigraph.spark.tasks import spark_errors

_WORKER = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
Traceback (most recent call last):
  File "staging.py", line 7, in stage
RuntimeError: the disk is on fire
"""
_SERVER = """

JVM stacktrace:
org.apache.spark.SparkException
\tat org.apache.spark.sql.connect.Handler.handle(Handler.scala:1)
"""


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (_WORKER, "RuntimeError: the disk is on fire"),
        (_WORKER + _SERVER, "RuntimeError: the disk is on fire"),
        (f"[UNRESOLVED] no such column\nline 1{_SERVER}", "[UNRESOLVED] no such column"),
        ("", "PySparkException"),
    ],
)
def test_the_cause_is_named(message: str, cause: str) -> None:
    with pytest.raises(Unavailable) as raised, spark_errors():
        raise PySparkException(message)
    assert raised.value.code == "spark_failed"
    assert raised.value.message == f"Spark gave up: {cause}"


@pytest.mark.parametrize("error", [NotFound("gone", advice="Look elsewhere"), ValueError("mine"), KeyboardInterrupt()])
def test_what_is_not_sparks_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, spark_errors():
        raise error
    assert raised.value is error
