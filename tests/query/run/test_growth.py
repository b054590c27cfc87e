"""Small writes leave what is kept of a version as it is: answers follow them, and nothing is made anew.

S94: what was written a moment ago is found.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.adjacency.coded_tables import CodedTables
from omnigraph.adjacency.column_cache import column_cache_of
from omnigraph.adjacency.reachability import Adjacency
from omnigraph.api import Graph
from omnigraph.config import Config
from omnigraph.embed import words
from omnigraph.query.language.bind import bind_params
from omnigraph.query.language.check import check_query
from omnigraph.query.language.parse import pick_query
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Statement, Update
from omnigraph.query.run.run_query import Coding, prepare_run
from omnigraph.query.search import text
from omnigraph.query.search.text import TextIndex, TextQuery

SCHEMA = "node N { name: String @key  kind: String?  bio: String? }\nedge E: N -> N\nedge F: N -> N"
DEGREES = "query q() { match { $a e $b } return { $b.name, count($a) as n } }"
PATHS = "query q() { match { $a e $b $b e $c } return { $a.kind, count($c) as n } }"
BOTH = "query q() { match { $a <e> $b } return { $a.name, count($b) as n } }"
SEARCH = 'query q() { match { $a: N search($a.bio, "sea") } return { $a.name } }'
NODES = 12

STEPS: dict[str, list[Statement]] = {
    "another edge": [InsertEdge("E", "n1", "n5")],
    "the same pair again, and a loop": [InsertEdge("E", "n0", "n1"), InsertEdge("E", "n3", "n3")],
    "a new node with edges": [
        InsertNode("N", {"name": "new", "kind": "c", "bio": "by the sea"}),
        InsertEdge("E", "new", "n0"),
        InsertEdge("E", "n0", "new"),
    ],
    "a node changed": [Update("N", {"kind": "z", "bio": "inland"}, Compare("name", "=", "n2"))],
    "an edge removed": [Delete("E", Compare("from", "=", "n4"))],
    "a node removed": [Delete("N", Compare("name", "=", "n6"))],
}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """All rows in table versions; later writes stay in the overlay."""
    graph = omnigraph.init(tmp_path / "g", SCHEMA, config=Config(fsync=False, fold="never"))
    nodes: list[Statement] = [
        InsertNode("N", {"name": f"n{at}", "kind": "ab"[at % 2], "bio": "the sea" if at % 3 else None})
        for at in range(NODES)
    ]
    graph.apply([*nodes, *(InsertEdge("E", f"n{at}", f"n{(at * 5 + 1) % NODES}") for at in range(NODES))])
    graph.fold()
    return graph


def _rows(graph: Graph, source: str, coding: Coding) -> Counter[tuple[Any, ...]]:
    snapshot = graph.view().state
    checked = check_query(pick_query(source, None), snapshot.catalog)
    now = snapshot.backend.clock.now()
    result = prepare_run(snapshot, checked, bind_params(checked, {}), now=now).result(coding)
    return Counter(tuple(row.values()) for row in result.rows)


def _plainly(graph: Graph) -> dict[str, Counter[tuple[Any, ...]]]:
    """The same answers from the rows, in plain Python."""
    view = graph.view()
    nodes = {row["name"]: row for row in view.table("N").to_arrow().to_pylist()}
    edges = view.table("E").to_arrow(["from", "to"]).to_pylist()
    pairs = {(row["from"], row["to"]) for row in edges}
    either = pairs | {(target, source) for source, target in pairs}
    degrees = Counter(target for _, target in pairs)
    paths = Counter(nodes[source]["kind"] for source, target in pairs for three, _ in pairs if target == three)
    around = Counter(source for source, _ in either)
    sea = [name for name, row in nodes.items() if row["bio"] and "sea" in row["bio"].split()]
    return {
        DEGREES: Counter(degrees.items()),
        PATHS: Counter(paths.items()),
        BOTH: Counter(around.items()),
        SEARCH: Counter((name,) for name in sea),
    }


@pytest.mark.parametrize("coding", ["arrays", "codes"])
def test_answers_follow_every_write(graph: Graph, coding: Coding) -> None:
    for statements in STEPS.values():
        graph.apply(statements)
        for source, expected in _plainly(graph).items():
            assert _rows(graph, source, coding) == expected, (statements, source)


@pytest.mark.parametrize("step", ["another edge", "a new node with edges", "a node changed"])
def test_small_write_reuses_cached_adjacencies_and_texts(
    graph: Graph, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in (DEGREES, PATHS, BOTH, SEARCH):
        _rows(graph, source, "arrays")
    graph.apply(STEPS[step])
    read: list[str] = []
    monkeypatch.setattr(Adjacency, "of", lambda *_: pytest.fail("an adjacency was made anew"))
    real = words.terms

    def terms(value: str) -> list[str]:
        read.append(value)
        return real(value)

    monkeypatch.setattr(text, "terms", terms)
    for source, expected in _plainly(graph).items():
        assert _rows(graph, source, "arrays") == expected
    # The query's own words, and the texts of one row before and after.
    assert len(read) <= 3


def test_edges_of_a_version_may_lead_to_nodes_of_the_overlay(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", SCHEMA, config=Config(fsync=False, fold="never"))
    graph.apply([InsertNode("N", {"name": "a"})])
    graph.fold()
    graph.apply([InsertNode("N", {"name": "b"})])
    staging = omnigraph.open(tmp_path / "g", config=Config(fsync=False, fold="never", inline_share=0))
    staging.apply([InsertEdge("E", "a", "b"), InsertEdge("E", "b", "a")])
    assert _rows(graph, DEGREES, "arrays") == Counter({("a", 1): 1, ("b", 1): 1})


def test_a_grown_adjacency_is_the_one_of_all_pairs() -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        left, right = draw.integers(0, 9, (2, 30)).astype(np.int32)
        cut = int(draw.integers(0, 30))
        base = Adjacency.of(left[:cut], right[:cut], 9)
        grown = base.with_pairs(left[cut:].astype(np.int64), right[cut:].astype(np.int64), 9)
        rebuilt = Adjacency.of(left, right, 9)
        for node in range(9):
            grown_neighbours, rebuilt_neighbours = (
                sorted(adjacency.neighbours(np.array([node]))[1].tolist()) for adjacency in (grown, rebuilt)
            )
            assert grown_neighbours == rebuilt_neighbours
            assert all(rebuilt.has(node, far) == (far in grown_neighbours) for far in range(9))


def test_a_changed_text_index_is_the_one_of_the_new_texts() -> None:
    old = pa.chunked_array([["a b", None, "b c", "c"]])
    new = pa.chunked_array([["a b", "d a", None, "c", "e e", "b"]])
    changed = TextIndex.of(old, lambda: None).with_changes(new, np.array([1, 2, 4, 5]), lambda: None)
    fresh = TextIndex.of(new, lambda: None)
    assert (changed.documents, changed.mean_length) == (fresh.documents, fresh.mean_length)
    for word in "abcde":
        query = TextQuery.of("search", word)
        assert changed.match_rows(query, lambda: None).tolist() == fresh.match_rows(query, lambda: None).tolist()
        assert changed.scores(word).to_pylist() == fresh.scores(word).to_pylist()
    assert changed.weights("a b c d e") == fresh.weights("a b c d e")


def test_overlay_column_shares_the_memory_of_the_version(graph: Graph) -> None:
    _rows(graph, DEGREES, "arrays")
    snapshot = graph.view().state
    images = column_cache_of(snapshot.backend.tables)
    graph.apply(STEPS["another edge"])
    codes = CodedTables(graph.view().state, images)
    _, view, key = codes.table(snapshot.catalog.edge("E").id)  # type: ignore[union-attr]
    column = images.columns(key, view, ["src"])["src"]
    base = images.columns(key.base, view.__class__(view.schema, view.pinned), ["src"])["src"]
    assert column.chunk(0).buffers()[2].address == base.chunk(0).buffers()[2].address
    assert images.byte_cache.peek((key, "column", "src")) is None
