"""The syntax tree of a schema: the text as written, with positions, before any check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal as Choice

from omnigraph.immutable import Immutable

DeclarationKind = Choice["interface", "node", "edge"]
Number = int | float
Constant = str | int | float | bool | None

#: Annotations that declare constraints or indexes. One that names properties belongs to the type, anywhere in its body.
CONSTRAINT_NAMES = frozenset({"key", "unique", "index", "range", "check"})


class SchemaSpan(Immutable):
    """A part of one line of the text: line and column count from 1, `offset` from 0."""

    line: int
    column: int
    width: int
    offset: int


class WrittenName(Immutable):
    """A name as written."""

    text: str
    at: SchemaSpan


class LiteralNode(Immutable):
    """A constant, or a tuple of constants for `[…]`."""

    value: Constant | tuple[Constant, ...]
    at: SchemaSpan


class RangeNode(Immutable):
    """`low..high`; None is open. `has_star` distinguishes `1..*` from `1..`."""

    low: Number | None
    high: Number | None
    has_star: bool
    at: SchemaSpan

    def __str__(self) -> str:
        high = "*" if self.has_star else "" if self.high is None else str(self.high)
        return f"{'' if self.low is None else self.low}..{high}"


class ArgumentNode(Immutable):
    name: WrittenName | None
    value: WrittenName | LiteralNode | RangeNode


class AnnotationNode(Immutable):
    """`@name` or `@name(arguments)`."""

    name: WrittenName
    arguments: tuple[ArgumentNode, ...]
    has_parentheses: bool
    at: SchemaSpan  # of the "@" and the name

    @property
    def is_type_constraint(self) -> bool:
        """Whether this is a constraint of the type (`@unique(a, b)`) rather than of one property (`@unique`)."""
        return self.name.text in CONSTRAINT_NAMES and any(
            argument.name is None and isinstance(argument.value, WrittenName) for argument in self.arguments[:1]
        )


class TypeNode(Immutable):
    """The type of a property in one of its four spellings."""

    form: Choice["scalar", "list", "enum", "vector"]
    name: WrittenName
    values: tuple[WrittenName, ...] = ()
    size: LiteralNode | None = None
    is_optional: bool = False


class PropertyNode(Immutable):
    name: WrittenName
    type: TypeNode
    annotations: tuple[AnnotationNode, ...]


class Declaration(Immutable):
    kind: DeclarationKind
    name: WrittenName
    annotations: tuple[AnnotationNode, ...] = ()
    implements: tuple[WrittenName, ...] = ()
    source: WrittenName | None = None
    target: WrittenName | None = None
    constraints: tuple[AnnotationNode, ...] = ()  # those before the first property
    properties: tuple[PropertyNode, ...] = ()


class SchemaTree(Immutable):
    """`unparsed_names`: declarations that did not parse; references to them are not reported as unknown."""

    declarations: tuple[Declaration, ...]
    unparsed_names: Mapping[DeclarationKind, frozenset[str]]
