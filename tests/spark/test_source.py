"""The data source: equal to what the in-process plane reads, whatever the layout, commit, branch, columns, filter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.api.view import GraphView
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.query.language.statements import And, Compare, Condition, InsertNode, NullTest, Or, Update
from omnigraph.spark.data_source import OmnigraphReader, register
from omnigraph.spark.table_scan import OverlayPart, PinnedPart, plan_parts
from omnigraph.spark.where_text import parse_where, where_text
from tests.spark.bed import INLINE, LATER, LAYOUTS, comparable, make_graph


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    """One graph per layout; tests of this module only read them."""
    return {layout: make_graph(tmp_path_factory.mktemp("graph") / "g", layout) for layout in LAYOUTS}


@pytest.fixture
def graph(graphs: dict[str, Graph]) -> Graph:
    return graphs["pin and overlay"]


def assert_same(graph: Graph | GraphView, name: str, spark: SparkSession) -> None:
    rows = graph.spark(name, spark).toArrow()
    table = graph.table(name).to_arrow()
    assert rows.column_names == table.column_names
    assert comparable(rows) == comparable(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_type_equals_the_table(spark: SparkSession, graphs: dict[str, Graph], layout: str) -> None:
    graph = graphs[layout]
    for type_def in graph.view().catalog.types:
        if type_def.table_key != "edge:Knows":
            assert_same(graph, type_def.name, spark)
    assert_same(graph, "Knows", spark)  # the edge; `KNOWS` is a node


def test_the_layouts_are_what_they_say(graphs: dict[str, Graph]) -> None:
    kinds = {}
    for layout, graph in graphs.items():
        state = graph.view().state
        parts = plan_parts(state, state.type("Thing"), part_bytes=1)
        kinds[layout] = [type(part) for part in parts]
    assert kinds["overlay only"] == [OverlayPart]
    assert kinds["pin only"] == [PinnedPart]
    assert kinds["pin and overlay"] == [PinnedPart, OverlayPart]
    assert len(kinds["many fragments"]) >= 4
    assert set(kinds["many fragments"]) == {PinnedPart}
    assert kinds["empty"] == []


def test_small_fragments_share_a_part(graphs: dict[str, Graph]) -> None:
    state = graphs["many fragments"].view().state
    (part,) = plan_parts(state, state.type("Thing"))
    assert isinstance(part, PinnedPart)
    assert len(part.fragment_ids) >= 4


def test_spark_types_and_nullability(spark: SparkSession, graph: Graph) -> None:
    types = {one.name: (one.dataType.simpleString(), one.nullable) for one in graph.spark("Thing", spark).schema}
    assert types == {
        "id": ("string", False),
        "name": ("string", False),
        "required": ("bigint", False),
        "small": ("int", True),
        "big": ("bigint", True),
        "count": ("bigint", True),
        "huge": ("decimal(20,0)", True),
        "single": ("float", True),
        "double": ("double", True),
        "day": ("date", True),
        "at": ("timestamp", True),
        "on": ("boolean", True),
        "role": ("string", True),
        "words": ("array<string>", True),
        "numbers": ("array<decimal(20,0)>", True),
        "flags": ("array<boolean>", True),
        "days": ("array<date>", True),
        "moments": ("array<timestamp>", True),
        "singles": ("array<float>", True),
        "face": ("array<float>", True),
    }
    pictures = graph.spark("Picture", spark).schema
    assert [picture.dataType.simpleString() for picture in pictures] == ["string", "string", "binary", "array<float>"]
    assert [one.name for one in graph.spark("Has", spark).schema] == ["id", "from", "to"]


CONDITIONS: dict[str, Condition] = {
    "small > 3": Compare("small", ">", 3),
    "3 >= small": Compare("small", "<=", 3),
    "huge = 18446744073709551615": Compare("huge", "=", 2**64 - 1),
    "name LIKE 'l%' OR role = 'admin'": Or((Compare("name", "starts_with", "l"), Compare("role", "=", "admin"))),
    "small IS NULL AND required < 5": And((NullTest("small"), Compare("required", "<", 5))),
    "NOT (small IS NULL)": NullTest("small", negated=True),
    "day < DATE '1900-01-01'": Compare("day", "<", "1900-01-01"),
    "at IN ('1970-01-01T00:00:00Z')": Compare("at", "in", ["1970-01-01T00:00:00Z"]),
    "small NOT IN (3, 41)": And((Compare("small", "!=", 3), Compare("small", "!=", 41))),
    "id = 'nobody'": Compare("id", "=", "nobody"),
    "contains(name, 'n\\u00ef')": Compare("name", "contains", "nï"),
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_where_selects_as_the_table_does(spark: SparkSession, graph: Graph, text: str) -> None:
    table = graph.table("Thing").to_arrow(["name", "small"], CONDITIONS[text])
    rows = graph.spark("Thing", spark, columns=["name", "small"], where=text)
    assert rows.columns == ["name", "small"]
    assert comparable(rows.toArrow()) == comparable(table)
    assert table.num_rows < graph.table("Thing").count()


@pytest.mark.parametrize("text", CONDITIONS)
def test_where_is_read_as_meant(text: str) -> None:
    condition = CONDITIONS[text]
    assert parse_where(text) == condition
    assert parse_where(where_text(condition)) == condition


def test_a_filter_column_need_not_be_shown(spark: SparkSession, graph: Graph) -> None:
    assert [row.name for row in graph.spark("Thing", spark, columns=["name"], where="small = 41").collect()] == ["void"]


def test_two_filters_of_one_frame(spark: SparkSession, graph: Graph) -> None:
    """What SPARK.md 0.1 breaks for sources that push filters: see tests/guards/test_spark_pushdown.py."""
    frame = graph.spark("Thing", spark)
    everything = frame.count()
    assert everything == graph.table("Thing").count() == 4
    three, forty = frame.filter("small = 41"), frame.filter("small = 40")
    assert sorted(row.name for row in three.union(forty).collect()) == ["later", "void"]
    assert frame.count() == everything
    assert frame.crossJoin(three.select(F.col("name").alias("other"))).count() == everything
    assert not hasattr(OmnigraphReader, "pushFilters") or "pushFilters" not in vars(OmnigraphReader)


def test_a_frame_is_pinned_when_it_is_loaded(spark: SparkSession, tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "g", "pin and overlay")
    register(spark)
    by_hand = spark.read.format("omnigraph").option("type", "Thing").load(str(tmp_path / "g"))
    frame = graph.spark("Thing", spark)
    expected = comparable(graph.table("Thing").to_arrow())
    assert comparable(frame.toArrow()) == expected
    graph.apply([InsertNode("Thing", {"name": "newest", "required": 1})])
    graph.apply([Update("Thing", {"required": 99}, Compare("name", "=", "full"))])
    graph.fold()
    assert comparable(frame.toArrow()) == expected
    assert comparable(by_hand.toArrow()) == expected
    assert graph.spark("Thing", spark).count() == len(expected) + 1


def test_commits_and_branches(spark: SparkSession, tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "g", "pin only")
    before = graph.view().commit_id
    graph.branch.create("side")
    side = og.open(tmp_path / "g", "side", config=INLINE)
    side.apply(list(LATER))
    side.fold()
    for item in (graph.at(before), graph, side):
        assert_same(item, "Thing", spark)
        assert_same(item, "Knows", spark)
    register(spark)
    reader = spark.read.format("omnigraph").option("graph", str(tmp_path / "g")).option("type", "edge:Knows")
    assert reader.option("branch", "side").load().count() == side.table("Knows").count() == 1
    old = spark.read.format("omnigraph").option("graph", str(tmp_path / "g")).option("type", "Knows")
    assert old.option("at", before).load().count() == 2


def test_names_of_today_on_an_old_commit(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node P { name: String @key  age: I32? }", config=INLINE)
    graph.apply([InsertNode("P", {"name": "a", "age": 3})])
    before = graph.view().commit_id
    graph.schema.apply('node Q @rename_from("P") { name: String @key  years: I32? @rename_from("age")  more: I32? }')
    graph.apply([InsertNode("Q", {"name": "b", "years": 4, "more": 1})])
    graph.fold()
    rows = graph.at(before).spark("Q", spark, columns=["name", "years"], where="years = 3").collect()
    assert [row.asDict() for row in rows] == [{"name": "a", "years": 3}]
    assert_same(graph, "Q", spark)


@pytest.fixture
def views(spark: SparkSession, graph: Graph) -> Iterator[dict[str, str]]:
    table_keys = graph.spark_views(spark)
    yield table_keys
    for view in table_keys:
        spark.catalog.dropTempView(view)


def test_spark_sql_over_all_types(spark: SparkSession, graph: Graph, views: dict[str, str]) -> None:
    assert views == {
        "Thing": "node:Thing",
        "Picture": "node:Picture",
        "Loose": "node:Loose",
        "Pair": "node:Pair",
        "Nothing": "node:Nothing",
        "node_KNOWS": "node:KNOWS",
        "edge_Knows": "edge:Knows",
        "Has": "edge:Has",
        "Empty": "edge:Empty",
    }
    rows = spark.sql(
        "SELECT t.name, l.title FROM Thing t JOIN Has h ON h.`from` = t.id JOIN Loose l ON l.id = h.`to` ORDER BY 1"
    ).collect()
    assert [(row.name, row.title) for row in rows] == [("full", "two"), ("later", None)]
    assert spark.sql("SELECT count(*) AS n FROM edge_Knows").first() == (1,)
    assert spark.sql("SELECT * FROM Nothing").collect() == []


def test_an_own_schema_prunes(spark: SparkSession, graph: Graph) -> None:
    register(spark)
    reader = spark.read.format("omnigraph").option("graph", graph.uri).option("type", "Thing")
    assert reader.schema("name STRING, huge DECIMAL(20,0)").load().where("huge = 9223372036854775808").collect() == [
        ("void", 2**63)
    ]
    with pytest.raises(PySparkException, match="huge is decimal"):
        reader.schema("huge BIGINT").load().collect()


@pytest.mark.parametrize(
    ("columns", "where", "words"),
    [
        (["nme"], None, "no property 'nme'"),
        (None, "nme = 3", "no property 'nme'"),
        (None, "small + 1 > 3", "not understood"),
        (None, "small = 'x'", "expected I32"),
        (None, "", "not understood"),
    ],
)
def test_wrong_columns_and_filters_are_told_at_once(
    spark: SparkSession, graph: Graph, columns: list[str] | None, where: str | None, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        graph.spark("Thing", spark, columns=columns, where=where)


def test_wrong_options_are_named(spark: SparkSession, graph: Graph) -> None:
    register(spark)
    for options, words in [
        ({"type": "Thing"}, "needs the option 'graph'"),
        ({"graph": graph.uri}, "needs the option 'type'"),
        ({"graph": graph.uri, "type": "Thing", "brnch": "x"}, "no option 'brnch'"),
        ({"graph": graph.uri, "type": "Thing", "branch": "main", "at": "x"}, "contradict"),
        ({"graph": graph.uri, "type": "Person"}, "no type 'Person'"),
        ({"graph": graph.uri, "type": "Thing", "part_bytes": "0"}, "part_bytes"),
    ]:
        with pytest.raises(AnalysisException, match=words):
            spark.read.format("omnigraph").options(**options).load()
    with pytest.raises(NotFound):
        graph.spark("Person", spark)


def test_streams_and_writes_are_refused_by_name(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    register(spark)
    stream = spark.readStream.format("omnigraph").option("graph", graph.uri).option("type", "Thing").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(PySparkException, match="cannot be streamed"):
        query.awaitTermination(60)
    frame = graph.spark("Thing", spark)
    with pytest.raises(PySparkException, match="load_frames"):
        frame.write.format("omnigraph").mode("append").option("graph", graph.uri).option("type", "Thing").save()
