"""From one catalog to the next: which steps, and what is not possible. Pure; compares by identity only.

Order: types that go, types renamed, types that come; then type by type properties that go, renamed, that come, wider,
tighter, indexes, metadata. So a name is free before it is taken, and a rule is checked on the rows it will apply to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph.schema.catalog import Annotation, Cardinality, Catalog, Property, RangeRule, Scalar, TypeDef
from omnigraph.schema.change_steps import (
    NEEDS_DEFAULT,
    UNSUPPORTED,
    AddIndex,
    AddProperty,
    AddRequiredProperty,
    AddType,
    ChangeMetadata,
    ChangeSource,
    DropIndex,
    DropProperty,
    DropType,
    Refusal,
    RenameProperty,
    RenameType,
    SchemaPlan,
    Step,
    Tighten,
    Widen,
)
from omnigraph.schema.values import default_of, to_output

__all__ = ["SchemaPlan", "plan_change"]

_WIDER = {(Scalar.I32, Scalar.I64), (Scalar.F32, Scalar.F64)}
_COPY = "Add a property of the new type, copy the values, then drop the old one"
Finding = Step | Refusal


def plan_change(old: Catalog, new: Catalog) -> SchemaPlan:
    """The steps from `old` to `new`, which must be compiled with `previous=old` so that identities agree."""
    found = [*_type_steps(old, new)]
    for one in new.types:
        before = old.by_id.get(one.id)
        if before is not None:
            found.extend(_within(before, one, new))
    if not found and old.source != new.source:
        found.append(ChangeSource(None, None))
    steps = tuple(one for one in found if isinstance(one, Step))
    return SchemaPlan(steps, tuple(one for one in found if isinstance(one, Refusal)))


def _type_steps(old: Catalog, new: Catalog) -> Iterator[Finding]:
    """Edge types go before the node types they join, and come after them."""
    gone = [one for one in old.types if one.id not in new.by_id]
    come = [one for one in new.types if one.id not in old.by_id]
    for one in sorted(gone, key=lambda one: one.kind):
        yield DropType(one.id, one.table_key)
    for one in new.types:
        before = old.by_id.get(one.id)
        if before is not None and before.name != one.name:
            yield RenameType(one.id, one.table_key, before.table_key)
    for one in sorted(come, key=lambda one: one.kind, reverse=True):
        yield AddType(one.id, one.table_key)
        if one.cardinality.low > 0 and one.source in old.by_id:
            # Nodes that exist have no edge of the new type yet.
            yield Tighten(one.id, one.table_key, "card", ("src",), None, _card_text(one.cardinality))


def _within(old: TypeDef, new: TypeDef, catalog: Catalog) -> Iterator[Finding]:
    """What changes inside a type that stays."""
    yield from _structure(old, new, catalog)
    for prop in old.properties:
        if prop.id not in new.by_id:
            yield DropProperty(new.id, new.table_key, prop.id, prop.name)
    kept = [(old.by_id[prop.id], prop) for prop in new.properties if prop.id in old.by_id]
    for before, after in kept:
        if before.name != after.name:
            yield RenameProperty(new.id, new.table_key, after.id, after.name, before.name)
    for prop in new.properties:
        if prop.id not in old.by_id:
            yield _addition(new, prop)
    changes = [change for before, after in kept for change in _property_changes(new, before, after)]
    changes += [*_rule_changes(old, new)]
    yield from (one for one in changes if isinstance(one, Refusal))
    yield from (one for one in changes if isinstance(one, Widen))
    yield from (one for one in changes if isinstance(one, Tighten))
    yield from _index_changes(old, new)
    yield from _metadata_changes(old, new, kept)


def _structure(old: TypeDef, new: TypeDef, catalog: Catalog) -> Iterator[Refusal]:
    """The key and the ends of a type never change: ids are derived from the one, edges hang on the others."""
    if set(old.key) != set(new.key):
        texts = [_names(one, one.key) or "none" for one in (old, new)]
        advice = "Add a type with the new key, move the rows, then drop the old type"
        yield Refusal(UNSUPPORTED, new.table_key, f"the key cannot change from {texts[0]} to {texts[1]}", advice)
    for end, before, after in (("source", old.source, new.source), ("target", old.target, new.target)):
        if before != after and after is not None:
            advice = "Add an edge type with the new ends, move the edges, then drop the old one"
            text = f"its {end} cannot become {catalog.by_id[after].table_key}"
            yield Refusal(UNSUPPORTED, new.table_key, text, advice)


def _addition(one: TypeDef, prop: Property) -> Finding:
    place = (one.id, one.table_key, prop.id, prop.name)
    if prop.nullable:
        return AddProperty(*place, f"{prop.type}?")
    default = default_of(prop)
    if default is None:
        advice = f"Add @default(…), or make it {prop.type}?"
        return Refusal(NEEDS_DEFAULT, f"{one.table_key}.{prop.name}", "is required and has no @default", advice)
    return AddRequiredProperty(*place, str(prop.type), to_output(prop, default))


# --- properties ----------------------------------------------------------------------------------------------------


def _property_changes(one: TypeDef, old: Property, new: Property) -> Iterator[Finding]:
    yield from _physical_change(one, old, new)
    place = (one.id, one.table_key, "required", (new.id,))
    if new.nullable and not old.nullable:
        yield Widen(*place, "required", None)
    if old.nullable and not new.nullable:
        yield Tighten(*place, None, "required")


def _physical_change(one: TypeDef, old: Property, new: Property) -> Iterator[Finding]:
    entity = f"{one.table_key}.{new.name}"
    before, after = old.type, new.type
    if before.enum_values and after.enum_values:
        lost = [value for value in before.enum_values if value not in after.enum_values]
        if lost:
            advice = "Keep the values; forbid them with a rule of your own, or move to a new property"
            yield Refusal(UNSUPPORTED, entity, f"the enum cannot lose {', '.join(lost)}", advice)
        elif set(before.enum_values) != set(after.enum_values):
            yield Widen(one.id, one.table_key, "enum", (new.id,), str(before), str(after))
    elif before != after:
        plain = not (before.is_list or after.is_list or before.vector_size or after.vector_size)
        if not plain or (before.scalar, after.scalar) not in _WIDER:
            yield Refusal(UNSUPPORTED, entity, f"its type cannot change from {before} to {after}", _COPY)
        elif after.scalar is Scalar.F64 and new.id in one.key:
            # 0.1 as F32 and the same number as F64 have different texts.
            text = "a key member cannot change from F32 to F64, since the ids are derived from it"
            yield Refusal(UNSUPPORTED, entity, text, _COPY)
        else:
            yield Widen(one.id, one.table_key, "type", (new.id,), str(before), str(after))


# --- rules -----------------------------------------------------------------------------------------------------------


def _rule_changes(old: TypeDef, new: TypeDef) -> Iterator[Finding]:
    yield from _unique_changes(old, new)
    yield from _range_changes(old, new)
    yield from _check_changes(old, new)
    if old.cardinality != new.cardinality:
        texts = [_card_text(one.cardinality) for one in (old, new)]
        looser = _contains((new.cardinality.low, new.cardinality.high), (old.cardinality.low, old.cardinality.high))
        step = Widen if looser else Tighten
        yield step(new.id, new.table_key, "card", ("src",), texts[0], texts[1])


def _unique_changes(old: TypeDef, new: TypeDef) -> Iterator[Finding]:
    for columns in old.uniques:
        if columns not in new.uniques and not _mentions_dropped(columns, new):
            yield Widen(new.id, new.table_key, "unique", columns, f"unique({_names(old, columns)})", None)
    for columns in new.uniques:
        if columns not in old.uniques:
            # A null member exempts a row, and every row is null in a new column without default.
            vacuous = any(_is_new(column, old, new) and new.by_id[column].nullable for column in columns)
            text = f"unique({_names(new, columns)})"
            yield Tighten(new.id, new.table_key, "unique", columns, None, text, vacuous)


def _range_changes(old: TypeDef, new: TypeDef) -> Iterator[Finding]:
    before = {one.column: one for one in old.ranges}
    after = {one.column: one for one in new.ranges}
    for column, rule in before.items():
        if column not in after and column in new.by_id:
            yield Widen(new.id, new.table_key, "range", (column,), _range_text(old, rule), None)
    for column, rule in after.items():
        was = before.get(column)
        if was is None:
            yield Tighten(
                new.id, new.table_key, "range", (column,), None, _range_text(new, rule), _is_new(column, old, new)
            )
        elif was != rule:
            looser = _contains((rule.low, rule.high), (was.low, was.high))
            step = Widen if looser else Tighten
            yield step(new.id, new.table_key, "range", (column,), _range_text(old, was), _range_text(new, rule))


def _check_changes(old: TypeDef, new: TypeDef) -> Iterator[Finding]:
    for rule in old.checks:
        if rule not in new.checks and rule.column in new.by_id:
            yield Widen(new.id, new.table_key, "check", (rule.column,), rule.pattern, None)
    for rule in new.checks:
        if rule not in old.checks:
            vacuous = _is_new(rule.column, old, new)
            yield Tighten(new.id, new.table_key, "check", (rule.column,), None, rule.pattern, vacuous)


def _is_new(column: str, old: TypeDef, new: TypeDef) -> bool:
    """A column of this change. Its rows are null or hold the default, which the compiler checked against the rules."""
    return column in new.by_id and column not in old.by_id


def _mentions_dropped(columns: Iterable[str], new: TypeDef) -> bool:
    return any(column not in new.by_id and column not in ("src", "dst") for column in columns)


def _contains(
    outer: tuple[float | int | None, float | int | None], inner: tuple[float | int | None, float | int | None]
) -> bool:
    low = outer[0] is None or (inner[0] is not None and outer[0] <= inner[0])
    return low and (outer[1] is None or (inner[1] is not None and outer[1] >= inner[1]))


def _card_text(one: Cardinality) -> str:
    return f"{one.low}..{'' if one.high is None else one.high}"


def _range_text(one: TypeDef, rule: RangeRule) -> str:
    prop = one.by_id[rule.column]
    return "..".join("" if end is None else str(to_output(prop, end)) for end in (rule.low, rule.high))


def _names(one: TypeDef, columns: Iterable[str]) -> str:
    return ", ".join(one.column_name(column) for column in columns)


# --- indexes and metadata --------------------------------------------------------------------------------------------


def _index_changes(old: TypeDef, new: TypeDef) -> Iterator[Step]:
    for rule in old.indexes:
        if rule not in new.indexes and rule.column in new.by_id:
            yield DropIndex(new.id, new.table_key, rule.column, new.by_id[rule.column].name, rule.metric)
    for rule in new.indexes:
        if rule not in old.indexes:
            yield AddIndex(new.id, new.table_key, rule.column, new.by_id[rule.column].name, rule.metric)


def _metadata_changes(old: TypeDef, new: TypeDef, kept: Iterable[tuple[Property, Property]]) -> Iterator[Step]:
    if _notes(old.annotations) != _notes(new.annotations):
        yield ChangeMetadata(new.id, new.table_key, "annotations")
    if set(old.implements) != set(new.implements):
        yield ChangeMetadata(new.id, new.table_key, "implements")
    for before, after in kept:
        if _notes(before.annotations) != _notes(after.annotations):
            yield ChangeMetadata(new.id, new.table_key, "annotations", after.id, after.name)


def _notes(annotations: Iterable[Annotation]) -> list[str]:
    """What annotations say, in no order; a spent rename hint says nothing."""
    return sorted(repr(one) for one in annotations if one.name != "rename_from")
