"""A graph and its schema as plain dictionaries: what a chain of schema changes and writes must lead to.

Types and properties are numbered when they are born; rows are kept under these numbers, so that a rename touches no
row and a name used again finds nothing old. A state is valid or not as a whole, since rules hold at all times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

NODE_NAMES = ("Ant", "Bee", "Cat", "Dog")
EDGE_NAMES = ("Eats", "Fears", "Guards")
PROPERTY_NAMES = ("p", "q", "r", "camelCase")
KINDS = ("I32", "I64", "F32", "F64", "String", "Bool", "enum", "[I32]")
VALUES: dict[str, list[Any]] = {
    "I32": [0, 1, 7, -4],
    "I64": [0, 1, 2**40, -4],
    "F32": [0.0, 0.5, 2.5, -4.0],
    "F64": [0.0, 0.1, 2.5, -4.0],
    "String": ["s", "t", "st", "ö"],
    "Bool": [True, False],
    "[I32]": [[], [1], [1, 2]],
}
ENUM = ("a", "b", "c", "d")
RANGES = ((None, 1), (0, None), (-5, 10), (1, 3))
PATTERNS = ("s", "^t", ".")
CARDS = ((0, 2), (1, None), (0, 1), (0, None))
_numbers = count()


@dataclass
class Prop:
    """One property; `type` is a scalar's word, a list of one, or `enum` with `members` values."""

    name: str
    type: str
    nullable: bool = True
    default: Any = None
    members: int = 2
    unique: bool = False
    range: tuple[int | None, int | None] | None = None
    check: str | None = None
    number: int = field(default_factory=lambda: next(_numbers))
    hint: str | None = None  # the rename hint in the text that is in force

    @property
    def values(self) -> list[Any]:
        return list(ENUM[: self.members]) if self.type == "enum" else VALUES[self.type]

    def allows(self, value: Any) -> bool:
        if value is None:
            return self.nullable
        low, high = self.range or (None, None)
        inside = (low is None or value >= low) and (high is None or value <= high)
        pattern = self.check
        matches = pattern is None or (value.startswith(pattern[1:]) if pattern[0] == "^" else _contains(value, pattern))
        return inside and matches

    def text(self, hint: str | None) -> str:
        word = f"enum({', '.join(self.values)})" if self.type == "enum" else self.type
        notes = [f"{self.name}: {word}{'?' if self.nullable else ''}"]
        if self.default is not None:
            notes.append(f"@default({_literal(self.default)})")
        if self.unique:
            notes.append("@unique")
        if self.range is not None:
            notes.append(f"@range({'..'.join('' if end is None else str(end) for end in self.range)})")
        if self.check is not None:
            notes.append(f'@check("{self.check}")')
        return " ".join([*notes, *([f'@rename_from("{hint}")'] if hint else [])])


@dataclass
class TypeModel:
    """A node type has the key `props[0]`; an edge type has ends, by number."""

    name: str
    props: list[Prop]
    source: int | None = None
    target: int | None = None
    card: tuple[int, int | None] = (0, None)
    number: int = field(default_factory=lambda: next(_numbers))
    hint: str | None = None

    @property
    def is_edge(self) -> bool:
        return self.source is not None


Row = dict[Any, Any]


@dataclass
class State:
    """A whole graph: types by number, and rows by type and id. Edges keep `from` and `to` beside their properties."""

    types: dict[int, TypeModel] = field(default_factory=dict)
    rows: dict[int, dict[str, Row]] = field(default_factory=dict)

    def copy(self) -> State:
        return deepcopy(self)

    @property
    def nodes(self) -> list[TypeModel]:
        return [type_def for type_def in self.types.values() if not type_def.is_edge]

    @property
    def edges(self) -> list[TypeModel]:
        return [type_def for type_def in self.types.values() if type_def.is_edge]

    def add(self, entity_type: TypeModel) -> None:
        self.types[entity_type.number] = entity_type
        self.rows[entity_type.number] = {}

    def drop(self, entity_type: TypeModel) -> None:
        """With every edge type at it."""
        joined = [edge for edge in self.edges if entity_type.number in (edge.source, edge.target)]
        for dropped in [entity_type, *joined]:
            del self.types[dropped.number]
            del self.rows[dropped.number]

    def without_edges_of_gone_nodes(self) -> None:
        for edge in self.edges:
            assert edge.source is not None
            assert edge.target is not None
            sources, targets = self.rows[edge.source], self.rows[edge.target]
            remaining = {key: row for key, row in self.rows[edge.number].items() if _ends_in(row, sources, targets)}
            self.rows[edge.number] = remaining

    def is_valid(self) -> bool:
        return not any(self._broken())

    def _broken(self) -> Iterator[str]:
        for type_def in self.types.values():
            rows = self.rows[type_def.number].values()
            for prop in type_def.props:
                values = [row.get(prop.number) for row in rows]
                if not all(map(prop.allows, values)):
                    yield f"{type_def.name}.{prop.name}: value"
                texts = [repr(value) for value in values if value is not None]
                if prop.unique and len(set(texts)) != len(texts):
                    yield f"{type_def.name}.{prop.name}: twice"
            if type_def.is_edge:
                yield from self._broken_edges(type_def)

    def _broken_edges(self, edge: TypeModel) -> Iterator[str]:
        assert edge.source is not None
        assert edge.target is not None
        rows = self.rows[edge.number].values()
        sources, targets = self.rows[edge.source], self.rows[edge.target]
        if not all(_ends_in(row, sources, targets) for row in rows):
            yield f"{edge.name}: no such end"
        counts = Counter(row["from"] for row in rows)
        low, high = edge.card
        if any(counts[source] < low or (high is not None and counts[source] > high) for source in sources):
            yield f"{edge.name}: number of edges"

    def contents(self) -> dict[str, dict[str, Row]]:
        """Rows under the names of now, as a reader sees them."""
        return {type_def.name: self.rows_under_names(type_def, type_def) for type_def in self.types.values()}

    def rows_under_names(self, entity_type: TypeModel, names: TypeModel) -> dict[str, Row]:
        """Rows of a type under the names that `names`, the same type at another time, has for its properties."""
        prop_names = {prop.number: prop.name for prop in names.props}
        ends = ("from", "to") if entity_type.is_edge else ()
        return {
            key: {
                "id": key,
                **{end: row[end] for end in ends},
                **{
                    prop_names[prop.number]: row.get(prop.number)
                    for prop in entity_type.props
                    if prop.number in prop_names
                },
            }
            for key, row in self.rows[entity_type.number].items()
        }

    def text(self, before: State | None = None) -> str:
        """The schema that leads from `before` to this state; the hints it holds are remembered."""
        parts = []
        for type_def in self.types.values():
            old = before.types.get(type_def.number) if before else None
            type_def.hint = old.name if old and old.name != type_def.name else None
            old_names = {prop.number: prop.name for prop in old.props} if old else {}
            for prop in type_def.props:
                was = old_names.get(prop.number)
                prop.hint = was if was and was != prop.name else None
            parts.append(self._type_text(type_def))
        return "\n".join(parts) + "\n"

    def _type_text(self, entity_type: TypeModel) -> str:
        hint = f' @rename_from("{entity_type.hint}")' if entity_type.hint else ""
        props = [
            prop.text(prop.hint) + ("" if entity_type.is_edge or position else " @key")
            for position, prop in enumerate(entity_type.props)
        ]
        body = "{ " + "  ".join(props) + " }"
        if not entity_type.is_edge:
            return f"node {entity_type.name}{hint} {body}"
        assert entity_type.source is not None
        assert entity_type.target is not None
        low, high = entity_type.card
        ends = f"{self.types[entity_type.source].name} -> {self.types[entity_type.target].name}"
        return f"edge {entity_type.name}: {ends} @card({low}..{'' if high is None else high}){hint} {body}"


def _ends_in(row: Row, sources: dict[str, Row], targets: dict[str, Row]) -> bool:
    return row["from"] in sources and row["to"] in targets


def _contains(value: str, pattern: str) -> bool:
    return bool(value) if pattern == "." else pattern in value


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
