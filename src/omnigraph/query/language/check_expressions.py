"""Resolves names in expressions to columns, entities and slots. What is allowed depends on the clause around them."""

from __future__ import annotations

from typing import Literal

from omnigraph.query.language.check_context import CheckContext, entity_type
from omnigraph.query.language.check_functions import (
    RANK_FUNCTIONS,
    TEXT_FUNCTIONS,
    check_aggregate,
    check_rank,
    refuse_call,
)
from omnigraph.query.language.check_operators import Operand
from omnigraph.query.language.checked import AggregateCall, Entity, Expr, Now, Prop, Rank
from omnigraph.query.language.coerce import is_untyped, type_alone
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

Clause = Literal["match", "return", "order", "aggregate"]


def resolve_operand(ctx: CheckContext, scope: Scope, node: ExprSyntax) -> Operand | None:
    """One side of a filter. Literals and parameters stay untyped until the type of the other side is known."""
    return node if is_untyped(node, ctx) else resolve(ctx, scope, node, "match")


def resolve(ctx: CheckContext, scope: Scope, node: ExprSyntax, clause: Clause) -> Expr | None:
    """The expression with all names resolved; a finding and None if that fails."""
    match node:
        case PropertySyntax():
            return resolve_property(ctx, scope, node)
        case VariableSyntax() if node.name not in ctx.params:
            return _resolve_entity(ctx, scope, node, clause)
        case NowSyntax():
            return Now()
        case AggregateSyntax():
            return _resolve_aggregate(ctx, scope, node, clause)
        case CallSyntax():
            return _resolve_call(ctx, scope, node, clause)
        case AliasSyntax():
            _refuse_name(ctx, node, clause)
            return None
    return type_alone(ctx, node)


def _refuse_name(ctx: CheckContext, node: AliasSyntax, clause: Clause) -> None:
    if clause == "return":
        advice = "A result column can be named in `order`; here write the expression itself"
    else:
        advice = f'Text is written "{node.name}", a variable or parameter `${node.name}`'
    ctx.fail("T28", node.span, f"`{node.name}` names nothing here", advice)


def resolve_property(ctx: CheckContext, scope: Scope, node: PropertySyntax) -> Prop | None:
    name = node.variable.text
    if name in ctx.params:
        ctx.used_params.add(name)
        if scope.find(name) is not None:
            return None  # a variable is named like the parameter, which the scopes reported
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


def _resolve_entity(ctx: CheckContext, scope: Scope, node: VariableSyntax, clause: Clause) -> Entity | None:
    var = look_up(ctx, scope, node.name, node.span)
    if var is None or var.type is None:
        return None
    if clause == "return":
        ctx.read_all(var.type)
    else:
        ctx.read(var.type.id, ("id",))
    return Entity(node.name, entity_type(var.type), var.optional)


def _resolve_aggregate(ctx: CheckContext, scope: Scope, node: AggregateSyntax, clause: Clause) -> AggregateCall | None:
    if clause == "match":
        advice = "Match is about single rows; aggregates belong into return and order"
        ctx.fail("T21", node.span, f"{node.function}() cannot filter", advice)
        return None
    if clause == "aggregate":
        ctx.fail("T22", node.span, "an aggregate of an aggregate", "Run two queries")
        return None
    argument = resolve(ctx, scope, node.argument, "aggregate")
    return None if argument is None else check_aggregate(ctx, node, argument)


def _resolve_call(ctx: CheckContext, scope: Scope, node: CallSyntax, clause: Clause) -> Rank | None:
    name = node.function.text
    if name in TEXT_FUNCTIONS:
        ctx.fail("T21", node.span, f"{name}() is a clause of its own", "Write it in match, without a comparison")
        return None
    if name not in RANK_FUNCTIONS:
        refuse_call(ctx, node)
        return None
    if clause in {"match", "aggregate"}:
        where = "compared in match" if clause == "match" else "aggregated"
        ctx.fail("T21", node.span, f"{name}() is a rank and cannot be {where}", "Use it in order or return")
        return None
    return check_rank(ctx, node, lambda prop: resolve_property(ctx, scope, prop))
