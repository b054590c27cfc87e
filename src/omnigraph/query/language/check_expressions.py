"""Names in expressions become columns, entities and slots, with the rules of the place where they stand."""

from __future__ import annotations

from typing import Literal, cast

from omnigraph.query.language.check_context import CheckContext, entity_type
from omnigraph.query.language.check_functions import RANK_FUNCTIONS, TEXT_FUNCTIONS, aggregate, rank, refuse_unknown
from omnigraph.query.language.check_operators import Operand
from omnigraph.query.language.checked import AggregateCall, Entity, Expr, Now, Prop, Rank
from omnigraph.query.language.coerce import Loose, is_loose, natural
from omnigraph.query.language.scope import Scope, look_up
from omnigraph.query.language.syntax import (
    AggregateSyntax,
    AliasSyntax,
    CallSyntax,
    ExprSyntax,
    NowSyntax,
    PropertySyntax,
    VariableSyntax,
)
from omnigraph.schema.catalog import Scalar

Place = Literal["match", "return", "order", "aggregate"]


def operand(ctx: CheckContext, scope: Scope, node: ExprSyntax) -> Operand | None:
    """One side of a filter; literals and parameters wait for the other side's type."""
    return cast(Loose, node) if is_loose(ctx, node) else resolve(ctx, scope, node, "match")


def resolve(ctx: CheckContext, scope: Scope, node: ExprSyntax, place: Place) -> Expr | None:
    """The expression with all names resolved; a finding and None if that fails."""
    match node:
        case PropertySyntax():
            return resolve_property(ctx, scope, node)
        case VariableSyntax() if node.name not in ctx.params:
            return _entity(ctx, scope, node, place)
        case NowSyntax():
            return Now()
        case AggregateSyntax():
            return _aggregate(ctx, scope, node, place)
        case CallSyntax():
            return _call(ctx, scope, node, place)
        case AliasSyntax():
            _refuse_name(ctx, node, place)
            return None
    return natural(ctx, node)


def _refuse_name(ctx: CheckContext, node: AliasSyntax, place: Place) -> None:
    if place == "return":
        advice = "A result column can be named in `order`; here write the expression itself"
    else:
        advice = f'Text is written "{node.name}", a variable or parameter `${node.name}`'
    ctx.fail("T28", node.span, f"`{node.name}` names nothing here", advice)


def resolve_property(ctx: CheckContext, scope: Scope, node: PropertySyntax) -> Prop | None:
    name = node.variable.text
    if name in ctx.params:
        ctx.used.add(name)
        if scope.find(name) is not None:
            return None  # it was to be a variable, which was reported
        ctx.fail("T3", node.span, f"`${name}` is a parameter and has no properties", f"Write `${name}`")
        return None
    var = look_up(ctx, scope, name, node.variable.span)
    if var is None or var.type is None:
        return None
    prop = ctx.property_of(var.type, node.property)
    if prop is None:
        return None
    if prop.type.scalar is Scalar.BLOB:
        advice = "Read it with `g.blob` or over HTTP by the entity's id"
        ctx.fail("T11", node.span, f"`{prop.name}` is a Blob and never a query value", advice)
        return None
    ctx.read(var.type.id, (prop.id,))
    return Prop(name, var.type.id, prop.id, prop.name, prop.type, prop.nullable or var.optional)


def _entity(ctx: CheckContext, scope: Scope, node: VariableSyntax, place: Place) -> Entity | None:
    var = look_up(ctx, scope, node.name, node.span)
    if var is None or var.type is None:
        return None
    if place == "return":
        ctx.read_all(var.type)
    else:
        ctx.read(var.type.id, ("id",))
    return Entity(node.name, entity_type(var.type), var.optional)


def _aggregate(ctx: CheckContext, scope: Scope, node: AggregateSyntax, place: Place) -> AggregateCall | None:
    if place == "match":
        advice = "Match is about single rows; aggregates belong into return and order"
        ctx.fail("T21", node.span, f"{node.function}() cannot filter", advice)
        return None
    if place == "aggregate":
        ctx.fail("T22", node.span, "an aggregate of an aggregate", "Run two queries")
        return None
    argument = resolve(ctx, scope, node.argument, "aggregate")
    return None if argument is None else aggregate(ctx, node, argument)


def _call(ctx: CheckContext, scope: Scope, node: CallSyntax, place: Place) -> Rank | None:
    name = node.function.text
    if name in TEXT_FUNCTIONS:
        ctx.fail("T21", node.span, f"{name}() is a clause of its own", "Write it in match, without a comparison")
        return None
    if name not in RANK_FUNCTIONS:
        refuse_unknown(ctx, node)
        return None
    if place in {"match", "aggregate"}:
        where = "compared in match" if place == "match" else "aggregated"
        ctx.fail("T21", node.span, f"{name}() is a rank and cannot be {where}", "Use it in order or return")
        return None
    return rank(ctx, node, lambda prop: resolve_property(ctx, scope, prop))
