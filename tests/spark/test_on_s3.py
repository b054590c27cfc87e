"""Graphs and exports in an object store: credentials reach the workers by options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.errors import InvalidInput, Unsupported
from omnigraph.load.export import export as export_module
from omnigraph.load.export.export import ExportOptions, export, sort_rows
from omnigraph.query.language.statements import InsertNode
from omnigraph.storage.address import open_store
from tests.load.spark.loading import BASE, TYPES, contents, node
from tests.load.spark.loading import SCHEMA as LOAD_SCHEMA
from tests.spark.bed import INLINE, LATER, SCHEMA, STATEMENTS, comparable
from tests.support.s3 import S3Place

pytestmark = pytest.mark.s3


@pytest.fixture
def graph(s3_place: S3Place) -> Graph:
    graph = og.init(f"{s3_place.uri}/graph", SCHEMA, storage_options=s3_place.storage_options, config=INLINE)
    graph.apply(list(STATEMENTS))
    graph.fold()
    graph.apply(list(LATER))
    return graph


def test_workers_read_with_the_options_of_the_handle(spark: SparkSession, graph: Graph, s3_place: S3Place) -> None:
    expected = comparable(graph.table("Thing").to_arrow())
    assert comparable(graph.spark("Thing", spark).toArrow()) == expected
    reader = spark.read.format("omnigraph").option("graph", graph.uri).option("type", "Thing")
    for name, value in s3_place.storage_options.items():
        reader = reader.option(f"storage.{name}", value)
    assert comparable(reader.load().toArrow()) == expected


def keys(s3_place: S3Place, folder: str) -> list[str]:
    return [info.key for info in open_store(f"{s3_place.uri}/{folder}", s3_place.storage_options).list("")]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_folder_is_marked_when_it_is_complete(
    spark: SparkSession, graph: Graph, s3_place: S3Place, engine: str
) -> None:
    report = graph.export(f"{s3_place.uri}/out/", partitioned=True, engine=engine, spark=spark)  # type: ignore[arg-type]
    assert sorted(keys(s3_place, "out")) == sorted([*report.files, "_SUCCESS"])
    again = og.init(f"{s3_place.uri}/again", SCHEMA, storage_options=s3_place.storage_options, config=INLINE)
    again.load(f"{s3_place.uri}/out/", engine="local", storage_options=s3_place.storage_options)
    assert comparable(again.table("Thing").to_arrow()) == comparable(graph.table("Thing").to_arrow())
    with pytest.raises(InvalidInput, match="is there already"):
        graph.export(f"{s3_place.uri}/out/", partitioned=True, engine="local", overwrite=True)


def test_one_file(spark: SparkSession, graph: Graph, s3_place: S3Place) -> None:
    report = graph.export(f"{s3_place.uri}/all.ndjson")
    stored = open_store(s3_place.uri, s3_place.storage_options).get("all.ndjson")
    assert report.size_bytes == len(stored)
    assert stored.count(b"\n") == report.rows
    with pytest.raises(InvalidInput, match="is there already"):
        graph.export(f"{s3_place.uri}/all.ndjson")
    with pytest.raises(Unsupported, match="this machine only"):
        graph.export(f"{s3_place.uri}/more.ndjson", engine="spark", spark=spark)


def parquet_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(rows, sink, row_group_size=500)
    return bytes(sink.getvalue())


@pytest.mark.slow
def test_a_load_from_there_and_into_it(spark: SparkSession, s3_place: S3Place) -> None:
    """Input, tables, rejects and export are all in the store; workers get the credentials by options. S136"""
    store, options = open_store(s3_place.uri, s3_place.storage_options), s3_place.storage_options
    lines = [*BASE, node("Person", name="p0", age=40), {"edge": "Knows", "from": "p0", "to": "nobody"}]
    store.put("in/a.ndjson", "".join(json.dumps(line) + "\n" for line in lines).encode())
    people = pa.table({"name": [f"n{number}" for number in range(2_000)], "age": pa.array([7] * 2_000, pa.int32())})
    store.put("people.parquet", parquet_bytes(people))
    graph = og.init(f"{s3_place.uri}/loaded", LOAD_SCHEMA, storage_options=options)
    load = partial(graph.load, engine="spark", spark=spark, storage_options=options, progress=False)
    report = load(f"{s3_place.uri}/in", on_error="skip", rejects=f"{s3_place.uri}/rejects")
    assert report.rejects_by_code == {"endpoint": 1}
    (rejects_key,) = [key for key in keys(s3_place, "rejects") if key.endswith(".ndjson")]
    (reject,) = map(json.loads, store.get(f"rejects/{rejects_key}").splitlines())
    assert (reject["file"], reject["line"]) == (f"{s3_place.uri}/in/a.ndjson", len(lines))
    assert load({"Person": f"{s3_place.uri}/people.parquet"}, mode="append").loaded == 2_000
    frame = spark.range(300).selectExpr("concat('n', id) AS name", "8 AS age")
    assert graph.load_frames(nodes={"Person": frame}, progress=False).counts["node:Person"]["updated"] == 300
    assert graph.spark("Person", spark, where="age = 8").count() == 300
    graph.export(f"{s3_place.uri}/out/", "parquet", partitioned=True, engine="spark", spark=spark, progress=False)
    again = og.init(f"{s3_place.uri}/again", LOAD_SCHEMA, storage_options=options)
    files = {name: f"{s3_place.uri}/out/{'node' if name[0] in 'PCN' else 'edge'}_{name}" for name in TYPES}
    again.load(files, engine="spark", spark=spark, storage_options=options, progress=False)
    assert contents(again) == contents(graph)
    assert graph.verify().ok
    assert [intent.state for intent in graph.recover_list()] == ["done"]  # of the frames


def test_half_a_file_never_appears(graph: Graph, s3_place: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.apply([InsertNode("Nothing", {"name": "x" * 1000 + str(number)}) for number in range(100)])
    rows = sort_rows

    def breaking(*args: object) -> Iterator[object]:
        yield next(rows(*args))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(export_module, "sort_rows", breaking)
    with pytest.raises(KeyboardInterrupt):
        export(
            graph.view().state,
            f"{s3_place.uri}/half.ndjson",
            ExportOptions(types=("Nothing",), storage_options=s3_place.storage_options),
        )
    assert "half.ndjson" not in keys(s3_place, "")
