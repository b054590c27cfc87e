"""Literals and parameters become values of the type that their place needs.

In a comparison numbers stay what they are (`age > 5000000000` is false for an I32, not an error) and text becomes a
date, a moment or an enum value. In an assignment the value must fit the property exactly. Conversion itself is
`schema.values.convert`, the same as for loads.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

from omnigraph.query.language.check_context import CheckContext, did_you_mean
from omnigraph.query.language.checked import (
    BOOL,
    DATE,
    DATETIME,
    F32,
    F64,
    I64,
    STRING,
    U64,
    Const,
    ListOf,
    Now,
    Param,
    Parameter,
    Value,
)
from omnigraph.query.language.syntax import (
    AliasSyntax,
    DateLiteralSyntax,
    ExprSyntax,
    ListSyntax,
    LiteralSyntax,
    NowSyntax,
    SourceSpan,
    VariableSyntax,
)
from omnigraph.schema.catalog import Property, PropType, Scalar
from omnigraph.schema.values import FLOATS, INTEGER_BOUNDS, ValueRefused, convert, quote_value, round_to_f32

#: Expressions that take their type from where they stand.
Loose = LiteralSyntax | DateLiteralSyntax | ListSyntax | VariableSyntax

_FAMILIES = {
    Scalar.STRING: "text",
    Scalar.BOOL: "bool",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
}


def family(type_: PropType) -> str:
    """Types of one family can be compared with each other."""
    if type_.vector_size is not None:
        return "vector"
    if type_.is_list:
        return "list"
    return _FAMILIES.get(type_.scalar, "number")


def is_integer(type_: PropType) -> bool:
    return family(type_) == "number" and type_.scalar in INTEGER_BOUNDS


def element(type_: PropType) -> PropType:
    return replace(type_, is_list=False)


def comparable(left: PropType, right: PropType) -> bool:
    """Whether `=` has a meaning: the same family, element by element for lists; never vectors and blobs."""
    kind = family(left)
    if kind != family(right) or kind in {"vector", "blob"}:
        return False
    return kind != "list" or comparable(element(left), element(right))


def is_loose(ctx: CheckContext, node: ExprSyntax) -> bool:
    return isinstance(node, (LiteralSyntax, DateLiteralSyntax, ListSyntax)) or (
        isinstance(node, VariableSyntax) and node.name in ctx.params
    )


# ---- as it stands ----------------------------------------------------------------------------------------------------


def natural(ctx: CheckContext, node: Loose) -> Value | None:
    """The value by its own type, where nothing around tells another."""
    match node:
        case VariableSyntax():
            return _natural_param(ctx, node)
        case ListSyntax(items, span):
            return _natural_list(ctx, items, span)
        case DateLiteralSyntax(kind, text, span):
            return _constant(ctx, text, DATE if kind == "date" else DATETIME, span)
        case LiteralSyntax(None, span):
            ctx.fail("T10", span, "null has no type here", "Test for null with `is null`")
            return None
    type_ = _literal_type(node.value)
    return _constant(ctx, node.value, type_, node.span)


def _natural_param(ctx: CheckContext, node: VariableSyntax) -> Param | None:
    param = use(ctx, node)
    if param is None:
        return None
    if family(param.type) == "blob":
        ctx.fail("T11", node.span, f"`${param.name}` is a Blob and never a query value", "Blobs can only be stored")
        return None
    return ctx.slot(param, param.type)


def use(ctx: CheckContext, node: VariableSyntax) -> Parameter | None:
    """The parameter that the node names; it counts as used."""
    ctx.used.add(node.name)
    return ctx.params[node.name]


def _literal_type(value: Any) -> PropType:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return U64 if value > INTEGER_BOUNDS[Scalar.I64][1] else I64
    return F64 if isinstance(value, float) else STRING


def _natural_list(ctx: CheckContext, items: tuple[ExprSyntax, ...], span: SourceSpan) -> Value | None:
    if not items:
        ctx.fail("T7", span, "the type of an empty list cannot be told here")
        return None
    first = items[0]
    if isinstance(first, NowSyntax):
        return _list(ctx, items, DATETIME, span, compared=True)
    known = natural(ctx, cast(Loose, first)) if is_loose(ctx, first) else None
    if is_loose(ctx, first) and known is None:
        return None
    if known is None or family(known.type) in {"list", "vector"}:
        _refuse_item(ctx, first)
        return None
    return _list(ctx, items, known.type, span, compared=True)


def _refuse_item(ctx: CheckContext, item: ExprSyntax) -> None:
    ctx.fail("T7", item.span, "a list holds literals, parameters and now()")


def _constant(ctx: CheckContext, value: Any, type_: PropType, span: SourceSpan) -> Const | None:
    """Convert a literal, with a finding if it does not fit."""
    try:
        stored = convert(Property("", "value", type_), value)
    except ValueRefused as refused:
        code = "T9" if type_.enum_values else "T8"
        advice = refused.advice
        if type_.enum_values and isinstance(value, str):
            advice = did_you_mean(value, type_.enum_values) or advice
        ctx.fail(code, span, refused.reason, advice)
        return None
    return Const(tuple(stored) if isinstance(stored, list) else stored, type_)


# ---- in a comparison -------------------------------------------------------------------------------------------------


def for_comparison(ctx: CheckContext, node: ExprSyntax, other: PropType) -> Value | None:
    """A literal or parameter to be compared with a value of type `other`."""
    match node:
        case LiteralSyntax(None, span):
            ctx.fail("T10", span, "a comparison with null never matches", "Write `is null` or `is not null`")
            return None
        case ListSyntax(items, span) if family(other) == "list":
            return _list(ctx, items, element(other), span, compared=True)
        case LiteralSyntax(value, span):
            return _compared_literal(ctx, value, other, span)
        case DateLiteralSyntax(kind, text, span):
            return _compared_date(ctx, kind, text, other, span)
        case VariableSyntax():
            param = use(ctx, node)
            return None if param is None else _compared_param(ctx, param, other, node.span)
        case NowSyntax(span):
            if family(other) == "datetime":
                return Now()
            _misfit(ctx, "DateTime", other, span)
            return None
        case ListSyntax(_, span):
            _misfit(ctx, "a list", other, span, "One of several values is `in`; a list holds a value: `contains`")
            return None
    ctx.fail("T7", node.span, "expected a literal, a parameter or now()")
    return None


def _misfit(ctx: CheckContext, given: object, other: PropType, span: SourceSpan, advice: str | None = None) -> None:
    ctx.fail("T7", span, f"cannot compare {given} with {other}", advice)


def _compared_literal(ctx: CheckContext, value: Any, other: PropType, span: SourceSpan) -> Const | None:
    own = _literal_type(value)
    kind = family(other)
    if kind == "number" and family(own) == "number":
        return _compared_number(ctx, value, other, own, span)
    if kind in {"date", "datetime"} and isinstance(value, str):
        return _constant(ctx, value, other, span)
    if kind != family(own):
        _misfit(ctx, f"{own} {json.dumps(value, ensure_ascii=False)}", other, span)
        return None
    return _constant(ctx, value, other, span)


def _compared_number(ctx: CheckContext, value: Any, other: PropType, own: PropType, span: SourceSpan) -> Const | None:
    if other.scalar is Scalar.F32 and isinstance(value, float):
        # 0.1 as F64 equals no F32; the user means the stored number.
        try:
            return Const(round_to_f32(value), F32)
        except OverflowError:
            return Const(value, own)
    return _constant(ctx, value, own, span)


def _compared_date(ctx: CheckContext, kind: str, text: str, other: PropType, span: SourceSpan) -> Const | None:
    own = DATE if kind == "date" else DATETIME
    value = _constant(ctx, text, own, span)
    if value is None or family(other) == kind:
        return value
    if kind == "date" and family(other) == "datetime":
        return _constant(ctx, value.value, other, span)
    _misfit(ctx, own, other, span)
    return None


def _compared_param(ctx: CheckContext, param: Parameter, other: PropType, span: SourceSpan) -> Param | None:
    target = _comparison_target(param.type, other)
    if target is None:
        _misfit(ctx, f"`${param.name}` ({param.type})", other, span)
        return None
    return ctx.slot(param, target)


def _comparison_target(own: PropType, other: PropType) -> PropType | None:
    """The type to which a parameter is converted for a comparison, or None if it cannot be compared."""
    kinds = family(own), family(other)
    if kinds == ("list", "list"):
        inner = _comparison_target(element(own), element(other))
        # The elements of a list of an enum are compared as that enum's text.
        return None if inner is None else replace(inner, is_list=True)
    if kinds in {("text", "text"), ("text", "date"), ("text", "datetime"), ("date", "datetime")}:
        return other
    if kinds == ("number", "number"):
        return other if own.scalar is Scalar.F64 and other.scalar is Scalar.F32 else own
    return own if kinds[0] == kinds[1] and kinds[0] in {"bool", "date", "datetime"} else None


def _list(
    ctx: CheckContext, items: tuple[ExprSyntax, ...], inner: PropType, span: SourceSpan, *, compared: bool
) -> Const | ListOf | None:
    """A list literal whose elements are wanted as `inner`."""
    values: list[Const | Param | Now] = []
    for item in items:
        if isinstance(item, VariableSyntax) and ctx.params.get(item.name) is None and item.name not in ctx.params:
            _refuse_item(ctx, item)
            return None
        if isinstance(item, LiteralSyntax) and item.value is None:
            ctx.fail("T8", item.span, "a list holds no null items")
            return None
        one = for_comparison(ctx, item, inner) if compared else for_assignment(ctx, item, inner, False)
        if one is None:
            return None
        if isinstance(one, ListOf):
            _refuse_item(ctx, item)
            return None
        values.append(one)
    constants = [one for one in values if isinstance(one, Const)]
    if len(constants) < len(values):
        return ListOf(tuple(values), replace(inner, is_list=True))
    if compared and values and family(inner) == "number":
        return _numbers(ctx, constants, inner, span)
    return Const(tuple(one.value for one in constants), replace(inner, is_list=True))


def _numbers(ctx: CheckContext, items: list[Const], inner: PropType, span: SourceSpan) -> Const | None:
    """Numbers to compare with `inner`, in the one type that holds them all: it may be wider than `inner`."""
    values = [one.value for one in items]
    if any(isinstance(one, float) for one in values):
        single = all(one.type == F32 or isinstance(one.value, int) for one in items)
        return _constant(ctx, values, replace(F32 if single else F64, is_list=True), span)
    unsigned = any(one.type == U64 for one in items)
    return _constant(ctx, values, replace(U64 if unsigned else I64, is_list=True), span)


# ---- in an assignment ------------------------------------------------------------------------------------------------


def for_assignment(ctx: CheckContext, node: ExprSyntax, type_: PropType, nullable: bool) -> Value | None:
    """A literal, parameter or now() to be stored as `type_`."""
    match node:
        case LiteralSyntax(None, span):
            if nullable:
                return Const(None, type_, nullable=True)
            ctx.fail("T38", span, f"null for a required {type_}", "Give a value, or make the property optional: `T?`")
            return None
        case LiteralSyntax(value, span):
            return _constant(ctx, value, type_, span) if _takes(ctx, value, type_, span) else None
        case DateLiteralSyntax(kind, text, span):
            return _assigned_date(ctx, kind, text, type_, span)
        case ListSyntax(items, span):
            return _assigned_list(ctx, items, type_, span)
        case VariableSyntax() if node.name in ctx.params:
            param = use(ctx, node)
            return None if param is None else _assigned_param(ctx, param, type_, nullable, node.span)
        case NowSyntax(span):
            if family(type_) == "datetime":
                return Now()
            _unfit(ctx, "now() (DateTime)", type_, span)
            return None
    refuse_value(ctx, node)
    return None


def refuse_value(ctx: CheckContext, node: ExprSyntax) -> None:
    """Something that no mutation can know: it has no rows to read from."""
    if isinstance(node, VariableSyntax):
        ctx.fail("T4", node.span, f"there is no parameter `${node.name}`", f"Declare it: `${node.name}: Type`")
        return
    advice = "Read it with a query first, or pass it as a parameter"
    if isinstance(node, AliasSyntax):
        advice = f'Text is written "{node.name}", a parameter `${node.name}`'
    ctx.fail("T39", node.span, "a mutation takes literals, parameters and now()", advice)


def _takes(ctx: CheckContext, value: Any, type_: PropType, span: SourceSpan) -> bool:
    """Refuse text for a number: `convert` reads "NaN" from records, a literal is what it looks like."""
    if isinstance(value, str) and family(type_) == "number":
        _unfit(ctx, f"String {quote_value(value)}", type_, span)
        return False
    return True


def _unfit(ctx: CheckContext, given: object, type_: PropType, span: SourceSpan, advice: str | None = None) -> None:
    ctx.fail("T8", span, f"{given} is no {type_}", advice)


def _assigned_date(ctx: CheckContext, kind: str, text: str, type_: PropType, span: SourceSpan) -> Const | None:
    own = DATE if kind == "date" else DATETIME
    value = _constant(ctx, text, own, span)
    if value is None:
        return None
    if family(type_) not in {"date", "datetime"} or (kind, family(type_)) == ("datetime", "date"):
        _unfit(ctx, own, type_, span)
        return None
    return _constant(ctx, value.value, type_, span)


def _assigned_list(ctx: CheckContext, items: tuple[ExprSyntax, ...], type_: PropType, span: SourceSpan) -> Value | None:
    kind = family(type_)
    if kind == "list":
        return _list(ctx, items, element(type_), span, compared=False)
    if kind != "vector":
        _unfit(ctx, "a list", type_, span)
        return None
    numbers = [item.value for item in items if isinstance(item, LiteralSyntax)]
    if len(numbers) < len(items):
        _unfit(ctx, "a list that holds more than numbers", type_, span, "Pass the whole vector as a parameter")
        return None
    return _constant(ctx, numbers, type_, span)


def _assigned_param(
    ctx: CheckContext, param: Parameter, type_: PropType, nullable: bool, span: SourceSpan
) -> Param | None:
    if not assignable(param.type, type_):
        _unfit(ctx, f"`${param.name}` ({param.type})", type_, span)
        return None
    if param.nullable and not nullable:
        advice = f"Declare it without `?`: `${param.name}: {param.type}`"
        ctx.fail("T38", span, f"`${param.name}` may be null, the value is required", advice)
        return None
    return ctx.slot(param, type_)


def assignable(own: PropType, target: PropType) -> bool:
    """Whether values of a parameter's type may become the target's; each value is still checked when it is given."""
    kinds = family(own), family(target)
    if kinds == ("list", "vector"):
        return family(element(own)) == "number"
    if kinds == ("vector", "vector"):
        return own.vector_size == target.vector_size
    if kinds == ("list", "list"):
        return assignable(element(own), element(target))
    if kinds == ("number", "number"):
        return is_integer(own) or target.scalar in FLOATS
    return kinds[0] == kinds[1] or kinds in {
        ("text", "date"),
        ("text", "datetime"),
        ("text", "blob"),
        ("date", "datetime"),
    }
