"""Schema text to `Catalog`: every check of the language, then identities.

Pure. All findings of one text come as one `SchemaError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.catalog import (
    SYSTEM_COLUMNS,
    Catalog,
    CheckConstraint,
    EntityKind,
    DeclaredIndex,
    Property,
    RangeConstraint,
    Scalar,
    TypeDef,
    mint_id,
    mint_type_id,
)
from omnigraph.schema.check_constraints import TypeConstraints, check_constraints
from omnigraph.schema.declare import DeclaredTypes, declare
from omnigraph.schema.drafts import PropertyDraft, TypeDraft
from omnigraph.schema.identity import resolve_properties, resolve_types
from omnigraph.schema.parse import parse_schema
from omnigraph.schema.problems import Problems
from omnigraph.schema.values import ValueRefused, default_value

Mint = Callable[[], str]


def compile_schema(source: str, *, file: str = "<schema>", previous: Catalog | None = None, mint: Mint) -> Catalog:
    """The catalog that `source` declares, or `SchemaError` with everything that is wrong.

    With `previous`, types and properties keep their identity by name or by `@rename_from`. `mint` gives a fresh token
    for each new one; it is called in the order of the text, types before properties, and only for a schema without
    errors.
    """
    problems = Problems(source, file)
    declared = declare(parse_schema(source, problems), problems)
    rules = [check_constraints(one, problems) for one in declared.all_drafts][len(declared.interfaces) :]
    for draft, type_constraints in zip(declared.types, rules, strict=True):
        _check_values(draft, type_constraints, problems)
    types = resolve_types(declared.types, previous, problems)
    properties = [resolve_properties(one, types.get((one.kind, one.name.text)), problems) for one in declared.types]
    problems.check()
    identified = _identify(declared, types, mint)
    compiled = [
        _type(draft, type_constraints, identified, old, mint)
        for draft, type_constraints, old in zip(declared.types, rules, properties, strict=True)
    ]
    return Catalog(tuple(compiled), source, tuple(declared.interfaces))


# --- values in annotations -----------------------------------------------------------------------------------------


def _check_values(draft: TypeDraft, rules: TypeConstraints, problems: Problems) -> None:
    for prop in draft.properties.values():
        if prop.type is None:
            continue
        if prop.embed_at is not None:
            _check_embed(draft, prop, problems)
        if prop.default_at is not None:
            _check_default(prop, rules, problems)


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


def _check_default(prop: PropertyDraft, rules: TypeConstraints, problems: Problems) -> None:
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
    low, high = rules.ranges.get(name, (None, None))
    outside = value is not None and not ((low is None or low <= value) and (high is None or value <= high))
    unmatched = any(
        column == name and value is not None and not pc.match_substring_regex(pa.array([value]), pattern)[0].as_py()
        for column, pattern in rules.checks
    )
    if outside or unmatched:
        advice = "Choose a value that the rules of the property allow"
        problems.add("OG-S-074", prop.default_at, f"@default breaks the @{'range' if outside else 'check'}", advice)


# --- catalog -------------------------------------------------------------------------------------------------------


def _key(draft: TypeDraft) -> tuple[str, str]:
    return draft.kind, draft.name.text


def _identify(declared: DeclaredTypes, old: Mapping[tuple[str, str], TypeDef], mint: Mint) -> Mapping[tuple[str, str], str]:
    """The identity of each type; ends of edges need all of them before any type is built."""
    return {
        _key(draft): old[_key(draft)].id if _key(draft) in old else mint_type_id(_kind(draft), draft.name.text, mint())
        for draft in declared.types
    }


def _kind(draft: TypeDraft) -> EntityKind:
    assert draft.kind != "interface"
    return draft.kind


def _type(
    draft: TypeDraft,
    rules: TypeConstraints,
    identified: Mapping[tuple[str, str], str],
    old: Mapping[str, Property],
    mint: Mint,
) -> TypeDef:
    kind = _kind(draft)
    properties = tuple(_property(prop, old.get(name), mint) for name, prop in draft.properties.items())
    columns = {prop.name: prop.id for prop in properties} | {name: name for name in SYSTEM_COLUMNS[kind]}
    ends = (draft.declaration.source, draft.declaration.target)
    source, target = (identified["node", word.text] if word else None for word in ends)
    return TypeDef(
        id=identified[_key(draft)],
        kind=kind,
        name=draft.name.text,
        properties=properties,
        key=tuple(sorted(columns[name] for name in rules.key)),
        uniques=tuple(tuple(sorted(columns[name] for name in names)) for names in rules.uniques),
        indexes=tuple(DeclaredIndex(columns[name], metric) for name, metric in rules.indexes.items()),
        ranges=tuple(RangeConstraint(columns[name], *ends) for name, ends in rules.ranges.items()),
        checks=tuple(CheckConstraint(columns[name], pattern) for name, pattern in rules.checks),
        cardinality=draft.cardinality,
        source=source,
        target=target,
        implements=tuple(word.text for word in draft.declaration.implements),
        annotations=draft.annotations,
    )


def _property(draft: PropertyDraft, old: Property | None, mint: Mint) -> Property:
    assert draft.type is not None
    name = draft.name.text
    return Property(old.id if old else mint_id(name, mint()), name, draft.type, draft.nullable, draft.annotations)
