"""Expressions and conditions as SQL. Values of users never become text: each is a named parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from omnigraph.query.language import checked as c
from omnigraph.query.plan.nodes import KEY, Computed, Condition
from omnigraph.schema.catalog import PropType, Scalar
from omnigraph.schema.values import FLOATS, INTEGER_BOUNDS

Key = tuple[str, "str | Computed | c.Rrf"]
"""A variable and a column, or a variable and a search; a fused rank belongs to no variable."""

_TYPES = {
    Scalar.STRING: exp.DataType.Type.TEXT,
    Scalar.BOOL: exp.DataType.Type.BOOLEAN,
    Scalar.I32: exp.DataType.Type.INT,
    Scalar.I64: exp.DataType.Type.BIGINT,
    Scalar.U32: exp.DataType.Type.UINT,
    Scalar.U64: exp.DataType.Type.UBIGINT,
    Scalar.F32: exp.DataType.Type.FLOAT,
    Scalar.F64: exp.DataType.Type.DOUBLE,
    Scalar.DATE: exp.DataType.Type.DATE,
    Scalar.DATETIME: exp.DataType.Type.TIMESTAMPTZ,
}
_WHOLE = exp.DataType.Type.INT128
_COMPARISONS: Mapping[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}


def sql_type(type_: PropType) -> exp.DataType:
    inner = exp.DataType(this=_TYPES[type_.scalar])
    if type_.is_list or type_.vector_size is not None:
        return exp.DataType(this=exp.DataType.Type.ARRAY, expressions=[inner], nested=True)
    return inner


def cast(value: exp.Expr, kind: exp.DType, *, try_: bool = False) -> exp.Expr:
    made = exp.TryCast if try_ else exp.Cast
    return made(this=value, to=exp.DataType(this=kind))


@dataclass
class Parameters:
    """The values that a statement needs, by the name of their placeholder."""

    values: dict[str, c.Value] = field(default_factory=dict)

    def placeholder(self, value: c.Const | c.Param | c.Now) -> exp.Expr:
        name = next((known for known, one in self.values.items() if _same(one, value)), None)
        if name is None:
            name = f"p{len(self.values)}"
            self.values[name] = value
        return exp.Placeholder(this=name)


def _same(one: c.Value, two: c.Value) -> bool:
    """Equal constants may be different values: 0.0 and -0.0."""
    if isinstance(one, c.Const) and isinstance(two, c.Const):
        return one.type == two.type and repr(one.value) == repr(two.value)
    return one == two


@dataclass(frozen=True)
class Translator:
    """Expressions over the columns of one place of the plan."""

    columns: Callable[[Key], exp.Expr]
    parameters: Parameters

    def value(self, value: c.Expr) -> exp.Expr:
        match value:
            case c.Prop():
                return self.columns((value.var, value.column))
            case c.Entity():
                return self.columns((value.var, KEY))
            case c.Bm25() | c.Nearest():
                return self.columns((value.prop.var, value))
            case c.Rrf():
                return self.columns(("", value))
            case c.Const() | c.Param() | c.Now():
                return exp.Cast(this=self.parameters.placeholder(value), to=sql_type(value.type))
            case c.ListOf():
                items = [self.value(one) for one in value.items]
                return exp.Cast(this=exp.Array(expressions=items), to=sql_type(value.type))
        raise AssertionError(f"{value} has no value for a single row")

    def condition(self, condition: Condition) -> exp.Expr:
        match condition:
            case c.TextFilter():
                return self.columns((condition.prop.var, condition))
            case c.NullTest(operand, negated):
                test: exp.Expr = exp.Is(this=self.value(operand), expression=exp.Null())
                return exp.Not(this=test) if negated else test
            case c.AllOf():
                return exp.and_(*(self.condition(one) for one in condition.parts))
            case c.AnyOf():
                return exp.paren(exp.or_(*(self.condition(one) for one in condition.parts)), copy=False)
            case c.Compare():
                return self._compare(condition)

    def _compare(self, one: c.Compare) -> exp.Expr:
        left, right = self.value(one.left), self.value(one.right)
        match one.op:
            case "contains" if _plain(one.left).is_list:
                return _member(left, _plain(one.left), right, _plain(one.right))
            case "in":
                return _member(right, _plain(one.right), left, _plain(one.left))
            case "contains":
                return exp.Contains(this=left, expression=right)
            case "starts_with":
                return exp.StartsWith(this=left, expression=right)
        if isinstance(one.left, c.Entity) or isinstance(one.right, c.Entity):
            return _COMPARISONS[one.op](this=left, expression=right)
        return _number_safe(one.op, left, _plain(one.left), right, _plain(one.right))


def _plain(value: c.Expr) -> PropType:
    assert not isinstance(value, c.Entity)
    return value.type


def _is_whole(type_: PropType) -> bool:
    return type_.scalar in INTEGER_BOUNDS and type_.vector_size is None


def _is_float(type_: PropType) -> bool:
    return type_.scalar in FLOATS and type_.vector_size is None


def _number_safe(op: str, left: exp.Expr, left_type: PropType, right: exp.Expr, right_type: PropType) -> exp.Expr:
    """The comparison, exact also between a whole number and a float.

    Engines compare these as floats, which makes 2^53 and 2^53 + 1 equal. Rounding is monotone, so the rounded
    comparison is right unless both sides are then equal; the float is then whole and is compared as such.
    """
    made = _COMPARISONS[op]
    if not (_is_whole(left_type) and _is_float(right_type)) and not (_is_float(left_type) and _is_whole(right_type)):
        return made(this=left, expression=right)
    if left_type.is_list:
        return _lists(made, left, left_type, right)
    rounded = [cast(one, exp.DataType.Type.DOUBLE) for one in (left, right)]
    whole = [cast(one, _WHOLE, try_=True) for one in (left, right)]
    equal = exp.EQ(this=rounded[0], expression=rounded[1])
    exactly = made(this=whole[0], expression=whole[1])
    if op == "=":
        return exp.and_(equal, exactly)
    strict = {"<=": exp.LT, ">=": exp.GT}.get(op, made)
    return exp.paren(exp.or_(strict(this=rounded[0], expression=rounded[1]), exp.and_(equal.copy(), exactly)))


def _lists(made: type[exp.Binary], left: exp.Expr, left_type: PropType, right: exp.Expr) -> exp.Expr:
    """Lists of whole numbers and floats: equal as floats, and the whole ones lose nothing as floats."""
    floats = exp.DataType.build("array<double>")
    wholes = exp.DataType.build("array<int128>")
    same = exp.EQ(this=exp.Cast(this=left, to=floats), expression=exp.Cast(this=right, to=floats))
    whole = left if _is_whole(left_type) else right
    back = exp.TryCast(this=exp.Cast(this=whole, to=floats), to=wholes)
    exact = exp.and_(same, exp.EQ(this=back, expression=exp.Cast(this=whole, to=wholes)))
    return exact if made is exp.EQ else exp.Not(this=exp.paren(exact))


def _member(list_: exp.Expr, list_type: PropType, item: exp.Expr, item_type: PropType) -> exp.Expr:
    """Whether the list holds the item, exact also between whole numbers and floats."""
    if _is_whole(item_type) and _is_float(list_type):
        near = cast(item, exp.DataType.Type.DOUBLE)
        exact = exp.EQ(this=cast(near.copy(), _WHOLE, try_=True), expression=cast(item.copy(), _WHOLE))
        floats = exp.Cast(this=list_, to=exp.DataType.build("array<double>"))
        return exp.and_(exp.ArrayContains(this=floats, expression=near), exact)
    if _is_float(item_type) and _is_whole(list_type):
        whole = cast(item, _WHOLE, try_=True)
        exact = exp.EQ(
            this=cast(whole.copy(), exp.DataType.Type.DOUBLE), expression=cast(item.copy(), exp.DataType.Type.DOUBLE)
        )
        wholes = exp.Cast(this=list_, to=exp.DataType.build("array<int128>"))
        return exp.and_(exp.ArrayContains(this=wholes, expression=whole), exact)
    if _is_whole(item_type) and item_type.scalar != list_type.scalar:
        wholes = exp.Cast(this=list_, to=exp.DataType.build("array<int128>"))
        return exp.ArrayContains(this=wholes, expression=cast(item, _WHOLE))
    if _is_float(item_type) and item_type.scalar != list_type.scalar:
        floats = exp.Cast(this=list_, to=exp.DataType.build("array<double>"))
        return exp.ArrayContains(this=floats, expression=cast(item, exp.DataType.Type.DOUBLE))
    return exp.ArrayContains(this=list_, expression=item)


def given(value: c.Value, bound: Mapping[str, Any], now: Any) -> Any:
    """The Python value of a parameter of a statement."""
    match value:
        case c.Const():
            return list(value.value) if isinstance(value.value, tuple) else value.value
        case c.Param():
            return bound[value.slot]
        case c.Now():
            return now
    raise AssertionError(f"{value} is built in SQL from its parts")
