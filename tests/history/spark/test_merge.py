"""Merge and diff with a real Spark session: a sample of the truth table, every kind of value, both ways of checking."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.config import Config
from omnigraph.errors import MergeConflict, Unsupported
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Statement, Update
from tests.history.bed import MergeBed, change, kinds_of, knows, people, person, remove
from tests.history.spark.test_on_tasks import merge_with
from tests.history.test_truth_table import CONFLICTS, MIXED, OPS, run_cell
from tests.spark.bed import LATER, comparable, make_graph

_CLEAN = sorted(set(product(OPS[1:], OPS[1:])) - CONFLICTS.keys())


@pytest.fixture
def on_spark(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> SparkSession:
    merge_with(monkeypatch, spark)
    return spark


def test_a_sample_of_the_cells(on_spark: SparkSession, tmp_path: Path, sweep_seed: int) -> None:
    """One cell that merges and one that does not, in layouts by chance; all of them are in test_merge_cases. S70"""
    chance = random.Random(f"{sweep_seed} cells")
    for number, cell in enumerate((chance.choice(_CLEAN), chance.choice(sorted(CONFLICTS)))):
        layouts = chance.choice(MIXED)
        print(cell, layouts)
        run_cell(tmp_path / str(number), *cell, layouts)


def _content(graph: Graph) -> dict[str, list[str]]:
    return {type_def.name: comparable(graph.table(type_def.name).to_arrow()) for type_def in graph.view().catalog.types}


_THEIRS: tuple[Statement, ...] = (
    *LATER,
    Update("Picture", {"data": b"\x00\x01"}, Compare("name", "=", "p")),
    Delete("Loose", Compare("id", "=", "l2")),
)
_OURS: tuple[Statement, ...] = (
    InsertNode("Loose", {"id": "l11", "title": "ours"}),
    Update("Thing", {"on": False, "singles": [2.5, "NaN"]}, Compare("name", "=", "full")),
    InsertEdge("Knows", "full", "full", {"id": "e3", "weight": "NaN"}),
)


def test_every_kind_of_value_is_merged_and_told_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    """The same branches, merged by both planes, and their difference as a frame. S61, S91"""
    merged: dict[str, Any] = {}
    for engine in ("local", "spark"):
        graph = make_graph(tmp_path / engine, "pin and overlay" if engine == "spark" else "overlay only")
        if engine == "local":
            graph.apply(list(LATER))
        work = graph.branch.create("work")
        work.apply([one for one in _THEIRS if one not in LATER])
        graph.apply(list(_OURS))
        if engine == "spark":
            _check_diff(graph, spark)
        report = graph.branch.merge("work", engine=engine, spark=spark, progress=False)
        merged[engine] = (report.outcome, dict(report.counts), _content(graph))
        assert graph.verify(deep=True).ok
    assert merged["spark"] == merged["local"]


def _check_diff(graph: Graph, spark: SparkSession) -> None:
    frame = graph.diff_spark("main", "work", spark)
    assert frame.columns == ["op", "kind", "type", "id", "before", "after"]
    rows_by_id = {(row["kind"], row["type"], row["id"]): row.asDict() for row in frame.collect()}
    expected = [change.to_json() for change in graph.diff("main", "work")]
    assert len(rows_by_id) == len(expected) > 3
    for one in expected:
        row = rows_by_id[one["kind"], one["type"], one["id"]]
        images = {side: json.loads(row[side]) if row[side] is not None else None for side in ("before", "after")}
        assert {**row, **images} == one
    deleted_nodes = graph.diff_spark("main", "work", spark, kinds=["node"], ops=["delete"])
    same = graph.diff("main", "work", kinds=["node"], ops=["delete"])
    assert {row["id"] for row in deleted_nodes.collect()} == {one.id for one in same} != set()


RULES = """
node Person { name: String @key  mail: String? @unique  age: I32? @range(0..150) }
edge Knows: Person -> Person
edge Leads: Person -> Person @card(0..1)
"""


@pytest.mark.parametrize("check_rows", [20_000_000, 0], ids=["by one task", "by Spark"])
def test_all_rules_are_asked_either_way(spark: SparkSession, tmp_path: Path, check_rows: int) -> None:
    """Conflicts of rows and of rules together, in one order, and the same on both planes. S84, S85"""
    config = Config(fsync=False, fold="never", inline_share=0, load_check_rows=check_rows)
    graph = og.init(tmp_path / "graph", RULES, config=config)
    graph.apply([person(name) for name in ("Alice", "Bob", "Carol", "Dan")])
    work = graph.branch.create("work")
    work.apply([change("Alice", mail="x"), InsertEdge("Leads", "Bob", "Carol", {"id": "l1"}), remove("Dan")])
    work.apply([change("Carol", age=1), person("Eve", mail="y")])
    graph.apply([change("Bob", mail="x"), InsertEdge("Leads", "Bob", "Alice", {"id": "l2"}), knows("Dan", "Bob", "k1")])
    graph.apply([change("Carol", age=2)])
    rows_by_id = {}
    for engine in ("local", "spark"):
        with pytest.raises(MergeConflict) as caught:
            graph.branch.merge("work", engine=engine, spark=spark, progress=False)
        rows_by_id[engine] = caught.value.conflicts
    assert rows_by_id["spark"] == rows_by_id["local"]
    assert {kind for kind, _ in kinds_of(rows_by_id["spark"])} == {
        "unique_violation", "cardinality_violation", "orphan_edge", "divergent_update",
    }  # fmt: skip


def test_many_changed_rows_choose_spark_by_themselves(on_spark: SparkSession, tmp_path: Path) -> None:
    """The plane is chosen by the rows that the pins tell of; few rows never ask for a session."""
    config = Config(fsync=False, fold="never", inline_share=0, merge_spark_rows=50)
    graph = og.init(tmp_path / "graph", RULES, config=config)
    graph.apply(people("Alice", "Bob"))
    work = graph.branch.create("work")
    work.apply([person(f"p{number}") for number in range(60)])
    graph.apply([change("Bob", age=1)])
    assert graph.branch.merge("work", engine="auto").counts["inserted"] == 60
    # What was merged by Spark is confirmed by an intent, what runs in-process needs none.
    assert [intent.operation for intent in graph.recover_list()] == ["merge"]
    work.apply([change("p1", age=3)])
    assert graph.branch.merge("work", engine="auto").counts["updated"] == 1
    assert len(graph.recover_list()) == 1


def test_conflicts_beyond_what_an_error_lists(
    on_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first in order are listed, all are counted."""
    monkeypatch.setattr("omnigraph.history.spark.merge.CONFLICTS_MAX", 3)
    bed = MergeBed.make(tmp_path / "graph")
    bed.main.apply(people(*(f"p{number}" for number in range(9))))
    bed.fork("work").apply([change(f"p{number}", age=1) for number in range(9)])
    bed.main.apply([change(f"p{number}", age=2) for number in range(9)])
    with pytest.raises(MergeConflict, match="and 8 more") as caught:
        bed.merge("work")
    assert [conflict["entity_id"] for conflict in caught.value.conflicts] == ["p0", "p1", "p2"]
    assert caught.value.details["conflict_count"] == 9


def test_a_reader_cannot_try_it_on_spark(on_spark: SparkSession, tmp_path: Path) -> None:
    """A dry run stages files there, so a handle that may not write is refused before anything is."""
    bed = MergeBed.make(tmp_path / "graph")
    bed.main.apply(people("Alice"))
    bed.fork("work").apply([change("Alice", age=1)])
    reading = og.open(bed.place, read_only=True)
    with pytest.raises(Unsupported):
        reading.branch.merge("work", dry_run=True)
    assert bed.merge("work", dry_run=True).counts["updated"] == 1
    assert {intent.state for intent in bed.main.recover_list()} <= {"aborted", "abandoned"}
