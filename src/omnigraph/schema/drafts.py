"""Types and rules by name, checked one by one but without identities yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.schema.catalog import Annotation, Cardinality, PropType
from omnigraph.schema.syntax import Declaration, DeclarationKind, Literal, Range, Spot, Word

ANY_NUMBER = Cardinality(0, None)


@dataclass(frozen=True, slots=True)
class KeyDraft:
    members: tuple[Word, ...]
    at: Spot


@dataclass(frozen=True, slots=True)
class UniqueDraft:
    members: tuple[Word, ...]
    at: Spot


@dataclass(frozen=True, slots=True)
class IndexDraft:
    member: Word
    metric: Literal | None
    at: Spot


@dataclass(frozen=True, slots=True)
class RangeDraft:
    member: Word
    limits: Range
    at: Spot


@dataclass(frozen=True, slots=True)
class CheckDraft:
    member: Word
    pattern: Literal
    at: Spot


RuleDraft = KeyDraft | UniqueDraft | IndexDraft | RangeDraft | CheckDraft


@dataclass(frozen=True, slots=True)
class Hint:
    """`@rename_from("Old")`."""

    old: str
    at: Spot


@dataclass(frozen=True, slots=True)
class PropertyDraft:
    """`marks` are the rules written on the property itself, such as a bare `@key`."""

    name: Word
    type: PropType | None  # None: unreadable, and reported
    nullable: bool
    annotations: tuple[Annotation, ...] = ()
    marks: tuple[RuleDraft, ...] = ()
    hint: Hint | None = None
    default_at: Spot | None = None
    embed_at: Spot | None = None

    def agrees_with(self, other: PropertyDraft) -> bool:
        """The same property in all that matters; the order of enum values and annotations does not."""
        return self._meaning() == other._meaning()

    def _meaning(self) -> object:
        kind = self.type
        shape = kind and (kind.scalar, kind.is_list, frozenset(kind.enum_values), kind.vector_size)
        notes = sorted(map(repr, self.annotations))
        return shape, self.nullable, notes, sorted(map(_rule_meaning, self.marks))


def _rule_meaning(rule: RuleDraft) -> str:
    match rule:
        case IndexDraft(_, metric):
            return f"index {metric and metric.value}"
        case RangeDraft(_, limits):
            return f"range {limits}"
        case CheckDraft(_, pattern):
            return f"check {pattern.value}"
        case _:
            return type(rule).__name__


@dataclass(slots=True)
class TypeDraft:
    """A declaration with its interfaces' properties injected."""

    kind: DeclarationKind
    name: Word
    declaration: Declaration
    properties: dict[str, PropertyDraft] = field(default_factory=dict)
    injected: frozenset[str] = frozenset()  # names of properties that come from an interface only
    rules: list[RuleDraft] = field(default_factory=list)
    cardinality: Cardinality = ANY_NUMBER
    annotations: tuple[Annotation, ...] = ()
    hint: Hint | None = None
    complete: bool = True  # False: an interface of it is missing, so it may well have properties that nobody sees

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name.text}"
