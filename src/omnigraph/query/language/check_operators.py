"""Checks comparisons: which types an operator takes. For filters, inline values and the conditions of mutations."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.query.language.check_context import CheckContext
from omnigraph.query.language.checked import STRING, CheckedCompare, Entity, Expr, Value
from omnigraph.query.language.coerce import (
    are_comparable,
    element_type,
    type_alone,
    type_family,
    type_for_comparison,
)
from omnigraph.query.language.statements import CompareOp
from omnigraph.query.language.syntax import (
    DateLiteralSyntax,
    ListSyntax,
    LiteralSyntax,
    SourceSpan,
    UntypedSyntax,
    VariableSyntax,
)
from omnigraph.schema.catalog import PropType

#: A resolved expression, or a literal or parameter whose type the other side decides.
Operand = Expr | UntypedSyntax

_ORDERED = {"number", "text", "date", "datetime"}


def check_compare(
    ctx: CheckContext, lhs: Operand, op: CompareOp, rhs: Operand, span: SourceSpan
) -> CheckedCompare | None:
    """The comparison with both sides typed; a finding and None if it has no meaning."""
    if isinstance(lhs, Entity) or isinstance(rhs, Entity):
        return _compare_entities(ctx, lhs, op, rhs, span)
    match op:
        case "contains":
            return _check_contains(ctx, lhs, rhs, span)
        case "in":
            return _check_in(ctx, lhs, rhs, span)
        case "starts_with":
            return _check_starts_with(ctx, lhs, rhs, span)
    sides = _type_both(ctx, lhs, rhs)
    if sides is None:
        return None
    lhs_type, rhs_type = _value_type(sides[0]), _value_type(sides[1])
    if not are_comparable(lhs_type, rhs_type):
        ctx.fail("T7", span, f"`{op}` cannot compare {lhs_type} with {rhs_type}", _advice(lhs_type, rhs_type))
        return None
    has_order = type_family(lhs_type) in _ORDERED and not lhs_type.enum_values and not rhs_type.enum_values
    if op not in {"=", "!="} and not has_order:
        ctx.fail("T7", span, f"`{op}` needs values with an order, not {lhs_type}", "Use `=` or `!=`")
        return None
    return CheckedCompare(sides[0], op, sides[1])


def _advice(lhs: PropType, rhs: PropType) -> str | None:
    kinds = {type_family(lhs), type_family(rhs)}
    if "vector" in kinds:
        return "Vectors are compared by `nearest`, in `order`"
    if "list" in kinds:
        return "Use `contains` or `in` to look into a list"
    return None


def _value_type(value: Expr) -> PropType:
    assert not isinstance(value, Entity)
    return value.type


def _type_alone(ctx: CheckContext, side: Operand) -> Expr | None:
    """The side typed by itself, if it is untyped."""
    if isinstance(side, UntypedSyntax):
        return type_alone(ctx, side)
    return side


def _type_towards(ctx: CheckContext, side: Operand, target: PropType) -> Expr | None:
    """The side typed for a comparison with a value of type `target`, if it is untyped."""
    if isinstance(side, UntypedSyntax):
        return type_for_comparison(ctx, side, target)
    return side


def _type_both(ctx: CheckContext, lhs: Operand, rhs: Operand) -> tuple[Expr, Expr] | None:
    """Give both sides a type: a side that has one decides for the other, then a parameter, then the left literal."""
    if _right_decides(rhs, lhs):
        typed_rhs = _type_alone(ctx, rhs)
        typed_lhs = None if typed_rhs is None else _type_towards(ctx, lhs, _value_type(typed_rhs))
    else:
        typed_lhs = _type_alone(ctx, lhs)
        typed_rhs = None if typed_lhs is None else _type_towards(ctx, rhs, _value_type(typed_lhs))
    return None if typed_lhs is None or typed_rhs is None else (typed_lhs, typed_rhs)


def _right_decides(rhs: Operand, lhs: Operand) -> bool:
    """Whether the right side decides the type of the left side."""
    if isinstance(lhs, (LiteralSyntax, DateLiteralSyntax, ListSyntax)):
        return not isinstance(rhs, (LiteralSyntax, DateLiteralSyntax, ListSyntax))
    return isinstance(lhs, VariableSyntax) and not isinstance(rhs, UntypedSyntax)


def _compare_entities(
    ctx: CheckContext, lhs: Operand, op: CompareOp, rhs: Operand, span: SourceSpan
) -> CheckedCompare | None:
    if isinstance(lhs, Entity) and isinstance(rhs, Entity):
        if op in {"=", "!="} and lhs.type == rhs.type:
            return CheckedCompare(lhs, op, rhs)
        message = f"`{op}` cannot compare {lhs.type} with {rhs.type}"
        ctx.fail("T7", span, message, "Two variables of one type can be compared by `=` and `!=`")
        return None
    entity = lhs if isinstance(lhs, Entity) else rhs
    assert isinstance(entity, Entity)
    advice = f"Compare a property: `${entity.var}.id`"
    ctx.fail("T7", span, f"`${entity.var}` is a whole {entity.type} and cannot be compared with a value", advice)
    return None


# ---- words -----------------------------------------------------------------------------------------------------------


def _check_contains(ctx: CheckContext, lhs: Operand, rhs: Operand, span: SourceSpan) -> CheckedCompare | None:
    """Check that a list contains an element, or a text contains a text."""
    if not isinstance(lhs, UntypedSyntax):
        container: Expr | None = _type_alone(ctx, lhs)
    elif isinstance(rhs, UntypedSyntax) or isinstance(lhs, (LiteralSyntax, DateLiteralSyntax)):
        container = _type_alone(ctx, lhs)
    else:
        return _check_untyped_list_contains(ctx, lhs, rhs, span)
    if container is None:
        return None
    type_ = _value_type(container)
    if type_family(type_) not in {"list", "text"}:
        ctx.fail("T7", span, f"`contains` looks into a list or a text, not into {type_}")
        return None
    inner = element_type(type_) if type_family(type_) == "list" else STRING
    part = _type_towards(ctx, rhs, inner)
    if part is None or not _check_member(ctx, container, part, inner, "contains", span):
        return None
    return CheckedCompare(container, "contains", part)


def _check_untyped_list_contains(
    ctx: CheckContext, lhs: Operand, rhs: Operand, span: SourceSpan
) -> CheckedCompare | None:
    """Check `$names contains $p.name`: the element decides the type of the list."""
    part = _type_alone(ctx, rhs)
    if part is None:
        return None
    if isinstance(lhs, VariableSyntax):
        param = ctx.params[lhs.name]
        if param is not None and type_family(param.type) == "text":
            text = type_alone(ctx, lhs)
            if text is None or not _check_member(ctx, text, part, STRING, "contains", span):
                return None
            return CheckedCompare(text, "contains", part)
    container = _type_list_of(ctx, lhs, part, span)
    return None if container is None else CheckedCompare(container, "contains", part)


def _type_list_of(ctx: CheckContext, side: Operand, part: Expr, span: SourceSpan) -> Value | None:
    type_ = _value_type(part)
    if type_family(type_) in {"list", "vector", "blob"}:
        ctx.fail("T7", span, f"a list holds single values, not {type_}")
        return None
    assert isinstance(side, UntypedSyntax)
    param = ctx.params.get(side.name) if isinstance(side, VariableSyntax) else None
    if isinstance(side, DateLiteralSyntax) or (isinstance(side, LiteralSyntax) and side.value is not None):
        ctx.fail("T7", side.span, "`in` and `contains` look into a list or a text", "Write a list: `[…]`")
        return None
    if param is not None and type_family(param.type) != "list":
        ctx.used_params.add(param.name)
        ctx.fail("T7", side.span, f"a list is needed, `${param.name}` is {param.type}", f"Declare it as `[{type_}]`")
        return None
    return type_for_comparison(ctx, side, replace(type_, is_list=True))


def _check_member(
    ctx: CheckContext, container: Expr, part: Expr, inner: PropType, op: CompareOp, span: SourceSpan
) -> bool:
    """Whether `part` can be looked for in `container`, whose elements are `inner`; a finding if not."""
    if are_comparable(_value_type(part), inner):
        return True
    ctx.fail("T7", span, f"`{op}` cannot look for {part.type} in {container.type}")
    return False


def _check_in(ctx: CheckContext, lhs: Operand, rhs: Operand, span: SourceSpan) -> CheckedCompare | None:
    """Check that an element is in a list."""
    if not isinstance(rhs, UntypedSyntax) or isinstance(lhs, UntypedSyntax):
        container = _type_alone(ctx, rhs)
        if container is None:
            return None
        type_ = _value_type(container)
        if type_family(type_) != "list":
            advice = "Text in text is `contains`, with the sides exchanged" if type_family(type_) == "text" else None
            ctx.fail("T7", span, f"`in` looks into a list, not into {type_}", advice)
            return None
        part = _type_towards(ctx, lhs, element_type(type_))
        if part is None or not _check_member(ctx, container, part, element_type(type_), "in", span):
            return None
        return CheckedCompare(part, "in", container)
    part = _type_alone(ctx, lhs)
    untyped_container = None if part is None else _type_list_of(ctx, rhs, part, span)
    return None if part is None or untyped_container is None else CheckedCompare(part, "in", untyped_container)


def _check_starts_with(ctx: CheckContext, lhs: Operand, rhs: Operand, span: SourceSpan) -> CheckedCompare | None:
    text, prefix = _type_towards(ctx, lhs, STRING), _type_towards(ctx, rhs, STRING)
    if text is None or prefix is None:
        return None
    for side in (text, prefix):
        if type_family(_value_type(side)) != "text":
            ctx.fail("T7", span, f"`starts_with` takes texts, not {side.type}")
            return None
    return CheckedCompare(text, "starts_with", prefix)
