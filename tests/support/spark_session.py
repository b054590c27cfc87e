"""One Spark session for all tests that need one: its start costs more than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from omnigraph.spark.session import get_session, stop_session
from omnigraph.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The first compiler alone: tests are short, and the JVM starts in half the time.
SETTINGS = SparkSettings(
    driver_memory="1g",
    conf={
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "4",
    },
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The process's shared session, as `g.load`, `g.export` and `g.spark` find it."""
    yield get_session(SETTINGS)
    stop_session()
