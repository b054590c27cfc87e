"""Gives literals and parameters the type that their position needs.

In a comparison numbers stay what they are (`age > 5000000000` is false for an I32, not an error) and text becomes a
date, a moment or an enum value. In an assignment the value must fit the property exactly. Conversion itself is
`schema.values.convert`, the same as for loads.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypeGuard

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
    UntypedSyntax,
    VariableSyntax,
)
from omnigraph.schema.catalog import Property, PropType, Scalar
from omnigraph.schema.values import FLOATS, INTEGER_BOUNDS, ValueRefused, convert, quote_value, round_to_f32

_FAMILIES = {
    Scalar.STRING: "text",
    Scalar.BOOL: "bool",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
}


def type_family(type_: PropType) -> str:
    """Types of one family can be compared with each other."""
    if type_.vector_size is not None:
        return "vector"
    if type_.is_list:
        return "list"
    return _FAMILIES.get(type_.scalar, "number")


def is_integer(type_: PropType) -> bool:
    return type_family(type_) == "number" and type_.scalar in INTEGER_BOUNDS


def element_type(type_: PropType) -> PropType:
    return replace(type_, is_list=False)


def are_comparable(lhs: PropType, rhs: PropType) -> bool:
    """Whether `=` has a meaning: the same family, element by element for lists; never vectors and blobs."""
    kind = type_family(lhs)
    if kind != type_family(rhs) or kind in {"vector", "blob"}:
        return False
    return kind != "list" or are_comparable(element_type(lhs), element_type(rhs))


def is_untyped(node: ExprSyntax, ctx: CheckContext) -> TypeGuard[UntypedSyntax]:
    """Whether the node is a literal or a parameter; a variable that is no parameter has a type."""
    return node.name in ctx.params if isinstance(node, VariableSyntax) else isinstance(node, UntypedSyntax)


# ---- without a type to fit -------------------------------------------------------------------------------------------


def type_alone(ctx: CheckContext, node: UntypedSyntax) -> Value | None:
    """The value in the type that its own text has, for positions that accept values of any type."""
    match node:
        case VariableSyntax():
            return _type_param_alone(ctx, node)
        case ListSyntax(items, span):
            return _type_list_alone(ctx, items, span)
        case DateLiteralSyntax(kind, text, span):
            return _convert_constant(ctx, text, DATE if kind == "date" else DATETIME, span)
        case LiteralSyntax(None, span):
            ctx.fail("T10", span, "null has no type here", "Test for null with `is null`")
            return None
    type_ = _literal_type(node.value)
    return _convert_constant(ctx, node.value, type_, node.span)


def _type_param_alone(ctx: CheckContext, node: VariableSyntax) -> Param | None:
    param = use_param(ctx, node)
    if param is None:
        return None
    if type_family(param.type) == "blob":
        ctx.fail("T11", node.span, f"`${param.name}` is a Blob and never a query value", "Blobs can only be stored")
        return None
    return ctx.slot(param, param.type)


def use_param(ctx: CheckContext, node: VariableSyntax) -> Parameter | None:
    """The parameter that the node names, counted as used; None if its declaration is wrong."""
    ctx.used_params.add(node.name)
    return ctx.params[node.name]


def _literal_type(value: Any) -> PropType:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return U64 if value > INTEGER_BOUNDS[Scalar.I64][1] else I64
    return F64 if isinstance(value, float) else STRING


def _type_list_alone(ctx: CheckContext, items: tuple[ExprSyntax, ...], span: SourceSpan) -> Value | None:
    if not items:
        ctx.fail("T7", span, "the type of an empty list cannot be told here")
        return None
    first = items[0]
    if isinstance(first, NowSyntax):
        return _type_list(ctx, items, DATETIME, span, compared=True)
    first_value = type_alone(ctx, first) if is_untyped(first, ctx) else None
    if is_untyped(first, ctx) and first_value is None:
        return None
    if first_value is None or type_family(first_value.type) in {"list", "vector"}:
        _refuse_item(ctx, first)
        return None
    return _type_list(ctx, items, first_value.type, span, compared=True)


def _refuse_item(ctx: CheckContext, item: ExprSyntax) -> None:
    ctx.fail("T7", item.span, "a list holds literals, parameters and now()")


def _convert_constant(ctx: CheckContext, value: Any, type_: PropType, span: SourceSpan) -> Const | None:
    """Convert a literal to its stored form; a finding if it does not fit the type."""
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


def type_for_comparison(ctx: CheckContext, node: ExprSyntax, target: PropType) -> Value | None:
    """The literal or parameter as a value that can be compared with one of type `target`."""
    match node:
        case LiteralSyntax(None, span):
            ctx.fail("T10", span, "a comparison with null never matches", "Write `is null` or `is not null`")
            return None
        case ListSyntax(items, span) if type_family(target) == "list":
            return _type_list(ctx, items, element_type(target), span, compared=True)
        case LiteralSyntax(value, span):
            return _compare_literal(ctx, value, target, span)
        case DateLiteralSyntax(kind, text, span):
            return _compare_date(ctx, kind, text, target, span)
        case VariableSyntax():
            param = use_param(ctx, node)
            return None if param is None else _compare_param(ctx, param, target, node.span)
        case NowSyntax(span):
            if type_family(target) == "datetime":
                return Now()
            _refuse_comparison(ctx, "DateTime", target, span)
            return None
        case ListSyntax(_, span):
            _refuse_comparison(
                ctx, "a list", target, span, "One of several values is `in`; a list holds a value: `contains`"
            )
            return None
    ctx.fail("T7", node.span, "expected a literal, a parameter or now()")
    return None


def _refuse_comparison(
    ctx: CheckContext, source: object, target: PropType, span: SourceSpan, advice: str | None = None
) -> None:
    ctx.fail("T7", span, f"cannot compare {source} with {target}", advice)


def _compare_literal(ctx: CheckContext, value: Any, target: PropType, span: SourceSpan) -> Const | None:
    literal_type = _literal_type(value)
    kind = type_family(target)
    if kind == "number" and type_family(literal_type) == "number":
        return _compare_number(ctx, value, target, literal_type, span)
    if kind in {"date", "datetime"} and isinstance(value, str):
        return _convert_constant(ctx, value, target, span)
    if kind != type_family(literal_type):
        _refuse_comparison(ctx, f"{literal_type} {json.dumps(value, ensure_ascii=False)}", target, span)
        return None
    return _convert_constant(ctx, value, target, span)


def _compare_number(
    ctx: CheckContext, value: Any, target: PropType, literal_type: PropType, span: SourceSpan
) -> Const | None:
    if target.scalar is Scalar.F32 and isinstance(value, float):
        # 0.1 as F64 equals no F32; the user means the stored number.
        try:
            return Const(round_to_f32(value), F32)
        except OverflowError:
            return Const(value, literal_type)
    return _convert_constant(ctx, value, literal_type, span)


def _compare_date(ctx: CheckContext, kind: str, text: str, target: PropType, span: SourceSpan) -> Const | None:
    literal_type = DATE if kind == "date" else DATETIME
    value = _convert_constant(ctx, text, literal_type, span)
    if value is None or type_family(target) == kind:
        return value
    if kind == "date" and type_family(target) == "datetime":
        return _convert_constant(ctx, value.value, target, span)
    _refuse_comparison(ctx, literal_type, target, span)
    return None


def _compare_param(ctx: CheckContext, param: Parameter, column_type: PropType, span: SourceSpan) -> Param | None:
    target = _comparison_target(param.type, column_type)
    if target is None:
        _refuse_comparison(ctx, f"`${param.name}` ({param.type})", column_type, span)
        return None
    return ctx.slot(param, target)


def _comparison_target(param_type: PropType, target: PropType) -> PropType | None:
    """The type to which a parameter is converted for a comparison, or None if it cannot be compared."""
    kinds = type_family(param_type), type_family(target)
    if kinds == ("list", "list"):
        inner = _comparison_target(element_type(param_type), element_type(target))
        # The elements of a list of an enum are compared as that enum's text.
        return None if inner is None else replace(inner, is_list=True)
    if kinds in {("text", "text"), ("text", "date"), ("text", "datetime"), ("date", "datetime")}:
        return target
    if kinds == ("number", "number"):
        return target if param_type.scalar is Scalar.F64 and target.scalar is Scalar.F32 else param_type
    return param_type if kinds[0] == kinds[1] and kinds[0] in {"bool", "date", "datetime"} else None


def _type_list(
    ctx: CheckContext, items: tuple[ExprSyntax, ...], inner: PropType, span: SourceSpan, *, compared: bool
) -> Const | ListOf | None:
    """A list literal whose elements become `inner`."""
    values: list[Const | Param | Now] = []
    for item in items:
        if isinstance(item, VariableSyntax) and ctx.params.get(item.name) is None and item.name not in ctx.params:
            _refuse_item(ctx, item)
            return None
        if isinstance(item, LiteralSyntax) and item.value is None:
            ctx.fail("T8", item.span, "a list holds no null items")
            return None
        value = type_for_comparison(ctx, item, inner) if compared else type_for_assignment(ctx, item, inner, False)
        if value is None:
            return None
        if isinstance(value, ListOf):
            _refuse_item(ctx, item)
            return None
        values.append(value)
    constants = [value for value in values if isinstance(value, Const)]
    if len(constants) < len(values):
        return ListOf(tuple(values), replace(inner, is_list=True))
    if compared and values and type_family(inner) == "number":
        return _type_numbers(ctx, constants, inner, span)
    return Const(tuple(value.value for value in constants), replace(inner, is_list=True))


def _type_numbers(ctx: CheckContext, items: list[Const], inner: PropType, span: SourceSpan) -> Const | None:
    """Numbers to compare with `inner`, in the one type that holds them all: it may be wider than `inner`."""
    values = [number.value for number in items]
    if any(isinstance(number, float) for number in values):
        single = all(number.type == F32 or isinstance(number.value, int) for number in items)
        return _convert_constant(ctx, values, replace(F32 if single else F64, is_list=True), span)
    unsigned = any(number.type == U64 for number in items)
    return _convert_constant(ctx, values, replace(U64 if unsigned else I64, is_list=True), span)


# ---- in an assignment ------------------------------------------------------------------------------------------------


def type_for_assignment(ctx: CheckContext, node: ExprSyntax, type_: PropType, nullable: bool) -> Value | None:
    """The literal, parameter or now() as a value that can be stored in a property of type `type_`."""
    match node:
        case LiteralSyntax(None, span):
            if nullable:
                return Const(None, type_, nullable=True)
            ctx.fail("T38", span, f"null for a required {type_}", "Give a value, or make the property optional: `T?`")
            return None
        case LiteralSyntax(value, span):
            return _convert_constant(ctx, value, type_, span) if _is_acceptable_text(ctx, value, type_, span) else None
        case DateLiteralSyntax(kind, text, span):
            return _assign_date(ctx, kind, text, type_, span)
        case ListSyntax(items, span):
            return _assign_list(ctx, items, type_, span)
        case VariableSyntax() if node.name in ctx.params:
            param = use_param(ctx, node)
            return None if param is None else _assign_param(ctx, param, type_, nullable, node.span)
        case NowSyntax(span):
            if type_family(type_) == "datetime":
                return Now()
            _refuse_assignment(ctx, "now() (DateTime)", type_, span)
            return None
    refuse_value(ctx, node)
    return None


def refuse_value(ctx: CheckContext, node: ExprSyntax) -> None:
    """Report a value that is not known in a mutation, which has no rows to read from."""
    if isinstance(node, VariableSyntax):
        ctx.fail("T4", node.span, f"there is no parameter `${node.name}`", f"Declare it: `${node.name}: Type`")
        return
    advice = "Read it with a query first, or pass it as a parameter"
    if isinstance(node, AliasSyntax):
        advice = f'Text is written "{node.name}", a parameter `${node.name}`'
    ctx.fail("T39", node.span, "a mutation takes literals, parameters and now()", advice)


def _is_acceptable_text(ctx: CheckContext, value: Any, type_: PropType, span: SourceSpan) -> bool:
    """Refuse text for a number: `convert` reads "NaN" from records, a literal is what it looks like."""
    if isinstance(value, str) and type_family(type_) == "number":
        _refuse_assignment(ctx, f"String {quote_value(value)}", type_, span)
        return False
    return True


def _refuse_assignment(
    ctx: CheckContext, source: object, type_: PropType, span: SourceSpan, advice: str | None = None
) -> None:
    ctx.fail("T8", span, f"{source} is no {type_}", advice)


def _assign_date(ctx: CheckContext, kind: str, text: str, type_: PropType, span: SourceSpan) -> Const | None:
    literal_type = DATE if kind == "date" else DATETIME
    value = _convert_constant(ctx, text, literal_type, span)
    if value is None:
        return None
    if type_family(type_) not in {"date", "datetime"} or (kind, type_family(type_)) == ("datetime", "date"):
        _refuse_assignment(ctx, literal_type, type_, span)
        return None
    return _convert_constant(ctx, value.value, type_, span)


def _assign_list(ctx: CheckContext, items: tuple[ExprSyntax, ...], type_: PropType, span: SourceSpan) -> Value | None:
    kind = type_family(type_)
    if kind == "list":
        return _type_list(ctx, items, element_type(type_), span, compared=False)
    if kind != "vector":
        _refuse_assignment(ctx, "a list", type_, span)
        return None
    numbers = [item.value for item in items if isinstance(item, LiteralSyntax)]
    if len(numbers) < len(items):
        _refuse_assignment(
            ctx, "a list that holds more than numbers", type_, span, "Pass the whole vector as a parameter"
        )
        return None
    return _convert_constant(ctx, numbers, type_, span)


def _assign_param(
    ctx: CheckContext, param: Parameter, type_: PropType, nullable: bool, span: SourceSpan
) -> Param | None:
    if not is_assignable(param.type, type_):
        _refuse_assignment(ctx, f"`${param.name}` ({param.type})", type_, span)
        return None
    if param.nullable and not nullable:
        advice = f"Declare it without `?`: `${param.name}: {param.type}`"
        ctx.fail("T38", span, f"`${param.name}` may be null, the value is required", advice)
        return None
    return ctx.slot(param, type_)


def is_assignable(source: PropType, target: PropType) -> bool:
    """Whether values of a parameter's type may become the target's; each value is still checked when it is given."""
    kinds = type_family(source), type_family(target)
    if kinds == ("list", "vector"):
        return type_family(element_type(source)) == "number"
    if kinds == ("vector", "vector"):
        return source.vector_size == target.vector_size
    if kinds == ("list", "list"):
        return is_assignable(element_type(source), element_type(target))
    if kinds == ("number", "number"):
        return is_integer(source) or target.scalar in FLOATS
    return kinds[0] == kinds[1] or kinds in {
        ("text", "date"),
        ("text", "datetime"),
        ("text", "blob"),
        ("date", "datetime"),
    }
