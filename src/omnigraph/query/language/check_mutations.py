"""Insert, update and delete, checked: what is set, that nothing required is missing, and which rows are meant."""

from __future__ import annotations

from omnigraph.query.language.check_context import SYSTEM_PROPERTIES, CheckContext, did_you_mean, entity_type, listed
from omnigraph.query.language.check_operators import Operand, compare
from omnigraph.query.language.checked import (
    AllOf,
    AnyOf,
    Assignment,
    CheckedDelete,
    CheckedInsert,
    CheckedMutation,
    CheckedNullTest,
    CheckedStatement,
    CheckedUpdate,
    Now,
    Predicate,
    Prop,
)
from omnigraph.query.language.coerce import Loose, for_assignment, is_loose, refuse_value
from omnigraph.query.language.syntax import (
    AndSyntax,
    ColumnCompareSyntax,
    ColumnNullSyntax,
    ConditionSyntax,
    DeleteSyntax,
    ExprSyntax,
    InsertSyntax,
    MutationSyntax,
    NameSyntax,
    NowSyntax,
    OrSyntax,
    StatementSyntax,
    UpdateSyntax,
    VariableSyntax,
)
from omnigraph.schema.catalog import Property, Scalar, TypeDef

#: The ends of an edge, by every word users have for them.
ENDS = {"from": "src", "to": "dst", "src": "src", "dst": "dst"}


def check_mutation(ctx: CheckContext, body: MutationSyntax) -> tuple[CheckedMutation, tuple[str, ...]]:
    """The statements that could be checked, and the type ids they write."""
    statements: list[CheckedStatement] = []
    written: dict[str, None] = {}
    for one in body.statements:
        type_ = _target(ctx, one.type)
        if type_ is None:
            _check_names_only(ctx, one)
            continue
        written.update(dict.fromkeys(_written(ctx, one, type_)))
        done = _statement(ctx, one, type_)
        if done is not None:
            statements.append(done)
    return CheckedMutation(tuple(statements)), tuple(sorted(written))


def _statement(ctx: CheckContext, one: StatementSyntax, type_: TypeDef) -> CheckedStatement | None:
    match one:
        case InsertSyntax():
            return _insert(ctx, one, type_)
        case UpdateSyntax():
            return _update(ctx, one, type_)
    where = _condition(ctx, one.where, type_)
    return None if where is None else CheckedDelete(entity_type(type_), where)


def _target(ctx: CheckContext, name: NameSyntax) -> TypeDef | None:
    """A capital letter means the node type, or the edge type if there is no such node; a small letter the edge type."""
    found = ctx.catalog.node(name.text) or ctx.catalog.edge(name.text)
    if found is None:
        names = [one.name for one in ctx.catalog.types]
        advice = did_you_mean(name.text, names) or f"The schema has {listed(names)}"
        if name.text in ctx.catalog.interfaces:
            advice = "It is an interface; name one of the types that implement it"
        ctx.fail("T1", name.span, f"there is no type `{name.text}`", advice)
    return found


def _check_names_only(ctx: CheckContext, one: StatementSyntax) -> None:
    """The type is unknown; parameters still count as used, so that lint does not complain about them as well."""
    if isinstance(one, (InsertSyntax, UpdateSyntax)):
        for pair in one.values:
            if isinstance(pair.value, VariableSyntax):
                ctx.used.add(pair.value.name)
    if isinstance(one, (UpdateSyntax, DeleteSyntax)):
        _use_all(ctx, one.where)


def _use_all(ctx: CheckContext, where: ConditionSyntax) -> None:
    if isinstance(where, (AndSyntax, OrSyntax)):
        for part in where.parts:
            _use_all(ctx, part)
    elif isinstance(where, ColumnCompareSyntax) and isinstance(where.value, VariableSyntax):
        ctx.used.add(where.value.name)


def _written(ctx: CheckContext, one: StatementSyntax, type_: TypeDef) -> list[str]:
    """A deleted node takes its edges along, of every type."""
    if isinstance(one, DeleteSyntax) and type_.kind == "node":
        incident = [edge.id for edge in ctx.catalog.edges_at(type_.id)]
        for edge in incident:
            ctx.read(edge, ("src", "dst"))
        return [type_.id, *incident]
    return [type_.id]


# ---- insert ----------------------------------------------------------------------------------------------------------


def _insert(ctx: CheckContext, one: InsertSyntax, type_: TypeDef) -> CheckedInsert | None:
    values: list[Assignment] = []
    ends: list[Assignment] = []
    given: set[str] = set()
    for pair in one.values:
        column = _insert_column(ctx, pair.name, type_)
        if column is None:
            continue
        if column.id in given:
            ctx.fail("T34", pair.name.span, f"`{pair.name.text}` is given twice", "Leave one out")
            continue
        given.add(column.id)
        value = for_assignment(ctx, pair.value, column.type, column.nullable)
        if value is not None:
            (ends if column.id in {"src", "dst"} else values).append(Assignment(column.id, value))
    _check_complete(ctx, one, type_, given)
    if type_.kind == "edge":
        for node in (type_.source, type_.target):
            ctx.read(node or "", ("id",))
    ends.sort(key=lambda end: end.column, reverse=True)
    return CheckedInsert(entity_type(type_), (*ends, *values))


def _insert_column(ctx: CheckContext, name: NameSyntax, type_: TypeDef) -> Property | None:
    if type_.kind == "edge" and name.text in ENDS:
        return SYSTEM_PROPERTIES[ENDS[name.text]]
    if name.text == "id" and type_.key:
        key = ", ".join(type_.column_name(column) for column in type_.key)
        ctx.fail("T37", name.span, f"the id of {type_.table_key} comes from its key", f"Set {key} instead")
        return None
    return ctx.property_of(type_, name, also=("from", "to") if type_.kind == "edge" else ())


def _check_complete(ctx: CheckContext, one: InsertSyntax, type_: TypeDef, given: set[str]) -> None:
    if type_.kind == "edge":
        missing = [word for word in ("from", "to") if ENDS[word] not in given]
        if missing:
            nodes = {"from": type_.source, "to": type_.target}
            needs = " and ".join(
                f"`{word}` (the id of a {ctx.catalog.by_id[nodes[word] or ''].name})" for word in missing
            )
            ctx.fail("T36", one.type.span, f"{type_.table_key} needs {needs}")
    lacking = [prop.name for prop in type_.properties if not _may_lack(type_, prop) and prop.id not in given]
    if lacking:
        what = "required property" if len(lacking) == 1 else "required properties"
        ctx.fail("T35", one.type.span, f"{type_.table_key} lacks the {what} {', '.join(lacking)}")


def _may_lack(type_: TypeDef, prop: Property) -> bool:
    has_default = any(annotation.name == "default" for annotation in prop.annotations)
    return (prop.nullable or has_default) and prop.id not in type_.key


# ---- update ----------------------------------------------------------------------------------------------------------


def _update(ctx: CheckContext, one: UpdateSyntax, type_: TypeDef) -> CheckedUpdate | None:
    values: list[Assignment] = []
    given: set[str] = set()
    for pair in one.values:
        if _is_fixed(ctx, pair.name, type_):
            continue
        prop = ctx.property_of(type_, pair.name)
        if prop is None:
            continue
        if prop.id in given:
            ctx.fail("T34", pair.name.span, f"`{pair.name.text}` is given twice", "Leave one out")
            continue
        given.add(prop.id)
        value = for_assignment(ctx, pair.value, prop.type, prop.nullable)
        if value is not None:
            values.append(Assignment(prop.id, value))
    where = _condition(ctx, one.where, type_)
    return None if where is None else CheckedUpdate(entity_type(type_), tuple(values), where)


def _is_fixed(ctx: CheckContext, name: NameSyntax, type_: TypeDef) -> bool:
    """Whether the column never changes, with a finding."""
    prop = type_.by_name.get(name.text)
    if prop is None and (name.text == "id" or (type_.kind == "edge" and name.text in ENDS)):
        what = "id" if name.text == "id" else f"`{name.text}`"
        advice = "Delete the row and insert another"
        ctx.fail("T37", name.span, f"the {what} of {type_.table_key} never changes", advice)
        return True
    if prop is not None and prop.id in type_.key:
        advice = "Delete the row and insert another"
        ctx.fail("T37", name.span, f"`{name.text}` is part of the key of {type_.table_key} and never changes", advice)
        return True
    return False


# ---- where -----------------------------------------------------------------------------------------------------------


def _condition(ctx: CheckContext, node: ConditionSyntax, type_: TypeDef) -> Predicate | None:
    ctx.read(type_.id, ("id",))
    match node:
        case AndSyntax(parts) | OrSyntax(parts):
            found = [_condition(ctx, part, type_) for part in parts]
            whole = tuple(part for part in found if part is not None)
            if len(whole) < len(parts):
                return None
            return AllOf(whole) if isinstance(node, AndSyntax) else AnyOf(whole)
        case ColumnNullSyntax(name, negated):
            prop = _column(ctx, name, type_)
            return None if prop is None else CheckedNullTest(prop, negated)
    prop = _column(ctx, node.name, type_)
    value = _value(ctx, node.value)
    return None if prop is None or value is None else compare(ctx, prop, node.op, value, node.span)


def _column(ctx: CheckContext, name: NameSyntax, type_: TypeDef) -> Prop | None:
    if type_.kind == "edge" and name.text in ENDS and name.text not in type_.by_name:
        prop: Property | None = SYSTEM_PROPERTIES[ENDS[name.text]]
    else:
        prop = ctx.property_of(type_, name, also=("from", "to") if type_.kind == "edge" else ())
    if prop is None:
        return None
    if prop.type.scalar is Scalar.BLOB:
        ctx.fail(
            "T11", name.span, f"`{name.text}` is a Blob and never a query value", "Choose rows by another property"
        )
        return None
    ctx.read(type_.id, (prop.id,))
    return Prop("", type_.id, prop.id, prop.name, prop.type, prop.nullable)


def _value(ctx: CheckContext, node: ExprSyntax) -> Operand | None:
    if isinstance(node, NowSyntax):
        return Now()
    if is_loose(ctx, node):
        loose: Loose = node  # type: ignore[assignment]
        return loose
    refuse_value(ctx, node)
    return None
