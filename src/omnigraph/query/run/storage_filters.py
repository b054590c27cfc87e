"""Conditions as filters that storage can use. A filter may let more rows through than the condition, never fewer:
the statement checks every condition again.

Floats are left out, because Lance, Arrow and DuckDB disagree on NaN and -0.
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
from omnigraph.query.plan.nodes import Condition
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import PropType, Scalar, TypeDef
from omnigraph.schema.values import FLOATS, INTEGER_BOUNDS, canonical_text, derive_id

_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def to_filter(conditions: Iterable[Condition], given: ValueResolver) -> pc.Expression | None:
    """All conditions that can be pushed, together; None if there are none."""
    found = [one for one in (_filter(condition, given) for condition in conditions) if one is not None]
    return reduce(and_, found) if found else None


def is_exact(condition: Condition, given: ValueResolver) -> bool:
    """Whether the filter lets through exactly the rows for which the condition is true."""
    if isinstance(condition, CheckedNullTest):
        return isinstance(condition.operand, Prop)
    named = column_and_value(condition) if isinstance(condition, CheckedCompare) else None
    return named is not None and named[1] in _MIRRORED and _filter(condition, given) is not None


def _filter(condition: Condition, given: ValueResolver) -> pc.Expression | None:
    match condition:
        case CheckedNullTest(Prop() as prop, negated):
            field = pc.field(prop.column)
            return field.is_valid() if negated else field.is_null()
        case AnyOf(parts):
            found = [_filter(one, given) for one in parts]
            whole = [one for one in found if one is not None]
            return reduce(or_, whole) if len(whole) == len(parts) else None
        case CheckedCompare():
            return _comparison(condition, given)
    return None


def _comparison(one: CheckedCompare, given: ValueResolver) -> pc.Expression | None:
    named = column_and_value(one)
    if named is None:
        return None
    prop, op, value = named
    kind = prop.type
    if kind.is_list or kind.vector_size is not None or kind.scalar in FLOATS or kind.scalar is Scalar.BLOB:
        return None
    field, meant = pc.field(prop.column), given(value)
    if meant is None:
        return None
    if op == "in":
        fitting = [item for item in meant if fits_type(kind, item)]
        return field.isin(pa.array(fitting, arrow_type(kind)))
    if op not in _MIRRORED or not fits_type(kind, meant):
        return None
    literal = pc.scalar(pa.scalar(meant, arrow_type(kind)))
    compared: dict[str, Callable[[], pc.Expression]] = {
        "=": lambda: field == literal,
        "!=": lambda: field != literal,
        "<": lambda: field < literal,
        "<=": lambda: field <= literal,
        ">": lambda: field > literal,
        ">=": lambda: field >= literal,
    }
    return compared[op]()


def column_and_value(one: CheckedCompare) -> tuple[Prop, str, Value] | None:
    """A column on the left and a value on the right."""
    values = (Const, Param, Now)
    if isinstance(one.left, Prop) and isinstance(one.right, values):
        return one.left, one.op, one.right
    if isinstance(one.right, Prop) and isinstance(one.left, values) and one.op in _MIRRORED:
        return one.right, _MIRRORED[one.op], one.left
    return None


def fits_type(kind: PropType, value: Any) -> bool:
    """Whether the column could hold the value; a number out of its range is compared by the engine."""
    if kind.scalar in INTEGER_BOUNDS:
        low, high = INTEGER_BOUNDS[kind.scalar]
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    return True


# ---- the only ids that can match -------------------------------------------------------------------------------------


def exact_ids(one: TypeDef, conditions: Iterable[Condition], given: ValueResolver) -> list[str] | None:
    """The only ids that can match, if the conditions name them by `id` or by the whole key; None if they do not."""
    named: dict[str, Any] = {}
    for condition in conditions:
        found = column_and_value(condition) if isinstance(condition, CheckedCompare) else None
        if found is None or found[1] not in ("=", "in"):
            continue
        prop, op, value = found
        meant = given(value)
        if prop.column == "id" or one.key == (prop.column,):
            items = [] if meant is None else meant if op == "in" else [meant]
            ids = [_id_text(one, prop.column, item) for item in items]
            if None not in ids:
                return [text for text in ids if text is not None]
        if op == "=" and prop.column in one.key and _id_text(one, prop.column, meant) is not None:
            named[prop.column] = meant
    if len(one.key) > 1 and set(one.key) <= set(named):
        return [derive_id(one, named)]
    return None


def _id_text(one: TypeDef, column: str, value: Any) -> str | None:
    """The part of an id that this value makes, or None where equal values may be written differently."""
    if column == "id":
        return value if isinstance(value, str) else None
    prop = one.by_id[column]
    if value is None or prop.type.scalar in FLOATS or not fits_type(prop.type, value):
        return None
    return canonical_text(prop, value)
