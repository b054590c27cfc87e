"""Aggregation before the join: where one end of a hop is only counted, its number per node stands for its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from omnigraph.query.language import checked as c
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.expressions import references, variables
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.walk import all_nodes, conditions_of, values_of


def count_degrees(plan: n.Plan, _facts: Facts) -> n.Plan:
    """Sets of pairs below an aggregate become degrees, where nothing but their number is asked of one end.

    Every remaining row then stands for as many as the product of its degrees. Plans that narrow or rank their rows
    look at rows as such and stay as they are.
    """
    found = next((one for one in all_nodes(plan) if isinstance(one, n.Aggregate)), None)
    if found is None or any(isinstance(one, (n.Narrow, n.Fuse)) for one in all_nodes(plan)):
        return plan
    if not any(isinstance(value, c.Aggregate) for one in all_nodes(plan) for value in values_of(one)):
        return plan
    swaps = _Swaps(_looked_at(plan))
    body = swaps.along(found.input)
    return _finished(plan, body, swaps) if swaps.weights else plan


@dataclass
class _Swaps:
    """What was replaced: the weights, and for every end that is gone the one that stands for it."""

    looked_at: set[str]
    weights: list[str] = field(default_factory=list)
    stands_for: dict[str, str] = field(default_factory=dict)

    def along(self, plan: n.Plan) -> n.Plan:
        """Down the side whose rows the groups are made of."""
        match plan:
            case n.Pairs():
                return self._swapped(plan, set())
            case n.Join():
                inputs = list(plan.inputs)
                for at, part in enumerate(inputs):
                    if isinstance(part, n.Pairs):
                        rest = {var for place, one in enumerate(inputs) if place != at for var in n.provides(one)}
                        inputs[at] = self._swapped(part, rest)
                return n.Join(tuple(inputs))
            case n.LeftJoin() | n.AntiJoin():
                return replace(plan, left=self.along(plan.left))
            case n.Filter():
                return replace(plan, input=self.along(plan.input))
        return plan

    def _swapped(self, pairs: n.Pairs, others: set[str]) -> n.Plan:
        for end, kept in ((pairs.right, pairs.left), (pairs.left, pairs.right)):
            if not pairs.distinct or end == kept or end in self.looked_at | others or end in pairs.ids:
                continue
            name = f"n{len(self.weights)}"
            self.weights.append(name)
            self.stands_for[end] = kept
            side: Literal["left", "right"] = "left" if kept == pairs.left else "right"
            return n.Degrees(kept, pairs.edge, pairs.direction, side, name, pairs.ids)
        return pairs


def _looked_at(plan: n.Plan) -> set[str]:
    """The variables of which anything but the number of rows is asked: in conditions, joins of blocks, results."""
    found: set[str] = set()
    for one in all_nodes(plan):
        if isinstance(one, (n.LeftJoin, n.AntiJoin)):
            found |= set(n.provides(one.right))
        for condition in conditions_of(one):
            found |= variables(condition)
        for value in values_of(one):
            if not _only_counts(value):
                found |= {ref.var for ref in references(value)}
    return found


def _only_counts(value: c.Expr) -> bool:
    return isinstance(value, c.Aggregate) and isinstance(value.argument, c.Entity) and not value.distinct


def _finished(plan: n.Plan, body: n.Plan, swaps: _Swaps) -> n.Plan:
    """The end of the plan over the new body."""
    match plan:
        case n.Aggregate():
            columns = tuple(c.Column(one.name, _counted(one.value, swaps.stands_for)) for one in plan.columns)
            return n.Aggregate(body, columns, plan.keys, tuple(swaps.weights))
        case n.Sort() | n.TopK():
            keys = tuple(replace(key, value=_counted(key.value, swaps.stands_for)) for key in plan.keys)
            return replace(plan, input=_finished(plan.input, body, swaps), keys=keys)
        case n.Limit():
            return replace(plan, input=_finished(plan.input, body, swaps))
    raise AssertionError(f"{type(plan).__name__} above an aggregate")


def _counted(value: c.Expr, stands_for: Mapping[str, str]) -> c.Expr:
    """Rows that have one end of a hop are the rows that have the other."""
    if not isinstance(value, c.Aggregate) or not isinstance(value.argument, c.Entity):
        return value
    var = value.argument.var
    while var in stands_for:
        var = stands_for[var]
    return replace(value, argument=replace(value.argument, var=var))
