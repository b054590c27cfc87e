"""What expressions and predicates refer to, and the same under other names of variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from omnigraph.query.language import checked as c
from omnigraph.query.plan.nodes import Computed, Condition

Names = Mapping[str, str]


def parts(condition: Condition) -> Iterator[c.Expr]:
    """The expressions that a condition compares."""
    match condition:
        case c.TextFilter():
            yield condition.prop
        case c.Compare():
            yield condition.left
            yield condition.right
        case c.NullTest():
            yield condition.operand
        case c.AllOf() | c.AnyOf():
            for one in condition.parts:
                yield from parts(one)


def references(value: c.Expr) -> Iterator[c.Prop | c.Entity]:
    """The columns and entities that an expression reads."""
    match value:
        case c.Prop() | c.Entity():
            yield value
        case c.Aggregate():
            yield value.argument
        case c.Bm25() | c.Nearest():
            yield value.prop
        case c.Rrf():
            yield value.first.prop
            yield value.second.prop


def variables(condition: Condition) -> frozenset[str]:
    return frozenset(ref.var for value in parts(condition) for ref in references(value))


def computed(value: c.Expr) -> Iterator[Computed]:
    """The searches behind an expression."""
    match value:
        case c.Bm25() | c.Nearest():
            yield value
        case c.Rrf():
            yield value.first
            yield value.second


def conjuncts(conditions: tuple[Condition, ...]) -> Iterator[Condition]:
    for one in conditions:
        if isinstance(one, c.AllOf):
            yield from conjuncts(one.parts)
        else:
            yield one


# ---- other names -----------------------------------------------------------------------------------------------------


def rename(value: c.Expr, names: Names) -> c.Expr:
    match value:
        case c.Prop() | c.Entity():
            return replace(value, var=names.get(value.var, value.var))
        case c.Aggregate():
            argument = rename(value.argument, names)
            assert isinstance(argument, (c.Prop, c.Entity))
            return replace(value, argument=argument)
        case c.Bm25() | c.Nearest():
            return replace(value, prop=_prop(value.prop, names))
        case c.Rrf():
            first, second = rename(value.first, names), rename(value.second, names)
            assert isinstance(first, (c.Bm25, c.Nearest))
            assert isinstance(second, (c.Bm25, c.Nearest))
            return replace(value, first=first, second=second)
    return value


def _prop(prop: c.Prop, names: Names) -> c.Prop:
    return replace(prop, var=names.get(prop.var, prop.var))


def rename_condition(condition: Condition, names: Names) -> Condition:
    if isinstance(condition, c.TextFilter):
        return replace(condition, prop=_prop(condition.prop, names))
    return rename_predicate(condition, names)


def rename_predicate(predicate: c.Predicate, names: Names) -> c.Predicate:
    match predicate:
        case c.Compare(left, op, right):
            return c.Compare(rename(left, names), op, rename(right, names))
        case c.NullTest(operand, negated):
            return c.NullTest(rename(operand, names), negated)
        case c.AllOf(parts_):
            return c.AllOf(tuple(rename_predicate(one, names) for one in parts_))
        case c.AnyOf(parts_):
            return c.AnyOf(tuple(rename_predicate(one, names) for one in parts_))
