"""Walks through a plan: its nodes, and the conditions and values of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from omnigraph.query.language.checked import Expr
from omnigraph.query.plan.expressions import conjuncts
from omnigraph.query.plan.nodes import (
    Aggregation,
    AntiJoin,
    Edges,
    LeftJoin,
    Plan,
    PlanCondition,
    Project,
    Scan,
    Selection,
    Sort,
    TopK,
    children,
    with_children,
)


def all_nodes(plan: Plan) -> Iterator[Plan]:
    """Yields the node itself, then everything below it."""
    yield plan
    for child in children(plan):
        yield from all_nodes(child)


def transform_nodes(plan: Plan, transform: Callable[[Plan], Plan]) -> Plan:
    """Applies `transform` to every node, inputs first."""
    return transform(with_children(plan, tuple(transform_nodes(child, transform) for child in children(plan))))


def conditions_of(plan: Plan) -> Iterator[PlanCondition]:
    """Yields the conditions of this node."""
    if isinstance(plan, (Scan, Edges, Selection, LeftJoin, AntiJoin)):
        yield from conjuncts(plan.where)


def result_values(plan: Plan) -> Iterator[Expr]:
    """Yields the expressions of this node that produce or order the result."""
    match plan:
        case Project() | Aggregation():
            yield from (column.value for column in plan.columns)
        case Sort() | TopK():
            yield from (key.value for key in plan.keys)
            yield from plan.ties
