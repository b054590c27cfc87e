"""What one check carries along: the schema, the findings, the parameters and what was read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from omnigraph.query.language.checked import STRING, EntityType, Param, Parameter, Slot
from omnigraph.query.language.parse import note
from omnigraph.query.language.syntax import NameSyntax, SourceSpan
from omnigraph.schema.catalog import SYSTEM_COLUMNS, Catalog, Property, PropType, Scalar, TypeDef
from omnigraph.schema.diagnostics import Diagnostics

#: The built-in columns as properties, so that `$x.id` needs no case of its own.
SYSTEM_PROPERTIES = {name: Property(name, name, STRING) for name in SYSTEM_COLUMNS["edge"]}


class CheckContext:
    """Collects findings instead of stopping at the first: a function that fails notes why and returns None."""

    def __init__(self, catalog: Catalog, found: Diagnostics) -> None:
        self.catalog = catalog
        self.found = found
        self.params: dict[str, Parameter | None] = {}  # None: declared, but wrongly
        self.used: set[str] = set()
        self._slots: dict[tuple[str, PropType, int | None], Slot] = {}
        self._reads: dict[str, set[str]] = {}

    def fail(self, code: str, span: SourceSpan, message: str, advice: str | None = None) -> None:
        note(self.found, code, span, message, advice)

    # ---- parameters --------------------------------------------------------------------------------------------------

    def slot(self, param: Parameter, type_: PropType, at_least: int | None = None) -> Param:
        """The parameter as a value of this type; the same use twice is the same slot."""
        key = (param.name, type_, at_least)
        if key not in self._slots:
            plain = type_ == param.type and at_least is None
            others = sum(one.param == param.name != one.name for one in self._slots.values())
            name = param.name if plain else f"{param.name}:{others + 1}"
            self._slots[key] = Slot(name, param.name, type_, at_least)
        return Param(self._slots[key].name, type_, param.nullable)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots.values())

    # ---- the schema --------------------------------------------------------------------------------------------------

    def type_of(self, entity: EntityType) -> TypeDef:
        return self.catalog.by_id[entity.type_id]

    def property_of(self, one: TypeDef, name: NameSyntax, *, also: Iterable[str] = ()) -> Property | None:
        """The property of that name, built-in columns included; a finding if there is none."""
        if name.text in SYSTEM_COLUMNS[one.kind]:
            return SYSTEM_PROPERTIES[name.text]
        found = one.by_name.get(name.text)
        if found is None:
            known = [*one.by_name, *SYSTEM_COLUMNS[one.kind], *also]
            advice = did_you_mean(name.text, known) or f"It has {', '.join(known)}"
            self.fail("T3", name.span, f"{one.table_key} has no property `{name.text}`", advice)
        return found

    def read(self, type_id: str, columns: Iterable[str] = ()) -> None:
        self._reads.setdefault(type_id, set()).update(columns)

    def read_all(self, one: TypeDef) -> None:
        """A whole entity: everything but blobs."""
        shown = (prop.id for prop in one.properties if prop.type.scalar is not Scalar.BLOB)
        self.read(one.id, (*SYSTEM_COLUMNS[one.kind], *shown))

    @property
    def reads(self) -> dict[str, tuple[str, ...]]:
        return {type_id: tuple(sorted(columns)) for type_id, columns in sorted(self._reads.items())}


def entity_type(one: TypeDef) -> EntityType:
    return EntityType(one.id, one.name, one.kind)


def did_you_mean(text: str, known: Iterable[str]) -> str | None:
    """Advice that names the closest known word, if one is close."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(text.lower(), by_lower, 1, 0.6)
    return f"Did you mean `{by_lower[found[0]]}`?" if found else None


def listed(words: Iterable[str], bound: int = 8) -> str:
    """Some words for a message."""
    all_ = list(words)
    return ", ".join(all_[:bound]) + (", …" if len(all_) > bound else "")


def edge_word(name: str) -> str:
    """An edge as queries write it."""
    return name[:1].lower() + name[1:]
