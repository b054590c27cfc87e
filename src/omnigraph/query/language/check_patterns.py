"""The clauses of a match, checked: hops with their direction, filters with typed sides, blocks with their joins."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.query.language import checked as c
from omnigraph.query.language import syntax as t
from omnigraph.query.language.check_context import CheckContext, edge_word
from omnigraph.query.language.check_expressions import operand, resolve, resolve_property
from omnigraph.query.language.check_functions import TEXT_FUNCTIONS, text_filter
from omnigraph.query.language.check_operators import compare
from omnigraph.query.language.scope import Scope, Var, bound, look_up
from omnigraph.schema.catalog import TypeDef


def check_pattern(ctx: CheckContext, scope: Scope) -> c.Pattern:
    """The block without names. Clauses that failed are left out; their findings stop the query anyway."""
    hops: list[c.Hop] = []
    filters: list[c.Predicate] = []
    texts: list[c.TextFilter] = []
    for clause in scope.clauses:
        match clause:
            case t.BindingSyntax():
                filters.extend(_inline(ctx, scope, clause))
            case t.TraversalSyntax():
                hops.extend(_hop(ctx, scope, clause))
            case t.FilterSyntax() | t.NullTestSyntax() | t.AnyOfSyntax():
                filters.extend(_some(_predicate(ctx, scope, clause)))
            case t.TextCallSyntax():
                texts.extend(_some_text(_text(ctx, scope, clause)))
    _read_ids(ctx, scope)
    optionals = tuple(check_pattern(ctx, inner) for inner in scope.optionals)
    nots = tuple(_not(ctx, inner) for inner in scope.nots)
    variables = tuple(bound(var) for var in scope.own.values() if not var.broken)
    return c.Pattern(variables, tuple(hops), tuple(filters), tuple(texts), optionals, nots)


def _some(found: c.Predicate | None) -> Iterator[c.Predicate]:
    if found is not None:
        yield found


def _some_text(found: c.TextFilter | None) -> Iterator[c.TextFilter]:
    if found is not None:
        yield found


def _read_ids(ctx: CheckContext, scope: Scope) -> None:
    for var in scope.own.values():
        if var.type is not None:
            ctx.read(var.type.id, ("id",) if var.type.kind == "node" else ("id", "src", "dst"))


# ---- bindings --------------------------------------------------------------------------------------------------------


def _inline(ctx: CheckContext, scope: Scope, clause: t.BindingSyntax) -> Iterator[c.Predicate]:
    """`{p: v}` is equality, and membership when `p` is a list."""
    seen: set[str] = set()
    for pair in clause.inline:
        if pair.name.text in seen:
            ctx.fail("T34", pair.name.span, f"`{pair.name.text}` is given twice", "Write one of them as a filter")
        seen.add(pair.name.text)
        span = t.SourceSpan(pair.name.span.start, pair.value.span.end, pair.name.span.line, pair.name.span.column)
        prop = resolve_property(ctx, scope, t.PropertySyntax(clause.variable, pair.name, span))
        value = operand(ctx, scope, pair.value)
        if prop is None or value is None:
            continue
        op: t.CompareOp = "contains" if prop.type.is_list else "="
        yield from _some(compare(ctx, prop, op, value, span))


# ---- hops ------------------------------------------------------------------------------------------------------------


def _hop(ctx: CheckContext, scope: Scope, clause: t.TraversalSyntax) -> Iterator[c.Hop]:
    edge = ctx.catalog.edge(clause.edge.text)
    if edge is None:
        return  # reported when the scopes were built
    # The ends are visible by construction, but a parameter or a broken variable stops here.
    left = _end(ctx, scope, clause.left)
    right = _end(ctx, scope, clause.right)
    limits = _bounds(ctx, clause, edge)
    if clause.undirected and edge.source != edge.target:
        advice = f"Write `{edge_word(edge.name)}` without `< >`; the types of the ends tell the direction"
        message = f"`{edge_word(edge.name)}` connects different types and has no either direction"
        ctx.fail("T14", clause.edge.span, message, advice)
        return
    ctx.read(edge.id, ("src", "dst"))
    if left is None or right is None or limits is None:
        return
    forward = left.type is not None and left.type.id == edge.source
    direction: c.Direction = "either" if clause.undirected else "forward" if forward else "backward"
    var = None if clause.variable is None else clause.variable.text
    yield c.Hop(left.name, right.name, edge.id, direction, var, *limits)


def _end(ctx: CheckContext, scope: Scope, name: t.NameSyntax) -> Var | None:
    return look_up(ctx, scope, name.text, name.span)


def _bounds(ctx: CheckContext, clause: t.TraversalSyntax, edge: TypeDef) -> tuple[int, int | None] | None:
    bounds = clause.bounds
    if bounds is None:
        return 1, 1
    low, high = bounds.low, bounds.high
    if clause.variable is not None:
        advice = "Leave out the variable or the bounds"
        ctx.fail("T17", bounds.span, f"`${clause.variable.text}` stands for one edge and cannot have bounds", advice)
        return None
    whole = isinstance(low, int) and (high is None or isinstance(high, int))
    if not whole or low < 1 or (high is not None and high < low):
        advice = "Write `{1,3}`, or `{1,}` for any number of hops"
        ctx.fail("T15", bounds.span, "the bounds of a hop are whole numbers, 1 or more, the lower first", advice)
        return None
    if edge.source != edge.target and high != 1:
        message = f"`{edge_word(edge.name)}` connects different types and cannot be followed repeatedly"
        ctx.fail("T16", bounds.span, message, "Write each hop")
        return None
    assert isinstance(low, int)
    assert not isinstance(high, float)
    return low, high


# ---- filters ---------------------------------------------------------------------------------------------------------


def _predicate(ctx: CheckContext, scope: Scope, clause: t.PredicateSyntax) -> c.Predicate | None:
    match clause:
        case t.AnyOfSyntax(parts):
            found = [_predicate(ctx, scope, part) for part in parts]
            whole = tuple(part for part in found if part is not None)
            return whole[0] if len(parts) == 1 and whole else c.AnyOf(whole)
        case t.NullTestSyntax(node, negated):
            value = resolve(ctx, scope, node, "match")
            return None if value is None else c.CheckedNullTest(value, negated)
        case t.FilterSyntax(left, op, right, span):
            one, two = operand(ctx, scope, left), operand(ctx, scope, right)
            return None if one is None or two is None else compare(ctx, one, op, two, span)


def _text(ctx: CheckContext, scope: Scope, clause: t.TextCallSyntax) -> c.TextFilter | None:
    call = clause.call
    if isinstance(call, t.CallSyntax) and call.function.text in TEXT_FUNCTIONS:
        return text_filter(ctx, call, lambda prop: resolve_property(ctx, scope, prop))
    if resolve(ctx, scope, call, "match") is not None:
        ctx.fail("T21", clause.span, "this value says nothing about a row", "Compare it with something")
    return None


# ---- blocks ----------------------------------------------------------------------------------------------------------


def _not(ctx: CheckContext, scope: Scope) -> c.Pattern:
    used = set(_names(scope.clauses))
    if not any(scope.find_outside(name) for name in used):
        advice = "Use one of the variables of the match in it; otherwise it removes all rows or none"
        ctx.fail("T18", scope.span, "the not block uses no variable from outside", advice)
    return check_pattern(ctx, scope)


def _names(clauses: tuple[t.ClauseSyntax, ...]) -> Iterator[str]:
    """Every `$name` that the clauses mention, inner blocks included."""
    for clause in clauses:
        match clause:
            case t.BindingSyntax():
                yield clause.variable.text
                for pair in clause.inline:
                    yield from _names_in(pair.value)
            case t.TraversalSyntax():
                yield from (clause.left.text, clause.right.text)
            case t.FilterSyntax():
                yield from _names_in(clause.left)
                yield from _names_in(clause.right)
            case t.NullTestSyntax():
                yield from _names_in(clause.operand)
            case t.AnyOfSyntax():
                yield from _names(clause.parts)
            case t.TextCallSyntax():
                yield from _names_in(clause.call)
            case t.NotSyntax() | t.OptionalSyntax():
                yield from _names(clause.clauses)


def _names_in(node: t.ExprSyntax) -> Iterator[str]:
    match node:
        case t.VariableSyntax():
            yield node.name
        case t.PropertySyntax():
            yield node.variable.text
        case t.ListSyntax(items):
            for item in items:
                yield from _names_in(item)
        case t.AggregateSyntax():
            yield from _names_in(node.argument)
        case t.CallSyntax():
            for argument in node.arguments:
                yield from _names_in(argument.value)
