"""Compaction in tasks of Spark gives the same table as compaction in this process. S124"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.config import Config
from omnigraph.lang.statements import Compare, Delete, InsertEdge, InsertNode

SCHEMA = """
node Person { name: String @key  age: I32? @index }
edge Knows: Person -> Person { since: I32? }
"""


@pytest.fixture
def scattered(tmp_path: Path) -> og.Graph:
    """Many small fragments, some with removed rows."""
    g = og.init(tmp_path / "g", SCHEMA, config=Config(fsync=False, inline_share=0))
    for start in range(0, 60, 10):
        names = [f"p{number}" for number in range(start, start + 10)]
        g.apply([InsertNode("Person", {"name": name, "age": int(name[1:])}) for name in names])
        g.apply([InsertEdge("Knows", name, "p0", {"since": start}) for name in names])
    g.apply([Delete("Person", Compare("age", ">", 50))])
    return g


def rows(g: og.Graph) -> dict[str, list[str]]:
    return {name: sorted(map(str, g.table(name).to_arrow().to_pylist())) for name in ("Person", "Knows")}


def test_the_rows_stay_and_the_fragments_go(scattered: og.Graph, spark: SparkSession) -> None:
    before = rows(scattered)
    report = scattered.optimize(engine="spark", spark=spark)
    assert report.commit_id is not None
    assert rows(scattered) == before
    found = scattered.snapshot(indexes=True)["tables"]
    assert {one["table_key"]: one["fragments"] for one in found} == {"node:Person": 1, "edge:Knows": 1}
    assert all(index["covered_rows"] == index["rows"] for one in found for index in one["indexes"])
    assert scattered.verify(deep=True).ok


def test_a_second_run_finds_nothing_to_do(scattered: og.Graph, spark: SparkSession) -> None:
    scattered.optimize(engine="spark", spark=spark)
    assert scattered.optimize(engine="spark", spark=spark).commit_id is None


def test_a_writer_in_between_wins_and_is_compacted_too(scattered: og.Graph, spark: SparkSession) -> None:
    told: list[str] = []

    def write_once(text: str) -> None:
        if not told:
            scattered.apply([InsertNode("Person", {"name": "late"})])
        told.append(text)

    scattered.optimize(engine="spark", spark=spark, progress=write_once)
    assert any("late" in one for one in rows(scattered)["Person"])
    assert scattered.verify().ok
