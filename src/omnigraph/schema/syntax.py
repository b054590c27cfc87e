"""The syntax tree of a schema: what was written and where, before anything is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal as Choice

DeclarationKind = Choice["interface", "node", "edge"]
Number = int | float
Constant = str | int | float | bool | None

#: Annotations that name properties are rules of the type, wherever they stand in its body.
RULES = frozenset({"key", "unique", "index", "range", "check"})


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in the text: line and column count from 1, `offset` from 0."""

    line: int
    column: int
    width: int
    offset: int


@dataclass(frozen=True, slots=True)
class Word:
    """A name as written."""

    text: str
    at: Spot


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant, or a tuple of constants for `[…]`."""

    value: Constant | tuple[Constant, ...]
    at: Spot


@dataclass(frozen=True, slots=True)
class Range:
    """`low..high`; None is open. `star` tells `1..*` from `1..`."""

    low: Number | None
    high: Number | None
    star: bool
    at: Spot

    def __str__(self) -> str:
        high = "*" if self.star else "" if self.high is None else str(self.high)
        return f"{'' if self.low is None else self.low}..{high}"


@dataclass(frozen=True, slots=True)
class Argument:
    name: Word | None
    value: Word | Literal | Range


@dataclass(frozen=True, slots=True)
class AnnotationNode:
    """`@name` or `@name(arguments)`."""

    name: Word
    arguments: tuple[Argument, ...]
    called: bool
    at: Spot  # of the "@" and the name

    @property
    def names_properties(self) -> bool:
        """A rule of the type, such as `@unique(a, b)`, rather than a mark on one property, such as `@unique`."""
        return self.name.text in RULES and any(
            one.name is None and isinstance(one.value, Word) for one in self.arguments[:1]
        )


@dataclass(frozen=True, slots=True)
class TypeNode:
    """`form` says which of the four spellings was used."""

    form: Choice["scalar", "list", "enum", "vector"]
    name: Word
    values: tuple[Word, ...] = ()
    size: Literal | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class PropertyNode:
    name: Word
    type: TypeNode
    annotations: tuple[AnnotationNode, ...]


@dataclass(frozen=True, slots=True)
class Declaration:
    kind: DeclarationKind
    name: Word
    annotations: tuple[AnnotationNode, ...] = ()
    implements: tuple[Word, ...] = ()
    source: Word | None = None
    target: Word | None = None
    rules: tuple[AnnotationNode, ...] = ()  # those before the first property
    properties: tuple[PropertyNode, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaTree:
    """`broken` holds the names of declarations that did not parse, so that nobody is told that they do not exist."""

    declarations: tuple[Declaration, ...]
    broken: Mapping[DeclarationKind, frozenset[str]]
