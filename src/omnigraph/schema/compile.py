"""Compiles schema text into a `Catalog`: parse, check, resolve identities. Pure.

All problems of one text are raised together as one `SchemaError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.catalog import (
    SYSTEM_COLUMNS,
    Annotation,
    Catalog,
    CheckConstraint,
    DeclaredIndex,
    EntityKind,
    Property,
    RangeConstraint,
    Scalar,
    TypeDef,
    mint_id,
    mint_type_id,
)
from omnigraph.schema.check_constraints import TypeConstraints, check_constraints
from omnigraph.schema.declare import DeclaredTypes, declare
from omnigraph.schema.drafts import PropertyDraft, RenameHint, TypeDraft
from omnigraph.schema.parse import parse_schema
from omnigraph.schema.problems import Problems
from omnigraph.schema.values import ValueRefused, default_value

Mint = Callable[[], str]
Old = TypeVar("Old", TypeDef, Property)


def compile_schema(source: str, *, file: str = "<schema>", previous: Catalog | None = None, mint: Mint) -> Catalog:
    """Compile the catalog that `source` declares; raises `SchemaError` with everything that is wrong.

    With `previous`, types and properties keep their identity by name or by `@rename_from`. `mint` returns a new token
    for each new type or property; it is called in the order of the text, types before properties, and only for a
    schema without errors.
    """
    problems = Problems(source, file)
    declared = declare(parse_schema(source, problems), problems)
    constraints = [check_constraints(draft, problems) for draft in declared.all_drafts][len(declared.interfaces) :]
    for draft, type_constraints in zip(declared.types, constraints, strict=True):
        _check_values(draft, type_constraints, problems)
    old_types = _resolve_types(declared.types, previous, problems)
    old_properties = [_resolve_properties(draft, old_types.get(_key(draft)), problems) for draft in declared.types]
    problems.check()
    type_ids = _assign_type_ids(declared, old_types, mint)
    types = [
        _build_type(draft, type_constraints, type_ids, properties, mint)
        for draft, type_constraints, properties in zip(declared.types, constraints, old_properties, strict=True)
    ]
    return Catalog(tuple(types), source, tuple(declared.interfaces))


# --- values in annotations -----------------------------------------------------------------------------------------


def _check_values(draft: TypeDraft, constraints: TypeConstraints, problems: Problems) -> None:
    for prop in draft.properties.values():
        if prop.type is None:
            continue
        if prop.embed_at is not None:
            _check_embed(draft, prop, problems)
        if prop.default_at is not None:
            _check_default(prop, constraints, problems)


def _check_embed(draft: TypeDraft, prop: PropertyDraft, problems: Problems) -> None:
    assert prop.type is not None
    assert prop.embed_at is not None
    if prop.type.vector_size is None:
        advice = "Write it on the Vector property that stands for the text"
        problems.add("OG-S-072", prop.embed_at, f"@embed has no meaning on a property of type {prop.type}", advice)
        return
    for annotation in prop.annotations:
        if annotation.name != "embed":
            continue
        source = draft.properties.get(annotation.args[0])
        kind = source.type if source else None
        is_text = kind is not None and kind.scalar is Scalar.STRING and not kind.is_list and not kind.enum_values
        if not is_text and draft.has_all_interfaces and not (source and kind is None):
            text = f"@embed: {draft.title} has no String property '{annotation.args[0]}'"
            problems.add("OG-S-073", prop.embed_at, text, "Name the property whose text the vector stands for")


def _check_default(prop: PropertyDraft, constraints: TypeConstraints, problems: Problems) -> None:
    assert prop.type is not None
    assert prop.default_at is not None
    name = prop.name.text
    if not any(annotation.name == "default" for annotation in prop.annotations):
        return
    try:
        value = default_value(Property("", name, prop.type, prop.nullable, prop.annotations))
    except ValueRefused as refused:
        problems.add("OG-S-074", prop.default_at, f"@default: {refused.reason}", refused.advice)
        return
    if value is None and not prop.nullable:
        problems.add("OG-S-074", prop.default_at, f"@default: '{name}' is required and cannot be null")
    low, high = constraints.ranges.get(name, (None, None))
    is_outside = value is not None and not ((low is None or low <= value) and (high is None or value <= high))
    is_unmatched = any(
        column == name and value is not None and not pc.match_substring_regex(pa.array([value]), pattern)[0].as_py()
        for column, pattern in constraints.checks
    )
    if is_outside or is_unmatched:
        advice = "Choose a value that the rules of the property allow"
        problems.add("OG-S-074", prop.default_at, f"@default breaks the @{'range' if is_outside else 'check'}", advice)


# --- identities ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclaredName:
    """The name of a declared type or property, and its hint which old name it continues."""

    name: str
    rename_hint: RenameHint | None
    may_lack_old_name: bool = False  # a hint on an interface's property concerns only the types that have the old name


class IdentityResolver(Generic[Old]):
    """Decides which type or property of the present schema each declared name continues.

    A name keeps its identity; `@rename_from` moves an identity to a new name. A hint acts once: the catalog stores it,
    and a hint that is already stored on the same name is spent. So a schema whose hints were never cleaned up can be
    applied again, also one that swapped two names.
    """

    def __init__(self, old: Iterable[Old], fold: Callable[[str], str], noun: str, problems: Problems) -> None:
        self._old: Mapping[str, Old] = {fold(item.name): item for item in old}
        self._fold = fold
        self._noun = noun
        self._problems = problems

    def resolve(self, declared_names: Sequence[DeclaredName]) -> dict[str, Old]:
        """The old types or properties by new name; a declared name that is missing here is new."""
        predecessors: dict[str, Old] = {}
        successors: dict[str, str] = {}
        for declared in declared_names:
            if declared.rename_hint is not None and not self._is_spent(declared, declared.rename_hint):
                self._move(declared, declared.rename_hint, predecessors, successors)
        for declared in declared_names:
            key = self._fold(declared.name)
            if declared.name not in predecessors and key in self._old and key not in successors:
                predecessors[declared.name] = self._old[key]
        return predecessors

    def _is_spent(self, declared: DeclaredName, hint: RenameHint) -> bool:
        before = self._old.get(self._fold(declared.name))
        return before is not None and _find_applied_hint(before.annotations) == hint.old

    def _move(
        self, declared: DeclaredName, hint: RenameHint, predecessors: dict[str, Old], successors: dict[str, str]
    ) -> None:
        key = self._fold(hint.old)
        if key in successors:
            text = f"'{hint.old}' is renamed to '{successors[key]}' already"
            self._problems.add("OG-S-075", hint.at, text, "An old name has one successor")
        elif key in self._old:
            successors[key] = declared.name
            predecessors[declared.name] = self._old[key]
        elif self._fold(declared.name) not in self._old and not declared.may_lack_old_name:
            text = f"the present schema has no {self._noun} '{hint.old}'"
            self._problems.add("OG-S-076", hint.at, text, f"Remove the hint to add '{declared.name}' as new")


def _find_applied_hint(annotations: Iterable[Annotation]) -> str | None:
    return next((annotation.args[0] for annotation in annotations if annotation.name == "rename_from"), None)


def _resolve_types(
    drafts: Sequence[TypeDraft], previous: Catalog | None, problems: Problems
) -> Mapping[tuple[str, str], TypeDef]:
    """The old types by kind and new name. The case of edge names does not matter, as in queries."""
    predecessors: dict[tuple[str, str], TypeDef] = {}
    if previous is None:
        return predecessors
    folds: dict[str, Callable[[str], str]] = {"node": str, "edge": str.lower}
    for kind, fold in folds.items():
        old = [type_def for type_def in previous.types if type_def.kind == kind]
        declared_names = [DeclaredName(draft.name.text, draft.rename_hint) for draft in drafts if draft.kind == kind]
        resolved = IdentityResolver(old, fold, f"{kind} type", problems).resolve(declared_names)
        predecessors.update({(kind, name): type_def for name, type_def in resolved.items()})
    return predecessors


def _resolve_properties(draft: TypeDraft, old: TypeDef | None, problems: Problems) -> Mapping[str, Property]:
    """The properties of the old type by new name."""
    if old is None:
        return {}
    declared_names = [
        DeclaredName(name, prop.rename_hint, name in draft.interface_properties)
        for name, prop in draft.properties.items()
    ]
    return IdentityResolver(old.properties, str, f"property of {old.table_key}", problems).resolve(declared_names)


# --- catalog -------------------------------------------------------------------------------------------------------


def _key(draft: TypeDraft) -> tuple[str, str]:
    return draft.kind, draft.name.text


def _assign_type_ids(
    declared: DeclaredTypes, old: Mapping[tuple[str, str], TypeDef], mint: Mint
) -> Mapping[tuple[str, str], str]:
    """The identity of each type. The ends of edges need all identities before any type is built."""
    return {
        _key(draft): old[_key(draft)].id if _key(draft) in old else mint_type_id(_kind(draft), draft.name.text, mint())
        for draft in declared.types
    }


def _kind(draft: TypeDraft) -> EntityKind:
    assert draft.kind != "interface"
    return draft.kind


def _build_type(
    draft: TypeDraft,
    constraints: TypeConstraints,
    type_ids: Mapping[tuple[str, str], str],
    old: Mapping[str, Property],
    mint: Mint,
) -> TypeDef:
    kind = _kind(draft)
    properties = tuple(_build_property(prop, old.get(name), mint) for name, prop in draft.properties.items())
    columns = {prop.name: prop.id for prop in properties} | {name: name for name in SYSTEM_COLUMNS[kind]}
    ends = (draft.declaration.source, draft.declaration.target)
    source, target = (type_ids["node", word.text] if word else None for word in ends)
    return TypeDef(
        id=type_ids[_key(draft)],
        kind=kind,
        name=draft.name.text,
        properties=properties,
        key=tuple(sorted(columns[name] for name in constraints.key)),
        uniques=tuple(tuple(sorted(columns[name] for name in names)) for names in constraints.uniques),
        indexes=tuple(DeclaredIndex(columns[name], metric) for name, metric in constraints.indexes.items()),
        ranges=tuple(RangeConstraint(columns[name], *ends) for name, ends in constraints.ranges.items()),
        checks=tuple(CheckConstraint(columns[name], pattern) for name, pattern in constraints.checks),
        cardinality=draft.cardinality,
        source=source,
        target=target,
        implements=tuple(word.text for word in draft.declaration.implements),
        annotations=draft.annotations,
    )


def _build_property(draft: PropertyDraft, old: Property | None, mint: Mint) -> Property:
    assert draft.type is not None
    name = draft.name.text
    return Property(old.id if old else mint_id(name, mint()), name, draft.type, draft.nullable, draft.annotations)
