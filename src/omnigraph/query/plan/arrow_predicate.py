"""Conditions as Arrow expressions: one form that Lance pushes down and overlay rows evaluate.

Three-valued: a comparison with null is neither true nor false, and only true selects a row.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.language.bind import CONSTANTS_ONLY, ValueResolver
from omnigraph.query.language.check_statements import check_condition, convert_operand
from omnigraph.query.language.checked import (
    AllOf,
    AnyOf,
    CheckedCompare,
    CheckedNullTest,
    Const,
    ListOf,
    Now,
    Param,
    Predicate,
    Prop,
)
from omnigraph.query.language.statements import Condition
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import Property, TypeDef
from omnigraph.schema.values import canonical_text, derive_id

_COMPARISONS = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def condition_to_expression(type_def: TypeDef, condition: Condition) -> pc.Expression:
    """A condition from Python over the physical columns of the type."""
    return predicate_to_expression(check_condition(type_def, condition), CONSTANTS_ONLY)


def predicate_to_expression(predicate: Predicate, resolve_value: ValueResolver) -> pc.Expression:
    """The checked condition of an update or delete over the physical columns of its type."""
    match predicate:
        case AllOf(parts):
            return reduce(and_, [predicate_to_expression(part, resolve_value) for part in parts])
        case AnyOf(parts):
            return reduce(or_, [predicate_to_expression(part, resolve_value) for part in parts])
        case CheckedNullTest(Prop() as column, negated):
            is_null = pc.field(column.column).is_null()
            return ~is_null if negated else is_null
        case CheckedCompare(Prop() as column):
            return _comparison(column, predicate.op, _operand(predicate, column, resolve_value))
    raise AssertionError(f"{predicate} is no condition of a mutation")


def exact_ids(type_def: TypeDef, predicate: Predicate, resolve_value: ValueResolver) -> list[str] | None:
    """The only ids that can match, if the condition names them by `id` or by the whole key; None if it does not."""
    match predicate:
        case AllOf(parts):
            by_part = (exact_ids(type_def, part, resolve_value) for part in parts)
            return next((ids for ids in by_part if ids is not None), _id_by_whole_key(type_def, parts, resolve_value))
        case AnyOf(parts):
            alternatives = [exact_ids(type_def, part, resolve_value) for part in parts]
            if any(ids is None for ids in alternatives):
                return None
            return [row_id for ids in alternatives for row_id in ids or ()]
        case CheckedCompare(Prop() as column, "=" | "in") if column.column == "id" or type_def.key == (column.column,):
            operand = _operand(predicate, column, resolve_value)
            if operand is None:
                return None
            prop = Property(column.column, column.name, column.type)
            return [canonical_text(prop, value) for value in (operand if predicate.op == "in" else [operand])]
    return None


def _id_by_whole_key(type_def: TypeDef, parts: tuple[Predicate, ...], resolve_value: ValueResolver) -> list[str] | None:
    """The id, if there is an equality on every member of a key of several members."""
    if len(type_def.key) < 2:
        return None
    equal_values: dict[str, Any] = {}
    for part in parts:
        match part:
            case CheckedCompare(Prop() as column, "="):
                value = _operand(part, column, resolve_value)
                if value is not None:
                    equal_values[column.column] = value
    return [derive_id(type_def, equal_values)] if set(type_def.key) <= set(equal_values) else None


def _operand(compare: CheckedCompare, column: Prop, resolve_value: ValueResolver) -> Any:
    """The right side in stored form. A text may compare a column with a value of a wider type, which may not fit."""
    assert isinstance(compare.right, Const | Param | Now | ListOf)
    return convert_operand(column, compare.op, resolve_value(compare.right))


def _comparison(column: Prop, op: str, operand: Any) -> pc.Expression:
    field = pc.field(column.column)
    if operand is None:
        return pc.scalar(False)
    if op == "in":
        return field.isin(pa.array(operand, arrow_type(column.type)))
    if op == "contains":
        return pc.match_substring(field, operand)
    if op == "starts_with":
        return pc.starts_with(field, operand)
    expression: pc.Expression = _COMPARISONS[op](field, pc.scalar(pa.scalar(operand, arrow_type(column.type))))
    return expression
