"""Translates conditions to filters that storage evaluates. A filter may pass more rows than its condition, never fewer.

The statement checks every condition again. Floats are never pushed, because Lance, Arrow and DuckDB disagree on NaN
and -0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.language.bind import ValueResolver
from omnigraph.query.language.checked import AnyOf, CheckedCompare, CheckedNullTest, Const, Now, Param, Prop, Value
from omnigraph.query.plan.nodes import PlanCondition
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import PropType, Scalar, TypeDef
from omnigraph.schema.values import FLOATS, INTEGER_BOUNDS, canonical_text, derive_id

_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def to_filter(conditions: Iterable[PlanCondition], resolve_value: ValueResolver) -> pc.Expression | None:
    """Returns the conjunction of all conditions that can be pushed; None if there are none."""
    filters = [_filter_of(condition, resolve_value) for condition in conditions]
    pushed = [filter_ for filter_ in filters if filter_ is not None]
    return reduce(and_, pushed) if pushed else None


def is_exact(condition: PlanCondition, resolve_value: ValueResolver) -> bool:
    """Whether the filter passes exactly the rows for which the condition is true."""
    if isinstance(condition, CheckedNullTest):
        return isinstance(condition.operand, Prop)
    comparison = column_and_value(condition) if isinstance(condition, CheckedCompare) else None
    if comparison is None or comparison[1] not in _MIRRORED:
        return False
    return _filter_of(condition, resolve_value) is not None


def _filter_of(condition: PlanCondition, resolve_value: ValueResolver) -> pc.Expression | None:
    match condition:
        case CheckedNullTest(Prop() as prop, negated):
            field = pc.field(prop.column)
            return field.is_valid() if negated else field.is_null()
        case AnyOf(parts):
            filters = [_filter_of(part, resolve_value) for part in parts]
            pushed = [filter_ for filter_ in filters if filter_ is not None]
            return reduce(or_, pushed) if len(pushed) == len(parts) else None
        case CheckedCompare():
            return _comparison_filter(condition, resolve_value)
    return None


def _comparison_filter(compare: CheckedCompare, resolve_value: ValueResolver) -> pc.Expression | None:
    comparison = column_and_value(compare)
    if comparison is None:
        return None
    prop, op, operand = comparison
    prop_type = prop.type
    if prop_type.is_list or prop_type.vector_size is not None:
        return None
    if prop_type.scalar in FLOATS or prop_type.scalar is Scalar.BLOB:
        return None
    field, value = pc.field(prop.column), resolve_value(operand)
    if value is None:
        return None
    if op == "in":
        items = [item for item in value if fits_type(prop_type, item)]
        return field.isin(pa.array(items, arrow_type(prop_type)))
    if op not in _MIRRORED or not fits_type(prop_type, value):
        return None
    literal = pc.scalar(pa.scalar(value, arrow_type(prop_type)))
    expressions: dict[str, Callable[[], pc.Expression]] = {
        "=": lambda: field == literal,
        "!=": lambda: field != literal,
        "<": lambda: field < literal,
        "<=": lambda: field <= literal,
        ">": lambda: field > literal,
        ">=": lambda: field >= literal,
    }
    return expressions[op]()


def column_and_value(compare: CheckedCompare) -> tuple[Prop, str, Value] | None:
    """Returns column, operator and value with the column on the left; None if the comparison has another form."""
    values = (Const, Param, Now)
    if isinstance(compare.left, Prop) and isinstance(compare.right, values):
        return compare.left, compare.op, compare.right
    if isinstance(compare.right, Prop) and isinstance(compare.left, values) and compare.op in _MIRRORED:
        return compare.right, _MIRRORED[compare.op], compare.left
    return None


def fits_type(prop_type: PropType, value: Any) -> bool:
    """Whether a column of this type could hold the value; DuckDB compares integers that are out of range."""
    if prop_type.scalar in INTEGER_BOUNDS:
        low, high = INTEGER_BOUNDS[prop_type.scalar]
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    return True


# ---- the only ids that can match -------------------------------------------------------------------------------------


def exact_ids(type_def: TypeDef, conditions: Iterable[PlanCondition], resolve_value: ValueResolver) -> list[str] | None:
    """Returns the only ids that can match, if the conditions fix `id` or the whole key; otherwise None."""
    key_values: dict[str, Any] = {}
    for condition in conditions:
        comparison = column_and_value(condition) if isinstance(condition, CheckedCompare) else None
        if comparison is None or comparison[1] not in ("=", "in"):
            continue
        prop, op, operand = comparison
        value = resolve_value(operand)
        if prop.column == "id" or type_def.key == (prop.column,):
            items = [] if value is None else value if op == "in" else [value]
            ids = [_id_text(type_def, prop.column, item) for item in items]
            if None not in ids:
                return [text for text in ids if text is not None]
        if op == "=" and prop.column in type_def.key and _id_text(type_def, prop.column, value) is not None:
            key_values[prop.column] = value
    if len(type_def.key) > 1 and set(type_def.key) <= set(key_values):
        return [derive_id(type_def, key_values)]
    return None


def _id_text(type_def: TypeDef, column: str, value: Any) -> str | None:
    """Returns the part of an id that comes from this value; None where equal values may have different texts."""
    if column == "id":
        return value if isinstance(value, str) else None
    prop = type_def.by_id[column]
    if value is None or prop.type.scalar in FLOATS or not fits_type(prop.type, value):
        return None
    return canonical_text(prop, value)
