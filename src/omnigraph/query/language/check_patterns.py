"""The clauses of a match, checked: hops with their direction, filters with typed sides, blocks with their joins."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.query.language.check_context import CheckContext, edge_word
from omnigraph.query.language.check_expressions import operand, resolve, resolve_property
from omnigraph.query.language.check_functions import TEXT_FUNCTIONS, text_filter
from omnigraph.query.language.check_operators import compare
from omnigraph.query.language.checked import AnyOf, CheckedNullTest, Direction, Hop, Pattern, Predicate, TextFilter
from omnigraph.query.language.scope import Scope, Var, bound, look_up
from omnigraph.query.language.syntax import (
    AggregateSyntax,
    AnyOfSyntax,
    BindingSyntax,
    CallSyntax,
    ClauseSyntax,
    CompareOp,
    ExprSyntax,
    FilterSyntax,
    ListSyntax,
    NameSyntax,
    NotSyntax,
    NullTestSyntax,
    OptionalSyntax,
    PredicateSyntax,
    PropertySyntax,
    SourceSpan,
    TextCallSyntax,
    TraversalSyntax,
    VariableSyntax,
)
from omnigraph.schema.catalog import TypeDef


def check_pattern(ctx: CheckContext, scope: Scope) -> Pattern:
    """The block without names. Clauses that failed are left out; their findings stop the query anyway."""
    hops: list[Hop] = []
    filters: list[Predicate] = []
    texts: list[TextFilter] = []
    for clause in scope.clauses:
        match clause:
            case BindingSyntax():
                filters.extend(_inline(ctx, scope, clause))
            case TraversalSyntax():
                hops.extend(_hop(ctx, scope, clause))
            case FilterSyntax() | NullTestSyntax() | AnyOfSyntax():
                filters.extend(_some(_predicate(ctx, scope, clause)))
            case TextCallSyntax():
                texts.extend(_some_text(_text(ctx, scope, clause)))
    _read_ids(ctx, scope)
    optionals = tuple(check_pattern(ctx, inner) for inner in scope.optionals)
    nots = tuple(_not(ctx, inner) for inner in scope.nots)
    variables = tuple(bound(var) for var in scope.own.values() if not var.broken)
    return Pattern(variables, tuple(hops), tuple(filters), tuple(texts), optionals, nots)


def _some(found: Predicate | None) -> Iterator[Predicate]:
    if found is not None:
        yield found


def _some_text(found: TextFilter | None) -> Iterator[TextFilter]:
    if found is not None:
        yield found


def _read_ids(ctx: CheckContext, scope: Scope) -> None:
    for var in scope.own.values():
        if var.type is not None:
            ctx.read(var.type.id, ("id",) if var.type.kind == "node" else ("id", "src", "dst"))


# ---- bindings --------------------------------------------------------------------------------------------------------


def _inline(ctx: CheckContext, scope: Scope, clause: BindingSyntax) -> Iterator[Predicate]:
    """`{p: v}` is equality, and membership when `p` is a list."""
    seen: set[str] = set()
    for pair in clause.inline:
        if pair.name.text in seen:
            ctx.fail("T34", pair.name.span, f"`{pair.name.text}` is given twice", "Write one of them as a filter")
        seen.add(pair.name.text)
        span = SourceSpan(pair.name.span.start, pair.value.span.end, pair.name.span.line, pair.name.span.column)
        prop = resolve_property(ctx, scope, PropertySyntax(clause.variable, pair.name, span))
        value = operand(ctx, scope, pair.value)
        if prop is None or value is None:
            continue
        op: CompareOp = "contains" if prop.type.is_list else "="
        yield from _some(compare(ctx, prop, op, value, span))


# ---- hops ------------------------------------------------------------------------------------------------------------


def _hop(ctx: CheckContext, scope: Scope, clause: TraversalSyntax) -> Iterator[Hop]:
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
    direction: Direction = "either" if clause.undirected else "forward" if forward else "backward"
    var = None if clause.variable is None else clause.variable.text
    yield Hop(left.name, right.name, edge.id, direction, var, *limits)


def _end(ctx: CheckContext, scope: Scope, name: NameSyntax) -> Var | None:
    return look_up(ctx, scope, name.text, name.span)


def _bounds(ctx: CheckContext, clause: TraversalSyntax, edge: TypeDef) -> tuple[int, int | None] | None:
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


def _predicate(ctx: CheckContext, scope: Scope, clause: PredicateSyntax) -> Predicate | None:
    match clause:
        case AnyOfSyntax(parts):
            found = [_predicate(ctx, scope, part) for part in parts]
            whole = tuple(part for part in found if part is not None)
            return whole[0] if len(parts) == 1 and whole else AnyOf(whole)
        case NullTestSyntax(node, negated):
            value = resolve(ctx, scope, node, "match")
            return None if value is None else CheckedNullTest(value, negated)
        case FilterSyntax(left, op, right, span):
            one, two = operand(ctx, scope, left), operand(ctx, scope, right)
            return None if one is None or two is None else compare(ctx, one, op, two, span)


def _text(ctx: CheckContext, scope: Scope, clause: TextCallSyntax) -> TextFilter | None:
    call = clause.call
    if isinstance(call, CallSyntax) and call.function.text in TEXT_FUNCTIONS:
        return text_filter(ctx, call, lambda prop: resolve_property(ctx, scope, prop))
    if resolve(ctx, scope, call, "match") is not None:
        ctx.fail("T21", clause.span, "this value says nothing about a row", "Compare it with something")
    return None


# ---- blocks ----------------------------------------------------------------------------------------------------------


def _not(ctx: CheckContext, scope: Scope) -> Pattern:
    used = set(_names(scope.clauses))
    if not any(scope.find_outside(name) for name in used):
        advice = "Use one of the variables of the match in it; otherwise it removes all rows or none"
        ctx.fail("T18", scope.span, "the not block uses no variable from outside", advice)
    return check_pattern(ctx, scope)


def _names(clauses: tuple[ClauseSyntax, ...]) -> Iterator[str]:
    """Every `$name` that the clauses mention, inner blocks included."""
    for clause in clauses:
        match clause:
            case BindingSyntax():
                yield clause.variable.text
                for pair in clause.inline:
                    yield from _names_in(pair.value)
            case TraversalSyntax():
                yield from (clause.left.text, clause.right.text)
            case FilterSyntax():
                yield from _names_in(clause.left)
                yield from _names_in(clause.right)
            case NullTestSyntax():
                yield from _names_in(clause.operand)
            case AnyOfSyntax():
                yield from _names(clause.parts)
            case TextCallSyntax():
                yield from _names_in(clause.call)
            case NotSyntax() | OptionalSyntax():
                yield from _names(clause.clauses)


def _names_in(node: ExprSyntax) -> Iterator[str]:
    match node:
        case VariableSyntax():
            yield node.name
        case PropertySyntax():
            yield node.variable.text
        case ListSyntax(items):
            for item in items:
                yield from _names_in(item)
        case AggregateSyntax():
            yield from _names_in(node.argument)
        case CallSyntax():
            for argument in node.arguments:
                yield from _names_in(argument.value)
