"""Types and rules by name, checked one by one but without identities yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.schema.catalog import Annotation, Cardinality, PropType
from omnigraph.schema.syntax import Declaration, DeclarationKind, LiteralNode, RangeNode, SchemaSpan, WrittenName

ANY_NUMBER = Cardinality(0, None)


@dataclass(frozen=True, slots=True)
class KeyDraft:
    members: tuple[WrittenName, ...]
    at: SchemaSpan


@dataclass(frozen=True, slots=True)
class UniqueDraft:
    members: tuple[WrittenName, ...]
    at: SchemaSpan


@dataclass(frozen=True, slots=True)
class IndexDraft:
    member: WrittenName
    metric: LiteralNode | None
    at: SchemaSpan


@dataclass(frozen=True, slots=True)
class RangeDraft:
    member: WrittenName
    limits: RangeNode
    at: SchemaSpan


@dataclass(frozen=True, slots=True)
class CheckDraft:
    member: WrittenName
    pattern: LiteralNode
    at: SchemaSpan


ConstraintDraft = KeyDraft | UniqueDraft | IndexDraft | RangeDraft | CheckDraft


@dataclass(frozen=True, slots=True)
class RenameHint:
    """`@rename_from("Old")`."""

    old: str
    at: SchemaSpan


@dataclass(frozen=True, slots=True)
class PropertyDraft:
    """`marks` are the rules written on the property itself, such as a bare `@key`."""

    name: WrittenName
    type: PropType | None  # None: unreadable, and reported
    nullable: bool
    annotations: tuple[Annotation, ...] = ()
    constraints: tuple[ConstraintDraft, ...] = ()
    rename_hint: RenameHint | None = None
    default_at: SchemaSpan | None = None
    embed_at: SchemaSpan | None = None

    def agrees_with(self, declared: PropertyDraft) -> bool:
        """The same property in all that matters; the order of enum values and annotations does not."""
        return self._meaning() == declared._meaning()

    def _meaning(self) -> object:
        kind = self.type
        shape = kind and (kind.scalar, kind.is_list, frozenset(kind.enum_values), kind.vector_size)
        notes = sorted(map(repr, self.annotations))
        return shape, self.nullable, notes, sorted(map(_rule_meaning, self.constraints))


def _rule_meaning(rule: ConstraintDraft) -> str:
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
    name: WrittenName
    declaration: Declaration
    properties: dict[str, PropertyDraft] = field(default_factory=dict)
    interface_properties: frozenset[str] = frozenset()  # names of properties that come from an interface only
    constraints: list[ConstraintDraft] = field(default_factory=list)
    cardinality: Cardinality = ANY_NUMBER
    annotations: tuple[Annotation, ...] = ()
    rename_hint: RenameHint | None = None
    has_all_interfaces: bool = (
        True  # False: an interface of it is missing, so it may well have properties that nobody sees
    )

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name.text}"
