"""What can be named as input, and files that are not as they should be. S157 (quiet), S167 (formats)"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
import zstandard
from pyarrow import csv, orc, parquet

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.config import Config
from omnigraph.errors import DamagedInput, InvalidInput, LoadRejected
from omnigraph.load.inputs import LoadSources
from omnigraph.load.options import LoadOptions
from omnigraph.load.records.batches import ReadLimits
from omnigraph.load.report import LoadReport
from omnigraph.load.run import LoadJob, find_inputs, run_load
from tests.support.s3 import S3Place

SCHEMA = """
node Person { name: String @key  age: I32?  born: Date?  seen: DateTime?  tags: [String]?  place: Vector(2)?  ok: Bool?
              big: U64?  score: F64? }
edge Knows: Person -> Person { since: I32? }
"""
LINES = b'{"type": "Person", "data": {"name": "ada", "age": 3}}\n{"edge": "Knows", "from": "ada", "to": "ada"}\n'


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(str(tmp_path / "graph"), SCHEMA, config=Config(fsync=False))


def load(graph: Graph, paths: Any, **options: Any) -> LoadReport:
    return graph.load(paths, engine="local", progress=False, **options)


def people(graph: Graph) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in graph.table("Person").to_arrow().to_pylist()}


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# --- mixed records -------------------------------------------------------------------------------------------------

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "a.jsonl": bytes,
    "a.ndjson": bytes,
    "a.txt": bytes,
    "a.json": bytes,
    "a.jsonl.gz": gzip.compress,
    "several.jsonl.gz": lambda data: gzip.compress(data[:54]) + gzip.compress(data[54:]),
    "a.jsonl.zst": zstandard.ZstdCompressor().compress,
    "bom.jsonl": lambda data: b"\xef\xbb\xbf" + data,
    "crlf.jsonl": lambda data: data.replace(b"\n", b"\r\n"),
    "no-end.jsonl": lambda data: data.rstrip(b"\n"),
    "blank-lines.jsonl": lambda data: b"\n\n" + data.replace(b"\n", b"\n \n"),
    "array.json": lambda data: b" [" + b",\n".join(data.splitlines()) + b"]\n",
    "array.json.gz": lambda data: gzip.compress(b"[" + b",".join(data.splitlines()) + b"]"),
}


@pytest.mark.parametrize("name", PACKED)
def test_mixed_records(graph: Graph, tmp_path: Path, name: str) -> None:
    assert load(graph, put(tmp_path / name, PACKED[name](LINES))).loaded == 2


def test_folders_globs_and_lists(graph: Graph, tmp_path: Path) -> None:
    for name in (
        "in/a.jsonl",
        "in/deep/b.jsonl",
        "in/_SUCCESS",
        "in/.hidden.jsonl",
        "in/_temporary/c.jsonl",
        "d.jsonl",
    ):
        line = json.dumps({"type": "Person", "data": {"name": Path(name).stem}})
        put(tmp_path / name, b"" if name.endswith("SUCCESS") else line.encode())
    load(graph, [tmp_path / "in", str(tmp_path / "d.*")])
    assert sorted(people(graph)) == ["a", "b", "d"]
    load(graph, f"file://{tmp_path}/in/deep/*.jsonl", mode="overwrite")
    assert sorted(people(graph)) == ["b"]
    load(graph, str(tmp_path / "in" / "**" / "*.jsonl"), mode="overwrite")
    assert set(people(graph)) >= {"a", "b"}


def test_the_order_of_files_is_that_of_the_call(graph: Graph, tmp_path: Path) -> None:
    for name, age in (("z", 1), ("a", 2)):
        put(tmp_path / f"{name}.jsonl", json.dumps({"type": "Person", "data": {"name": "x", "age": age}}).encode())
    report = load(graph, [tmp_path / "z.jsonl", tmp_path / "a.jsonl"])
    assert (report.duplicates, people(graph)["x"]["age"]) == (1, 2)
    load(graph, [tmp_path / "a.jsonl", tmp_path / "z.jsonl"])
    assert people(graph)["x"]["age"] == 1


@pytest.mark.s3
def test_object_store(graph: Graph, tmp_path: Path, s3_place: S3Place) -> None:
    store = s3_place.object_store()
    obstore.put(store, "in/a.jsonl", LINES)
    obstore.put(store, "in/b.jsonl.gz", gzip.compress(LINES.replace(b"ada", b"bob")))
    table = pa.table({"name": ["cy"], "age": [4]})
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    obstore.put(store, "p/part-0.parquet", sink.getvalue().to_pybytes())
    options = {"storage_options": s3_place.storage_options}
    assert load(graph, f"{s3_place.uri}/in/a.jsonl", **options).loaded == 2
    assert load(graph, f"{s3_place.uri}/in", **options).loaded == 4
    assert load(graph, f"{s3_place.uri}/*/*.gz", **options).loaded == 2
    assert load(graph, {"Person": f"{s3_place.uri}/p/"}, **options).loaded == 1
    assert sorted(people(graph)) == ["ada", "bob", "cy"]
    bad = put(tmp_path / "bad.jsonl", b"x\n")
    report = load(graph, bad, on_error="skip", rejects=f"{s3_place.uri}/rejects", **options)
    assert report.rejects_path is not None
    key = f"rejects/{report.rejects_path.rpartition('/')[2]}"
    assert json.loads(bytes(obstore.get(store, key).bytes()))["code"] == "not_json"
    with pytest.raises(InvalidInput) as caught:
        load(graph, f"{s3_place.uri}/in/nothing.jsonl", **options)
    assert caught.value.code == "file_error"


# --- files of one type ---------------------------------------------------------------------------------------------

TABLE = pa.table(
    {
        "name": ["ada", "bob"],
        "age": pa.array([36, None], pa.int64()),
        "born": pa.array([-56_000, None], pa.int32()).cast(pa.date32()),
        "tags": [["x", "y"], None],
        "place": pa.array([[1.0, 2.5], None], pa.list_(pa.float32())),
        "ok": [True, None],
        "score": [0.5, None],
    }
)
EDGES = pa.table({"from": ["ada"], "to": ["bob"], "since": pa.array([3], pa.int32())})


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_typed_files(graph: Graph, tmp_path: Path, kind: str) -> None:
    write = parquet.write_table if kind == "parquet" else orc.write_table
    write(TABLE, tmp_path / f"p.{kind}")
    write(EDGES.rename_columns(["src", "dst", "since"]), tmp_path / f"k.{kind}")
    report = load(graph, {"Person": tmp_path / f"p.{kind}", "Knows": [tmp_path / f"k.{kind}"]})
    assert report.loaded == 3
    ada = people(graph)["ada"]
    assert (ada["age"], str(ada["born"]), ada["tags"], ada["place"], ada["ok"]) == (
        36,
        "1816-09-05",
        ["x", "y"],
        [1.0, 2.5],
        True,
    )
    assert people(graph)["bob"]["age"] is None


def test_spark_keeps_large_integers_as_decimals(graph: Graph, tmp_path: Path) -> None:
    table = pa.table({"name": ["a"], "big": pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0))})
    parquet.write_table(table, tmp_path / "p.parquet")
    load(graph, {"Person": tmp_path / "p.parquet"})
    assert people(graph)["a"]["big"] == 2**64 - 1


def test_csv(graph: Graph, tmp_path: Path) -> None:
    text = (
        "name,age,born,seen,tags,place,ok,big,score\r\n"
        'ada,36,1815-12-10,2026-01-31T10:00:00Z,"[""x"",""y""]","[1,2.5]",true,18446744073709551615,1e-3\r\n'
        '"two\nlines, ""quoted""",,,,,,,,\r\n'
        '"",,,,,,,,\r\n'
    )
    load(graph, {"Person": put(tmp_path / "p.csv", text.encode())})
    rows = people(graph)
    assert set(rows) == {"ada", 'two\nlines, "quoted"', ""}
    assert (rows["ada"]["big"], rows["ada"]["tags"], rows["ada"]["score"]) == (2**64 - 1, ["x", "y"], 0.001)
    load(graph, {"Knows": put(tmp_path / "k.csv.gz", gzip.compress(b"from,to,since\nada,ada,1\n"))})
    assert graph.table("Knows").to_arrow().num_rows == 1


def test_csv_rejects_have_the_line_on_which_they_begin(graph: Graph, tmp_path: Path) -> None:
    text = 'name,age\nada,1\n"two\nlines",x\nbob,2,3\nc"y,1\ndi,4\n'
    path = put(tmp_path / "p.csv", text.encode())
    report = load(graph, {"Person": path}, on_error="skip", rejects=tmp_path / "r")
    assert [(reject["line"], reject["code"]) for reject in report.sample] == [
        (3, "OG-V-002"),
        (5, "wrong_field_count"),
        (6, "bad_csv"),
    ]
    assert sorted(people(graph)) == ["ada", "di"]


@pytest.mark.parametrize("text", ['{"name": "ada"}\n{"name": "bob"}\n', '[{"name": "ada"}, {"name": "bob"}]', "[]"])
def test_json_of_one_type(graph: Graph, tmp_path: Path, text: str) -> None:
    load(graph, {"Person": put(tmp_path / "p.json", text.encode())})
    assert len(people(graph)) == text.count("name")


def test_items_of_an_array_go_by_their_number(graph: Graph, tmp_path: Path) -> None:
    path = put(tmp_path / "p.json", b'[{"name": "a"}, {"name": 1}, {"name": "a"}]')
    with pytest.raises(LoadRejected) as caught:
        load(graph, {"Person": path}, mode="append")
    assert [(reject["line"], reject["code"]) for reject in caught.value.details["rejects"]] == [
        (2, "OG-V-002"),
        (3, "key_conflict"),
    ]


def test_mixed_and_typed_together(graph: Graph, tmp_path: Path) -> None:
    csv.write_csv(EDGES, tmp_path / "k.csv")
    load_sources = LoadSources(
        (str(put(tmp_path / "a.jsonl", LINES.replace(b"3", b"4"))),), {"edge:Knows": (str(tmp_path / "k.csv"),)}
    )
    with pytest.raises(LoadRejected) as caught:
        load(graph, load_sources)
    assert caught.value.details["totals"] == {"endpoint": 1}
    parquet.write_table(TABLE, tmp_path / "p.parquet")
    load(graph, LoadSources(load_sources.mixed, {**load_sources.typed, "node:Person": (str(tmp_path / "p.parquet"),)}))
    assert people(graph)["ada"]["age"] == 36


# --- what is not as it should be -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.jsonl.gz", gzip.compress(LINES * 100)[:-20]),
        ("flipped.jsonl.gz", gzip.compress(LINES * 100)[:-6] + b"\x00" * 6),
        ("no.jsonl.gz", LINES),
        ("cut.jsonl.zst", zstandard.ZstdCompressor().compress(LINES * 100)[:-3]),
        ("cut.json", b'[{"type": "Person", "data": {"name": "a"}}, {"type"'),
        ("after.json", b"[] x"),
        ("latin1.json", b'[{"type": "Person", "data": {"name": "caf\xe9"}}]'),
    ],
)
def test_damaged_files_refuse_the_load_even_if_records_are_skipped(
    graph: Graph, tmp_path: Path, name: str, data: bytes
) -> None:
    path = put(tmp_path / name, data)
    before = graph.refresh()
    with pytest.raises(DamagedInput) as caught:
        load(graph, path, on_error="skip", rejects=tmp_path / "r")
    assert caught.value.details["file"] == str(path)
    assert graph.refresh() == before


@pytest.mark.parametrize("name", ["p.parquet", "p.orc"])
@pytest.mark.parametrize("cut", [0, 4, 300])
def test_damaged_typed_files(graph: Graph, tmp_path: Path, name: str, cut: int) -> None:
    path = tmp_path / name
    (parquet.write_table if name == "p.parquet" else orc.write_table)(TABLE, path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DamagedInput) as caught:
        load(graph, {"Person": path})
    assert caught.value.details["file"] == str(path)


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"name": ["a"], "aeg": [1]}, "unknown_property"),
        ({"age": [1]}, "OG-V-001"),
        ({"name": ["a"], "src": ["b"]}, "unknown_property"),
    ],
)
def test_columns_that_do_not_fit(graph: Graph, tmp_path: Path, columns: dict[str, Any], code: str) -> None:
    parquet.write_table(pa.table(columns), tmp_path / "p.parquet")
    csv.write_csv(pa.table(columns), tmp_path / "p.csv")
    for path in (tmp_path / "p.parquet", tmp_path / "p.csv"):
        with pytest.raises(DamagedInput) as caught:
            load(graph, {"Person": path})
        assert caught.value.code == code
        assert str(path) in str(caught.value)


def test_an_edge_file_needs_its_ends(graph: Graph, tmp_path: Path) -> None:
    path = put(tmp_path / "k.csv", b"from,since\na,1\n")
    with pytest.raises(DamagedInput) as caught:
        load(graph, {"Knows": path})
    assert caught.value.code == "missing_end"


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.csv", "empty.json"])
def test_empty_files_hold_no_records(graph: Graph, tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, b"")
    assert load(graph, {"Person": path}).commit_id is None
    if name != "empty.csv":
        assert load(graph, path).commit_id is None


def test_truncated_text_is_a_bad_last_record(graph: Graph, tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", LINES[:-10])
    with pytest.raises(LoadRejected) as caught:
        load(graph, path)
    assert [(reject["line"], reject["code"]) for reject in caught.value.details["rejects"]] == [(2, "not_json")]


def test_line_of_exactly_line_bytes_is_loaded(graph: Graph, tmp_path: Path) -> None:  # S100
    line = LINES.splitlines()[0]
    path = put(tmp_path / "a.jsonl", LINES + b'{"type": "Person", "data": {"name": "bob"}}\n')

    def load_with_bounds(line_bytes: int, batch_bytes: int) -> LoadReport:
        limits = ReadLimits(line_bytes=line_bytes, batch_bytes=batch_bytes)
        options = LoadOptions(engine="local", limits=limits, on_error="skip", rejects=str(tmp_path / "r"))
        inputs = find_inputs(LoadSources.of(path), graph._runtime.catalogs, graph._branch.publisher, options)
        return run_load(LoadJob(graph._runtime, graph._branch, None, inputs, options, WriteOptions(), False))

    for batch_bytes in (1, 7, 50, 1000):
        assert load_with_bounds(len(line), batch_bytes).rejects == 0
        report = load_with_bounds(len(line) - 1, batch_bytes)
        assert [(reject["line"], reject["code"]) for reject in report.sample] == [(1, "line_too_long")]
        assert report.loaded == 2


@pytest.mark.parametrize(
    ("sources", "code"),
    [
        ("nothing.jsonl", "file_error"),
        ("*.nothing", "file_error"),
        ([], "no_input"),
        ({}, "no_input"),
        ("p.parquet", "type_needed"),
        ({"Nobody": "a.jsonl"}, "type_not_found"),
        ({"edge:Person": "a.jsonl"}, "type_not_found"),
    ],
)
def test_load_of_an_unknown_source_raises_invalid_input(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: Any, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "p.parquet", b"")
    put(tmp_path / "a.jsonl", b"")
    with pytest.raises(InvalidInput) as caught:
        load(graph, sources)
    assert caught.value.code == code
    assert caught.value.advice


def test_load_from_a_graph_folder_is_refused(graph: Graph) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(graph, graph.uri)
    assert "is a graph" in str(caught.value)
