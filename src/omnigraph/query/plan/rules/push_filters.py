"""Moves every condition to the lowest node that has its columns."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.query.plan.expressions import variables_of
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.nodes import (
    AntiJoin,
    Degrees,
    DistinctVariables,
    Edges,
    LeftJoin,
    NaturalJoin,
    Pairs,
    Plan,
    PlanCondition,
    Reach,
    Scan,
    Selection,
    children,
    with_children,
)


def push_filters(plan: Plan, _facts: Facts) -> Plan:
    return _push(plan, ())


def _push(plan: Plan, where: tuple[PlanCondition, ...]) -> Plan:
    """Returns the rows of `plan` that satisfy `where`."""
    match plan:
        case Scan() | Edges():
            scan_conditions = tuple(condition for condition in where if variables_of(condition) == {plan.var})
            scan = replace(plan, where=(*plan.where, *scan_conditions)) if scan_conditions else plan
            return _select(scan, _without(where, scan_conditions))
        case Selection():
            return _push(plan.input, (*where, *plan.where))
        case NaturalJoin():
            return _push_into_join(plan, where)
        case LeftJoin() | AntiJoin():
            # Conditions on the right side stay above: they would otherwise decide which rows match.
            available = _variables_with_columns(plan.left)
            pushed = tuple(condition for condition in where if variables_of(condition) <= available)
            join = replace(plan, left=_push(plan.left, pushed), right=_push(plan.right, ()))
            return _select(join, _without(where, pushed))
    return _select(with_children(plan, tuple(_push(child, ()) for child in children(plan))), where)


def _push_into_join(plan: NaturalJoin, where: tuple[PlanCondition, ...]) -> Plan:
    inputs: list[Plan] = []
    remaining = where
    for child in plan.inputs:
        available = _variables_with_columns(child)
        pushed = tuple(
            condition for condition in remaining if variables_of(condition) and variables_of(condition) <= available
        )
        remaining = _without(remaining, pushed)
        inputs.append(_push(child, pushed))
    return _select(NaturalJoin(tuple(inputs)), remaining)


def _without(where: tuple[PlanCondition, ...], removed: tuple[PlanCondition, ...]) -> tuple[PlanCondition, ...]:
    return tuple(condition for condition in where if condition not in removed)


def _select(plan: Plan, where: tuple[PlanCondition, ...]) -> Plan:
    return Selection(plan, where) if where else plan


def _variables_with_columns(plan: Plan) -> frozenset[str]:
    """Returns the variables of which the plan can provide every column, not only the key."""
    match plan:
        case Scan() | Edges():
            return frozenset({plan.var})
        case Pairs() | Reach() | Degrees():
            return frozenset()
        case AntiJoin():
            return _variables_with_columns(plan.left)
        case DistinctVariables():
            return _variables_with_columns(plan.input) & frozenset(plan.variables)
    return frozenset(var for child in children(plan) for var in _variables_with_columns(child))
