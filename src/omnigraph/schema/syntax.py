"""The syntax tree of a schema: what was written and where, before anything is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal as Choice

DeclarationKind = Choice["interface", "node", "edge"]
Number = int | float
Constant = str | int | float | bool | None

#: Annotations that name properties are rules of the type, wherever they stand in its body.
CONSTRAINT_NAMES = frozenset({"key", "unique", "index", "range", "check"})


@dataclass(frozen=True, slots=True)
class SchemaSpan:
    """A place in the text: line and column count from 1, `offset` from 0."""

    line: int
    column: int
    width: int
    offset: int


@dataclass(frozen=True, slots=True)
class WrittenName:
    """A name as written."""

    text: str
    at: SchemaSpan


@dataclass(frozen=True, slots=True)
class LiteralNode:
    """A constant, or a tuple of constants for `[…]`."""

    value: Constant | tuple[Constant, ...]
    at: SchemaSpan


@dataclass(frozen=True, slots=True)
class RangeNode:
    """`low..high`; None is open. `star` tells `1..*` from `1..`."""

    low: Number | None
    high: Number | None
    has_star: bool
    at: SchemaSpan

    def __str__(self) -> str:
        high = "*" if self.has_star else "" if self.high is None else str(self.high)
        return f"{'' if self.low is None else self.low}..{high}"


@dataclass(frozen=True, slots=True)
class ArgumentNode:
    name: WrittenName | None
    value: WrittenName | LiteralNode | RangeNode


@dataclass(frozen=True, slots=True)
class AnnotationNode:
    """`@name` or `@name(arguments)`."""

    name: WrittenName
    arguments: tuple[ArgumentNode, ...]
    has_parentheses: bool
    at: SchemaSpan  # of the "@" and the name

    @property
    def is_type_constraint(self) -> bool:
        """A rule of the type, such as `@unique(a, b)`, rather than a mark on one property, such as `@unique`."""
        return self.name.text in CONSTRAINT_NAMES and any(
            argument.name is None and isinstance(argument.value, WrittenName) for argument in self.arguments[:1]
        )


@dataclass(frozen=True, slots=True)
class TypeNode:
    """`form` says which of the four spellings was used."""

    form: Choice["scalar", "list", "enum", "vector"]
    name: WrittenName
    values: tuple[WrittenName, ...] = ()
    size: LiteralNode | None = None
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class PropertyNode:
    name: WrittenName
    type: TypeNode
    annotations: tuple[AnnotationNode, ...]


@dataclass(frozen=True, slots=True)
class Declaration:
    kind: DeclarationKind
    name: WrittenName
    annotations: tuple[AnnotationNode, ...] = ()
    implements: tuple[WrittenName, ...] = ()
    source: WrittenName | None = None
    target: WrittenName | None = None
    constraints: tuple[AnnotationNode, ...] = ()  # those before the first property
    properties: tuple[PropertyNode, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaTree:
    """`broken` holds the names of declarations that did not parse, so that nobody is told that they do not exist."""

    declarations: tuple[Declaration, ...]
    unparsed_names: Mapping[DeclarationKind, frozenset[str]]
