"""Limits, cancellation, results, and reading old commits."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.config import Config
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode
from omnigraph.query.limits import QueryLimits
from omnigraph.query.run.run_query import Coding
from tests.query.run.bed import QueryBed, make_bed
from tests.query.run.graphs import GOLDEN, GRAPHS


@pytest.fixture
def loops(tmp_path: Path) -> QueryBed:
    schema, content = GRAPHS["loops"]
    return make_bed(tmp_path, (GOLDEN / schema).read_text(encoding="utf-8"), content)


def _refusal(bed: QueryBed, source: str, limits: QueryLimits) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        bed.run(source, limits=limits)
    assert caught.value.code == "limit_exceeded"
    return caught.value


def test_a_hop_beyond_the_ceiling_is_refused(loops: QueryBed) -> None:
    refused = _refusal(loops, "query q() { match { $a link{1,17} $b } return { $a.id } }", QueryLimits())
    assert (refused.details["limit"], refused.details["bound"], refused.details["value"]) == ("hop_ceiling", 16, 17)


def test_no_time_is_refused_and_the_next_query_runs(loops: QueryBed) -> None:
    source = "query q() { match { $a link $b } return { count($a) as n } }"
    refused = _refusal(loops, source, QueryLimits(timeout_s=0.0))
    assert refused.details["limit"] == "query_timeout_s"
    assert loops.rows(source) == [{"n": 24}]


def test_no_memory_is_refused(loops: QueryBed) -> None:
    refused = _refusal(loops, "query q() { match { $a: Node } return { $a } }", QueryLimits(memory_bytes=64))
    assert refused.details["limit"] == "query_memory_bytes"
    assert refused.details["bound"] == 64


def test_a_long_statement_is_interrupted(loops: QueryBed) -> None:
    hops = " ".join(f"$a{at}: Node" for at in range(9))
    source = f"query q() {{ match {{ {hops} $a0.weight != $a8.weight }} return {{ sum($a1.weight) as n }} }}"
    refused = _refusal(loops, source, QueryLimits(timeout_s=0.5))
    assert refused.details["limit"] == "query_timeout_s"


def test_ties_go_by_the_line_then_the_edge_then_its_ends(tmp_path: Path) -> None:
    """The line comes after the hop in the text and yet first; `e1` leads to the greater of the two ends."""
    schema = "node A { name: String @key }\nedge To: A -> A"
    edges = [{"id": "e1", "from": "a", "to": "b"}, {"id": "e2", "from": "a", "to": "a"}]
    bed = make_bed(tmp_path, schema, {"A": [{"name": "a"}, {"name": "b"}], "To": edges})
    source = "query q() { match { $x $e: to $y  $z: A } return { $z.name as z, $e.id as e } order { $x.name } }"
    codings: tuple[Coding, ...] = ("ids", "codes", "arrays")
    for bed.coding in codings:
        rows = bed.agree(source)
        assert [(row["z"], row["e"]) for row in rows] == [("a", "e1"), ("a", "e2"), ("b", "e1"), ("b", "e2")]


def test_a_sum_beyond_its_type_is_refused(tmp_path: Path) -> None:
    bed = make_bed(tmp_path, "node A { n: I64 }", {"A": [{"n": 2**63 - 1}, {"n": 1}]})
    with pytest.raises(InvalidInput) as caught:
        bed.run("query q() { match { $a: A } return { sum($a.n) as s } }")
    assert caught.value.code == "number_overflow"


def test_arrow_is_not_copied(loops: QueryBed) -> None:
    result = loops.run("query q() { match { $t: Tag } return { $t.name } order { $t.name } }")
    assert result.to_arrow() is result.table
    assert result.to_pandas()["t.name"].tolist() == ["blue", "red", "unused"]
    assert len(result) == 3


def test_nearest_without_provider_or_with_another_model_is_refused(tmp_path: Path) -> None:
    schema = 'node A { text: String  v: Vector(2)? @embed("text", model="m1") }'
    bed = make_bed(tmp_path, schema, {"A": [{"text": "x", "v": [1, 0]}]})
    source = 'query q() { match { $a: A } return { $a.id } order { nearest($a.v, "x") } limit 1 }'
    with pytest.raises(InvalidInput) as none:
        bed.run(source)
    assert none.value.code == "no_embedding_provider"
    from omnigraph.embed.providers import get_embedder

    with pytest.raises(InvalidInput) as raised:
        bed.run(source, embedder=get_embedder("hash"))
    assert raised.value.code == "embedding_model_mismatch"


@pytest.mark.parametrize("fold", ["never", "always"])
def test_old_commits_answer_with_their_own_edges(tmp_path: Path, fold: str) -> None:
    """S114, S115: rows, hops and anti-joins of every version; a branch apart from main."""
    graph = omnigraph.init(tmp_path / "g", "node N { name: String @key }\nedge E: N -> N", config=_config(fold))
    commits = [
        graph.apply([InsertNode("N", {"name": "a"})]).commit_id,
        graph.apply([InsertNode("N", {"name": "b"})]).commit_id,
        graph.apply([InsertEdge("E", "a", "b", {})]).commit_id,
        graph.apply([Delete("E", Compare("from", "=", "a"))]).commit_id,
    ]
    graph.branch.create("side")
    side = graph.on_branch("side")
    side.apply([InsertEdge("E", "b", "a", {})])
    hops = "query q() { match { $x e $y } return { $x.name, $y.name } }"
    lonely = "query q() { match { $x: N not { $x e $y } } return { $x.name } order { $x.name } }"
    views = [graph.at(commit) for commit in commits if commit is not None]
    assert [[list(row.values()) for row in view.query(hops).rows] for view in views] == [[], [], [["a", "b"]], []]
    assert [[row["x.name"] for row in view.query(lonely).rows] for view in views] == [
        ["a"],
        ["a", "b"],
        ["b"],
        ["a", "b"],
    ]
    assert graph.query(hops).rows == []
    assert side.query(hops).rows == [{"x.name": "b", "y.name": "a"}]
    assert [view.query(hops).commit_id for view in views] == commits


def test_at_unknown_commit_raises_not_found(tmp_path: Path) -> None:
    """S116."""
    graph = omnigraph.init(tmp_path / "g", "node N { name: String @key }", config=_config("never"))
    stream = graph.view().commit_id.partition(".")[0]
    with pytest.raises(NotFound):
        graph.at(f"{stream}.99")


def _config(fold: str) -> Config:
    return Config(fsync=False, fold=fold)  # type: ignore[arg-type]
