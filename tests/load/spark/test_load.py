"""Loads on Spark: what they do equals what the engine in this process does; what is refused is refused alike."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from omnigraph.config import Config
from omnigraph.errors import InvalidInput, LoadRejected
from omnigraph.intents.objects import RECOVERY
from tests.load.bad_records import CASES, mixture, prepare
from tests.load.spark.loading import (
    BASE,
    ONE_TASK,
    SHUFFLED,
    both,
    contents,
    edge,
    load,
    new_graph,
    node,
    random_input,
    write_lines,
)
from tests.load.test_bad_records import assert_complete, read_rejects, rows

pytestmark = pytest.mark.usefixtures("spark")

CHECKS = pytest.mark.parametrize(
    "config",
    [pytest.param(ONE_TASK, id="one task"), pytest.param(SHUFFLED, id="shuffled", marks=pytest.mark.slow)],
)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_random_input_equals_the_local_engine(  # S8, S9, S95-S100, S138
    tmp_path: Path, mode: str, sweep_seed: int
) -> None:
    path = write_lines(tmp_path / "in.ndjson", random_input(sweep_seed))
    answer, _ = both(tmp_path / "skip", ONE_TASK, path, mode=mode, on_error="skip")
    assert answer.rejects or answer.refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "step", "config"),
    [
        *((mode, step, ONE_TASK) for mode in ("append", "merge", "overwrite") for step in (0, 1)),
        ("merge", 2, SHUFFLED),
        ("overwrite", 3, SHUFFLED),
    ],
    ids=lambda one: str(one) if not isinstance(one, Config) else "shuffled" if one is SHUFFLED else "one task",
)
def test_much_random_input_equals_the_local_engine(
    tmp_path: Path, config: Config, mode: str, step: int, sweep_seed: int
) -> None:
    path = write_lines(tmp_path / "in.ndjson", random_input(sweep_seed + 1000 * step))
    on_duplicate = "fail" if step == 0 else "last"
    on_error = "fail" if step == 1 else "skip"
    both(tmp_path / "both", config, path, mode=mode, on_error=on_error, on_duplicate=on_duplicate)


@CHECKS
def test_a_first_load_in_one_commit_with_its_indexes(tmp_path: Path, config: Config) -> None:  # S136
    graph = new_graph(tmp_path / "g", config)
    report = load(graph, write_lines(tmp_path / "in.ndjson", BASE), mode="append")
    assert report.engine == "spark"
    assert report.counts["node:Person"] == {"inserted": 6, "updated": 0, "deleted": 0}
    assert [commit.kind for commit in graph.commits()] == ["load", "init"]
    for table in graph.snapshot(indexes=True)["tables"]:
        names = {index["name"]: index for index in table["indexes"]}
        assert {"by_id"} <= names.keys()
        assert {"by_src", "by_dst"} <= names.keys() or table["table_key"].startswith("node:")
        assert all(name["covered_rows"] == name["rows"] for name in names.values())
    assert graph.verify(deep=True).ok


def test_what_a_record_does_not_mention_stays(tmp_path: Path) -> None:  # S138
    lines = [
        node("Person", name="p0", age=50),
        node("Person", name="p2", email="new@x"),
        node("Person", name="p5"),
        node("Person", name="p9", age=9),
    ]
    path = write_lines(tmp_path / "in.ndjson", lines)
    answer, graph = both(tmp_path / "both", ONE_TASK, path, mode="merge")
    assert answer.counts["node:Person"] == {"inserted": 2, "updated": 2, "deleted": 0}
    people = {row["name"]: row for row in contents(graph)["Person"]}
    assert people["p0"] == {"id": "p0", "name": "p0", "age": 50, "email": "p0@x", "city": "Rome"}
    assert people["p2"]["age"] == 33  # from the overlay
    assert people["p5"] == {"id": "p5", "name": "p5", "age": None, "email": None, "city": "Rome"}  # was deleted


@CHECKS
def test_the_last_record_of_an_id_counts_over_all_splits(tmp_path: Path, config: Config) -> None:
    lines = [node("Person", name=f"x{number % 7}", age=number) for number in range(60)]
    lines += [edge("Knows", "x1", f"x{number % 3}", f"e{number % 4}", weight=float(number)) for number in range(30)]
    path = write_lines(tmp_path / "in.ndjson", lines)
    answer, graph = both(tmp_path / "both", config, path, mode="merge")
    assert answer.duplicates == 60 - 7 + 30 - 4
    assert {row["name"]: row["age"] for row in contents(graph)["Person"] if row["name"].startswith("x")} == {
        f"x{number % 7}": number for number in range(53, 60)
    }


@CHECKS
def test_a_rejected_node_takes_its_edges_along(tmp_path: Path, config: Config) -> None:
    lines = [
        node("Person", name="a", email="p1@x"),  # taken
        node("Person", name="b"),
        edge("Knows", "a", "b", "ka"),
        edge("Knows", "b", "b", "kb"),
        edge("Lives", "b", "nowhere", "lb"),
    ]
    path = write_lines(tmp_path / "in.ndjson", lines)
    answer, graph = both(tmp_path / "both", config, path, mode="append", on_error="skip")
    assert answer.rejects == {("in.ndjson", 1, "unique"), ("in.ndjson", 3, "endpoint"), ("in.ndjson", 5, "endpoint")}
    assert "kb" in {row["id"] for row in contents(graph)["Knows"]}


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_bad_reference_loads_nothing_and_the_next_load_works(tmp_path: Path, mode: str) -> None:  # S8
    graph = new_graph(tmp_path / "g")
    bad = [node("Person", name="a"), edge("Knows", "a", "nobody", "k")]
    with pytest.raises(LoadRejected) as refused:
        load(graph, write_lines(tmp_path / "bad.ndjson", bad), mode=mode)
    (reject,) = refused.value.details["rejects"]
    assert (reject["line"], reject["code"], reject["property"]) == (2, "endpoint", "to")
    assert [commit.kind for commit in graph.commits()] == ["init"]
    good = [node("Person", name="a"), edge("Knows", "a", "a", "k")]
    assert load(graph, write_lines(tmp_path / "good.ndjson", good), mode=mode).loaded == 2


@CHECKS
def test_overwrite_is_checked_against_the_new_image(tmp_path: Path, config: Config) -> None:  # S9, S164
    path = write_lines(tmp_path / "in.ndjson", [node("Person", name="p0"), node("Person", name="p7")])
    answer, graph = both(tmp_path / "first", config, {"Person": str(_split_by_type(tmp_path, path))}, mode="overwrite")
    assert answer.refused
    assert answer.by_code == {"orphan_edge": 2}  # edges of the graph still need p1
    for name in ("Knows", "Lives", "Likes"):
        nothing = tmp_path / f"{name}.ndjson"
        nothing.write_text("")
        report = load(graph, {name: str(nothing)}, mode="overwrite")
        assert report.counts[f"edge:{name}"]["deleted"] == 1
        assert graph.table(name).to_arrow().num_rows == 0
    report = load(graph, {"Person": str(_split_by_type(tmp_path, path))}, mode="overwrite")
    assert report.counts["node:Person"] == {"inserted": 1, "updated": 1, "deleted": 4}
    assert [row["name"] for row in contents(graph)["Person"]] == ["p0", "p7"]
    assert graph.verify().ok


def _split_by_type(path: Path, mixed: Path) -> Path:
    """The data of mixed records, as records of one type."""
    lines = [json.loads(line)["data"] for line in mixed.read_text().splitlines()]
    return write_lines(path / "typed.ndjson", lines)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "gz", "orc"])
def test_formats(tmp_path: Path, kind: str) -> None:
    count = 500
    rows = pa.table({"name": [f"n{number}" for number in range(count)], "age": pa.array(range(count), pa.int32())})
    rows = rows.set_column(1, "age", pa.array([number % 100 for number in range(count)], pa.int32()))
    path = tmp_path / f"people.{kind}"
    if kind == "parquet":
        pa.parquet.write_table(rows, path, row_group_size=100)
    elif kind == "csv":
        pa.csv.write_csv(rows, path)
    elif kind == "orc":
        from pyarrow import orc

        orc.write_table(rows, path)
    elif kind == "json":
        path.write_text(json.dumps(rows.to_pylist()))
    else:
        path = tmp_path / "people.ndjson.gz"
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode()))
    graph = new_graph(tmp_path / "g")
    assert load(graph, {"Person": str(path)}, mode="append", split_bytes=2_000).loaded == count
    found = {row["name"]: row["age"] for row in contents(graph, ["Person"])["Person"]}
    assert found == {f"n{number}": number % 100 for number in range(count)}


def test_damage_is_told_as_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson.gz"
    path.write_bytes(gzip.compress(b'{"type": "Person", "data": {"name": "a"}}\n' * 999)[:-40])
    graph = new_graph(tmp_path / "g")
    with pytest.raises(InvalidInput) as refused:
        load(graph, path)
    assert refused.value.code == "corrupt_file"
    assert [commit.kind for commit in graph.commits()] == ["init"]


def test_nothing_to_do_makes_no_commit(tmp_path: Path) -> None:
    graph = new_graph(tmp_path / "g")
    report = load(graph, write_lines(tmp_path / "in.ndjson", ["{"]), on_error="skip", rejects=str(tmp_path / "r"))
    assert (report.commit_id, report.rejects, report.loaded) == (None, 1, 0)
    assert [commit.kind for commit in graph.commits()] == ["init"]


def test_frames(spark: SparkSession, tmp_path: Path) -> None:
    graph = new_graph(tmp_path / "g")
    people = spark.createDataFrame(
        [(f"p{number}", number % 90) for number in range(300)], "name string, age int"
    ).repartition(4)
    knows = spark.range(0, 600, 1, 3).selectExpr(
        "concat('k', id) AS id", "concat('p', id % 300) AS `from`", "concat('p', (id * 7) % 300) AS `to`"
    )
    report = graph.load_frames(nodes={"Person": people}, edges={"Knows": knows}, mode="append")
    assert report.loaded == 900
    assert {row["id"]: (row["from"], row["to"]) for row in contents(graph, ["Knows"])["Knows"]} == {
        f"k{number}": (f"p{number % 300}", f"p{number * 7 % 300}") for number in range(600)
    }
    dangling = spark.createDataFrame(
        [("k9", "p1", "nobody"), ("kx", "p1", "p2")], "id string, `from` string, `to` string"
    )
    with pytest.raises(LoadRejected) as refused:
        graph.load_frames(edges={"Knows": dangling}, mode="merge")
    (reject,) = refused.value.details["rejects"]
    assert (reject["code"], reject["id"], json.loads(reject["record"])["to"]) == ("endpoint", "k9", "nobody")
    skipped = graph.load_frames(edges={"Knows": dangling}, mode="merge", on_error="skip", rejects=tmp_path / "r")
    assert (skipped.rejects, skipped.counts["edge:Knows"]) == (1, {"inserted": 1, "updated": 0, "deleted": 0})


def test_a_large_input_leaves_word_of_itself_and_a_small_one_does_not(tmp_path: Path) -> None:
    graph = new_graph(tmp_path / "g")
    store = graph._runtime.backend.store
    load(graph, write_lines(tmp_path / "small.ndjson", [node("Person", name="a")]))
    assert not list(store.list(RECOVERY))
    filler = "x" * 2_000
    lines = [node("Person", name=f"b{number}", city=filler) for number in range(600)]
    assert load(graph, write_lines(tmp_path / "large.ndjson", lines), split_bytes=1 << 20).loaded == 600
    names = {one.key.rsplit("/", 1)[-1] for one in store.list(RECOVERY)}
    assert {"0-open", "1", "2"} <= names


@pytest.mark.parametrize("good_count", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_all_kinds_of_bad_records_among_good_ones(tmp_path: Path, good_count: int) -> None:  # S8, S95, S98, S99
    graph = prepare(tmp_path / "graph")
    mixed = mixture(CASES, good_count)
    path = tmp_path / "input.jsonl"
    path.write_bytes(mixed.data)
    options: dict[str, Any] = {"mode": "append", "split_bytes": len(mixed.data) // 6}
    with pytest.raises(LoadRejected) as refused:
        load(graph, path, rejects=str(tmp_path / "failed"), **options)
    assert refused.value.details["reject_count"] == len(mixed.codes)
    assert_complete(read_rejects(tmp_path / "failed"), mixed)
    assert [commit.kind for commit in graph.commits()] == ["mutate", "init"]
    report = load(graph, path, on_error="skip", rejects=str(tmp_path / "skipped"), **options)
    assert_complete(read_rejects(tmp_path / "skipped"), mixed)
    assert report.rejects_by_code == refused.value.details["totals"]
    assert (report.loaded, rows(graph)) == (mixed.good, mixed.good + 1)
    assert len(graph.commits(kind="load")) == 1
    assert graph.verify().ok
