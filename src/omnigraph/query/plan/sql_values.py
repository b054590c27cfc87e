"""Translates expressions and conditions to SQL. A value of a user never becomes text: it is a named parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from omnigraph.query.language.checked import (
    AllOf,
    AnyOf,
    Bm25,
    CheckedCompare,
    CheckedNullTest,
    Const,
    Entity,
    Expr,
    ListOf,
    Nearest,
    Now,
    Param,
    Prop,
    Rrf,
    TextFilter,
    Value,
)
from omnigraph.query.plan.leaf_columns import parameter_name
from omnigraph.query.plan.nodes import KEY, PlanCondition, Search
from omnigraph.schema.catalog import PropType, Scalar
from omnigraph.schema.values import FLOATS, INTEGER_BOUNDS

Key = tuple[str, "str | Search | Rrf"]
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
_INT128 = exp.DataType.Type.INT128
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
    cast_type = exp.TryCast if try_ else exp.Cast
    return cast_type(this=value, to=exp.DataType(this=kind))


@dataclass
class Parameters:
    """The values that a statement needs, by the names of their placeholders."""

    values: dict[str, Value] = field(default_factory=dict)

    def placeholder(self, value: Const | Param | Now) -> exp.Expr:
        name = next((name for name, existing in self.values.items() if _is_same_value(existing, value)), None)
        if name is None:
            name = parameter_name(len(self.values))
            self.values[name] = value
        return exp.Placeholder(this=name)


def _is_same_value(first: Value, second: Value) -> bool:
    """Whether one parameter can serve both. Equal constants may be different values: 0.0 and -0.0."""
    if isinstance(first, Const) and isinstance(second, Const):
        return first.type == second.type and repr(first.value) == repr(second.value)
    return first == second


@dataclass(frozen=True)
class Translator:
    """Translates expressions over the columns of one node of the plan."""

    columns: Callable[[Key], exp.Expr]
    parameters: Parameters

    def value(self, value: Expr) -> exp.Expr:
        match value:
            case Prop():
                return self.columns((value.var, value.column))
            case Entity():
                return self.columns((value.var, KEY))
            case Bm25() | Nearest():
                return self.columns((value.prop.var, value))
            case Rrf():
                return self.columns(("", value))
            case Const() | Param() | Now():
                return exp.Cast(this=self.parameters.placeholder(value), to=sql_type(value.type))
            case ListOf():
                items = [self.value(item) for item in value.items]
                return exp.Cast(this=exp.Array(expressions=items), to=sql_type(value.type))
        raise AssertionError(f"{value} has no value for a single row")

    def condition(self, condition: PlanCondition) -> exp.Expr:
        match condition:
            case TextFilter():
                return self.columns((condition.prop.var, condition))
            case CheckedNullTest(operand, negated):
                test: exp.Expr = exp.Is(this=self.value(operand), expression=exp.Null())
                return exp.Not(this=test) if negated else test
            case AllOf():
                return exp.and_(*(self.condition(part) for part in condition.parts))
            case AnyOf():
                return exp.paren(exp.or_(*(self.condition(part) for part in condition.parts)), copy=False)
            case CheckedCompare():
                return self._compare(condition)

    def _compare(self, compare: CheckedCompare) -> exp.Expr:
        left, right = self.value(compare.left), self.value(compare.right)
        match compare.op:
            case "contains" if _value_type(compare.left).is_list:
                return _contains(left, _value_type(compare.left), right, _value_type(compare.right))
            case "in":
                return _contains(right, _value_type(compare.right), left, _value_type(compare.left))
            case "contains":
                return exp.Contains(this=left, expression=right)
            case "starts_with":
                return exp.StartsWith(this=left, expression=right)
        if isinstance(compare.left, Entity) or isinstance(compare.right, Entity):
            return _COMPARISONS[compare.op](this=left, expression=right)
        return _compare_exactly(compare.op, left, _value_type(compare.left), right, _value_type(compare.right))


def _value_type(value: Expr) -> PropType:
    assert not isinstance(value, Entity)
    return value.type


def _is_integer(type_: PropType) -> bool:
    return type_.scalar in INTEGER_BOUNDS and type_.vector_size is None


def _is_float(type_: PropType) -> bool:
    return type_.scalar in FLOATS and type_.vector_size is None


def _compare_exactly(op: str, left: exp.Expr, left_type: PropType, right: exp.Expr, right_type: PropType) -> exp.Expr:
    """Returns a comparison that is exact even between an integer and a float.

    Engines compare these as floats, which makes 2^53 and 2^53 + 1 equal. Rounding is monotone, so the rounded
    comparison is right unless both sides are equal after rounding; the float is then an integer and compared as one.
    """
    comparison = _COMPARISONS[op]
    if not (_is_integer(left_type) and _is_float(right_type)) and not (
        _is_float(left_type) and _is_integer(right_type)
    ):
        return comparison(this=left, expression=right)
    if left_type.is_list:
        return _compare_lists(comparison, left, left_type, right)
    rounded = [cast(side, exp.DataType.Type.DOUBLE) for side in (left, right)]
    integers = [cast(side, _INT128, try_=True) for side in (left, right)]
    equal = exp.EQ(this=rounded[0], expression=rounded[1])
    exactly = comparison(this=integers[0], expression=integers[1])
    if op == "=":
        return exp.and_(equal, exactly)
    strict = {"<=": exp.LT, ">=": exp.GT}.get(op, comparison)
    return exp.paren(exp.or_(strict(this=rounded[0], expression=rounded[1]), exp.and_(equal.copy(), exactly)))


def _compare_lists(comparison: type[exp.Binary], left: exp.Expr, left_type: PropType, right: exp.Expr) -> exp.Expr:
    """Compares a list of integers with one of floats: equal as floats, and the integers survive the conversion."""
    floats = exp.DataType.build("array<double>")
    wholes = exp.DataType.build("array<int128>")
    is_equal = exp.EQ(this=exp.Cast(this=left, to=floats), expression=exp.Cast(this=right, to=floats))
    integers = left if _is_integer(left_type) else right
    back = exp.TryCast(this=exp.Cast(this=integers, to=floats), to=wholes)
    exact = exp.and_(is_equal, exp.EQ(this=back, expression=exp.Cast(this=integers, to=wholes)))
    return exact if comparison is exp.EQ else exp.Not(this=exp.paren(exact))


def _contains(list_: exp.Expr, list_type: PropType, item: exp.Expr, item_type: PropType) -> exp.Expr:
    """Returns whether the list contains the item, exact even between integers and floats."""
    if _is_integer(item_type) and _is_float(list_type):
        near = cast(item, exp.DataType.Type.DOUBLE)
        exact = exp.EQ(this=cast(near.copy(), _INT128, try_=True), expression=cast(item.copy(), _INT128))
        floats = exp.Cast(this=list_, to=exp.DataType.build("array<double>"))
        return exp.and_(exp.ArrayContains(this=floats, expression=near), exact)
    if _is_float(item_type) and _is_integer(list_type):
        integer = cast(item, _INT128, try_=True)
        exact = exp.EQ(
            this=cast(integer.copy(), exp.DataType.Type.DOUBLE), expression=cast(item.copy(), exp.DataType.Type.DOUBLE)
        )
        wholes = exp.Cast(this=list_, to=exp.DataType.build("array<int128>"))
        return exp.and_(exp.ArrayContains(this=wholes, expression=integer), exact)
    if _is_integer(item_type) and item_type.scalar != list_type.scalar:
        wholes = exp.Cast(this=list_, to=exp.DataType.build("array<int128>"))
        return exp.ArrayContains(this=wholes, expression=cast(item, _INT128))
    if _is_float(item_type) and item_type.scalar != list_type.scalar:
        floats = exp.Cast(this=list_, to=exp.DataType.build("array<double>"))
        return exp.ArrayContains(this=floats, expression=cast(item, exp.DataType.Type.DOUBLE))
    return exp.ArrayContains(this=list_, expression=item)
