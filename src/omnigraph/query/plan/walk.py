"""Looking through a plan: its nodes, and the conditions and values that each holds."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.query.language import checked as c
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.expressions import conjuncts


def all_nodes(plan: n.Plan) -> Iterator[n.Plan]:
    """The node itself first, then everything below it."""
    yield plan
    for one in n.children(plan):
        yield from all_nodes(one)


def conditions_of(plan: n.Plan) -> Iterator[n.Condition]:
    if isinstance(plan, (n.Scan, n.Edges, n.Filter, n.LeftJoin, n.AntiJoin)):
        yield from conjuncts(plan.where)


def values_of(plan: n.Plan) -> Iterator[c.Expr]:
    """The expressions that the result and its order are made of."""
    match plan:
        case n.Project() | n.Aggregate():
            yield from (one.value for one in plan.columns)
        case n.Sort() | n.TopK():
            yield from (one.value for one in plan.keys)
            yield from plan.ties
