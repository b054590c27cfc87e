"""Parser events to the syntax tree. Imported only when a schema is parsed, since it needs lark."""

from __future__ import annotations

import json
import math
from typing import Any

from lark import Token, Transformer, v_args

from omnigraph.schema.syntax import (
    AnnotationNode,
    Argument,
    Constant,
    Declaration,
    Literal,
    Number,
    PropertyNode,
    Range,
    Spot,
    TypeNode,
    Word,
)

_CONSTANTS: dict[str, Constant] = {"TRUE": True, "FALSE": False, "NULL": None}
_Body = tuple[tuple[AnnotationNode, ...], tuple[PropertyNode, ...]]


class Unreadable(Exception):
    """A text or number that the grammar takes but that means nothing."""

    def __init__(self, message: str, at: Spot, advice: str) -> None:
        super().__init__(message)
        self.at = at
        self.advice = advice


@v_args(inline=True)
class Builder(Transformer[Token, Declaration]):
    """One method per rule of the grammar."""

    def interface(self, name: Token, body: _Body) -> Declaration:
        return Declaration("interface", _word(name), rules=body[0], properties=body[1])

    def node(self, name: Token, *rest: Any) -> Declaration:
        *annotations, implements, body = rest
        return Declaration("node", _word(name), tuple(annotations), implements or (), rules=body[0], properties=body[1])

    def edge(self, name: Token, source: Token, target: Token, *rest: Any) -> Declaration:
        *annotations, body = rest
        rules, properties = body or ((), ())
        ends = (_word(source), _word(target))
        return Declaration("edge", _word(name), tuple(annotations), (), *ends, rules, properties)

    def implements(self, *names: Token) -> tuple[Word, ...]:
        return tuple(map(_word, names))

    def body(self, *items: AnnotationNode | PropertyNode) -> _Body:
        rules = tuple(one for one in items if isinstance(one, AnnotationNode))
        return rules, tuple(one for one in items if isinstance(one, PropertyNode))

    def property(
        self, name: Token, kind: TypeNode, optional: Token | None, *annotations: AnnotationNode
    ) -> PropertyNode:
        if optional is not None:
            kind = TypeNode(kind.form, kind.name, kind.values, kind.size, optional=True)
        return PropertyNode(_word(name), kind, annotations)

    def scalar(self, name: Token) -> TypeNode:
        return TypeNode("scalar", _word(name))

    def list(self, name: Token) -> TypeNode:
        return TypeNode("list", _word(name))

    def enum(self, name: Token, *values: Token) -> TypeNode:
        return TypeNode("enum", _word(name), values=tuple(map(_word, values)))

    def vector(self, name: Token, size: Token) -> TypeNode:
        return TypeNode("vector", _word(name), size=Literal(_number(size), _spot(size)))

    def annotation(self, sign: Token, name: Token, arguments: tuple[Argument, ...] | None) -> AnnotationNode:
        width = (name.end_pos or 0) - (sign.start_pos or 0) if sign.line == name.line else 1
        at = Spot(sign.line or 1, sign.column or 1, width, sign.start_pos or 0)
        return AnnotationNode(_word(name), arguments or (), arguments is not None, at)

    def arguments(self, *given: Argument | None) -> tuple[Argument, ...]:
        return tuple(one for one in given if one is not None)

    def argument(self, name: Token | None, value: Token | Range | Literal) -> Argument:
        return Argument(_word(name) if name is not None else None, _value(value))

    def range(self, low: Token, dots: Token, high: Token | None) -> Range:
        last = high if high is not None else dots
        star = high is not None and high.type == "STAR"
        top = None if high is None or star else _number(high)
        return Range(_number(low), top, star, _between(low, last))

    def upto(self, dots: Token, high: Token) -> Range:
        return Range(None, _number(high), False, _between(dots, high))

    def array(self, first: Token, *rest: Token | None) -> Literal:
        *items, last = rest
        values = tuple(_constant(one) for one in items if one is not None)
        assert last is not None
        return Literal(values, _between(first, last))


def _spot(token: Token) -> Spot:
    return Spot(token.line or 1, token.column or 1, len(token), token.start_pos or 0)


def _between(first: Token, last: Token) -> Spot:
    """From the first token to the last, if they stand on one line."""
    start = _spot(first)
    width = (last.end_pos or 0) - start.offset if first.line == last.line else start.width
    return Spot(start.line, start.column, width, start.offset)


def _word(token: Token) -> Word:
    return Word(str(token), _spot(token))


def _value(value: Token | Range | Literal) -> Word | Literal | Range:
    if not isinstance(value, Token):
        return value
    return _word(value) if value.type == "WORD" else Literal(_constant(value), _spot(value))


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
        raise Unreadable("the text holds half of a surrogate pair", _spot(token), "Write the whole pair") from None
    except ValueError:
        advice = r"Escapes are \" \\ \/ \b \f \n \r \t and \uXXXX; write a backslash as \\"
        raise Unreadable("the text holds an unknown escape", _spot(token), advice) from None
    return text


def _number(token: Token) -> Number:
    try:
        number = float(token) if any(mark in token for mark in ".eE") else int(token)
        if math.isfinite(number):
            return number
    except (ValueError, OverflowError):
        pass
    raise Unreadable("the number is too large", _spot(token), "Use a number that fits F64 or a 64-bit integer")
