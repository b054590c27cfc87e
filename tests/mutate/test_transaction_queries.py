"""Queries inside a transaction: they see what it did, and the commit depends on what they found."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import ReadSetChanged

COUNT = "query n() { match { $p: Person } return { count($p) as n } }"
ADD = "query a($n: String) { insert Person { name: $n } }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    g = og.init(
        tmp_path / "g", "node Person { name: String @key }\nnode Note { text: String }", config=og.Config(fsync=False)
    )
    g.mutate(ADD, {"n": "Ada"})
    return g


def test_a_query_sees_pending_rows_and_others_do_not(graph: og.Graph) -> None:
    with graph.transaction() as t:
        assert t.query(COUNT).rows == [{"n": 1}]
        t.mutate(ADD, {"n": "Bob"})
        t.mutate('query d() { delete Person where name = "Ada" }')
        assert [row["p.name"] for row in t.query("query q() { match { $p: Person } return { $p.name } }")] == ["Bob"]
        assert graph.query(COUNT).rows == [{"n": 1}]
    assert graph.query(COUNT).rows == [{"n": 1}]


def test_a_commit_that_changes_the_answer_is_a_conflict(graph: og.Graph) -> None:
    def count_and_write() -> None:
        with graph.transaction() as t:
            row_count = t.query(COUNT).rows[0]["n"]
            graph.mutate(ADD, {"n": "Eve"})
            t.mutate("query w($x: String) { insert Note { text: $x } }", {"x": f"{row_count} persons"})

    with pytest.raises(ReadSetChanged):
        count_and_write()
    assert graph.table("Note").count() == 0


def test_what_was_not_asked_does_not_matter(graph: og.Graph) -> None:
    with graph.transaction() as t:
        t.query(COUNT)
        graph.mutate('query w() { insert Note { text: "x" } }')
        t.mutate(ADD, {"n": "Bob"})
    assert graph.query(COUNT).rows == [{"n": 2}]


def test_a13_a_text_query_inside_a_transaction_uses_the_embedding_provider(tmp_path: Path) -> None:
    schema = 'node Doc { text: String @key  v: Vector(4)? @embed("text", model="hash") }'
    graph = og.init(tmp_path / "docs", schema, config=og.Config(fsync=False, embedding="hash"))
    nearest = 'query q() { match { $d: Doc } return { $d.text } order { nearest($d.v, "sea") } limit 1 }'
    with graph.transaction() as t:
        t.mutate('query a() { insert Doc { text: "sea", v: [1.0, 0.0, 0.0, 0.0] } }')
        pending = t.query(nearest).rows
    assert pending == graph.query(nearest).rows == [{"d.text": "sea"}]
