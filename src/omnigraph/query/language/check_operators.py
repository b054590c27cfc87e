"""What the comparison operators take. Shared by filters, inline values and the conditions of mutations."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.query.language.check_context import CheckContext
from omnigraph.query.language.checked import STRING, CheckedCompare, Entity, Expr, Value
from omnigraph.query.language.coerce import Loose, comparable, element, family, for_comparison, natural
from omnigraph.query.language.syntax import (
    CompareOp,
    DateLiteralSyntax,
    ListSyntax,
    LiteralSyntax,
    SourceSpan,
    VariableSyntax,
)
from omnigraph.schema.catalog import PropType

#: A resolved expression, or a literal or parameter whose type the other side decides.
Operand = Expr | Loose

_ORDERED = {"number", "text", "date", "datetime"}


def compare(ctx: CheckContext, left: Operand, op: CompareOp, right: Operand, span: SourceSpan) -> CheckedCompare | None:
    """The comparison with both sides typed; a finding and None if it has no meaning."""
    if isinstance(left, Entity) or isinstance(right, Entity):
        return _entities(ctx, left, op, right, span)
    match op:
        case "contains":
            return _contains(ctx, left, right, span)
        case "in":
            return _in(ctx, left, right, span)
        case "starts_with":
            return _starts_with(ctx, left, right, span)
    sides = _meet(ctx, left, right)
    if sides is None:
        return None
    one, two = _plain_type(sides[0]), _plain_type(sides[1])
    if not comparable(one, two):
        ctx.fail("T7", span, f"`{op}` cannot compare {one} with {two}", _advice(one, two))
        return None
    if op not in {"=", "!="} and (family(one) not in _ORDERED or one.enum_values or two.enum_values):
        ctx.fail("T7", span, f"`{op}` needs values with an order, not {one}", "Use `=` or `!=`")
        return None
    return CheckedCompare(sides[0], op, sides[1])


def _advice(left: PropType, right: PropType) -> str | None:
    kinds = {family(left), family(right)}
    if "vector" in kinds:
        return "Vectors are compared by `nearest`, in `order`"
    if "list" in kinds:
        return "Use `contains` or `in` to look into a list"
    return None


def _plain_type(value: Expr) -> PropType:
    assert not isinstance(value, Entity)
    return value.type


def _is_loose(side: Operand) -> bool:
    return isinstance(side, (LiteralSyntax, DateLiteralSyntax, ListSyntax, VariableSyntax))


def _fixed(ctx: CheckContext, side: Operand) -> Expr | None:
    """The side by its own type."""
    if isinstance(side, (LiteralSyntax, DateLiteralSyntax, ListSyntax, VariableSyntax)):
        return natural(ctx, side)
    return side


def _towards(ctx: CheckContext, side: Operand, other: PropType) -> Expr | None:
    """The side as something to compare with `other`."""
    if isinstance(side, (LiteralSyntax, DateLiteralSyntax, ListSyntax, VariableSyntax)):
        return for_comparison(ctx, side, other)
    return side


def _meet(ctx: CheckContext, left: Operand, right: Operand) -> tuple[Expr, Expr] | None:
    """Both sides typed: what is fixed decides, then parameters, then the left literal."""
    if _leads(right, left):
        two = _fixed(ctx, right)
        one = None if two is None else _towards(ctx, left, _plain_type(two))
    else:
        one = _fixed(ctx, left)
        two = None if one is None else _towards(ctx, right, _plain_type(one))
    return None if one is None or two is None else (one, two)


def _leads(right: Operand, left: Operand) -> bool:
    """Whether the right side decides the type."""
    if isinstance(left, (LiteralSyntax, DateLiteralSyntax, ListSyntax)):
        return not isinstance(right, (LiteralSyntax, DateLiteralSyntax, ListSyntax))
    return isinstance(left, VariableSyntax) and not _is_loose(right)


def _entities(
    ctx: CheckContext, left: Operand, op: CompareOp, right: Operand, span: SourceSpan
) -> CheckedCompare | None:
    if isinstance(left, Entity) and isinstance(right, Entity):
        if op in {"=", "!="} and left.type == right.type:
            return CheckedCompare(left, op, right)
        message = f"`{op}` cannot compare {left.type} with {right.type}"
        ctx.fail("T7", span, message, "Two variables of one type can be compared by `=` and `!=`")
        return None
    entity = left if isinstance(left, Entity) else right
    assert isinstance(entity, Entity)
    advice = f"Compare a property: `${entity.var}.id`"
    ctx.fail("T7", span, f"`${entity.var}` is a whole {entity.type} and cannot be compared with a value", advice)
    return None


# ---- words -----------------------------------------------------------------------------------------------------------


def _contains(ctx: CheckContext, left: Operand, right: Operand, span: SourceSpan) -> CheckedCompare | None:
    """A list contains an element, a text contains a text."""
    if not _is_loose(left):
        whole: Expr | None = _fixed(ctx, left)
    elif _is_loose(right) or isinstance(left, (LiteralSyntax, DateLiteralSyntax)):
        whole = _fixed(ctx, left)
    else:
        return _loose_list_contains(ctx, left, right, span)
    if whole is None:
        return None
    type_ = _plain_type(whole)
    if family(type_) not in {"list", "text"}:
        ctx.fail("T7", span, f"`contains` looks into a list or a text, not into {type_}")
        return None
    inner = element(type_) if family(type_) == "list" else STRING
    part = _towards(ctx, right, inner)
    if part is None or not _holds(ctx, whole, part, inner, "contains", span):
        return None
    return CheckedCompare(whole, "contains", part)


def _loose_list_contains(ctx: CheckContext, left: Operand, right: Operand, span: SourceSpan) -> CheckedCompare | None:
    """`$names contains $p.name`: the element decides the type of the list."""
    part = _fixed(ctx, right)
    if part is None:
        return None
    if isinstance(left, VariableSyntax):
        param = ctx.params[left.name]
        if param is not None and family(param.type) == "text":
            text = natural(ctx, left)
            if text is None or not _holds(ctx, text, part, STRING, "contains", span):
                return None
            return CheckedCompare(text, "contains", part)
    whole = _list_of(ctx, left, part, span)
    return None if whole is None else CheckedCompare(whole, "contains", part)


def _list_of(ctx: CheckContext, side: Operand, part: Expr, span: SourceSpan) -> Value | None:
    type_ = _plain_type(part)
    if family(type_) in {"list", "vector", "blob"}:
        ctx.fail("T7", span, f"a list holds single values, not {type_}")
        return None
    assert isinstance(side, (LiteralSyntax, DateLiteralSyntax, ListSyntax, VariableSyntax))
    param = ctx.params.get(side.name) if isinstance(side, VariableSyntax) else None
    if isinstance(side, DateLiteralSyntax) or (isinstance(side, LiteralSyntax) and side.value is not None):
        ctx.fail("T7", side.span, "`in` and `contains` look into a list or a text", "Write a list: `[…]`")
        return None
    if param is not None and family(param.type) != "list":
        ctx.used.add(param.name)
        ctx.fail("T7", side.span, f"a list is needed, `${param.name}` is {param.type}", f"Declare it as `[{type_}]`")
        return None
    return for_comparison(ctx, side, replace(type_, is_list=True))


def _holds(ctx: CheckContext, whole: Expr, part: Expr, inner: PropType, op: CompareOp, span: SourceSpan) -> bool:
    """Whether `part` can be looked for in `whole`, whose parts are `inner`."""
    if comparable(_plain_type(part), inner):
        return True
    ctx.fail("T7", span, f"`{op}` cannot look for {part.type} in {whole.type}")
    return False


def _in(ctx: CheckContext, left: Operand, right: Operand, span: SourceSpan) -> CheckedCompare | None:
    """An element is in a list."""
    if not _is_loose(right) or _is_loose(left):
        whole = _fixed(ctx, right)
        if whole is None:
            return None
        type_ = _plain_type(whole)
        if family(type_) != "list":
            advice = "Text in text is `contains`, with the sides exchanged" if family(type_) == "text" else None
            ctx.fail("T7", span, f"`in` looks into a list, not into {type_}", advice)
            return None
        part = _towards(ctx, left, element(type_))
        if part is None or not _holds(ctx, whole, part, element(type_), "in", span):
            return None
        return CheckedCompare(part, "in", whole)
    part = _fixed(ctx, left)
    listed = None if part is None else _list_of(ctx, right, part, span)
    return None if part is None or listed is None else CheckedCompare(part, "in", listed)


def _starts_with(ctx: CheckContext, left: Operand, right: Operand, span: SourceSpan) -> CheckedCompare | None:
    one, two = _towards(ctx, left, STRING), _towards(ctx, right, STRING)
    if one is None or two is None:
        return None
    for side in (one, two):
        if family(_plain_type(side)) != "text":
            ctx.fail("T7", span, f"`starts_with` takes texts, not {side.type}")
            return None
    return CheckedCompare(one, "starts_with", two)
