"""Plans the steps from one catalog to the next, and refuses what is not possible. Pure; compares by identity only.

Order: dropped types, renamed types, added types; then per type dropped, renamed and added properties, widened and
tightened constraints, indexes, metadata. So a name is free before another type or property takes it, and a constraint
is checked on the rows that it applies to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph.schema.catalog import Annotation, Cardinality, Catalog, Property, RangeConstraint, Scalar, TypeDef
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
    SchemaStep,
    Tighten,
    Widen,
)
from omnigraph.schema.values import default_value, to_output

__all__ = ["SchemaPlan", "plan_change"]

_WIDER = {(Scalar.I32, Scalar.I64), (Scalar.F32, Scalar.F64)}
_COPY_ADVICE = "Add a property of the new type, copy the values, then drop the old one"
Finding = SchemaStep | Refusal


def plan_change(old: Catalog, new: Catalog) -> SchemaPlan:
    """The steps from `old` to `new`, which must be compiled with `previous=old` so that identities agree."""
    findings = [*_type_steps(old, new)]
    for type_def in new.types:
        before = old.by_id.get(type_def.id)
        if before is not None:
            findings.extend(_steps_within(before, type_def, new))
    if not findings and old.source != new.source:
        findings.append(ChangeSource(None, None))
    steps = tuple(finding for finding in findings if isinstance(finding, SchemaStep))
    return SchemaPlan(steps, tuple(finding for finding in findings if isinstance(finding, Refusal)))


def _type_steps(old: Catalog, new: Catalog) -> Iterator[Finding]:
    """Edge types are dropped before, and added after, the node types that they connect."""
    dropped = [type_def for type_def in old.types if type_def.id not in new.by_id]
    added = [type_def for type_def in new.types if type_def.id not in old.by_id]
    for type_def in sorted(dropped, key=lambda type_def: type_def.kind):
        yield DropType(type_def.id, type_def.table_key)
    for type_def in new.types:
        before = old.by_id.get(type_def.id)
        if before is not None and before.name != type_def.name:
            yield RenameType(type_def.id, type_def.table_key, before.table_key)
    for type_def in sorted(added, key=lambda type_def: type_def.kind, reverse=True):
        yield AddType(type_def.id, type_def.table_key)
        if type_def.cardinality.low > 0 and type_def.source in old.by_id:
            # Existing nodes have no edge of the new type.
            yield Tighten(type_def.id, type_def.table_key, "card", ("src",), None, _card_text(type_def.cardinality))


def _steps_within(old: TypeDef, new: TypeDef, catalog: Catalog) -> Iterator[Finding]:
    """The changes inside a type that both catalogs have."""
    yield from _structure_refusals(old, new, catalog)
    for prop in old.properties:
        if prop.id not in new.by_id:
            yield DropProperty(new.id, new.table_key, prop.id, prop.name)
    kept_properties = [(old.by_id[prop.id], prop) for prop in new.properties if prop.id in old.by_id]
    for before, after in kept_properties:
        if before.name != after.name:
            yield RenameProperty(new.id, new.table_key, after.id, after.name, before.name)
    for prop in new.properties:
        if prop.id not in old.by_id:
            yield _add_property(new, prop)
    changes = [change for before, after in kept_properties for change in _property_changes(new, before, after)]
    changes += [*_constraint_changes(old, new)]
    yield from (change for change in changes if isinstance(change, Refusal))
    yield from (change for change in changes if isinstance(change, Widen))
    yield from (change for change in changes if isinstance(change, Tighten))
    yield from _index_changes(old, new)
    yield from _metadata_changes(old, new, kept_properties)


def _structure_refusals(old: TypeDef, new: TypeDef, catalog: Catalog) -> Iterator[Refusal]:
    """Refuse changes of the key, from which ids are derived, and of the ends of an edge type."""
    if set(old.key) != set(new.key):
        texts = [_names(type_def, type_def.key) or "none" for type_def in (old, new)]
        advice = "Add a type with the new key, move the rows, then drop the old type"
        yield Refusal(UNSUPPORTED, new.table_key, f"the key cannot change from {texts[0]} to {texts[1]}", advice)
    for end, before, after in (("source", old.source, new.source), ("target", old.target, new.target)):
        if before != after and after is not None:
            advice = "Add an edge type with the new ends, move the edges, then drop the old one"
            text = f"its {end} cannot become {catalog.by_id[after].table_key}"
            yield Refusal(UNSUPPORTED, new.table_key, text, advice)


def _add_property(type_def: TypeDef, prop: Property) -> Finding:
    subject = (type_def.id, type_def.table_key, prop.id, prop.name)
    if prop.nullable:
        return AddProperty(*subject, f"{prop.type}?")
    default = default_value(prop)
    if default is None:
        advice = f"Add @default(…), or make it {prop.type}?"
        return Refusal(NEEDS_DEFAULT, f"{type_def.table_key}.{prop.name}", "is required and has no @default", advice)
    return AddRequiredProperty(*subject, str(prop.type), to_output(prop, default))


# --- properties ----------------------------------------------------------------------------------------------------


def _property_changes(type_def: TypeDef, old: Property, new: Property) -> Iterator[Finding]:
    yield from _physical_change(type_def, old, new)
    subject = (type_def.id, type_def.table_key, "required", (new.id,))
    if new.nullable and not old.nullable:
        yield Widen(*subject, "required", None)
    if old.nullable and not new.nullable:
        yield Tighten(*subject, None, "required")


def _physical_change(type_def: TypeDef, old: Property, new: Property) -> Iterator[Finding]:
    entity = f"{type_def.table_key}.{new.name}"
    before, after = old.type, new.type
    if before.enum_values and after.enum_values:
        lost = [value for value in before.enum_values if value not in after.enum_values]
        if lost:
            advice = "Keep the values; forbid them with a rule of your own, or move to a new property"
            yield Refusal(UNSUPPORTED, entity, f"the enum cannot lose {', '.join(lost)}", advice)
        elif set(before.enum_values) != set(after.enum_values):
            yield Widen(type_def.id, type_def.table_key, "enum", (new.id,), str(before), str(after))
    elif before != after:
        is_scalar = not (before.is_list or after.is_list or before.vector_size or after.vector_size)
        if not is_scalar or (before.scalar, after.scalar) not in _WIDER:
            yield Refusal(UNSUPPORTED, entity, f"its type cannot change from {before} to {after}", _COPY_ADVICE)
        elif after.scalar is Scalar.F64 and new.id in type_def.key:
            # 0.1 as F32 and the same number as F64 have different texts.
            text = "a key member cannot change from F32 to F64, since the ids are derived from it"
            yield Refusal(UNSUPPORTED, entity, text, _COPY_ADVICE)
        else:
            yield Widen(type_def.id, type_def.table_key, "type", (new.id,), str(before), str(after))


# --- constraints -----------------------------------------------------------------------------------------------------


def _constraint_changes(old: TypeDef, new: TypeDef) -> Iterator[Finding]:
    yield from _unique_changes(old, new)
    yield from _range_changes(old, new)
    yield from _check_changes(old, new)
    if old.cardinality != new.cardinality:
        texts = [_card_text(type_def.cardinality) for type_def in (old, new)]
        is_looser = _contains((new.cardinality.low, new.cardinality.high), (old.cardinality.low, old.cardinality.high))
        step = Widen if is_looser else Tighten
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
    before = {limits.column: limits for limits in old.ranges}
    after = {limits.column: limits for limits in new.ranges}
    for column, limits in before.items():
        if column not in after and column in new.by_id:
            yield Widen(new.id, new.table_key, "range", (column,), _range_text(old, limits), None)
    for column, limits in after.items():
        old_limits = before.get(column)
        if old_limits is None:
            yield Tighten(
                new.id, new.table_key, "range", (column,), None, _range_text(new, limits), _is_new(column, old, new)
            )
        elif old_limits != limits:
            is_looser = _contains((limits.low, limits.high), (old_limits.low, old_limits.high))
            step = Widen if is_looser else Tighten
            yield step(
                new.id, new.table_key, "range", (column,), _range_text(old, old_limits), _range_text(new, limits)
            )


def _check_changes(old: TypeDef, new: TypeDef) -> Iterator[Finding]:
    for check in old.checks:
        if check not in new.checks and check.column in new.by_id:
            yield Widen(new.id, new.table_key, "check", (check.column,), check.pattern, None)
    for check in new.checks:
        if check not in old.checks:
            vacuous = _is_new(check.column, old, new)
            yield Tighten(new.id, new.table_key, "check", (check.column,), None, check.pattern, vacuous)


def _is_new(column: str, old: TypeDef, new: TypeDef) -> bool:
    """Whether this change adds the column. Rows then hold null or the default, which the compiler has checked."""
    return column in new.by_id and column not in old.by_id


def _mentions_dropped(columns: Iterable[str], new: TypeDef) -> bool:
    return any(column not in new.by_id and column not in ("src", "dst") for column in columns)


def _contains(
    outer: tuple[float | int | None, float | int | None], inner: tuple[float | int | None, float | int | None]
) -> bool:
    low = outer[0] is None or (inner[0] is not None and outer[0] <= inner[0])
    return low and (outer[1] is None or (inner[1] is not None and outer[1] >= inner[1]))


def _card_text(cardinality: Cardinality) -> str:
    return f"{cardinality.low}..{'' if cardinality.high is None else cardinality.high}"


def _range_text(type_def: TypeDef, limits: RangeConstraint) -> str:
    prop = type_def.by_id[limits.column]
    return "..".join("" if end is None else str(to_output(prop, end)) for end in (limits.low, limits.high))


def _names(type_def: TypeDef, columns: Iterable[str]) -> str:
    return ", ".join(type_def.column_name(column) for column in columns)


# --- indexes and metadata --------------------------------------------------------------------------------------------


def _index_changes(old: TypeDef, new: TypeDef) -> Iterator[SchemaStep]:
    for index in old.indexes:
        if index not in new.indexes and index.column in new.by_id:
            yield DropIndex(new.id, new.table_key, index.column, new.by_id[index.column].name, index.metric)
    for index in new.indexes:
        if index not in old.indexes:
            yield AddIndex(new.id, new.table_key, index.column, new.by_id[index.column].name, index.metric)


def _metadata_changes(
    old: TypeDef, new: TypeDef, kept_properties: Iterable[tuple[Property, Property]]
) -> Iterator[SchemaStep]:
    if _comparable_annotations(old.annotations) != _comparable_annotations(new.annotations):
        yield ChangeMetadata(new.id, new.table_key, "annotations")
    if set(old.implements) != set(new.implements):
        yield ChangeMetadata(new.id, new.table_key, "implements")
    for before, after in kept_properties:
        if _comparable_annotations(before.annotations) != _comparable_annotations(after.annotations):
            yield ChangeMetadata(new.id, new.table_key, "annotations", after.id, after.name)


def _comparable_annotations(annotations: Iterable[Annotation]) -> list[str]:
    """The annotations in a comparable form; their order and rename hints do not matter."""
    return sorted(repr(annotation) for annotation in annotations if annotation.name != "rename_from")
