"""Queries: one look for newer commits and the data asked for, at any depth and with any number of tables. S142.

Warm: the process has run the query before. What it then still reads is what a lookup reads of its table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cost.budget import Budget, Cost
from tests.cost.ground import CostGround, MeteredActor, Shape
from tests.cost.operations import warm

Act = Callable[..., MeteredActor]
GroundOf = Callable[[Shape], CostGround]


@dataclass(frozen=True)
class Query:
    """A query, its rows, and the most that Lance may read for it."""

    name: str
    text: str
    rows: list[dict[str, Any]]
    table_reads: int

    def __str__(self) -> str:
        return self.name


POINT = Query(
    "a row by its key",
    'query q() { match { $p: Person { name: "ada" } } return { $p.name, $p.age } }',
    [{"p.name": "ada", "p.age": None}],
    table_reads=2,
)
HOP = Query(
    "one hop from a key",
    'query q() { match { $p: Person { name: "ada" } $p knows $q } return { $q.name } }',
    [{"q.name": "bob"}],
    table_reads=2,
)
COUNT = Query("the number of nodes", "query q() { match { $n: Note } return { count($n) as n } }", [{"n": 2}], 0)
EDGES = Query("the number of edges", "query q() { match { $p $e: knows $q } return { count($e) as n } }", [{"n": 2}], 0)
JOIN = Query("a hop counted", "query q() { match { $p knows $q } return { count($p) as n } }", [{"n": 1}], 0)
QUERIES = (POINT, HOP, COUNT, EDGES, JOIN)
SHAPES = (Shape(), Shape(depth=100), Shape(tables=200))


def _cost(ground: CostGround, act_on: Act, query: Query) -> Cost:
    actor = act_on(ground)
    warm(actor)
    actor.graph.query(query.text)
    with actor.measure() as gauge:
        result = actor.graph.query(query.text)
    assert result.rows == query.rows
    Budget(gets=1, table_reads=query.table_reads, hops=1).hold(gauge.cost, query.name)
    assert gauge.cost.own("GET", "record") == 1
    assert gauge.cost.lists == 0
    return gauge.cost


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_the_cost_is_the_same_at_every_shape(query: Query, ground_of: GroundOf, act_on: Act) -> None:
    costs = {shape: _cost(ground_of(shape), act_on, query) for shape in SHAPES}
    assert len({cost.counts for cost in costs.values()}) == 1, costs


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_deep_and_wide(query: Query, ground_of: GroundOf, act_on: Act) -> None:
    small, large = (_cost(ground_of(shape), act_on, query) for shape in (Shape(), Shape(depth=1000, tables=200)))
    assert small.counts == large.counts


def test_a_count_in_a_transaction_sees_what_is_pending(ground: CostGround, act_on: Act) -> None:
    """The record knows nothing of pending rows, so that its number will not do."""
    actor = act_on(ground)
    with actor.graph.transaction() as txn:
        before = txn.query(COUNT.text).rows
        txn.mutate('query m() { insert Note { text: "pending" } }')
        assert txn.query(COUNT.text).rows == [{"n": before[0]["n"] + 1}]
