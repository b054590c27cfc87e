"""Builds the typed syntax tree from the parse tree of lark. Recursion is bounded: deep nesting is refused before."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, cast

from lark import Token, Tree

from omnigraph.query.language.statements import CompareOp
from omnigraph.query.language.syntax import (
    AggregateSyntax,
    AliasSyntax,
    AndSyntax,
    AnyOfSyntax,
    ArgumentSyntax,
    BindingSyntax,
    BoundsSyntax,
    CallSyntax,
    ClauseSyntax,
    ColumnCompareSyntax,
    ColumnNullSyntax,
    ConditionSyntax,
    DateLiteralSyntax,
    DeleteSyntax,
    ExprSyntax,
    FilterSyntax,
    InsertSyntax,
    ListSyntax,
    LiteralSyntax,
    MutationSyntax,
    NameSyntax,
    NotSyntax,
    NowSyntax,
    NullTestSyntax,
    OptionalSyntax,
    OrderSyntax,
    OrSyntax,
    PairSyntax,
    ParamSyntax,
    PredicateSyntax,
    ProjectionSyntax,
    PropertySyntax,
    QuerySyntax,
    ReadSyntax,
    Sorted,
    SourceSpan,
    StatementSyntax,
    TextCallSyntax,
    TraversalSyntax,
    UpdateSyntax,
    VariableSyntax,
)
from omnigraph.schema.catalog import Annotation

Node = Tree[Token]


class BadText(Exception):
    """A token that the grammar takes but that has no value: an unknown escape, a number that is too large."""

    def __init__(self, span: SourceSpan, message: str, advice: str) -> None:
        super().__init__(message)
        self.span, self.message, self.advice = span, message, advice


def build_query(node: Node, source: str, file: str) -> QuerySyntax:
    """The typed tree of one `query` node."""
    name, params, *annotations, body = node.children
    params_ = tuple(_param(child) for child in _trees(params))
    return QuerySyntax(
        _name(name),
        params_,
        tuple(_annotation(cast(Node, child)) for child in annotations),
        _body(cast(Node, body), frozenset(child.name.text for child in params_)),
        _span(node),
        source,
        file,
    )


def _body(node: Node, params: frozenset[str]) -> ReadSyntax | MutationSyntax:
    if node.data == "mutation":
        return MutationSyntax(tuple(_statement(child) for child in _trees(node)), _span(node))
    match, returns, order, limit, offset = node.children
    return ReadSyntax(
        tuple(_read_word_as_edge(_clause(child), params) for child in _trees(match)),
        tuple(_projection(child) for child in _trees(returns)),
        tuple(_order(child) for child in _trees(order)),
        _count(limit),
        _count(offset),
        _span(node),
    )


# ---- spans and words -------------------------------------------------------------------------------------------------


def _trees(node: Any) -> list[Node]:
    return [child for child in node.children if isinstance(child, Tree)] if node is not None else []


def _span(node: Node) -> SourceSpan:
    meta = node.meta
    return SourceSpan(meta.start_pos, meta.end_pos, meta.line, meta.column)


def _token_span(token: Token) -> SourceSpan:
    start, end, line, column = token.start_pos, token.end_pos, token.line, token.column
    assert start is not None
    assert end is not None
    assert line is not None
    assert column is not None
    return SourceSpan(start, end, line, column)


def _name(token: Any) -> NameSyntax:
    return NameSyntax(str(token).removeprefix("$"), _token_span(token))


def _number(token: Token) -> int | float:
    text = str(token)
    if not re.search(r"[.eE]", text):
        if len(text) > 40:  # far beyond U64, and Python refuses to convert very long texts
            raise BadText(_token_span(token), "the number is too long", "Whole numbers go up to 18446744073709551615")
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise BadText(_token_span(token), "the number is too large", "Numbers end near 1.8e308")
    return value


def _text(token: Token) -> str:
    try:
        # Control characters such as a tab are taken as they are; only escapes follow the rules of JSON.
        text = str(json.loads(str(token), strict=False))
        text.encode()  # half of a surrogate pair has no UTF-8
    except ValueError as error:
        raise BadText(
            _token_span(token),
            "the text holds an escape that means no character",
            r"Escapes are \" \\ \/ \b \f \n \r \t and \uXXXX; write a backslash as \\",
        ) from error
    return text


def _word_value(token: Token) -> str | int | float | bool | None:
    match token.type:
        case "STRING":
            return _text(token)
        case "NUMBER":
            return _number(token)
        case "TRUE" | "FALSE":
            return token.type == "TRUE"
        case "NULL":
            return None
    return str(token)


# ---- head ------------------------------------------------------------------------------------------------------------


def _param(node: Node) -> ParamSyntax:
    variable, kind = node.children
    base, optional = cast(Node, kind).children
    base = cast(Node, base)
    word = cast(Token, base.children[0])
    size = _number(cast(Token, base.children[1])) if base.data == "vector_type" else None
    return ParamSyntax(_name(variable), _name(word), base.data == "list_type", size, optional is not None, _span(node))


def _annotation(node: Any) -> Annotation:
    name, *arguments = node.children
    positional, keyword_args = [], []
    for argument in arguments:
        if argument is None:
            continue
        if cast(Node, argument).data == "annotation_named":
            key, value = cast(Node, argument).children
            keyword_args.append((str(key), _annotation_value(cast(Node, value))))
        else:
            positional.append(_annotation_value(cast(Node, argument)))
    return Annotation(str(name), tuple(positional), tuple(keyword_args))


def _annotation_value(node: Node) -> Any:
    (value,) = node.children
    if isinstance(value, Tree):  # a range; annotations of queries keep it as text
        return "".join(str(token) for token in value.children if token is not None)
    return _word_value(value)


# ---- expressions -----------------------------------------------------------------------------------------------------


def _expr(node: Any) -> ExprSyntax:
    span = _span(node)
    children = node.children
    match str(node.data):
        case "variable":
            return VariableSyntax(_name(children[0]).text, span)
        case "property":
            return PropertySyntax(_name(children[0]), _name(children[1]), span)
        case "literal":
            return LiteralSyntax(_word_value(children[0]), span)
        case "list_literal":
            return ListSyntax(tuple(_expr(item) for item in _trees(node)), span)
        case "alias":
            return AliasSyntax(str(children[0]), span)
    return _call(node)


def _call(node: Any) -> CallSyntax | AggregateSyntax | DateLiteralSyntax | NowSyntax:
    word, distinct, *_ = node.children
    name, span = _name(word), _span(node)
    arguments = tuple(_argument(argument) for argument in _trees(node))
    only = arguments[0].value if len(arguments) == 1 and arguments[0].name is None else None
    match name.text:
        case "now" if not arguments and distinct is None:
            return NowSyntax(span)
        case "date" | "datetime" if isinstance(only, LiteralSyntax) and isinstance(only.value, str) and not distinct:
            return DateLiteralSyntax("date" if name.text == "date" else "datetime", only.value, span)
        case "count" | "sum" | "avg" | "min" | "max" if only is not None:
            return AggregateSyntax(name.text, only, distinct is not None, span)
    return CallSyntax(name, arguments, distinct is not None, span)


def _argument(node: Node) -> ArgumentSyntax:
    if node.data == "named_argument":
        return ArgumentSyntax(_expr(node.children[1]), _name(node.children[0]))
    return ArgumentSyntax(_expr(node.children[0]))


# ---- clauses ---------------------------------------------------------------------------------------------------------


def _clause(node: Node) -> ClauseSyntax:
    return _CLAUSES[str(node.data)](node)


def _pairs(node: Node | None) -> tuple[PairSyntax, ...]:
    pairs = [child.children for child in _trees(node) if child.data == "pair"]
    return tuple(PairSyntax(_name(name), _expr(value)) for name, value in pairs)


def _binding(node: Node) -> BindingSyntax:
    variable, kind, inline = node.children
    return BindingSyntax(_name(variable), _name(kind), _pairs(cast("Node | None", inline)), _span(node))


def _traversal(node: Node) -> TraversalSyntax:
    left_end, *between, edge, bounds, right = node.children
    (word,) = cast(Node, edge).children
    undirected = cast(Token, word).type == "UNDIRECTED"
    name = _name(word)
    if undirected:
        name = NameSyntax(name.text.strip("<> \t\r\n"), name.span)
    variable = _name(between[0]) if between else None
    return TraversalSyntax(_name(left_end), name, _name(right), variable, _bounds(bounds), undirected, _span(node))


def _bounds(node: Any) -> BoundsSyntax | None:
    if node is None:
        return None
    low, high = node.children
    return BoundsSyntax(_number(low), None if high is None else _number(high), _span(node))


def _word_traversal(node: Node) -> TraversalSyntax:
    left_end, word, bounds, right = node.children
    start = _expr(left_end)
    edge = _name(word)
    if not isinstance(start, VariableSyntax):
        raise BadText(edge.span, f"`{edge.text}` is followed by a hop", "A hop begins with a variable: `$a edge $b`")
    return TraversalSyntax(
        NameSyntax(start.name, start.span), edge, _name(right), None, _bounds(bounds), False, _span(node)
    )


def _compare(node: Node) -> FilterSyntax:
    lhs, op, rhs = node.children
    return FilterSyntax(_expr(lhs), cast(CompareOp, str(op)), _expr(rhs), _span(node))


def _null_test(node: Node) -> NullTestSyntax:
    return NullTestSyntax(_expr(node.children[0]), node.children[2] is not None, _span(node))


def _any_of(node: Node) -> AnyOfSyntax:
    parts = tuple(_clause(child) for child in _trees(node))
    for part in parts:
        if isinstance(part, TraversalSyntax):
            raise BadText(part.span, "a hop cannot be one of several choices", "Only filters can be joined by `or`")
    return AnyOfSyntax(cast("tuple[PredicateSyntax, ...]", parts), _span(node))


def _text_call(node: Node) -> TextCallSyntax:
    return TextCallSyntax(_call(cast(Node, node.children[0])), _span(node))


def _block(node: Node) -> NotSyntax | OptionalSyntax:
    clauses = tuple(_clause(child) for child in _trees(node))
    return NotSyntax(clauses, _span(node)) if node.data == "not_block" else OptionalSyntax(clauses, _span(node))


_CLAUSES: dict[str, Callable[[Node], ClauseSyntax]] = {
    "binding": _binding,
    "traversal": _traversal,
    "edge_traversal": _traversal,
    "word_traversal": _word_traversal,
    "compare": _compare,
    "null_test": _null_test,
    "any_of": _any_of,
    "textcall": _text_call,
    "not_block": _block,
    "optional_block": _block,
}


def _read_word_as_edge(clause: ClauseSyntax, params: frozenset[str]) -> ClauseSyntax:
    """`$a contains $b` is a hop over an edge of that name when neither side is a parameter.

    As a comparison it could only be an error: two entities contain nothing.
    """
    match clause:
        case NotSyntax(clauses, span):
            return NotSyntax(tuple(_read_word_as_edge(inner, params) for inner in clauses), span)
        case OptionalSyntax(clauses, span):
            return OptionalSyntax(tuple(_read_word_as_edge(inner, params) for inner in clauses), span)
        case FilterSyntax(
            VariableSyntax() as lhs, "contains" | "starts_with" | "in" as word, VariableSyntax() as rhs, span
        ):
            if lhs.name in params or rhs.name in params:
                return clause
            ends = NameSyntax(lhs.name, lhs.span), NameSyntax(rhs.name, rhs.span)
            # A comparison does not keep the span of its operator, so the edge name gets the span of the clause.
            return TraversalSyntax(ends[0], NameSyntax(word, span), ends[1], None, None, False, span)
    return clause


# ---- results and statements ------------------------------------------------------------------------------------------


def _projection(node: Node) -> ProjectionSyntax:
    distinct, value, alias = node.children
    return ProjectionSyntax(_expr(value), None if alias is None else _name(alias), distinct is not None, _span(node))


def _order(node: Node) -> OrderSyntax:
    value, direction = node.children
    word = None if direction is None else cast(Sorted, str(direction))
    return OrderSyntax(_expr(value), word, _span(node))


def _count(node: Any) -> LiteralSyntax | VariableSyntax | None:
    if node is None:
        return None
    (token,) = node.children
    span = _token_span(token)
    return VariableSyntax(str(token)[1:], span) if token.type == "VAR" else LiteralSyntax(_number(token), span)


def _statement(node: Node) -> StatementSyntax:
    type_name = _name(cast(Node, node.children[0]).children[0])
    match str(node.data):
        case "insert":
            return InsertSyntax(type_name, _pairs(node), _span(node))
        case "update":
            return UpdateSyntax(type_name, _pairs(node), _condition(node.children[-1]), _span(node))
    return DeleteSyntax(type_name, _condition(node.children[-1]), _span(node))


def _condition(node: Any) -> ConditionSyntax:
    children = node.children
    match str(node.data):
        case "disjunction" | "conjunction" as word:
            parts = tuple(_condition(child) for child in children)
            if len(parts) == 1:
                return parts[0]
            return OrSyntax(parts) if word == "disjunction" else AndSyntax(parts)
        case "column_compare":
            op = cast(CompareOp, str(children[1]))
            return ColumnCompareSyntax(_name(children[0]), op, _expr(children[2]), _span(node))
    return ColumnNullSyntax(_name(children[0]), children[2] is not None, _span(node))
