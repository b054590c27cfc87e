"""The state of one check: the schema, the findings, the parameters, and the columns that the query reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from omnigraph.query.language.checked import STRING, EntityType, Param, Parameter, Slot
from omnigraph.query.language.parse import add_finding
from omnigraph.query.language.syntax import NameSyntax, SourceSpan
from omnigraph.schema.catalog import SYSTEM_COLUMNS, Catalog, Property, PropType, Scalar, TypeDef
from omnigraph.schema.diagnostics import Diagnostics

#: The built-in columns as properties, so that `$x.id` needs no case of its own.
SYSTEM_PROPERTIES = {name: Property(name, name, STRING) for name in SYSTEM_COLUMNS["edge"]}


class CheckContext:
    """Collects findings: a check that fails adds a finding and returns None, and the checks after it go on."""

    def __init__(self, catalog: Catalog, diagnostics: Diagnostics) -> None:
        self.catalog = catalog
        self.diagnostics = diagnostics
        self.params: dict[str, Parameter | None] = {}  # None: declared, but wrongly
        self.used_params: set[str] = set()
        self._slots: dict[tuple[str, PropType, int | None], Slot] = {}
        self._reads: dict[str, set[str]] = {}

    def fail(self, code: str, span: SourceSpan, message: str, advice: str | None = None) -> None:
        add_finding(self.diagnostics, code, span, message, advice)

    # ---- parameters --------------------------------------------------------------------------------------------------

    def slot(self, param: Parameter, type_: PropType, at_least: int | None = None) -> Param:
        """The parameter converted to this type. Two uses with the same conversion share one slot."""
        key = (param.name, type_, at_least)
        if key not in self._slots:
            plain = type_ == param.type and at_least is None
            converted_count = sum(slot.param == param.name != slot.name for slot in self._slots.values())
            name = param.name if plain else f"{param.name}:{converted_count + 1}"
            self._slots[key] = Slot(name, param.name, type_, at_least)
        return Param(self._slots[key].name, type_, param.nullable)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots.values())

    # ---- the schema --------------------------------------------------------------------------------------------------

    def type_of(self, entity: EntityType) -> TypeDef:
        return self.catalog.by_id[entity.type_id]

    def property_of(self, type_def: TypeDef, name: NameSyntax, *, also: Iterable[str] = ()) -> Property | None:
        """The property of that name, built-in columns included; a finding if there is none."""
        if name.text in SYSTEM_COLUMNS[type_def.kind]:
            return SYSTEM_PROPERTIES[name.text]
        prop = type_def.by_name.get(name.text)
        if prop is None:
            names = [*type_def.by_name, *SYSTEM_COLUMNS[type_def.kind], *also]
            advice = did_you_mean(name.text, names) or f"It has {', '.join(names)}"
            self.fail("T3", name.span, f"{type_def.table_key} has no property `{name.text}`", advice)
        return prop

    def read(self, type_id: str, columns: Iterable[str] = ()) -> None:
        self._reads.setdefault(type_id, set()).update(columns)

    def read_all(self, type_def: TypeDef) -> None:
        """Read a whole entity: all columns but blobs."""
        columns = (prop.id for prop in type_def.properties if prop.type.scalar is not Scalar.BLOB)
        self.read(type_def.id, (*SYSTEM_COLUMNS[type_def.kind], *columns))

    @property
    def reads(self) -> dict[str, tuple[str, ...]]:
        return {type_id: tuple(sorted(columns)) for type_id, columns in sorted(self._reads.items())}


def entity_type(type_def: TypeDef) -> EntityType:
    return EntityType(type_def.id, type_def.name, type_def.kind)


def did_you_mean(text: str, candidates: Iterable[str]) -> str | None:
    """Advice that names the closest candidate, if one is close."""
    by_lower = {word.lower(): word for word in candidates}
    matches = difflib.get_close_matches(text.lower(), by_lower, 1, 0.6)
    return f"Did you mean `{by_lower[matches[0]]}`?" if matches else None


def list_words(words: Iterable[str], bound: int = 8) -> str:
    """At most `bound` words for a message."""
    all_words = list(words)
    return ", ".join(all_words[:bound]) + (", …" if len(all_words) > bound else "")


def edge_word(name: str) -> str:
    """An edge as queries write it."""
    return name[:1].lower() + name[1:]
