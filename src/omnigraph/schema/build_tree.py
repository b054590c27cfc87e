"""Builds the syntax tree from parser events. Imported only when a schema is parsed, since it needs lark."""

from __future__ import annotations

import json
import math
from typing import Any

from lark import Token, Transformer, v_args

from omnigraph.schema.syntax import (
    AnnotationNode,
    ArgumentNode,
    Constant,
    Declaration,
    LiteralNode,
    Number,
    PropertyNode,
    RangeNode,
    SchemaSpan,
    TypeNode,
    WrittenName,
)

_CONSTANTS: dict[str, Constant] = {"TRUE": True, "FALSE": False, "NULL": None}
_Body = tuple[tuple[AnnotationNode, ...], tuple[PropertyNode, ...]]


class UnreadableLiteral(Exception):
    """A string or number that the grammar accepts but that cannot be read: an unknown escape, a number too large."""

    def __init__(self, message: str, at: SchemaSpan, advice: str) -> None:
        super().__init__(message)
        self.at = at
        self.advice = advice


@v_args(inline=True)
class SchemaTreeBuilder(Transformer[Token, Declaration]):
    """Has one method per grammar rule of `schema.lark`."""

    def interface(self, name: Token, body: _Body) -> Declaration:
        return Declaration("interface", _name(name), constraints=body[0], properties=body[1])

    def node(self, name: Token, *parts: Any) -> Declaration:
        *annotations, implements, body = parts
        return Declaration(
            "node", _name(name), tuple(annotations), implements or (), constraints=body[0], properties=body[1]
        )

    def edge(self, name: Token, source: Token, target: Token, *parts: Any) -> Declaration:
        *annotations, body = parts
        constraints, properties = body or ((), ())
        ends = (_name(source), _name(target))
        return Declaration("edge", _name(name), tuple(annotations), (), *ends, constraints, properties)

    def implements(self, *names: Token) -> tuple[WrittenName, ...]:
        return tuple(map(_name, names))

    def body(self, *items: AnnotationNode | PropertyNode) -> _Body:
        constraints = tuple(item for item in items if isinstance(item, AnnotationNode))
        return constraints, tuple(item for item in items if isinstance(item, PropertyNode))

    def property(
        self, name: Token, kind: TypeNode, optional: Token | None, *annotations: AnnotationNode
    ) -> PropertyNode:
        if optional is not None:
            kind = TypeNode(kind.form, kind.name, kind.values, kind.size, is_optional=True)
        return PropertyNode(_name(name), kind, annotations)

    def scalar(self, name: Token) -> TypeNode:
        return TypeNode("scalar", _name(name))

    def list(self, name: Token) -> TypeNode:
        return TypeNode("list", _name(name))

    def enum(self, name: Token, *values: Token) -> TypeNode:
        return TypeNode("enum", _name(name), values=tuple(map(_name, values)))

    def vector(self, name: Token, size: Token) -> TypeNode:
        return TypeNode("vector", _name(name), size=LiteralNode(_number(size), _span(size)))

    def annotation(self, sign: Token, name: Token, arguments: tuple[ArgumentNode, ...] | None) -> AnnotationNode:
        width = (name.end_pos or 0) - (sign.start_pos or 0) if sign.line == name.line else 1
        at = SchemaSpan(sign.line or 1, sign.column or 1, width, sign.start_pos or 0)
        return AnnotationNode(_name(name), arguments or (), arguments is not None, at)

    def arguments(self, *arguments: ArgumentNode | None) -> tuple[ArgumentNode, ...]:
        return tuple(argument for argument in arguments if argument is not None)

    def argument(self, name: Token | None, value: Token | RangeNode | LiteralNode) -> ArgumentNode:
        return ArgumentNode(_name(name) if name is not None else None, _value(value))

    def range(self, low: Token, dots: Token, high: Token | None) -> RangeNode:
        last = high if high is not None else dots
        star = high is not None and high.type == "STAR"
        top = None if high is None or star else _number(high)
        return RangeNode(_number(low), top, star, _between(low, last))

    def upto(self, dots: Token, high: Token) -> RangeNode:
        return RangeNode(None, _number(high), False, _between(dots, high))

    def array(self, first: Token, *tokens: Token | None) -> LiteralNode:
        *items, last = tokens
        values = tuple(_constant(item) for item in items if item is not None)
        assert last is not None
        return LiteralNode(values, _between(first, last))


def _span(token: Token) -> SchemaSpan:
    return SchemaSpan(token.line or 1, token.column or 1, len(token), token.start_pos or 0)


def _between(first: Token, last: Token) -> SchemaSpan:
    """The span from the first token to the last, or of the first alone if they are on different lines."""
    start = _span(first)
    width = (last.end_pos or 0) - start.offset if first.line == last.line else start.width
    return SchemaSpan(start.line, start.column, width, start.offset)


def _name(token: Token) -> WrittenName:
    return WrittenName(str(token), _span(token))


def _value(value: Token | RangeNode | LiteralNode) -> WrittenName | LiteralNode | RangeNode:
    if not isinstance(value, Token):
        return value
    return _name(value) if value.type == "WORD" else LiteralNode(_constant(value), _span(value))


def _constant(token: Token) -> Constant:
    if token.type == "STRING":
        return _text(token)
    return _number(token) if token.type == "NUMBER" else _CONSTANTS[token.type]


def _text(token: Token) -> str:
    try:
        # Unlike in JSON, a tab may stand in the text without an escape.
        text = str(json.loads(str(token), strict=False))
        text.encode()
    except UnicodeEncodeError:
        raise UnreadableLiteral(
            "the text holds half of a surrogate pair", _span(token), "Write the whole pair"
        ) from None
    except ValueError:
        advice = r"Escapes are \" \\ \/ \b \f \n \r \t and \uXXXX; write a backslash as \\"
        raise UnreadableLiteral("the text holds an unknown escape", _span(token), advice) from None
    return text


def _number(token: Token) -> Number:
    try:
        number = float(token) if any(mark in token for mark in ".eE") else int(token)
        if math.isfinite(number):
            return number
    except (ValueError, OverflowError):
        pass
    raise UnreadableLiteral("the number is too large", _span(token), "Use a number that fits F64 or a 64-bit integer")
