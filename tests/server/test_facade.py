"""The facade's own tests, run on a graph that is opened here and on one behind a server."""

from __future__ import annotations

import inspect
import io
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api.branches import Branches
from omnigraph.api.remote.graph import RemoteBranches, RemoteSchema
from omnigraph.api.remote.over_http import RemoteWriteOptions, refuse_options
from omnigraph.api.remote.view import RemoteView
from omnigraph.api.schema import Schema
from omnigraph.errors import (
    ConstraintViolation,
    InvalidInput,
    KeyConflict,
    LoadRejected,
    MergeConflict,
    NotFound,
    ParseError,
    PreconditionFailed,
    TypeCheckError,
    Unavailable,
    Unknown,
    Unsupported,
)
from omnigraph.history.feed import ChangeFeedGap
from tests.server.bed import ADD, AGE, ALL, PEOPLE, Door, Facade


def _names(g: Facade) -> list[str]:
    return [row["name"] for row in g.query(ALL).rows]


def test_query_and_mutate(g: Facade) -> None:
    receipt = g.mutate(ADD, {"n": "Ada", "a": 36}, message="first")
    assert receipt.counts == {"inserted": 1, "updated": 0, "deleted": 0}
    assert not receipt.replayed
    result = g.query(ALL)
    assert result.rows == [{"name": "Ada", "age": 36}]
    assert result.json_rows == result.rows
    assert result.commit_id == receipt.commit_id
    assert [(column.name, column.type) for column in result.columns] == [("name", "String"), ("age", "I32?")]
    assert len(result) == 1
    assert g.commits(1)[0].message == "first"
    assert g.mutate(AGE, {"n": "nobody", "a": 1}).commit_id is None


def test_values_keep_their_types(g: Facade) -> None:
    add = "query add($n: String, $b: Date) { insert Person { name: $n, born: $b } }"
    g.mutate(add, {"n": "Ada", "b": date(1815, 12, 10)})
    result = g.query("query q() { match { $p: Person } return { $p, $p.born as born } }")
    assert result.rows == [
        {"p": {"id": "Ada", "name": "Ada", "age": None, "born": date(1815, 12, 10)}, "born": date(1815, 12, 10)}
    ]
    assert result.json_rows[0]["born"] == "1815-12-10"
    assert result.json_rows[0]["p"]["born"] == "1815-12-10"
    assert result.to_arrow().num_rows == 1
    assert json.loads(json.dumps(result.to_json())) == result.to_json()


def test_parameters_of_every_type(g: Facade) -> None:
    typed = PEOPLE + "node T { name: String @key  f: F64?  b: Blob?  t: DateTime?  v: Vector(2)?  l: [I32]? }\n"
    g.schema.apply(typed)
    source = """query a($f: F64?, $b: Blob?, $t: DateTime?, $v: Vector(2)?, $l: [I32]?) {
        insert T { name: "x", f: $f, b: $b, t: $t, v: $v, l: $l }
    }"""
    moment = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    g.mutate(source, {"f": float("inf"), "b": b"hi", "t": moment, "v": (1, 2.5), "l": [3]})
    (row,) = g.query("query q() { match { $t: T } return { $t.f as f, $t.t as t, $t.v as v, $t.l as l } }").rows
    assert row == {"f": float("inf"), "t": moment, "v": [1.0, 2.5], "l": [3]}
    assert g.blob("T", "x", "b") == b"hi"
    with pytest.raises(InvalidInput) as refused:
        g.mutate(source, {"l": {1}})
    assert refused.value.code == "P3"


def test_mutate_many_is_one_commit(g: Facade) -> None:
    g.mutate_many(ADD, [{"n": f"p{n}"} for n in range(5)])
    assert len(_names(g)) == 5
    assert len(g.commits()) == 2


def test_a_repeated_key_answers_as_before(g: Facade) -> None:
    first = g.mutate(ADD, {"n": "Ada"}, client_key="k")
    again = g.mutate(ADD, {"n": "Ada"}, client_key="k")
    assert (again.commit_id, again.replayed) == (first.commit_id, True)
    assert dict(again.counts) == dict(first.counts)


def test_errors_are_of_their_class(g: Facade) -> None:
    g.mutate(ADD, {"n": "Ada", "a": 1})
    with pytest.raises(ParseError):
        g.query("query q( {")
    with pytest.raises(TypeCheckError):
        g.query("query q() { match { $p: Persn } return { $p } }")
    with pytest.raises(ConstraintViolation) as broken:
        g.mutate(ADD, {"n": "Old", "a": 200})
    assert broken.value.violations[0]["id"] == "Old"
    with pytest.raises(KeyConflict) as raised:
        g.mutate(ADD, {"n": "Ada"}, strict=True)
    assert raised.value.details["key_conflict"]["id"] == "Ada"
    with pytest.raises(PreconditionFailed):
        g.mutate(ADD, {"n": "Bo"}, if_commit="01ARZ3NDEKTSV4RRFFQ69G5FAV.0")
    with pytest.raises(NotFound):
        g.on_branch("nothing")
    with pytest.raises(NotFound):
        g.at("01ARZ3NDEKTSV4RRFFQ69G5FAV.0")
    assert _names(g) == ["Ada"]


def test_a_precondition_that_holds(g: Facade) -> None:
    newest = g.refresh()
    assert g.mutate(ADD, {"n": "Ada"}, if_commit=newest).commit_id is not None


def test_branches(g: Facade) -> None:
    g.mutate(ADD, {"n": "Ada", "a": 1})
    x = g.branch.create("review/x")
    assert g.branch.list() == ["main", "review/x"]
    x.mutate(ADD, {"n": "Bo"})
    assert (_names(x), _names(g)) == (["Ada", "Bo"], ["Ada"])
    assert [change.id for change in g.diff("main", "review/x")] == ["Bo"]
    assert g.branch.merge("review/x", dry_run=True).commit_id is None
    report = g.branch.merge("review/x", into="main")
    assert (report.outcome, report.counts["inserted"]) == ("fast_forward", 1)
    assert g.branch.merge("review/x").outcome == "already_up_to_date"
    g.branch.delete("review/x")
    assert g.branch.list() == ["main"]
    with pytest.raises(NotFound):
        g.branch.delete("review/x")


def test_a_merge_with_conflicts(g: Facade) -> None:
    g.mutate(ADD, {"n": "Ada", "a": 1})
    x = g.branch.create("x")
    x.mutate(AGE, {"n": "Ada", "a": 2})
    g.mutate(AGE, {"n": "Ada", "a": 3})
    with pytest.raises(MergeConflict) as refused:
        g.branch.merge("x")
    assert [conflict["entity_id"] for conflict in refused.value.conflicts] == ["Ada"]
    g.branch.merge("x", per_entity={("node:Person", "Ada"): "theirs"})
    assert g.query(ALL).rows == [{"name": "Ada", "age": 2}]


def test_time_travel(g: Facade) -> None:
    first = g.mutate(ADD, {"n": "Ada"}).commit_id
    g.mutate(ADD, {"n": "Bo"})
    then = g.at(first)
    assert then.commit_id == first
    assert [row["name"] for row in then.query(ALL).rows] == ["Ada"]
    assert then.snapshot()["commit_id"] == first
    assert then.commit()["touched"][0]["inserted"] == 1
    assert then.commits(1)[0].commit_id == first
    fork = g.branch.create("old", first)
    assert _names(fork) == ["Ada"]


def test_history(g: Facade) -> None:
    start = g.refresh()
    g.mutate(ADD, {"n": "Ada"})
    newest = g.mutate(AGE, {"n": "Ada", "a": 2}).commit_id
    assert [commit.kind for commit in g.commits()] == ["mutate", "mutate", "init"]
    assert [commit.kind for commit in g.commits(kind="init")] == ["init"]
    assert isinstance(g.commits()[0], og.CommitInfo)
    changes = list(g.diff(start))
    assert [(change.op, change.id, change.after["age"]) for change in changes] == [("insert", "Ada", 2)]
    assert [change.op for change in g.commit_changes(newest).changes] == ["update"]
    page = g.changes(start)
    assert [commit.changes[0].op for commit in page.commits] == ["insert", "update"]
    assert page.commits[-1].commit.commit_id == newest
    assert g.changes(page.cursor).commits == ()
    with pytest.raises(ChangeFeedGap):
        g.changes("01ARZ3NDEKTSV4RRFFQ69G5FAV.0")


def test_a_long_diff_comes_in_pages(g: Facade) -> None:
    start = g.refresh()
    g.mutate_many(ADD, [{"n": f"p{n:04d}"} for n in range(1500)])
    assert [change.id for change in g.diff(start)] == [f"p{n:04d}" for n in range(1500)]


def test_schema(g: Facade) -> None:
    wider = PEOPLE + "node City { name: String @key }\n"
    assert g.schema.source == PEOPLE
    plan = g.schema.plan(wider)
    assert plan.supported
    plan.check()
    receipt = g.schema.apply(wider, message="cities")
    assert receipt.result["steps"] == plan.to_json()["steps"] or len(receipt.result["steps"]) == len(list(plan))
    assert g.schema.source == wider
    refused = g.schema.plan("node Person { name: String @key  age: String? }\n")
    assert not refused.supported
    with pytest.raises(InvalidInput):
        refused.check()


def test_snapshot(g: Facade) -> None:
    g.mutate(ADD, {"n": "Ada"})
    snapshot = g.snapshot()
    assert (snapshot["branch"], snapshot["graph_id"]) == ("main", g.graph_id)
    assert {table["table_key"]: table["rows"] for table in snapshot["tables"]}["node:Person"] == 1
    assert "indexes" in g.snapshot(indexes=True)["tables"][0]


def test_blobs(g: Facade) -> None:
    g.mutate('query d($b: Blob) { insert Doc { name: "x", content: $b } }', {"b": "base64:aGk="})
    g.mutate('query d() { insert Doc { name: "empty" } }')
    assert g.blob("Doc", "x", "content") == b"hi"
    assert g.blob("Doc", "empty", "content") is None
    with pytest.raises(NotFound):
        g.blob("Doc", "y", "content")


def test_load(g: Facade, tmp_path: Path) -> None:
    lines = [{"type": "Person", "data": {"name": f"p{n}"}} for n in range(3)]
    lines.append({"edge": "Knows", "from": "p0", "to": "p1", "data": {}})
    file = tmp_path / "people.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    report = g.load(file, mode="append")
    assert report.commit_id == g.refresh()
    assert report.counts["node:Person"]["inserted"] == 3
    assert g.commits(1)[0].kind == "load"
    file.write_text('{"type": "Person", "data": {"name": "x", "age": 200}}\n{"type": "Persn", "data": {}}\n')
    with pytest.raises(LoadRejected) as refused:
        g.load(file)
    assert refused.value.details["reject_count"] == 2
    assert [reject["line"] for reject in refused.value.details["rejects"]] == [1, 2]
    assert _names(g) == ["p0", "p1", "p2"]


def test_export(g: Facade, tmp_path: Path) -> None:
    g.mutate_many(ADD, [{"n": f"p{n}"} for n in range(3)])
    g.mutate('query k() { insert Knows { from: "p0", to: "p1" } }')
    report = g.export(str(tmp_path / "all.ndjson"))
    assert report.commit_id == g.refresh()
    assert {table: rows for table, rows in report.counts.items() if rows} == {"node:Person": 3, "edge:Knows": 1}
    lines = [json.loads(line) for line in (tmp_path / "all.ndjson").read_text().splitlines()]
    assert [line["data"]["name"] for line in lines[:3]] == ["p0", "p1", "p2"]
    assert (lines[3]["from"], lines[3]["to"]) == ("p0", "p1")
    assert g.export(str(tmp_path / "edges.ndjson"), types=["Knows"]).rows == 1
    stream = io.BytesIO()
    g.export(stream, at=report.commit_id)
    assert stream.getvalue() == (tmp_path / "all.ndjson").read_bytes()
    with pytest.raises(NotFound):
        g.export(str(tmp_path / "no.ndjson"), types=["City"])
    with pytest.raises(InvalidInput):
        g.export(str(tmp_path / "all.ndjson"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.ndjson", "edges.ndjson"]


# What only a server has, or cannot do


def test_every_verb_is_there_or_refused_by_name(door: Door) -> None:
    """Of a graph, a view of it, its branches and its schema: nothing is simply missing."""
    graph = door.open_embedded()
    with door.connect() as remote:
        pairs: list[tuple[Any, Any]] = [
            (graph, remote),
            (graph.view(), remote.view()),
            (graph.branch, remote.branch),
            (graph.schema, remote.schema),
        ]
        for embedded_object, remote_object in pairs:
            for name in (attribute for attribute in dir(type(embedded_object)) if not attribute.startswith("_")):
                if not hasattr(type(remote_object), name) and name not in vars(remote_object):
                    with pytest.raises(Unsupported) as refused:
                        getattr(remote_object, name)
                    assert (refused.value.code, refused.value.details["verb"]) == ("not_over_http", name)


@pytest.mark.parametrize(
    ("facade", "remote"),
    [
        pytest.param(getattr(facade, verb), getattr(remote, verb), id=f"{remote.__name__}.{verb}")
        for facade, remote in (
            (og.Graph, og.RemoteGraph),
            (og.GraphView, RemoteView),
            (Branches, RemoteBranches),
            (Schema, RemoteSchema),
        )
        for verb in sorted(set(dir(facade)) & set(dir(remote)))
        if not verb.startswith("_") and inspect.isfunction(getattr(facade, verb)) and verb != "transaction"
    ],
)
def test_every_parameter_is_taken_or_refused_by_name(facade: Callable[..., Any], remote: Callable[..., Any]) -> None:
    parameters = inspect.signature(remote).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in inspect.signature(facade).parameters.keys() - parameters.keys():
            with pytest.raises(Unsupported):
                refuse_options(facade, {name: object()})
        with pytest.raises(TypeError):
            refuse_options(facade, {"nonsense": 1})
    else:
        assert list(inspect.signature(facade).parameters.values()) == list(parameters.values())


def _takes_write(remote: Callable[..., Any]) -> bool:
    return "write" in inspect.signature(remote.__wrapped__).parameters  # type: ignore[attr-defined]


def _takes_all(remote: Callable[..., Any]) -> bool:
    sent = inspect.signature(remote.__wrapped__).parameters.values()  # type: ignore[attr-defined]
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in sent)


UNSENT = [
    pytest.param(remote, option, id=f"{kind.__name__}.{verb}.{option}")
    for kind in (og.RemoteGraph, RemoteView, RemoteBranches, RemoteSchema)
    for verb, remote in sorted(vars(kind).items())
    if hasattr(remote, "__wrapped__") and not _takes_all(remote)
    for option in sorted(
        inspect.signature(remote).parameters.keys()
        - inspect.signature(remote.__wrapped__).parameters.keys()
        - ({field.name for field in fields(RemoteWriteOptions)} if _takes_write(remote) else set())
        - {"self"}
    )
]


@pytest.mark.parametrize(("remote", "option"), UNSENT)
def test_option_that_is_not_sent_is_refused_before_any_request(remote: Callable[..., Any], option: str) -> None:
    parameters = [parameter for name, parameter in inspect.signature(remote).parameters.items() if name != "self"]
    required = {parameter.name: "x" for parameter in parameters if parameter.default is parameter.empty}
    no_connection = object()
    with pytest.raises(Unsupported) as refused:
        remote(no_connection, **required | {option: "not the default"})
    assert refused.value.code == "not_over_http"


def test_some_options_are_not_sent() -> None:
    assert len(UNSENT) >= 8


def test_options_that_only_an_opened_graph_has(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "people.jsonl"
    file.write_text("")
    with door.connect() as remote:
        calls: list[Callable[[], Any]] = [
            lambda: remote.load(file, rejects=tmp_path),
            lambda: remote.load({"Person": file}),  # type: ignore[arg-type]
            lambda: remote.export(str(tmp_path / "x"), "parquet"),
            lambda: remote.export(str(tmp_path / "x"), engine="spark"),
            lambda: remote.view().export(str(tmp_path / "x"), partitioned=True),
            lambda: remote.query(ALL, engine="spark"),
            lambda: remote.view().query(ALL, limits=object()),  # type: ignore[arg-type]
        ]
        for call in calls:
            with pytest.raises(Unsupported) as refused:
                call()
            assert refused.value.code == "not_over_http"
        with pytest.raises(TypeError):
            remote.load(file, colour="red")


def test_what_is_not_possible_over_http(door: Door) -> None:
    with door.connect() as remote:
        calls: list[Callable[[], Any]] = [
            remote.transaction,
            lambda: remote.optimize(),
            lambda: remote.table("Person"),
            lambda: remote.tags,
            lambda: remote.mutate(ADD, {"n": "x"}, actor="somebody"),
            lambda: remote.query(ALL, limits=object()),  # type: ignore[arg-type]
        ]
        for call in calls:
            with pytest.raises(Unsupported):
                call()
        with pytest.raises(AttributeError):
            remote.nonsense  # noqa: B018
        assert _names(remote) == []


def test_addresses(door: Door) -> None:
    with og.connect(door.url, graph=door.name) as by_name, door.connect() as by_url:
        assert by_name.uri == by_url.uri == f"{door.url}/graphs/{door.name}"
        assert by_name.graph_id == by_url.graph_id
    with pytest.raises(InvalidInput):
        og.connect("ftp://x")
    with pytest.raises(NotFound):
        og.connect(door.url, graph="nothing")
    with pytest.raises(NotFound):
        og.connect(f"{door.url}/graphs/{door.name}", branch="nothing")
    with pytest.raises(Unavailable):
        og.connect("http://127.0.0.1:1/graphs/x")


def test_the_only_graph_need_not_be_named(serving: Callable[..., Door]) -> None:
    door = serving()
    with og.connect(door.url) as only:
        assert only.uri.endswith("/graphs/own")


def test_a_connection_that_breaks_leaves_the_outcome_unknown(serving: Callable[..., Door]) -> None:
    """The server takes the request and dies: the client must not claim to know what became of the write."""
    door = serving()
    remote = door.connect()
    assert door.server is not None
    killer = threading.Timer(1.0, door.server.kill)
    killer.start()

    def write_on() -> None:
        for number in itertools.count():
            remote.mutate(ADD, {"n": f"q{number}"}, client_key=f"k{number}")

    with pytest.raises((Unknown, Unavailable)) as broken:
        write_on()
    killer.join()
    if isinstance(broken.value, Unknown):
        assert str(broken.value.details["client_key"]).startswith("k")
    remote.close()
