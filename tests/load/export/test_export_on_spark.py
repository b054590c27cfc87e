"""Export: the same records from both engines, in order, whole or not at all; and what load makes of them. S167"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.errors import Forbidden, InvalidInput, NotFound, Unavailable, Unsupported
from omnigraph.load.export import export as export_module
from omnigraph.load.export.export import ExportOptions, export, record_stream, sort_rows
from omnigraph.load.export.formats import ExportFormat, format_records
from omnigraph.query.language.statements import InsertNode
from tests.spark.bed import INLINE, LATER, LAYOUTS, SCHEMA, STAGED, comparable, make_graph

FORMATS: tuple[ExportFormat, ...] = ("ndjson", "parquet", "csv")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    return {layout: make_graph(tmp_path_factory.mktemp("graph") / "g", layout) for layout in LAYOUTS}


@pytest.fixture
def graph(graphs: dict[str, Graph]) -> Graph:
    return graphs["pin and overlay"]


def text_of(graph: Graph) -> bytes:
    stream = io.BytesIO()
    graph.export(stream)
    return stream.getvalue()


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


# --- the records ------------------------------------------------------------------------------------------------


def test_records_are_those_of_the_language(tmp_path: Path) -> None:
    graph = og.init(
        tmp_path / "g",
        "node Person { name: String @key  born: Date?  age: I32? @default(3) }\n"
        "edge Knows: Person -> Person { since: I32? }",
        config=INLINE,
    )
    graph.mutate(
        'query q() { insert Person { name: "Charles" age: null } insert Person { name: "Ada" born: "1815-12-10" } }'
    )
    graph.apply([og_edge("Knows", "Ada", "Charles", "k1", since=1833)])
    assert text_of(graph).decode().splitlines() == [
        '{"type": "Person", "data": {"id": "Ada", "name": "Ada", "born": "1815-12-10", "age": 3}}',
        '{"type": "Person", "data": {"id": "Charles", "name": "Charles", "born": null, "age": null}}',
        '{"edge": "Knows", "from": "Ada", "to": "Charles", "data": {"id": "k1", "since": 1833}}',
    ]


def og_edge(name: str, source: str, target: str, row_id: str, **values: object) -> og.statements.InsertEdge:
    return og.statements.InsertEdge(name, source, target, {"id": row_id, **values})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nodes_come_first_and_all_is_sorted(graphs: dict[str, Graph], layout: str) -> None:
    records = [json.loads(line) for line in text_of(graphs[layout]).splitlines()]
    keys = [
        ("edge" in record, record.get("type") or record["edge"], record["data"]["id"].encode()) for record in records
    ]
    assert keys == sorted(keys)
    expected = sum(graphs[layout].table(name).count() for name in ("Thing", "Picture", "Loose", "Pair", "KNOWS"))
    expected += graphs[layout].table("Has").count() + graphs[layout].table("Knows").count()
    assert len(records) == expected


def test_the_layout_of_a_table_leaves_no_trace(graphs: dict[str, Graph]) -> None:
    assert text_of(graphs["overlay only"]) == text_of(graphs["pin only"]) != b""
    assert text_of(graphs["pin and overlay"]) == text_of(graphs["many fragments"])
    assert text_of(graphs["empty"]) == b""


def test_a_table_that_does_not_fit_memory_is_sorted_alike(graph: Graph) -> None:
    state = graph.view().state
    for type_def in state.catalog.types:
        small = b"".join(format_records(type_def, batch) for batch in sort_rows(state, type_def))
        large = b"".join(format_records(type_def, batch) for batch in sort_rows(state, type_def, small_bytes=-1))
        assert large == small


def test_a_stream_for_servers(graph: Graph) -> None:
    assert b"".join(record_stream(graph.view().state)) == text_of(graph)
    only = b"".join(record_stream(graph.view().state, ["edge:Knows"]))
    assert only.count(b"\n") == 1


# --- and back ---------------------------------------------------------------------------------------------------


def reload(path: Path, source: object, engine: str) -> Graph:
    graph = og.init(path, SCHEMA, config=STAGED)
    graph.load(source, engine=engine)  # type: ignore[arg-type]
    return graph


def by_type(graph: Graph, folder: Path) -> dict[str, str]:
    return {
        type_def.table_key: str(folder / f"{type_def.kind}_{type_def.name}") for type_def in graph.view().catalog.types
    }


@pytest.mark.parametrize("export_format", FORMATS)
def test_export_init_load_is_the_identity(graph: Graph, tmp_path: Path, export_format: ExportFormat) -> None:
    """Every value type, vectors and blobs, ids of keyless types. S167"""
    report = graph.export(tmp_path / "out/", export_format, partitioned=True)
    assert report.counts == {
        type_def.table_key: count(graph, type_def.table_key) for type_def in graph.view().catalog.types
    }
    source: object = tmp_path / "out" if export_format == "ndjson" else by_type(graph, tmp_path / "out")
    again = reload(tmp_path / "again", source, "local")
    assert text_of(again) == text_of(graph)
    for name in ("Thing", "Picture", "Loose", "Pair", "Has", "Knows"):
        assert comparable(again.table(name).to_arrow()) == comparable(graph.table(name).to_arrow())


def count(graph: Graph, key: str) -> int:
    state = graph.view().state
    return state.view(next(type_def for type_def in state.catalog.types if type_def.table_key == key)).count()


@pytest.mark.parametrize("name", ["all.ndjson.gz", "all.ndjson.zst", "all.jsonl"])
def test_one_file_and_back(graph: Graph, tmp_path: Path, name: str) -> None:
    report = graph.export(tmp_path / name)
    assert report.files == (name,)
    assert report.size_bytes == (tmp_path / name).stat().st_size > 0
    assert hidden(tmp_path) == []
    if name.endswith(".gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()) == text_of(graph)
    assert text_of(reload(tmp_path / "again", tmp_path / name, "local")) == text_of(graph)


# --- which commit, which types ------------------------------------------------------------------------------------


def test_branches_and_commits(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "g", "pin only")
    before, commit = text_of(graph), graph.view().commit_id
    graph.branch.create("side")
    side = og.open(tmp_path / "g", "side", config=INLINE)
    side.apply(list(LATER))
    graph.apply([InsertNode("Nothing", {"name": "more"})])
    for name, wanted, options in [
        ("old", before, {"at": commit}),
        ("side", text_of(side), {"branch": "side"}),
        ("main", text_of(graph), {}),
    ]:
        report = graph.export(tmp_path / name, **options)  # type: ignore[arg-type]
        assert (tmp_path / name).read_bytes() == wanted
        assert report.commit_id == {"old": commit, "side": side.view().commit_id}.get(name, graph.view().commit_id)
    assert before != text_of(side) != text_of(graph) != before
    with pytest.raises(InvalidInput, match="contradict"):
        graph.export(tmp_path / "x", branch="side", at=commit)


def test_types(graph: Graph, tmp_path: Path) -> None:
    assert list(graph.export(tmp_path / "a", types=["Has", "Pair"]).counts) == ["node:Pair", "edge:Has"]
    assert graph.export(tmp_path / "one.csv", "csv", types=["edge:Knows"]).counts == {"edge:Knows": 1}
    assert (tmp_path / "one.csv").read_text() == (
        '"id","from","to","since","weight"\n"e1","full","void","2020-02-29",0.25\n'
    )
    graph.export(tmp_path / "p.parquet", "parquet", types=["Pair"])
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.to_pylist() == [{"id": '["b","-2"]', "row": -2, "place": "b"}]
    with pytest.raises(NotFound, match="no type 'Person'"):
        graph.export(tmp_path / "b", types=["Person"])
    with pytest.raises(InvalidInput, match="one type per file"):
        graph.export(tmp_path / "c.csv", "csv")


# --- whole or not at all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [False, True])
def test_nothing_is_replaced_unless_told(graph: Graph, tmp_path: Path, folder: bool) -> None:
    place = tmp_path / "out"
    graph.export(place, partitioned=folder)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(InvalidInput, match="is there already"):
        graph.export(place, types=["Pair"], partitioned=folder)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    graph.export(place, types=["Pair"], partitioned=folder, overwrite=True)
    text = (place / "node_Pair" / "part-00000.ndjson") if folder else place
    assert text.read_text().count("\n") == 1
    assert hidden(tmp_path) == []
    if folder:
        assert sorted(path.name for path in place.iterdir()) == ["_SUCCESS", "node_Pair"]


@pytest.mark.parametrize("folder", [False, True])
def test_a_failed_export_leaves_what_was_there(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    graph.export(tmp_path / "out", partitioned=folder)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    rows = sort_rows

    def breaking(*args: object) -> Iterator[object]:
        yield next(iter(rows(*args)))  # type: ignore[arg-type]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export_module, "sort_rows", breaking)
    with pytest.raises(Unavailable, match="No space left"):
        graph.export(tmp_path / "out", partitioned=folder, overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert hidden(tmp_path) == []


def test_parts_are_bounded(graph: Graph, tmp_path: Path) -> None:
    options = ExportOptions("parquet", ("Thing",), part_rows=1)
    assert export(graph.view().state, f"{tmp_path}/out/", options).files == ("node_Thing/part-00000.parquet",)
    many = make_graph(tmp_path / "g", "empty")
    many.apply([InsertNode("Nothing", {"name": f"{number:05}"}) for number in range(20_000)])
    options = ExportOptions("ndjson", ("Nothing",), partitioned=True, part_rows=10_000)
    report = export(many.view().state, tmp_path / "parts", options)
    assert report.rows == 20_000
    assert len(report.files) == 2
    joined = b"".join((tmp_path / "parts" / name).read_bytes() for name in report.files)
    assert joined == text_of(many)


def test_streams_refuse_what_they_cannot_hold(graph: Graph) -> None:
    for options in (ExportOptions("parquet"), ExportOptions("csv"), ExportOptions(engine="spark")):
        with pytest.raises(InvalidInput):
            export(graph.view().state, io.BytesIO(), options)
    with pytest.raises(InvalidInput, match="format is 'xml'"):
        graph.export("x", "xml")  # type: ignore[arg-type]


def test_a_path_below_a_file_is_told(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((InvalidInput, Forbidden)):
        graph.export(tmp_path / "file" / "out.ndjson")


# --- on Spark -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = make_graph(tmp_path_factory.mktemp("large") / "g", "many fragments")
    graph.apply([InsertNode("Nothing", {"name": f"{number * 7919 % 10007}ü"}) for number in range(3_000)])
    return graph


def test_spark_writes_one_stream(spark: SparkSession, large: Graph, tmp_path: Path) -> None:
    """The very bytes of the in-process export, from several tasks."""
    options = ExportOptions(engine="spark", part_rows=1_000, progress=False)
    report = export(large.view().state, tmp_path / "all.ndjson", options, spark)
    assert report.engine == "spark"
    assert (tmp_path / "all.ndjson").read_bytes() == text_of(large)
    assert report.rows == text_of(large).count(b"\n")
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("export_format", FORMATS)
def test_spark_writes_folders(spark: SparkSession, large: Graph, tmp_path: Path, export_format: ExportFormat) -> None:
    options = ExportOptions(export_format, engine="spark", partitioned=True, part_rows=1_000, progress=False)
    report = export(large.view().state, tmp_path / "out", options, spark)
    assert sum(name.startswith("node_Nothing/") for name in report.files) == 3
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"_SUCCESS", "node_Thing"}
    assert not (tmp_path / "out" / "_unfinished").exists()
    source: object = tmp_path / "out" if export_format == "ndjson" else by_type(large, tmp_path / "out")
    assert text_of(reload(tmp_path / "again", source, "local")) == text_of(large)


def test_spark_refuses_one_file_of_columns(spark: SparkSession, large: Graph, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="folders only"):
        large.export(tmp_path / "x.csv", "csv", types=["Pair"], engine="spark", spark=spark)
