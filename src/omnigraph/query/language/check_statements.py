"""Statements from Python, checked against a schema: they become the checked form that texts of the language become.

Types and properties are resolved to identities and values are converted to their stored form. A text is checked as a
whole and reports all that is wrong; a statement raises its first error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.errors import InvalidInput, Unsupported
from omnigraph.query.language.bind import CONSTANTS_ONLY, BoundStatement
from omnigraph.query.language.check_context import entity_type
from omnigraph.query.language.checked import (
    STRING,
    AllOf,
    AnyOf,
    Assignment,
    CheckedCompare,
    CheckedDelete,
    CheckedInsert,
    CheckedNullTest,
    CheckedOverwrite,
    CheckedStatement,
    CheckedUpdate,
    Const,
    Predicate,
    Prop,
)
from omnigraph.query.language.statements import (
    And,
    CompareOp,
    Condition,
    Delete,
    InsertEdge,
    InsertNode,
    NullTest,
    Or,
    Overwrite,
    Statement,
    Update,
)
from omnigraph.schema.catalog import Catalog, Property, Scalar, TypeDef, no_such_type
from omnigraph.schema.values import convert

_END_COLUMNS = {"from": "src", "to": "dst"}


def check_statement(statement: Statement, catalog: Catalog) -> BoundStatement:
    """The checked form of one statement. Raises `NotFound` for a type and `InvalidInput` for a property or a value."""
    if not isinstance(statement, Statement):
        raise InvalidInput(f"{statement!r} is not a statement", advice="Give statements of `omnigraph.statements`")
    is_strict = isinstance(statement, InsertNode | InsertEdge) and statement.strict
    return BoundStatement(_check(statement, _find_type(statement, catalog)), CONSTANTS_ONLY, is_strict)


def _find_type(statement: Statement, catalog: Catalog) -> TypeDef:
    node = None if isinstance(statement, InsertEdge) else catalog.node(statement.type)
    edge = None if isinstance(statement, InsertNode) else catalog.edge(statement.type)
    type_def = node or edge
    if type_def is None:
        raise no_such_type(statement.type, catalog)
    return type_def


def _check(statement: Statement, type_def: TypeDef) -> CheckedStatement | CheckedOverwrite:
    match statement:
        case InsertNode():
            return _check_insert(type_def, statement.values)
        case InsertEdge():
            return _check_insert(type_def, {**statement.values, "src": statement.source, "dst": statement.target})
        case Update():
            return _check_update(type_def, statement)
        case Delete():
            return CheckedDelete(entity_type(type_def), check_condition(type_def, statement.where))
        case Overwrite():
            rows = (_check_insert(type_def, values) for values in statement.rows)
            return CheckedOverwrite(entity_type(type_def), rows)


def _check_insert(type_def: TypeDef, values: Mapping[str, Any]) -> CheckedInsert:
    return CheckedInsert(entity_type(type_def), _check_values(type_def, values))


def _check_update(type_def: TypeDef, statement: Update) -> CheckedUpdate:
    values = _check_values(type_def, statement.values)
    fixed = [name for name in statement.values if column_of(type_def, name).id in ("id", *type_def.key)]
    if fixed:
        raise InvalidInput(
            f"{type_def.table_key}: {', '.join(fixed)} is the identity of a row and cannot be changed",
            code="key_immutable",
            advice="Delete the row and insert it anew",
        )
    return CheckedUpdate(entity_type(type_def), values, check_condition(type_def, statement.where))


def _check_values(type_def: TypeDef, values: Mapping[str, Any]) -> tuple[Assignment, ...]:
    """Values by column, in stored form. An unknown name is an error before any value is looked at."""
    columns = {name: column_of(type_def, name) for name in values}
    return tuple(
        Assignment(columns[name].id, Const(convert(columns[name], value), columns[name].type))
        for name, value in values.items()
    )


def column_of(type_def: TypeDef, name: str) -> Property:
    """The property or system column that users call `name`. Raises InvalidInput that lists the existing names."""
    if name in type_def.by_name:
        return type_def.by_name[name]
    column = _END_COLUMNS.get(name, name)
    if column == "id" or (type_def.kind == "edge" and column in ("src", "dst")):
        return Property(column, column, STRING)
    names = ", ".join(sorted([*type_def.by_name, "id", *(["from", "to"] if type_def.kind == "edge" else [])]))
    raise InvalidInput(
        f"{type_def.table_key} has no property {name!r}",
        code="unknown_property",
        advice=f"It has {names}",
        property=name,
    )


# ---- conditions ------------------------------------------------------------------------------------------------------


def check_condition(type_def: TypeDef, condition: Condition) -> Predicate:
    """The condition over the columns of the type, with operands in stored form."""
    match condition:
        case And(parts):
            return AllOf(tuple(check_condition(type_def, part) for part in parts))
        case Or(parts):
            return AnyOf(tuple(check_condition(type_def, part) for part in parts))
    prop = column_of(type_def, condition.name)
    column = Prop("", type_def.id, prop.id, prop.name, prop.type, prop.nullable)
    if isinstance(condition, NullTest):
        return CheckedNullTest(column, condition.negated)
    operand = convert_operand(column, condition.op, condition.value)
    return CheckedCompare(column, condition.op, Const(operand, prop.type))


def convert_operand(column: Prop, op: CompareOp, value: Any) -> Any:
    """The right side of a condition in the stored form of its column, for `in` a list without nulls. Null stays None.

    Raises InvalidInput if the column cannot be compared in this way, or the value does not fit it.
    """
    if column.type.scalar is Scalar.BLOB or column.type.vector_size is not None:
        raise InvalidInput(f"{column.name} is a {column.type}, which cannot be compared", code="not_comparable")
    if value is None:
        return None
    prop = Property(column.column, column.name, column.type)
    if op == "in":
        return [convert(prop, item) for item in value if item is not None]
    if column.type.is_list:
        raise Unsupported(f"{column.name} is a list; `{op}` on lists is not supported in a condition of a mutation")
    if op not in ("contains", "starts_with"):
        return convert(prop, value)
    if column.type.scalar is not Scalar.STRING or not isinstance(value, str):
        raise InvalidInput(f"`{op}` needs text on both sides, {column.name} is {column.type}", code="wrong_operand")
    return value
