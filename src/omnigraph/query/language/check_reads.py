"""Checks return, order, limit and offset: result columns and their names, implied grouping, keys of the order."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.query.language.check_context import CheckContext, did_you_mean, list_words
from omnigraph.query.language.check_expressions import resolve
from omnigraph.query.language.check_functions import check_whole_number, uses_nearest
from omnigraph.query.language.check_patterns import check_pattern
from omnigraph.query.language.checked import (
    AggregateCall,
    Bm25,
    CheckedRead,
    Const,
    Entity,
    Expr,
    ListOf,
    Nearest,
    Now,
    OrderBy,
    Param,
    Prop,
    ReturnColumn,
    Rrf,
)
from omnigraph.query.language.coerce import type_family
from omnigraph.query.language.scope import Scope, build_scopes
from omnigraph.query.language.syntax import (
    AggregateSyntax,
    AliasSyntax,
    CallSyntax,
    LiteralSyntax,
    NowSyntax,
    OrderSyntax,
    ProjectionSyntax,
    PropertySyntax,
    ReadSyntax,
    Sorted,
    SourceSpan,
    VariableSyntax,
)


def check_read(ctx: CheckContext, body: ReadSyntax) -> CheckedRead | None:
    """The whole reading query, or None if a finding leaves a column or a key of the order without a value."""
    scope = build_scopes(ctx, body)
    pattern = check_pattern(ctx, scope)
    columns = _check_columns(ctx, scope, body)
    order = _check_order(ctx, scope, body, columns)
    limit = _check_count(ctx, body.limit, "limit")
    offset = _check_count(ctx, body.offset, "offset")
    if columns is None or order is None:
        return None
    values = [*(item.value for item in columns), *(item.value for item in order)]
    grouped = any(isinstance(item, AggregateCall) for item in values)
    distinct = any(item.distinct for item in body.projections)
    if grouped or distinct:
        _check_order_is_decided(ctx, body, columns, order, grouped)
    grouping = _group_columns(columns) if grouped else None
    if grouping == ():
        columns = tuple(replace(item, value=_without_groups(item.value)) for item in columns)
        order = tuple(replace(item, value=_without_groups(item.value)) for item in order)
    # Groups differ in their grouping columns, all of which are returned: distinct adds nothing to them.
    return CheckedRead(pattern, columns, distinct and not grouped, grouping, order, limit, offset)


def _group_columns(columns: tuple[ReturnColumn, ...]) -> tuple[int, ...]:
    """Positions of the columns that form the groups: all but constants and aggregates."""
    kinds = (Prop, Entity, Bm25, Nearest, Rrf)
    return tuple(position for position, column in enumerate(columns) if isinstance(column.value, kinds))


def _without_groups(value: Expr) -> Expr:
    """The aggregate over all rows as one group: but for a count it is null if there are no rows."""
    if isinstance(value, AggregateCall) and value.function != "count":
        return replace(value, nullable=True)
    return value


# ---- columns ---------------------------------------------------------------------------------------------------------


def _check_columns(ctx: CheckContext, scope: Scope, body: ReadSyntax) -> tuple[ReturnColumn, ...] | None:
    columns: list[ReturnColumn] = []
    names: set[str] = set()
    complete = True
    for projection in body.projections:
        value = resolve(ctx, scope, projection.value, "return")
        name = _column_name(ctx, projection)
        if name is not None and name in names:
            advice = "Give one of them another name: `… as name`"
            ctx.fail("T26", projection.span, f"two result columns are named `{name}`", advice)
        if projection.distinct and isinstance(projection.value, AggregateSyntax):
            advice = (
                f"Write `{projection.value.function}(distinct …)`"
                if projection.value.function == "count"
                else "Leave it out"
            )
            ctx.fail("T23", projection.span, "`distinct` has no meaning before an aggregate", advice)
        if value is not None and uses_nearest(value) and body.limit is None:
            _refuse_unlimited(ctx, projection.value.span)
        if name is None or value is None:
            complete = False
            continue
        names.add(name)
        columns.append(ReturnColumn(name, value))
    return tuple(columns) if complete else None


def _refuse_unlimited(ctx: CheckContext, span: SourceSpan) -> None:
    ctx.fail("T24", span, "nearest() without a limit ranks everything", "Add `limit 10`")


def _column_name(ctx: CheckContext, projection: ProjectionSyntax) -> str | None:
    """The alias if there is one, else `var.prop`, `var` or the name of the function."""
    if projection.alias is not None:
        return projection.alias.text
    match projection.value:
        case PropertySyntax(variable, prop):
            return f"{variable.text}.{prop.text}"
        case VariableSyntax(name):
            return name
        case AggregateSyntax():
            return projection.value.function
        case CallSyntax():
            return projection.value.function.text
        case NowSyntax():
            return "now"
        case AliasSyntax():
            return None  # `resolve` reports it
    ctx.fail("T27", projection.value.span, "the result column has no name", "Give it one: `… as name`")
    return None


# ---- order -----------------------------------------------------------------------------------------------------------


def _check_order(
    ctx: CheckContext, scope: Scope, body: ReadSyntax, columns: tuple[ReturnColumn, ...] | None
) -> tuple[OrderBy, ...] | None:
    keys: list[OrderBy] = []
    complete = True
    for key in body.order:
        if isinstance(key.value, AliasSyntax):
            if columns is None:
                complete = False
                continue
            value = _column_by_alias(ctx, key.value, columns)
        else:
            value = resolve(ctx, scope, key.value, "order")
        if value is not None and uses_nearest(value) and body.limit is None:
            _refuse_unlimited(ctx, key.value.span)
        descending = None if value is None else _is_descending(ctx, key, value)
        if value is None or descending is None:
            complete = False
            continue
        keys.append(OrderBy(value, descending, _column_position(columns or (), value)))
    return tuple(keys) if complete else None


def _column_by_alias(ctx: CheckContext, node: AliasSyntax, columns: tuple[ReturnColumn, ...]) -> Expr | None:
    for column in columns:
        if column.name == node.name:
            return column.value
    names = [column.name for column in columns]
    advice = did_you_mean(node.name, names) or f"The result has {list_words(names)}"
    ctx.fail("T28", node.span, f"there is no result column `{node.name}`", advice)
    return None


def _column_position(columns: tuple[ReturnColumn, ...], value: Expr) -> int | None:
    return next((position for position, column in enumerate(columns) if column.value == value), None)


def _is_descending(ctx: CheckContext, key: OrderSyntax, value: Expr) -> bool | None:
    """Whether the order descends. A value without an order, or a rank ordered worst first, is reported: then None."""
    if isinstance(value, (Bm25, Nearest, Rrf)):
        best: Sorted = "asc" if isinstance(value, Nearest) else "desc"
        if key.direction not in {None, best}:
            advice = f"Leave out `{key.direction}`"
            ctx.fail("T25", key.span, f"a rank is ordered best first, that is `{best}`", advice)
            return None
        return best == "desc"
    if isinstance(value, (Const, Param, Now, ListOf)):
        ctx.fail("T30", key.span, "a constant decides no order", "Order by a property, an aggregate or a rank")
        return None
    if isinstance(value, Entity):
        ctx.fail("T30", key.span, f"a whole {value.type} has no order", f"Order by a property: `${value.var}.id`")
        return None
    if type_family(value.type) in {"list", "vector"}:
        ctx.fail("T30", key.span, f"values of type {value.type} have no order", "Order by another property")
        return None
    return key.direction == "desc"


def _check_order_is_decided(
    ctx: CheckContext,
    body: ReadSyntax,
    columns: tuple[ReturnColumn, ...],
    order: tuple[OrderBy, ...],
    grouped: bool,
) -> None:
    """Refuse a key of the order that may have several values per returned row."""
    returned_entities = {column.value.var for column in columns if isinstance(column.value, Entity)}
    for node, key in zip(body.order, order, strict=True):
        if key.column is not None or (grouped and isinstance(key.value, AggregateCall)):
            continue
        if isinstance(key.value, Prop) and key.value.var in returned_entities:
            continue
        noun = "a group" if grouped else "a distinct row"
        advice = "Return it as well, or order by something that is returned"
        ctx.fail("T29", node.span, f"{noun} may hold several values of it", advice)


def _check_count(ctx: CheckContext, node: LiteralSyntax | VariableSyntax | None, noun: str) -> Const | Param | None:
    if node is None:
        return None
    if isinstance(node, VariableSyntax) and node.name not in ctx.params:
        ctx.fail("T4", node.span, f"there is no parameter `${node.name}`", f"Declare it: `${node.name}: I64`")
        return None
    return check_whole_number(ctx, node, 0, "T31", noun)
