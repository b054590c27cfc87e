"""`where="age > 30"`: a condition as text, in the SQL that Spark users write, and the way back.

Only what the scan of one table can decide is understood; everything else is refused with the advice to use
`.filter(…)` of the frame, where Spark decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from omnigraph.errors import InvalidInput
from omnigraph.query.language.statements import And, Compare, CompareOp, Condition, NullTest, Or

_DIALECT = "spark"
_OPERATORS: Mapping[type[exp.Expr], CompareOp] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_TURNED: Mapping[str, CompareOp] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: Mapping[str, CompareOp] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class _Unknown(Exception):
    """A part of the text that a scan cannot decide."""


def parse_where(text: str) -> Condition:
    """The condition that the text says, over the names that users know."""
    try:
        tree = sqlglot.parse_one(text, dialect=_DIALECT)
        return _condition(tree)
    except SqlglotError as error:
        raise _bad_where_error(text, str(error).splitlines()[0]) from error
    except _Unknown as error:
        raise _bad_where_error(text, str(error)) from None


def where_text(condition: Condition) -> str:
    """The text that `parse_where` reads as this condition."""
    return _expression(condition).sql(dialect=_DIALECT)


def rename_properties(condition: Condition, name_of: Callable[[str], str]) -> Condition:
    """The same condition with every property under another name."""
    if isinstance(condition, And):
        return And(tuple(rename_properties(part, name_of) for part in condition.parts))
    if isinstance(condition, Or):
        return Or(tuple(rename_properties(part, name_of) for part in condition.parts))
    return replace(condition, name=name_of(condition.name))


def _bad_where_error(text: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"the condition {text!r} is not understood: {reason}",
        code="bad_where",
        advice="Compare properties with values, joined by AND, OR, NOT; for the rest use .filter(…) of the frame",
        where=text,
    )


def _condition(tree: exp.Expr) -> Condition:
    if isinstance(tree, exp.Paren):
        return _condition(tree.this)
    if isinstance(tree, exp.And | exp.Or):
        joined = And if isinstance(tree, exp.And) else Or
        return joined((_condition(tree.left), _condition(tree.right)))
    if isinstance(tree, exp.Not):
        return _negate(_condition(tree.this))
    if isinstance(tree, exp.Is):
        if not isinstance(tree.expression, exp.Null):
            raise _Unknown("IS is only for NULL")
        return NullTest(_name(tree.this))
    read = _READERS.get(type(tree))
    if read is not None:
        return read(tree)
    if type(tree) in _OPERATORS:
        return _comparison(tree, _OPERATORS[type(tree)])
    raise _Unknown(f"{tree.sql(dialect=_DIALECT)!r} is not a comparison")


def _negate(condition: Condition) -> Condition:
    """The opposite in SQL's logic, where a comparison with null stays neither true nor false."""
    if isinstance(condition, And):
        return Or(tuple(map(_negate, condition.parts)))
    if isinstance(condition, Or):
        return And(tuple(map(_negate, condition.parts)))
    if isinstance(condition, NullTest):
        return NullTest(condition.name, not condition.negated)
    if condition.op == "in":
        return And(tuple(Compare(condition.name, "!=", value) for value in condition.value))
    if condition.op not in _NEGATED:
        raise _Unknown("NOT of a text match")
    return Compare(condition.name, _NEGATED[condition.op], condition.value)


def _comparison(tree: exp.Expr, op: CompareOp) -> Compare:
    left_side, right = tree.this, tree.expression
    if isinstance(left_side, exp.Column):
        return Compare(_name(left_side), op, _value(right))
    return Compare(_name(right), _TURNED[op], _value(left_side))


def _in(tree: exp.Expr) -> Compare:
    if tree.args.get("query") is not None or tree.args.get("unnest") is not None:
        raise _Unknown("IN needs a list of values")
    if not tree.expressions:
        raise _Unknown("IN needs at least one value")
    return Compare(_name(tree.this), "in", [_value(item) for item in tree.expressions])


def _between(tree: exp.Expr) -> And:
    name = _name(tree.this)
    return And((Compare(name, ">=", _value(tree.args["low"])), Compare(name, "<=", _value(tree.args["high"]))))


def _like(tree: exp.Expr) -> Compare:
    pattern = _value(tree.expression)
    if not isinstance(pattern, str):
        raise _Unknown("LIKE needs text")
    core = pattern.strip("%")
    if not any(char in core for char in "%_\\"):
        if pattern == core:
            return Compare(_name(tree.this), "=", core)
        if pattern == f"{core}%":
            return Compare(_name(tree.this), "starts_with", core)
        if pattern == f"%{core}%":
            return Compare(_name(tree.this), "contains", core)
    raise _Unknown("LIKE is only understood as 'text%' and '%text%'")


def _function(op: CompareOp) -> Callable[[exp.Expr], Compare]:
    return lambda tree: Compare(_name(tree.this), op, _value(tree.expression))


_READERS: Mapping[type[exp.Expr], Callable[[Any], Condition]] = {
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.StartsWith: _function("starts_with"),
    exp.Contains: _function("contains"),
    exp.Column: lambda tree: Compare(_name(tree), "=", True),
}


def _name(tree: exp.Expr) -> str:
    if not isinstance(tree, exp.Column) or tree.table:
        raise _Unknown(f"{tree.sql(dialect=_DIALECT)!r} is not the name of a property")
    return tree.name


def _value(tree: exp.Expr) -> Any:
    if isinstance(tree, exp.Null):
        return None
    if isinstance(tree, exp.Boolean):
        return bool(tree.this)
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal):  # DATE '2026-01-31'
        return _value(tree.this)
    if isinstance(tree, exp.Neg):
        inner = _value(tree.this)
        if isinstance(inner, int | float):
            return -inner
    if isinstance(tree, exp.Literal):
        return tree.this if tree.is_string else _number(tree.this)
    raise _Unknown(f"{tree.sql(dialect=_DIALECT)!r} is not a value")


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _expression(condition: Condition) -> exp.Expr:
    if isinstance(condition, And | Or):
        joined = exp.and_ if isinstance(condition, And) else exp.or_
        return joined(*map(_expression, condition.parts))
    column = exp.column(condition.name, quoted=True)
    if isinstance(condition, NullTest):
        test = exp.Is(this=column, expression=exp.Null())
        return exp.Not(this=test) if condition.negated else test
    if condition.op == "in":
        return exp.In(this=column, expressions=[_literal(item) for item in condition.value])
    operator = next((kind for kind, op in _OPERATORS.items() if op == condition.op), None)
    if operator is None:
        operator = exp.StartsWith if condition.op == "starts_with" else exp.Contains
    return operator(this=column, expression=_literal(condition.value))


def _literal(value: Any) -> exp.Expr:
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int | float) and value == value and abs(value) != float("inf"):
        number = exp.Literal.number(repr(abs(value)))
        return exp.Neg(this=number) if value < 0 else number
    # Texts, dates and datetimes, and NaN and infinities by the names that the query language has for them.
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return exp.Literal.string({"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text))
