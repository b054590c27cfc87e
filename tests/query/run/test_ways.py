"""Which way a query takes, that it can be told, and that every way gives the same answer where numbers grow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import omnigraph
from omnigraph.config import Config
from omnigraph.query.language.bind import bind_params
from omnigraph.query.run import aggregate as grouping
from omnigraph.query.run import count_trees as counting
from omnigraph.query.run.count_trees import Factor, sum_by_position
from omnigraph.query.run.explain import Explanation
from omnigraph.query.run.ranked_columns import NeedsSqlFallback
from omnigraph.query.run.run_query import Coding, prepare_run
from tests.query.run.bed import NOW, QueryBed, make_bed, spread
from tests.query.run.graphs import GOLDEN, GRAPHS

GROUPED = "query q() { match { $a link $b } return { $b.name, count($a) as n } order { n desc, $b.name } limit 2 }"


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[QueryBed]:
    schema, content = GRAPHS["loops"]
    bed = make_bed(tmp_path, (GOLDEN / schema).read_text(encoding="utf-8"), spread(content))
    yield bed
    bed.backend.close()


def _explain(bed: QueryBed, source: str, coding: Coding = "auto") -> Explanation:
    checked = bed.check(source)
    run = prepare_run(bed.snapshot, checked, bind_params(checked, {}), now=NOW, backend=bed.backend)
    return run.explain(coding)


def _accesses(explanation: Explanation) -> list[str]:
    return [step.access for step in explanation.steps]


def test_explain_lookup_reports_its_steps(loops: QueryBed) -> None:
    name = loops.rows("query q() { match { $a: Node } return { $a.id } limit 1 }")[0]["a.id"]
    point = _explain(loops, f'query q() {{ match {{ $a: Node $a.id = "{name}" }} return {{ $a.id }} }}')
    assert (point.keys, _accesses(point), point.rows) == ("lookup", ["lookup by id"], 1)
    assert "lookup by id, 1 rows" in point.plan
    hop = _explain(loops, f'query q() {{ match {{ $a: Node $a.id = "{name}" $a link $b }} return {{ $b.name }} }}')
    assert hop.keys == "lookup"
    assert _accesses(hop) == ["lookup by src", f"lookup of {hop.rows} known ids"]


def test_a_limit_without_order_ends_the_scan(loops: QueryBed) -> None:
    explain = _explain(loops, "query q() { match { $a: Node } return { $a.id } limit 2 offset 1 }")
    assert (_accesses(explain), explain.steps[0].rows, explain.rows) == (["scan up to 3 rows"], 3, 2)
    ordered = _explain(loops, "query q() { match { $a: Node } return { $a.id } order { $a.id } limit 2 }")
    assert ordered.keys == "ids"
    # Storage must not decide what it might decide differently.
    vague = _explain(loops, 'query q() { match { $a: Node $a.name contains "o" } return { $a.id } limit 2 }')
    assert vague.keys == "ids"


def test_a_number_of_rows_comes_from_the_commit(loops: QueryBed) -> None:
    explain = _explain(loops, "query q() { match { $a: Node } return { count($a) as n } }")
    assert (_accesses(explain), explain.requests) == (["number of rows in the commit"], 0)
    stored = loops.agree("query q() { match { $a $e: link $b } return { count($e) as n } }")
    assert stored[0]["n"] == len(loops.graph[loops.catalog.edge("Link").id])  # type: ignore[union-attr]
    both = _explain(loops, "query q() { match { $a $e: <link> $b } return { count($e) as n } }")
    assert both.keys == "ids"


def test_explain_join_tree_reports_arrays(loops: QueryBed) -> None:
    explain = _explain(loops, GROUPED, "arrays")
    assert explain.keys == "arrays"
    assert any(access.startswith("degrees") for access in _accesses(explain))
    assert _explain(loops, GROUPED, "codes").keys == "codes"


def test_cycle_of_hops_runs_as_sql(loops: QueryBed) -> None:
    source = "query q() { match { $a link $b $b link $c $c link $a } return { count($a) as n } }"
    assert _explain(loops, source, "arrays").keys == "codes"


def test_numbers_too_large_for_arrays_run_as_sql(loops: QueryBed, monkeypatch: pytest.MonkeyPatch) -> None:
    loops.coding = "arrays"
    for module in (counting, grouping):
        monkeypatch.setattr(module, "EXACT_FLOAT_BOUND", 2.0)
    assert _explain(loops, GROUPED, "arrays").keys == "codes"
    loops.agree(GROUPED)


def test_sum_beyond_exact_floats_raises_needs_sql_fallback() -> None:
    places, weights = np.zeros(2, np.int64), np.array([2**52, 2**52])
    with pytest.raises(NeedsSqlFallback):
        sum_by_position(places, weights, 1)
    assert sum_by_position(places, weights - 1, 1).tolist() == [2**53 - 2]
    large = Factor(np.array([0]), np.array([2**30]))
    with pytest.raises(NeedsSqlFallback):
        large.times(large)


@pytest.mark.parametrize(
    ("factor", "two", "both"),
    [
        (Factor(), Factor(), {0: 1, 1: 1, 2: 1, 3: 1}),
        (Factor(np.array([1, 3])), Factor(), {1: 1, 3: 1}),
        (Factor(np.array([1, 3]), np.array([2, 5])), Factor(None, np.array([0, 3, 1, 0])), {1: 6}),
        (Factor(np.array([0, 1, 2])), Factor(np.array([2]), np.array([7])), {2: 7}),
        (Factor(np.array([0])), Factor(np.array([], np.int64)), {}),
    ],
)
def test_factors_multiply(factor: Factor, two: Factor, both: dict[int, int]) -> None:
    for first, second in ((factor, two), (two, factor)):
        weights = first.times(second).spread(4)
        assert {at: int(weight) for at, weight in enumerate(weights) if weight} == both


def test_explain_embeds_a_text(tmp_path: Path) -> None:
    schema = 'node A { text: String  v: Vector(4)? @embed("text", model="hash") }'
    graph = omnigraph.init(tmp_path / "g", schema, config=Config(fsync=False, embedding="hash"))
    source = 'query q() { match { $a: A } return { $a.id } order { nearest($a.v, "x") } limit 1 }'
    assert graph.query(source).rows == []
    assert graph.view().explain(source, profile=True).rows == 0


def test_no_time_and_no_memory_are_refused_when_counting(loops: QueryBed) -> None:
    from omnigraph.errors import InvalidInput
    from omnigraph.query.limits import QueryLimits

    loops.coding = "arrays"
    source = "query q() { match { $a link $b $b link $c } return { $a.name, $c.name, count($b) as n } }"
    for limits in (QueryLimits(timeout_s=0.0), replace(QueryLimits(), memory_bytes=64)):
        with pytest.raises(InvalidInput) as caught:
            loops.run(source, limits=limits)
        assert caught.value.code == "limit_exceeded"
