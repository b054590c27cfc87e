"""Aggregates before the join: if one end of a hop is only counted, the number of its pairs replaces the pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from omnigraph.query.language.checked import AggregateCall, Entity, Expr, ReturnColumn
from omnigraph.query.plan.expressions import references, variables_of
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import (
    Aggregation,
    AntiJoin,
    Degrees,
    DistinctVariables,
    LeftJoin,
    Limit,
    NaturalJoin,
    Pairs,
    Plan,
    RankFusion,
    Selection,
    Sort,
    TopK,
    provides,
)
from omnigraph.query.plan.walk import all_nodes, conditions_of, result_values


def count_degrees(plan: Plan, _facts: Facts) -> Plan:
    """Replaces pairs below an aggregation by degrees, where the plan uses nothing but the number of one end.

    Every remaining row then counts as often as the product of its degrees. Plans with `DistinctVariables` or
    `RankFusion` depend on single rows and stay unchanged.
    """
    nodes = list(all_nodes(plan))
    aggregation = next((node for node in nodes if isinstance(node, Aggregation)), None)
    if aggregation is None or any(isinstance(node, (DistinctVariables, RankFusion)) for node in nodes):
        return plan
    if not any(isinstance(value, AggregateCall) for node in nodes for value in result_values(node)):
        return plan
    replacement = _PairsReplacement(_variables_in_use(plan))
    body = replacement.replace_below(aggregation.input)
    return _rebuild_end(plan, body, replacement) if replacement.weights else plan


@dataclass
class _PairsReplacement:
    """The weights that replace pairs, and for every removed end the end that remains of its hop."""

    used_variables: set[str]
    weights: list[str] = field(default_factory=list)
    remaining_end: dict[str, str] = field(default_factory=dict)

    def replace_below(self, plan: Plan) -> Plan:
        """Replaces pairs on the side of every join whose rows form the groups."""
        match plan:
            case Pairs():
                return self._to_degrees(plan, set())
            case NaturalJoin():
                inputs = list(plan.inputs)
                for position, child in enumerate(inputs):
                    if isinstance(child, Pairs):
                        siblings = [*inputs[:position], *inputs[position + 1 :]]
                        joined_variables = {var for sibling in siblings for var in provides(sibling)}
                        inputs[position] = self._to_degrees(child, joined_variables)
                return NaturalJoin(tuple(inputs))
            case LeftJoin() | AntiJoin():
                return replace(plan, left=self.replace_below(plan.left))
            case Selection():
                return replace(plan, input=self.replace_below(plan.input))
        return plan

    def _to_degrees(self, pairs: Pairs, joined_variables: set[str]) -> Plan:
        needed = self.used_variables | joined_variables
        for counted, node in ((pairs.right, pairs.left), (pairs.left, pairs.right)):
            if not pairs.distinct or counted == node or counted in needed or counted in pairs.ids:
                continue
            weight = f"n{len(self.weights)}"
            self.weights.append(weight)
            self.remaining_end[counted] = node
            end: Literal["left", "right"] = "left" if node == pairs.left else "right"
            return Degrees(node, pairs.edge, pairs.direction, end, weight, pairs.ids)
        return pairs


def _variables_in_use(plan: Plan) -> set[str]:
    """Returns the variables of which conditions, joins of blocks or results use more than the number of rows."""
    used: set[str] = set()
    for node in all_nodes(plan):
        if isinstance(node, (LeftJoin, AntiJoin)):
            used |= set(provides(node.right))
        for condition in conditions_of(node):
            used |= variables_of(condition)
        for value in result_values(node):
            if not _only_counts(value):
                used |= {ref.var for ref in references(value)}
    return used


def _only_counts(value: Expr) -> bool:
    return isinstance(value, AggregateCall) and isinstance(value.argument, Entity) and not value.distinct


def _rebuild_end(plan: Plan, body: Plan, replacement: _PairsReplacement) -> Plan:
    """Returns the aggregation and what is above it, over the new body."""
    match plan:
        case Aggregation():
            columns = tuple(
                ReturnColumn(column.name, _count_remaining_end(column.value, replacement.remaining_end))
                for column in plan.columns
            )
            return Aggregation(body, columns, plan.keys, tuple(replacement.weights))
        case Sort() | TopK():
            keys = tuple(
                replace(key, value=_count_remaining_end(key.value, replacement.remaining_end)) for key in plan.keys
            )
            return replace(plan, input=_rebuild_end(plan.input, body, replacement), keys=keys)
        case Limit():
            return replace(plan, input=_rebuild_end(plan.input, body, replacement))
    raise AssertionError(f"{type(plan).__name__} above an aggregation")


def _count_remaining_end(value: Expr, remaining_end: Mapping[str, str]) -> Expr:
    """Counts the remaining end instead of the removed one: both are present in the same rows."""
    if not isinstance(value, AggregateCall) or not isinstance(value.argument, Entity):
        return value
    var = value.argument.var
    while var in remaining_end:
        var = remaining_end[var]
    return replace(value, argument=replace(value.argument, var=var))
