"""What expressions and conditions refer to, and how to rename the variables in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from omnigraph.query.language.checked import (
    AggregateCall,
    AllOf,
    AnyOf,
    Bm25,
    CheckedCompare,
    CheckedNullTest,
    Entity,
    Expr,
    Nearest,
    Predicate,
    Prop,
    Rrf,
    TextFilter,
)
from omnigraph.query.plan.nodes import PlanCondition, Search

Names = Mapping[str, str]
"""Old name of a variable → new name; a variable that is missing keeps its name."""


def operands(condition: PlanCondition) -> Iterator[Expr]:
    """Yields the expressions that a condition tests."""
    match condition:
        case TextFilter():
            yield condition.prop
        case CheckedCompare():
            yield condition.left
            yield condition.right
        case CheckedNullTest():
            yield condition.operand
        case AllOf() | AnyOf():
            for part in condition.parts:
                yield from operands(part)


def references(value: Expr) -> Iterator[Prop | Entity]:
    """Yields the columns and entities that an expression reads."""
    match value:
        case Prop() | Entity():
            yield value
        case AggregateCall():
            yield value.argument
        case Bm25() | Nearest():
            yield value.prop
        case Rrf():
            yield value.first.prop
            yield value.second.prop


def variables_of(condition: PlanCondition) -> frozenset[str]:
    return frozenset(ref.var for value in operands(condition) for ref in references(value))


def searches_in(value: Expr) -> Iterator[Search]:
    """Yields the searches that an expression ranks by."""
    match value:
        case Bm25() | Nearest():
            yield value
        case Rrf():
            yield value.first
            yield value.second


def conjuncts(conditions: tuple[PlanCondition, ...]) -> Iterator[PlanCondition]:
    """Yields the conditions with every `AllOf` replaced by its parts."""
    for condition in conditions:
        if isinstance(condition, AllOf):
            yield from conjuncts(condition.parts)
        else:
            yield condition


# ---- renaming --------------------------------------------------------------------------------------------------------


def rename_variables(value: Expr, names: Names) -> Expr:
    match value:
        case Prop() | Entity():
            return replace(value, var=names.get(value.var, value.var))
        case AggregateCall():
            argument = rename_variables(value.argument, names)
            assert isinstance(argument, (Prop, Entity))
            return replace(value, argument=argument)
        case Bm25() | Nearest():
            return replace(value, prop=_rename_prop(value.prop, names))
        case Rrf():
            first, second = rename_variables(value.first, names), rename_variables(value.second, names)
            assert isinstance(first, (Bm25, Nearest))
            assert isinstance(second, (Bm25, Nearest))
            return replace(value, first=first, second=second)
    return value


def _rename_prop(prop: Prop, names: Names) -> Prop:
    return replace(prop, var=names.get(prop.var, prop.var))


def rename_condition(condition: PlanCondition, names: Names) -> PlanCondition:
    if isinstance(condition, TextFilter):
        return replace(condition, prop=_rename_prop(condition.prop, names))
    return _rename_predicate(condition, names)


def _rename_predicate(predicate: Predicate, names: Names) -> Predicate:
    match predicate:
        case CheckedCompare(left, op, right):
            return CheckedCompare(rename_variables(left, names), op, rename_variables(right, names))
        case CheckedNullTest(operand, negated):
            return CheckedNullTest(rename_variables(operand, names), negated)
        case AllOf(parts):
            return AllOf(tuple(_rename_predicate(part, names) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_rename_predicate(part, names) for part in parts))
