"""Checks the clauses of a match: hops get a direction, filters typed sides, and blocks become nested patterns."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.query.language.check_context import CheckContext, edge_word
from omnigraph.query.language.check_expressions import resolve, resolve_operand, resolve_property
from omnigraph.query.language.check_functions import TEXT_FUNCTIONS, check_text_filter
from omnigraph.query.language.check_operators import check_compare
from omnigraph.query.language.checked import AnyOf, CheckedNullTest, Direction, Hop, Pattern, Predicate, TextFilter
from omnigraph.query.language.scope import Scope, ScopeVariable, look_up, to_bound_variable
from omnigraph.query.language.statements import CompareOp
from omnigraph.query.language.syntax import (
    AggregateSyntax,
    AnyOfSyntax,
    BindingSyntax,
    CallSyntax,
    ClauseSyntax,
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
    """The pattern of one block. A clause with findings is left out, since its findings refuse the query anyway."""
    hops: list[Hop] = []
    filters: list[Predicate] = []
    texts: list[TextFilter] = []
    for clause in scope.clauses:
        match clause:
            case BindingSyntax():
                filters.extend(_check_inline(ctx, scope, clause))
            case TraversalSyntax():
                hops.extend(_check_hop(ctx, scope, clause))
            case FilterSyntax() | NullTestSyntax() | AnyOfSyntax():
                predicate = _check_predicate(ctx, scope, clause)
                if predicate is not None:
                    filters.append(predicate)
            case TextCallSyntax():
                text_filter = _check_text_call(ctx, scope, clause)
                if text_filter is not None:
                    texts.append(text_filter)
    _read_ids(ctx, scope)
    optionals = tuple(check_pattern(ctx, inner) for inner in scope.optionals)
    nots = tuple(_check_not(ctx, inner) for inner in scope.nots)
    variables = tuple(to_bound_variable(var) for var in scope.variables.values() if not var.is_broken)
    return Pattern(variables, tuple(hops), tuple(filters), tuple(texts), optionals, nots)


def _read_ids(ctx: CheckContext, scope: Scope) -> None:
    for var in scope.variables.values():
        if var.type is not None:
            ctx.read(var.type.id, ("id",) if var.type.kind == "node" else ("id", "src", "dst"))


# ---- bindings --------------------------------------------------------------------------------------------------------


def _check_inline(ctx: CheckContext, scope: Scope, clause: BindingSyntax) -> Iterator[Predicate]:
    """`{p: v}` is equality, and membership when `p` is a list."""
    names: set[str] = set()
    for pair in clause.inline:
        if pair.name.text in names:
            ctx.fail("T34", pair.name.span, f"`{pair.name.text}` is given twice", "Write one of them as a filter")
        names.add(pair.name.text)
        span = SourceSpan(pair.name.span.start, pair.value.span.end, pair.name.span.line, pair.name.span.column)
        prop = resolve_property(ctx, scope, PropertySyntax(clause.variable, pair.name, span))
        value = resolve_operand(ctx, scope, pair.value)
        if prop is None or value is None:
            continue
        op: CompareOp = "contains" if prop.type.is_list else "="
        comparison = check_compare(ctx, prop, op, value, span)
        if comparison is not None:
            yield comparison


# ---- hops ------------------------------------------------------------------------------------------------------------


def _check_hop(ctx: CheckContext, scope: Scope, clause: TraversalSyntax) -> Iterator[Hop]:
    edge = ctx.catalog.edge(clause.edge.text)
    if edge is None:
        return  # building the scopes has reported it
    # Every end is a variable of the scope, unless it is a parameter or broken.
    left_end = _end(ctx, scope, clause.left)
    right_end = _end(ctx, scope, clause.right)
    hop_bounds = _check_bounds(ctx, clause, edge)
    if clause.undirected and edge.source != edge.target:
        advice = f"Write `{edge_word(edge.name)}` without `< >`; the types of the ends tell the direction"
        message = f"`{edge_word(edge.name)}` connects different types and has no either direction"
        ctx.fail("T14", clause.edge.span, message, advice)
        return
    ctx.read(edge.id, ("src", "dst"))
    if left_end is None or right_end is None or hop_bounds is None:
        return
    forward = left_end.type is not None and left_end.type.id == edge.source
    direction: Direction = "either" if clause.undirected else "forward" if forward else "backward"
    var = None if clause.variable is None else clause.variable.text
    yield Hop(left_end.name, right_end.name, edge.id, direction, var, *hop_bounds)


def _end(ctx: CheckContext, scope: Scope, name: NameSyntax) -> ScopeVariable | None:
    return look_up(ctx, scope, name.text, name.span)


def _check_bounds(ctx: CheckContext, clause: TraversalSyntax, edge: TypeDef) -> tuple[int, int | None] | None:
    bounds = clause.bounds
    if bounds is None:
        return 1, 1
    low, high = bounds.low, bounds.high
    if clause.variable is not None:
        advice = "Leave out the variable or the bounds"
        ctx.fail("T17", bounds.span, f"`${clause.variable.text}` stands for one edge and cannot have bounds", advice)
        return None
    are_integers = isinstance(low, int) and (high is None or isinstance(high, int))
    if not are_integers or low < 1 or (high is not None and high < low):
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


def _check_predicate(ctx: CheckContext, scope: Scope, clause: PredicateSyntax) -> Predicate | None:
    match clause:
        case AnyOfSyntax(parts):
            checked_parts = [_check_predicate(ctx, scope, part) for part in parts]
            sound_parts = tuple(part for part in checked_parts if part is not None)
            return sound_parts[0] if len(parts) == 1 and sound_parts else AnyOf(sound_parts)
        case NullTestSyntax(node, negated):
            value = resolve(ctx, scope, node, "match")
            return None if value is None else CheckedNullTest(value, negated)
        case FilterSyntax(lhs, op, rhs, span):
            lhs_operand, rhs_operand = resolve_operand(ctx, scope, lhs), resolve_operand(ctx, scope, rhs)
            return (
                None
                if lhs_operand is None or rhs_operand is None
                else check_compare(ctx, lhs_operand, op, rhs_operand, span)
            )


def _check_text_call(ctx: CheckContext, scope: Scope, clause: TextCallSyntax) -> TextFilter | None:
    call = clause.call
    if isinstance(call, CallSyntax) and call.function.text in TEXT_FUNCTIONS:
        return check_text_filter(ctx, call, lambda prop: resolve_property(ctx, scope, prop))
    if resolve(ctx, scope, call, "match") is not None:
        ctx.fail("T21", clause.span, "this value says nothing about a row", "Compare it with something")
    return None


# ---- blocks ----------------------------------------------------------------------------------------------------------


def _check_not(ctx: CheckContext, scope: Scope) -> Pattern:
    used = set(_variables_in_clauses(scope.clauses))
    if not any(scope.find_outside(name) for name in used):
        advice = "Use one of the variables of the match in it; otherwise it removes all rows or none"
        ctx.fail("T18", scope.span, "the not block uses no variable from outside", advice)
    return check_pattern(ctx, scope)


def _variables_in_clauses(clauses: tuple[ClauseSyntax, ...]) -> Iterator[str]:
    """Every `$name` that the clauses mention, inner blocks included."""
    for clause in clauses:
        match clause:
            case BindingSyntax():
                yield clause.variable.text
                for pair in clause.inline:
                    yield from _variables_in(pair.value)
            case TraversalSyntax():
                yield from (clause.left.text, clause.right.text)
            case FilterSyntax():
                yield from _variables_in(clause.left)
                yield from _variables_in(clause.right)
            case NullTestSyntax():
                yield from _variables_in(clause.operand)
            case AnyOfSyntax():
                yield from _variables_in_clauses(clause.parts)
            case TextCallSyntax():
                yield from _variables_in(clause.call)
            case NotSyntax() | OptionalSyntax():
                yield from _variables_in_clauses(clause.clauses)


def _variables_in(node: ExprSyntax) -> Iterator[str]:
    match node:
        case VariableSyntax():
            yield node.name
        case PropertySyntax():
            yield node.variable.text
        case ListSyntax(items):
            for item in items:
                yield from _variables_in(item)
        case AggregateSyntax():
            yield from _variables_in(node.argument)
        case CallSyntax():
            for argument in node.arguments:
                yield from _variables_in(argument.value)
