"""Why the data source has no `pushFilters`: Spark 4.3.0 keeps pushed filters per frame object, and rows go missing.

If one of these fails after an upgrade of Spark, pushing filters may have become safe: read spark/data_source.py again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType

from omnigraph.spark.data_source import OmnigraphReader


class PushingReader(DataSourceReader):
    """Ten numbers; understands `a = n`."""

    def __init__(self) -> None:
        self.wanted: list[int] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for filter in filters:
            if isinstance(filter, EqualTo):
                self.wanted.append(filter.value)
            else:
                yield filter

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(number,) for number in range(10) if all(number == name for name in self.wanted)])


class PushingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pushing"

    def schema(self) -> str:
        return "a int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushingReader()


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled") or "false"
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PushingSource)
    yield spark
    spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


def test_a_pushed_filter_stays_on_the_frame(pushing: SparkSession) -> None:
    frame = pushing.read.format("pushing").load()
    assert frame.filter("a = 3").count() == 1
    assert frame.count() == 1  # ten is right


def test_two_filters_of_one_frame_become_one(pushing: SparkSession) -> None:
    frame = pushing.read.format("pushing").load()
    rows = frame.filter("a = 3").union(frame.filter("a = 4")).collect()
    assert [row.a for row in rows] != [3, 4]


def test_our_reader_pushes_nothing() -> None:
    assert OmnigraphReader.pushFilters is DataSourceReader.pushFilters
