"""Compaction and indexes in tasks of Spark give the same table as in this process. S124"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.config import Config
from omnigraph.log.indexes import list_schema_indexes
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode
from omnigraph.storage.lance import RewriteOptions
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.retention import Policy
from omnigraph.upkeep.optimize import Optimizer
from omnigraph.upkeep.optimize_on_spark import SparkRewriteExecutor
from omnigraph.upkeep.verify.check_tables import find_index_disagreements

SCHEMA = """
node Person { name: String @key  age: I32? @index  bio: String? @index }
edge Knows: Person -> Person { since: I32? }
"""


@pytest.fixture
def scattered_graph(tmp_path: Path) -> og.Graph:
    """Many small fragments, some with removed rows."""
    g = og.init(tmp_path / "g", SCHEMA, config=Config(fsync=False, inline_share=0))
    for start in range(0, 60, 10):
        names = [f"p{number}" for number in range(start, start + 10)]
        g.apply([InsertNode("Person", {"name": name, "age": int(name[1:]), "bio": f"the {name}"}) for name in names])
        g.apply([InsertEdge("Knows", name, "p0", {"since": start}) for name in names])
    g.apply([Delete("Person", Compare("age", ">", 50))])
    return g


def rows(g: og.Graph) -> dict[str, list[str]]:
    return {name: sorted(map(str, g.table(name).to_arrow().to_pylist())) for name in ("Person", "Knows")}


def test_the_rows_stay_and_the_fragments_go(scattered_graph: og.Graph, spark: SparkSession) -> None:
    before = rows(scattered_graph)
    report = scattered_graph.optimize(engine="spark", spark=spark)
    assert report.commit_id is not None
    assert rows(scattered_graph) == before
    found = scattered_graph.snapshot(indexes=True)["tables"]
    assert {one["table_key"]: one["fragments"] for one in found} == {"node:Person": 1, "edge:Knows": 1}
    assert all(index["covered_rows"] == index["rows"] for one in found for index in one["indexes"])
    assert scattered_graph.verify(deep=True).ok


def test_a_second_run_finds_nothing_to_do(scattered_graph: og.Graph, spark: SparkSession) -> None:
    scattered_graph.optimize(engine="spark", spark=spark)
    assert scattered_graph.optimize(engine="spark", spark=spark).commit_id is None


def test_a_writer_in_between_wins_and_is_compacted_too(scattered_graph: og.Graph, spark: SparkSession) -> None:
    told: list[str] = []

    def write_once(text: str) -> None:
        if not told:
            scattered_graph.apply([InsertNode("Person", {"name": "late"})])
        told.append(text)

    scattered_graph.optimize(engine="spark", spark=spark, progress=write_once)
    assert any("late" in one for one in rows(scattered_graph)["Person"])
    assert scattered_graph.verify().ok


def _no_index_here(*_: object) -> None:
    raise AssertionError("the driver built an index")


def test_workers_build_the_indexes(
    scattered_graph: og.Graph, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sorted index over many rows in several parts; one of words in one."""
    monkeypatch.setattr("omnigraph.storage.lance.table_store.build_index", _no_index_here)
    before = rows(scattered_graph)
    workers = SparkRewriteExecutor(scattered_graph._runtime.backend.tables.location, spark, rows_per_part=20)
    options = RewriteOptions(target_rows=20)
    report = Optimizer(scattered_graph._runtime, scattered_graph._branch, options=options, executor=workers).run()
    assert report.is_complete
    assert rows(scattered_graph) == before
    found = {table["table_key"]: table for table in scattered_graph.snapshot(indexes=True)["tables"]}["node:Person"]
    assert found["fragments"] > 2
    segments = {index["name"]: index["segments"] for index in found["indexes"]}
    assert segments["by_id"] > 1
    assert [count for name, count in segments.items() if name.startswith("text_")] == [1]
    assert all(index["covered_rows"] == index["rows"] for index in found["indexes"])
    view = scattered_graph.view().state
    for type_def in view.catalog.types:
        pinned = view.view(type_def).pinned
        assert pinned is not None
        assert list(find_index_disagreements(pinned, list_schema_indexes(type_def, pinned), sample=60)) == []
    assert scattered_graph.verify(deep=True).ok
    assert (
        Optimizer(scattered_graph._runtime, scattered_graph._branch, options=options, executor=workers).run().commits
        == ()
    )


def test_cleanup_spares_what_workers_have_written(scattered_graph: og.Graph, spark: SparkSession) -> None:  # H35
    """The operation left an intent before its first task; so it is published as it was staged."""
    before = rows(scattered_graph)
    cleaned: list[bool] = []
    one_at_a_time = threading.Lock()  # tables are worked on side by side, and a second collector would refuse

    def clean_up(_: str) -> None:
        policy = Policy(keep=1, margin_s=0, horizon_s=0, newest_records=1, lock_stale_s=0)
        with one_at_a_time:
            cleaned.extend(Cleanup(scattered_graph._runtime, policy).run().has_work for _ in range(2))

    report = scattered_graph.optimize(engine="spark", spark=spark, progress=clean_up)
    assert any(cleaned)
    assert (report.is_complete, len(report.commits)) == (True, 1)
    ((state, operation),) = [(intent.state, intent.operation) for intent in scattered_graph.recover_list()]
    assert (state, operation) == ("done", "optimize")
    assert rows(scattered_graph) == before
    assert scattered_graph.verify(deep=True).ok
