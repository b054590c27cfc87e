"""The return, order, limit and offset of a query: columns and their names, implied grouping, an order that decides."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.query.language.check_context import CheckContext, did_you_mean, listed
from omnigraph.query.language.check_expressions import resolve
from omnigraph.query.language.check_functions import uses_nearest, whole_number
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
from omnigraph.query.language.coerce import family
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
    """The whole reading query, or None after findings that leave no result to speak of."""
    scope = build_scopes(ctx, body)
    pattern = check_pattern(ctx, scope)
    columns = _columns(ctx, scope, body)
    order = _order(ctx, scope, body, columns)
    limit = _number(ctx, body.limit, "limit")
    offset = _number(ctx, body.offset, "offset")
    if columns is None or order is None:
        return None
    values = [*(one.value for one in columns), *(one.value for one in order)]
    grouped = any(isinstance(one, AggregateCall) for one in values)
    distinct = any(one.distinct for one in body.projections)
    if grouped or distinct:
        _check_decided(ctx, body, columns, order, grouped)
    grouping = _grouping(columns) if grouped else None
    if grouping == ():
        columns = tuple(replace(one, value=_of_all(one.value)) for one in columns)
        order = tuple(replace(one, value=_of_all(one.value)) for one in order)
    # Groups differ in their grouping columns, all of which are returned: distinct adds nothing to them.
    return CheckedRead(pattern, columns, distinct and not grouped, grouping, order, limit, offset)


def _grouping(columns: tuple[ReturnColumn, ...]) -> tuple[int, ...]:
    """Constants do not make groups."""
    kinds = (Prop, Entity, Bm25, Nearest, Rrf)
    return tuple(place for place, one in enumerate(columns) if isinstance(one.value, kinds))


def _of_all(value: Expr) -> Expr:
    """The aggregate of all rows is null when there are none."""
    if isinstance(value, AggregateCall) and value.function != "count":
        return replace(value, nullable=True)
    return value


# ---- columns ---------------------------------------------------------------------------------------------------------


def _columns(ctx: CheckContext, scope: Scope, body: ReadSyntax) -> tuple[ReturnColumn, ...] | None:
    columns: list[ReturnColumn] = []
    names: set[str] = set()
    complete = True
    for one in body.projections:
        value = resolve(ctx, scope, one.value, "return")
        name = _column_name(ctx, one)
        if name is not None and name in names:
            advice = "Give one of them another name: `… as name`"
            ctx.fail("T26", one.span, f"two result columns are named `{name}`", advice)
        if one.distinct and isinstance(one.value, AggregateSyntax):
            advice = f"Write `{one.value.function}(distinct …)`" if one.value.function == "count" else "Leave it out"
            ctx.fail("T23", one.span, "`distinct` has no meaning before an aggregate", advice)
        if value is not None and uses_nearest(value) and body.limit is None:
            _refuse_unlimited(ctx, one.value.span)
        if name is None or value is None:
            complete = False
            continue
        names.add(name)
        columns.append(ReturnColumn(name, value))
    return tuple(columns) if complete else None


def _refuse_unlimited(ctx: CheckContext, span: SourceSpan) -> None:
    ctx.fail("T24", span, "nearest() without a limit ranks everything", "Add `limit 10`")


def _column_name(ctx: CheckContext, one: ProjectionSyntax) -> str | None:
    """Alias, else `var.prop`, else `var`, else the function's name."""
    if one.alias is not None:
        return one.alias.text
    match one.value:
        case PropertySyntax(variable, prop):
            return f"{variable.text}.{prop.text}"
        case VariableSyntax(name):
            return name
        case AggregateSyntax():
            return one.value.function
        case CallSyntax():
            return one.value.function.text
        case NowSyntax():
            return "now"
        case AliasSyntax():
            return None  # reported as no value
    ctx.fail("T27", one.value.span, "the result column has no name", "Give it one: `… as name`")
    return None


# ---- order -----------------------------------------------------------------------------------------------------------


def _order(
    ctx: CheckContext, scope: Scope, body: ReadSyntax, columns: tuple[ReturnColumn, ...] | None
) -> tuple[OrderBy, ...] | None:
    keys: list[OrderBy] = []
    complete = True
    for one in body.order:
        if isinstance(one.value, AliasSyntax):
            if columns is None:
                complete = False
                continue
            value = _named(ctx, one.value, columns)
        else:
            value = resolve(ctx, scope, one.value, "order")
        if value is not None and uses_nearest(value) and body.limit is None:
            _refuse_unlimited(ctx, one.value.span)
        descending = None if value is None else _descending(ctx, one, value)
        if value is None or descending is None:
            complete = False
            continue
        keys.append(OrderBy(value, descending, _place(columns or (), value)))
    return tuple(keys) if complete else None


def _named(ctx: CheckContext, node: AliasSyntax, columns: tuple[ReturnColumn, ...]) -> Expr | None:
    for one in columns:
        if one.name == node.name:
            return one.value
    names = [one.name for one in columns]
    advice = did_you_mean(node.name, names) or f"The result has {listed(names)}"
    ctx.fail("T28", node.span, f"there is no result column `{node.name}`", advice)
    return None


def _place(columns: tuple[ReturnColumn, ...], value: Expr) -> int | None:
    return next((place for place, one in enumerate(columns) if one.value == value), None)


def _descending(ctx: CheckContext, one: OrderSyntax, value: Expr) -> bool | None:
    """The direction; a rank has only one, and some values have none."""
    if isinstance(value, (Bm25, Nearest, Rrf)):
        best: Sorted = "asc" if isinstance(value, Nearest) else "desc"
        if one.direction not in {None, best}:
            advice = f"Leave out `{one.direction}`"
            ctx.fail("T25", one.span, f"a rank is ordered best first, that is `{best}`", advice)
            return None
        return best == "desc"
    if isinstance(value, (Const, Param, Now, ListOf)):
        ctx.fail("T30", one.span, "a constant decides no order", "Order by a property, an aggregate or a rank")
        return None
    if isinstance(value, Entity):
        ctx.fail("T30", one.span, f"a whole {value.type} has no order", f"Order by a property: `${value.var}.id`")
        return None
    if family(value.type) in {"list", "vector"}:
        ctx.fail("T30", one.span, f"values of type {value.type} have no order", "Order by another property")
        return None
    return one.direction == "desc"


def _check_decided(
    ctx: CheckContext,
    body: ReadSyntax,
    columns: tuple[ReturnColumn, ...],
    order: tuple[OrderBy, ...],
    grouped: bool,
) -> None:
    """Each key must have one value per returned row."""
    whole = {one.value.var for one in columns if isinstance(one.value, Entity)}
    for node, key in zip(body.order, order, strict=True):
        if key.column is not None or (grouped and isinstance(key.value, AggregateCall)):
            continue
        if isinstance(key.value, Prop) and key.value.var in whole:
            continue
        what = "a group" if grouped else "a distinct row"
        advice = "Return it as well, or order by something that is returned"
        ctx.fail("T29", node.span, f"{what} may hold several values of it", advice)


def _number(ctx: CheckContext, node: LiteralSyntax | VariableSyntax | None, what: str) -> Const | Param | None:
    if node is None:
        return None
    if isinstance(node, VariableSyntax) and node.name not in ctx.params:
        ctx.fail("T4", node.span, f"there is no parameter `${node.name}`", f"Declare it: `${node.name}: I64`")
        return None
    return whole_number(ctx, node, 0, "T31", what)
