"""Parser events to the syntax tree. Imported only when a schema is parsed, since it needs lark."""

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
    """A text or number that the grammar takes but that means nothing."""

    def __init__(self, message: str, at: SchemaSpan, advice: str) -> None:
        super().__init__(message)
        self.at = at
        self.advice = advice


@v_args(inline=True)
class SchemaTreeBuilder(Transformer[Token, Declaration]):
    """One method per rule of the grammar."""

    def interface(self, name: Token, body: _Body) -> Declaration:
        return Declaration("interface", _word(name), constraints=body[0], properties=body[1])

    def node(self, name: Token, *parts: Any) -> Declaration:
        *annotations, implements, body = parts
        return Declaration(
            "node", _word(name), tuple(annotations), implements or (), constraints=body[0], properties=body[1]
        )

    def edge(self, name: Token, source: Token, target: Token, *parts: Any) -> Declaration:
        *annotations, body = parts
        rules, properties = body or ((), ())
        ends = (_word(source), _word(target))
        return Declaration("edge", _word(name), tuple(annotations), (), *ends, rules, properties)

    def implements(self, *names: Token) -> tuple[WrittenName, ...]:
        return tuple(map(_word, names))

    def body(self, *items: AnnotationNode | PropertyNode) -> _Body:
        rules = tuple(item for item in items if isinstance(item, AnnotationNode))
        return rules, tuple(item for item in items if isinstance(item, PropertyNode))

    def property(
        self, name: Token, kind: TypeNode, optional: Token | None, *annotations: AnnotationNode
    ) -> PropertyNode:
        if optional is not None:
            kind = TypeNode(kind.form, kind.name, kind.values, kind.size, is_optional=True)
        return PropertyNode(_word(name), kind, annotations)

    def scalar(self, name: Token) -> TypeNode:
        return TypeNode("scalar", _word(name))

    def list(self, name: Token) -> TypeNode:
        return TypeNode("list", _word(name))

    def enum(self, name: Token, *values: Token) -> TypeNode:
        return TypeNode("enum", _word(name), values=tuple(map(_word, values)))

    def vector(self, name: Token, size: Token) -> TypeNode:
        return TypeNode("vector", _word(name), size=LiteralNode(_number(size), _spot(size)))

    def annotation(self, sign: Token, name: Token, arguments: tuple[ArgumentNode, ...] | None) -> AnnotationNode:
        width = (name.end_pos or 0) - (sign.start_pos or 0) if sign.line == name.line else 1
        at = SchemaSpan(sign.line or 1, sign.column or 1, width, sign.start_pos or 0)
        return AnnotationNode(_word(name), arguments or (), arguments is not None, at)

    def arguments(self, *arguments: ArgumentNode | None) -> tuple[ArgumentNode, ...]:
        return tuple(argument for argument in arguments if argument is not None)

    def argument(self, name: Token | None, value: Token | RangeNode | LiteralNode) -> ArgumentNode:
        return ArgumentNode(_word(name) if name is not None else None, _value(value))

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


def _spot(token: Token) -> SchemaSpan:
    return SchemaSpan(token.line or 1, token.column or 1, len(token), token.start_pos or 0)


def _between(first: Token, last: Token) -> SchemaSpan:
    """From the first token to the last, if they stand on one line."""
    start = _spot(first)
    width = (last.end_pos or 0) - start.offset if first.line == last.line else start.width
    return SchemaSpan(start.line, start.column, width, start.offset)


def _word(token: Token) -> WrittenName:
    return WrittenName(str(token), _spot(token))


def _value(value: Token | RangeNode | LiteralNode) -> WrittenName | LiteralNode | RangeNode:
    if not isinstance(value, Token):
        return value
    return _word(value) if value.type == "WORD" else LiteralNode(_constant(value), _spot(value))


def _constant(token: Token) -> Constant:
    if token.type == "STRING":
        return _text(token)
    return _number(token) if token.type == "NUMBER" else _CONSTANTS[token.type]


def _text(token: Token) -> str:
    try:
        # A tab is text as it stands; only escapes follow JSON.
        text = str(json.loads(str(token), strict=False))
        text.encode()
    except UnicodeEncodeError:
        raise UnreadableLiteral(
            "the text holds half of a surrogate pair", _spot(token), "Write the whole pair"
        ) from None
    except ValueError:
        advice = r"Escapes are \" \\ \/ \b \f \n \r \t and \uXXXX; write a backslash as \\"
        raise UnreadableLiteral("the text holds an unknown escape", _spot(token), advice) from None
    return text


def _number(token: Token) -> Number:
    try:
        number = float(token) if any(mark in token for mark in ".eE") else int(token)
        if math.isfinite(number):
            return number
    except (ValueError, OverflowError):
        pass
    raise UnreadableLiteral("the number is too large", _spot(token), "Use a number that fits F64 or a 64-bit integer")
