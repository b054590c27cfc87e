"""Checks a syntax tree against a schema: the result is a checked query, or an error with every finding.

Mutations are checked here, reading queries in `check_reads`.
"""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.errors import TypeCheckError
from omnigraph.query.language.check_context import (
    SYSTEM_PROPERTIES,
    CheckContext,
    did_you_mean,
    entity_type,
    list_words,
)
from omnigraph.query.language.check_operators import Operand, check_compare
from omnigraph.query.language.check_reads import check_read
from omnigraph.query.language.checked import (
    AllOf,
    AnyOf,
    Assignment,
    CheckedDelete,
    CheckedInsert,
    CheckedMutation,
    CheckedNullTest,
    CheckedQuery,
    CheckedRead,
    CheckedStatement,
    CheckedUpdate,
    Now,
    Parameter,
    Predicate,
    Prop,
)
from omnigraph.query.language.coerce import is_untyped, refuse_value, type_for_assignment
from omnigraph.query.language.parse import error_with_findings
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
    PairSyntax,
    ParamSyntax,
    QuerySyntax,
    ReadSyntax,
    StatementSyntax,
    UpdateSyntax,
    VariableSyntax,
)
from omnigraph.schema.catalog import Catalog, Property, PropType, Scalar, TypeDef
from omnigraph.schema.diagnostics import Diagnostics

#: Lance and the result formats take vectors of this many numbers at most.
MAX_VECTOR_SIZE = 65_536
#: The columns of the ends of an edge, by every word that users may write for them.
END_COLUMNS = {"from": "src", "to": "dst", "src": "src", "dst": "dst"}


def check_query(query: QuerySyntax, catalog: Catalog) -> CheckedQuery:
    """The checked query. Raises `TypeCheckError` with all findings (`T1` …) in `details["diagnostics"]`."""
    diagnostics = Diagnostics(query.source, query.file)
    checked = check_into(query, catalog, diagnostics)
    if checked is None or diagnostics:
        raise error_with_findings(TypeCheckError, diagnostics)
    return checked


def check_into(query: QuerySyntax, catalog: Catalog, diagnostics: Diagnostics) -> CheckedQuery | None:
    """The checked query, or None if it has errors; every finding goes into `diagnostics`."""
    ctx = CheckContext(catalog, diagnostics)
    before = len(diagnostics)
    declare_params(ctx, query.params)
    body: CheckedRead | CheckedMutation | None
    written: tuple[str, ...] = ()
    if isinstance(query.body, ReadSyntax):
        body = check_read(ctx, query.body)
    else:
        body, written = check_mutation(ctx, query.body)
    if body is None or len(diagnostics) > before:
        return None
    params = tuple(parameter for parameter in ctx.params.values() if parameter is not None)
    unused = tuple(parameter.name for parameter in params if parameter.name not in ctx.used_params)
    return CheckedQuery(query.name.text, params, ctx.slots, body, ctx.reads, written, unused)


def declare_params(ctx: CheckContext, params: tuple[ParamSyntax, ...]) -> None:
    """Declare the parameters of the head. One with a wrong type is declared too, so that its uses are not reported."""
    for param in params:
        name = param.name.text
        if name in ctx.params:
            ctx.fail("T32", param.name.span, f"two parameters are named `${name}`", "Rename one of them")
            continue
        type_ = _param_type(ctx, param)
        ctx.params[name] = None if type_ is None else Parameter(name, type_, param.nullable)


def _param_type(ctx: CheckContext, param: ParamSyntax) -> PropType | None:
    word = param.type.text
    if param.size is not None:
        if word == "Vector" and isinstance(param.size, int) and 1 <= param.size <= MAX_VECTOR_SIZE:
            return PropType(Scalar.F32, vector_size=param.size)
        advice = f"Write `Vector(n)` with n from 1 to {MAX_VECTOR_SIZE}"
        ctx.fail("T33", param.type.span, f"`{word}({param.size})` is no type", advice)
        return None
    names = [scalar.value for scalar in Scalar]
    if word not in names:
        hint = "Say its size: `Vector(n)`" if word == "Vector" else did_you_mean(word, names)
        if ctx.catalog.node(word) is not None:
            hint = "Pass the id of the entity as a String"
        ctx.fail("T33", param.type.span, f"`{word}` is no type of a parameter", hint or f"There are {', '.join(names)}")
        return None
    if word == "Blob" and param.is_list:
        ctx.fail("T33", param.type.span, "there are no lists of Blob", "Declare one parameter for each")
        return None
    return PropType(Scalar(word), is_list=param.is_list)


def check_mutation(ctx: CheckContext, body: MutationSyntax) -> tuple[CheckedMutation, tuple[str, ...]]:
    """The statements that could be checked, and the type ids they write."""
    statements: list[CheckedStatement] = []
    written_types: dict[str, None] = {}
    for statement in body.statements:
        type_def = _find_type(ctx, statement.type)
        if type_def is None:
            _use_params_of_statement(ctx, statement)
            continue
        written_types.update(dict.fromkeys(_types_written_by(ctx, statement, type_def)))
        checked = _check_statement(ctx, statement, type_def)
        if checked is not None:
            statements.append(checked)
    return CheckedMutation(tuple(statements)), tuple(sorted(written_types))


def _check_statement(ctx: CheckContext, statement: StatementSyntax, type_def: TypeDef) -> CheckedStatement | None:
    match statement:
        case InsertSyntax():
            return _check_insert(ctx, statement, type_def)
        case UpdateSyntax():
            return _check_update(ctx, statement, type_def)
    where = _check_condition(ctx, statement.where, type_def)
    return None if where is None else CheckedDelete(entity_type(type_def), where)


def _find_type(ctx: CheckContext, name: NameSyntax) -> TypeDef | None:
    """The node type of this name, or else the edge type. Only edges are found by a small first letter."""
    type_def = ctx.catalog.node(name.text) or ctx.catalog.edge(name.text)
    if type_def is None:
        names = [known_type.name for known_type in ctx.catalog.types]
        advice = did_you_mean(name.text, names) or f"The schema has {list_words(names)}"
        if name.text in ctx.catalog.interfaces:
            advice = "It is an interface; name one of the types that implement it"
        ctx.fail("T1", name.span, f"there is no type `{name.text}`", advice)
    return type_def


def _use_params_of_statement(ctx: CheckContext, statement: StatementSyntax) -> None:
    """Count the parameters of a statement with an unknown type as used, so that lint does not warn about them too."""
    if isinstance(statement, (InsertSyntax, UpdateSyntax)):
        for pair in statement.values:
            if isinstance(pair.value, VariableSyntax):
                ctx.used_params.add(pair.value.name)
    if isinstance(statement, (UpdateSyntax, DeleteSyntax)):
        _use_params_of(ctx, statement.where)


def _use_params_of(ctx: CheckContext, where: ConditionSyntax) -> None:
    if isinstance(where, (AndSyntax, OrSyntax)):
        for part in where.parts:
            _use_params_of(ctx, part)
    elif isinstance(where, ColumnCompareSyntax) and isinstance(where.value, VariableSyntax):
        ctx.used_params.add(where.value.name)


def _types_written_by(ctx: CheckContext, statement: StatementSyntax, type_def: TypeDef) -> list[str]:
    """Type ids that the statement writes: deleting a node also deletes its edges of every type."""
    if isinstance(statement, DeleteSyntax) and type_def.kind == "node":
        incident = [edge.id for edge in ctx.catalog.edges_at(type_def.id)]
        for edge in incident:
            ctx.read(edge, ("src", "dst"))
        return [type_def.id, *incident]
    return [type_def.id]


# ---- insert ----------------------------------------------------------------------------------------------------------


def _check_insert(ctx: CheckContext, insert: InsertSyntax, type_def: TypeDef) -> CheckedInsert:
    values, assigned = _check_assignments(ctx, insert.values, lambda name: _find_insert_column(ctx, name, type_def))
    _check_complete(ctx, insert, type_def, assigned)
    if type_def.kind == "edge":
        for node in (type_def.source, type_def.target):
            ctx.read(node or "", ("id",))
    values.sort(key=lambda value: {"src": 0, "dst": 1}.get(value.column, 2))
    return CheckedInsert(entity_type(type_def), tuple(values))


def _check_assignments(
    ctx: CheckContext, pairs: tuple[PairSyntax, ...], find_column: Callable[[NameSyntax], Property | None]
) -> tuple[list[Assignment], set[str]]:
    """The values that fit their columns, and all columns that the pairs name."""
    values: list[Assignment] = []
    assigned: set[str] = set()
    for pair in pairs:
        column = find_column(pair.name)
        if column is None:
            continue
        if column.id in assigned:
            ctx.fail("T34", pair.name.span, f"`{pair.name.text}` is given twice", "Leave one out")
            continue
        assigned.add(column.id)
        value = type_for_assignment(ctx, pair.value, column.type, column.nullable)
        if value is not None:
            values.append(Assignment(column.id, value))
    return values, assigned


def _find_insert_column(ctx: CheckContext, name: NameSyntax, type_def: TypeDef) -> Property | None:
    if type_def.kind == "edge" and name.text in END_COLUMNS:
        return SYSTEM_PROPERTIES[END_COLUMNS[name.text]]
    if name.text == "id" and type_def.key:
        key = ", ".join(type_def.column_name(column) for column in type_def.key)
        ctx.fail("T37", name.span, f"the id of {type_def.table_key} comes from its key", f"Set {key} instead")
        return None
    return ctx.property_of(type_def, name, also=("from", "to") if type_def.kind == "edge" else ())


def _check_complete(ctx: CheckContext, insert: InsertSyntax, type_def: TypeDef, assigned: set[str]) -> None:
    """Refuse an insert without a required property or an end of an edge."""
    ends = {"from": type_def.source, "to": type_def.target} if type_def.kind == "edge" else {}
    missing_ends = [
        f"`{word}` (the id of a {ctx.catalog.by_id[node or ''].name})"
        for word, node in ends.items()
        if END_COLUMNS[word] not in assigned
    ]
    if missing_ends:
        ctx.fail("T36", insert.type.span, f"{type_def.table_key} needs {' and '.join(missing_ends)}")
    required = [prop for prop in type_def.properties if not _may_lack(type_def, prop)]
    missing = [prop.name for prop in required if prop.id not in assigned]
    if missing:
        noun = "required property" if len(missing) == 1 else "required properties"
        ctx.fail("T35", insert.type.span, f"{type_def.table_key} lacks the {noun} {', '.join(missing)}")


def _may_lack(type_def: TypeDef, prop: Property) -> bool:
    has_default = any(annotation.name == "default" for annotation in prop.annotations)
    return (prop.nullable or has_default) and prop.id not in type_def.key


# ---- update ----------------------------------------------------------------------------------------------------------


def _check_update(ctx: CheckContext, update: UpdateSyntax, type_def: TypeDef) -> CheckedUpdate | None:
    values, _ = _check_assignments(ctx, update.values, lambda name: _find_update_column(ctx, name, type_def))
    where = _check_condition(ctx, update.where, type_def)
    return None if where is None else CheckedUpdate(entity_type(type_def), tuple(values), where)


def _find_update_column(ctx: CheckContext, name: NameSyntax, type_def: TypeDef) -> Property | None:
    """The property to set; a finding for an unknown name, and for the id, the ends and the key, which never change."""
    prop = type_def.by_name.get(name.text)
    fixed = None
    if prop is None and (name.text == "id" or (type_def.kind == "edge" and name.text in END_COLUMNS)):
        noun = "id" if name.text == "id" else f"`{name.text}`"
        fixed = f"the {noun} of {type_def.table_key}"
    elif prop is not None and prop.id in type_def.key:
        fixed = f"`{name.text}` is part of the key of {type_def.table_key} and"
    if fixed is None:
        return ctx.property_of(type_def, name)
    ctx.fail("T37", name.span, f"{fixed} never changes", "Delete the row and insert another")
    return None


# ---- where -----------------------------------------------------------------------------------------------------------


def _check_condition(ctx: CheckContext, node: ConditionSyntax, type_def: TypeDef) -> Predicate | None:
    ctx.read(type_def.id, ("id",))
    match node:
        case AndSyntax(parts) | OrSyntax(parts):
            checked_parts = [_check_condition(ctx, part, type_def) for part in parts]
            sound_parts = tuple(part for part in checked_parts if part is not None)
            if len(sound_parts) < len(parts):
                return None
            return AllOf(sound_parts) if isinstance(node, AndSyntax) else AnyOf(sound_parts)
        case ColumnNullSyntax(name, negated):
            prop = _find_condition_column(ctx, name, type_def)
            return None if prop is None else CheckedNullTest(prop, negated)
    prop = _find_condition_column(ctx, node.name, type_def)
    value = _check_operand(ctx, node.value)
    return None if prop is None or value is None else check_compare(ctx, prop, node.op, value, node.span)


def _find_condition_column(ctx: CheckContext, name: NameSyntax, type_def: TypeDef) -> Prop | None:
    if type_def.kind == "edge" and name.text in END_COLUMNS and name.text not in type_def.by_name:
        prop: Property | None = SYSTEM_PROPERTIES[END_COLUMNS[name.text]]
    else:
        prop = ctx.property_of(type_def, name, also=("from", "to") if type_def.kind == "edge" else ())
    if prop is None:
        return None
    if prop.type.scalar is Scalar.BLOB:
        advice = "Choose rows by another property"
        ctx.fail("T11", name.span, f"`{name.text}` is a Blob and never a query value", advice)
        return None
    ctx.read(type_def.id, (prop.id,))
    return Prop("", type_def.id, prop.id, prop.name, prop.type, prop.nullable)


def _check_operand(ctx: CheckContext, node: ExprSyntax) -> Operand | None:
    if isinstance(node, NowSyntax):
        return Now()
    if is_untyped(node, ctx):
        return node
    refuse_value(ctx, node)
    return None
