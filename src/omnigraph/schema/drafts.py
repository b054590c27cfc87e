"""Drafts of types, properties and constraints: each checked by itself, by name, without identities."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.immutable import Immutable
from omnigraph.schema.catalog import Annotation, Cardinality, PropType
from omnigraph.schema.syntax import Declaration, DeclarationKind, LiteralNode, RangeNode, SchemaSpan, WrittenName

ANY_NUMBER = Cardinality(0, None)


class KeyDraft(Immutable):
    members: tuple[WrittenName, ...]
    at: SchemaSpan


class UniqueDraft(Immutable):
    members: tuple[WrittenName, ...]
    at: SchemaSpan


class IndexDraft(Immutable):
    member: WrittenName
    metric: LiteralNode | None
    at: SchemaSpan


class RangeDraft(Immutable):
    member: WrittenName
    limits: RangeNode
    at: SchemaSpan


class CheckDraft(Immutable):
    member: WrittenName
    pattern: LiteralNode
    at: SchemaSpan


ConstraintDraft = KeyDraft | UniqueDraft | IndexDraft | RangeDraft | CheckDraft


class RenameHint(Immutable):
    """`@rename_from("Old")`."""

    old: str
    at: SchemaSpan


class PropertyDraft(Immutable):
    """A property; `constraints` are those written on the property itself, such as a bare `@key`."""

    name: WrittenName
    type: PropType | None  # None: unreadable, and reported
    nullable: bool
    annotations: tuple[Annotation, ...] = ()
    constraints: tuple[ConstraintDraft, ...] = ()
    rename_hint: RenameHint | None = None
    default_at: SchemaSpan | None = None
    embed_at: SchemaSpan | None = None

    def agrees_with(self, draft: PropertyDraft) -> bool:
        """Whether both declare the same property; the order of enum values and annotations does not matter."""
        return self._meaning() == draft._meaning()

    def _meaning(self) -> object:
        kind = self.type
        shape = kind and (kind.scalar, kind.is_list, frozenset(kind.enum_values), kind.vector_size)
        annotations = sorted(map(repr, self.annotations))
        return shape, self.nullable, annotations, sorted(map(_constraint_meaning, self.constraints))


def _constraint_meaning(constraint: ConstraintDraft) -> str:
    match constraint:
        case IndexDraft(_, metric):
            return f"index {metric and metric.value}"
        case RangeDraft(_, limits):
            return f"range {limits}"
        case CheckDraft(_, pattern):
            return f"check {pattern.value}"
        case _:
            return type(constraint).__name__


@dataclass(slots=True)
class TypeDraft:
    """A declared type, including the properties of its interfaces."""

    kind: DeclarationKind
    name: WrittenName
    declaration: Declaration
    properties: dict[str, PropertyDraft] = field(default_factory=dict)
    interface_properties: frozenset[str] = frozenset()  # names of properties that come from an interface only
    constraints: list[ConstraintDraft] = field(default_factory=list)
    cardinality: Cardinality = ANY_NUMBER
    annotations: tuple[Annotation, ...] = ()
    rename_hint: RenameHint | None = None
    has_all_interfaces: bool = True  # False: an interface is unknown, so the type may have more properties

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name.text}"
