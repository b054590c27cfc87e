"""The compiled schema: types, properties and constraints, with identities that survive renames.

A `Catalog` is an immutable value. Every type and property gets an identity when it first appears. Names can change,
identities never change, and a name that is dropped and added again gets a new identity. Tables, columns, overlays and
footprints are keyed by identity only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Literal

from omnigraph.errors import NotFound

EntityKind = Literal["node", "edge"]

#: Columns that every table has under these names; no property may have such a name.
#: The metric of a vector index that names none; searches without an index use the same.
DEFAULT_METRIC = "cosine"
SYSTEM_COLUMNS: Mapping[EntityKind, tuple[str, ...]] = {"node": ("id",), "edge": ("id", "src", "dst")}


class Scalar(Enum):
    """The scalar types of the language, by the word users write."""

    STRING = "String"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    BLOB = "Blob"


@dataclass(frozen=True, slots=True)
class PropType:
    """A property's type: a scalar, a list of it, an enum (strings from a set), or a vector of F32."""

    scalar: Scalar
    is_list: bool = False
    enum_values: tuple[str, ...] = ()
    vector_size: int | None = None

    def __str__(self) -> str:
        if self.vector_size is not None:
            return f"Vector({self.vector_size})"
        if self.enum_values:
            return f"enum({', '.join(self.enum_values)})"
        return f"[{self.scalar.value}]" if self.is_list else self.scalar.value


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name(args…, key=value…)` as written; `args` hold plain JSON values."""

    name: str
    args: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Property:
    """One property. `id` is its identity and the name of its column in storage."""

    id: str
    name: str
    type: PropType
    nullable: bool = False
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class DeclaredIndex:
    """An `@index` on one column; the kind of index follows from the property's type."""

    column: str
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class RangeConstraint:
    """`@range`: both ends are inclusive; None is open."""

    column: str
    low: float | int | None
    high: float | int | None


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """`@check`: the text must contain a match of the RE2 expression."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Cardinality:
    """`@card`: bounds on the outgoing edges of one type per source; `high` None is unbounded."""

    low: int
    high: int | None

    @property
    def is_bounded(self) -> bool:
        return self.low > 0 or self.high is not None


@dataclass(frozen=True)
class TypeDef:
    """A node or edge type. `id` is its identity, the name of its table and its key in commit records."""

    id: str
    kind: EntityKind
    name: str
    properties: tuple[Property, ...] = ()
    key: tuple[str, ...] = ()  # property ids, in the order of the ids
    uniques: tuple[tuple[str, ...], ...] = ()  # column ids; edges may name src and dst
    indexes: tuple[DeclaredIndex, ...] = ()
    ranges: tuple[RangeConstraint, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    cardinality: Cardinality = Cardinality(0, None)
    source: str | None = None  # edges: identity of the type at the tail
    target: str | None = None  # edges: identity of the type at the head
    implements: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    @property
    def table_key(self) -> str:
        """The name of this table in errors: `node:Person`, `edge:Knows`."""
        return f"{self.kind}:{self.name}"

    @cached_property
    def by_name(self) -> Mapping[str, Property]:
        return {prop.name: prop for prop in self.properties}

    @cached_property
    def by_id(self) -> Mapping[str, Property]:
        return {prop.id: prop for prop in self.properties}

    @property
    def has_blob(self) -> bool:
        return any(prop.type.scalar is Scalar.BLOB for prop in self.properties)

    def column_name(self, column: str) -> str:
        """The user's name for a column id."""
        return column if column in SYSTEM_COLUMNS[self.kind] else self.by_id[column].name


@dataclass(frozen=True)
class Catalog:
    """A whole schema: the source exactly as given, and its compiled form."""

    types: tuple[TypeDef, ...]
    source: str = ""
    interfaces: tuple[str, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[str, TypeDef]:
        return {type_def.id: type_def for type_def in self.types}

    @cached_property
    def _nodes(self) -> Mapping[str, TypeDef]:
        return {type_def.name: type_def for type_def in self.types if type_def.kind == "node"}

    @cached_property
    def _edges(self) -> Mapping[str, TypeDef]:
        return {type_def.name.lower(): type_def for type_def in self.types if type_def.kind == "edge"}

    def node(self, name: str) -> TypeDef | None:
        return self._nodes.get(name)

    def edge(self, name: str) -> TypeDef | None:
        """Find an edge type regardless of case, since queries write edge names with a small first letter."""
        return self._edges.get(name.lower())

    def edges_at(self, node_id: str) -> Iterator[TypeDef]:
        """Edge types with this node type at either end."""
        return (
            type_def
            for type_def in self.types
            if type_def.kind == "edge" and node_id in (type_def.source, type_def.target)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "interfaces": list(self.interfaces),
            "types": [_encode_type(type_def) for type_def in self.types],
        }

    def encode(self) -> bytes:
        """Canonical bytes: the same catalog always gives the same hash."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(self.encode()).hexdigest()

    @classmethod
    def decode(cls, data: bytes) -> Catalog:
        raw = json.loads(data)
        return cls(tuple(_decode_type(raw_type) for raw_type in raw["types"]), raw["source"], tuple(raw["interfaces"]))


def no_such_type(name: str, catalog: Catalog) -> NotFound:
    """The error for a type name that the schema does not have."""
    names = ", ".join(sorted(type_def.name for type_def in catalog.types)) or "none"
    return NotFound(f"there is no type {name!r}", code="type_not_found", advice=f"Known types: {names}", type=name)


def mint_id(name: str, token: str) -> str:
    """A readable identity: the property's first name and a random token."""
    return f"{name}_{token}"


def mint_type_id(kind: EntityKind, name: str, token: str) -> str:
    return f"{kind}.{name.lower()}-{token}"


def _to_plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    return value


def _encode_type(type_def: TypeDef) -> dict[str, Any]:
    plain = _to_plain(asdict(type_def))
    assert isinstance(plain, dict)
    return plain


def _to_tuples(value: Any) -> Any:
    return tuple(_to_tuples(item) for item in value) if isinstance(value, list) else value


def _decode_annotations(raw: list[dict[str, Any]]) -> tuple[Annotation, ...]:
    return tuple(Annotation(item["name"], _to_tuples(item["args"]), _to_tuples(item["named"])) for item in raw)


def _decode_property(raw: dict[str, Any]) -> Property:
    kind = raw["type"]
    return Property(
        raw["id"],
        raw["name"],
        PropType(Scalar(kind["scalar"]), kind["is_list"], tuple(kind["enum_values"]), kind["vector_size"]),
        raw["nullable"],
        _decode_annotations(raw["annotations"]),
    )


def _decode_type(raw: dict[str, Any]) -> TypeDef:
    return TypeDef(
        id=raw["id"],
        kind=raw["kind"],
        name=raw["name"],
        properties=tuple(_decode_property(item) for item in raw["properties"]),
        key=tuple(raw["key"]),
        uniques=_to_tuples(raw["uniques"]),
        indexes=tuple(DeclaredIndex(**item) for item in raw["indexes"]),
        ranges=tuple(RangeConstraint(**item) for item in raw["ranges"]),
        checks=tuple(CheckConstraint(**item) for item in raw["checks"]),
        cardinality=Cardinality(**raw["cardinality"]),
        source=raw["source"],
        target=raw["target"],
        implements=tuple(raw["implements"]),
        annotations=_decode_annotations(raw["annotations"]),
    )
